"""Runs what pages and notebooks show, in the order in which they show it, as somebody would who types it.

`python -m tests.pipeline.walk STEPS.json` runs steps in one Python process, shell commands beside it; `walked` does that in a directory.
A step that fails ends it, with its number, its first line and what was said.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "pipeline.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "first-hour.ipynb"
_BLOCK = re.compile(r"^```(bash|python) walk\n(.*?)^```$", re.S | re.M)


@dataclass(frozen=True, slots=True)
class Step:
    """language: python or bash."""

    language: str
    code: str


def steps_of_page(page: Path = PAGE) -> list[Step]:
    """Its blocks that are marked `walk`."""
    return [Step(found[1], found[2]) for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def steps_of_notebook(notebook: Path = NOTEBOOK, parameters: Mapping[str, Any] | None = None) -> list[Step]:
    """Its cells of code, with other values in the cell that is tagged `parameters`."""
    steps = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        code = "".join(cell["source"])
        if parameters is not None and "parameters" in cell["metadata"].get("tags", ()):
            names = {node.targets[0].id for node in ast.parse(code).body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]  # names
            assert names == parameters.keys(), f"the notebook has the parameters {sorted(names)}"
            code = "".join(f"{name} = {value!r}\n" for name, value in parameters.items())
        steps.append(Step("python", code))
    return steps


def walked(steps: list[Step], directory: Path, seconds: float) -> str:
    """What was said; AssertionError with all of it when a step failed."""
    plan = directory / "steps.json"
    plan.write_text(json.dumps([[step.language, step.code] for step in steps]), encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tests.pipeline.walk", str(plan)]
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _run(steps: list[list[str]]) -> int:
    space: dict[str, Any] = {"__name__": "__main__"}
    for number, (language, code) in enumerate(steps, 1):
        print(f"--- step {number}: {code.splitlines()[0]}")
        try:
            _bash(code) if language == "bash" else _python(code, space)
        except Exception:
            traceback.print_exc()
            print(f"FAILED step {number}, {language}:\n{code}")
            return 1
    return 0


def _bash(code: str) -> None:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"exit code {done.returncode}"


def _python(code: str, space: dict[str, Any]) -> None:
    """As a notebook does it: the value of a last expression is shown."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<step>", "exec"), space)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<step>", "eval"), space)
        if value is not None:
            print(value._repr_svg_() if hasattr(value, "_repr_svg_") else repr(value))


if __name__ == "__main__":
    sys.exit(_run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
