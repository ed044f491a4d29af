"""Runs what a page tells a reader to type: its blocks that are marked ``walk``, and the cells of a notebook, in their order.

Shell is run by bash, Python all in one process that lives as long as the walk, as one sits in one session. Whoever walks is in a directory
of their own with the broker's data in ``./data``, and with the programs of this checkout first on their path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.needs import ROOT

_BLOCK = re.compile(r"^```(?P<language>bash|python) walk[^\n]*\n(?P<code>.*?)^```$", re.M | re.S)
_CELLS_LEFT_OUT = ("skip-execution",)

# Runs one block after the other in one namespace; each is a line of JSON, and so is each answer.
PYTHON = """
import json, sys, traceback
answers, sys.stdout = sys.stdout, sys.stderr
space = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "<walk>", "exec"), space)
        answer = None
    except BaseException as error:
        traceback.print_exc()
        answer = f"{type(error).__name__}: {error}"
    sys.stderr.flush()
    answers.write(json.dumps({"failed": answer}) + "\\n")
    answers.flush()
"""


class WalkFailed(Exception):
    """A block did not do what its reader expects of it: end well."""


@dataclass(frozen=True, slots=True)
class Block:
    language: Literal["bash", "python"]
    code: str
    where: str


def blocks_of_page(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block("bash" if match["language"] == "bash" else "python", match["code"], f"{path.name}:{line}"))
    return found


def blocks_of_notebook(path: Path) -> list[Block]:
    """Code cells; one whose lines all begin with ``!``, or whose first is ``%%bash``, is shell."""
    found = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], start=1):
        tags = cell.get("metadata", {}).get("tags", [])
        if cell["cell_type"] != "code" or any(tag in tags for tag in _CELLS_LEFT_OUT):
            continue
        code = "".join(cell["source"])
        lines = [line for line in code.splitlines() if line.strip()]
        where = f"{path.name}, cell {number}"
        if lines and lines[0].startswith("%%bash"):
            found.append(Block("bash", "\n".join(lines[1:]), where))
        elif lines and all(line.startswith("!") for line in lines):
            found.append(Block("bash", "\n".join(line[1:] for line in lines), where))
        elif lines:
            found.append(Block("python", "\n".join(line for line in code.splitlines() if not line.startswith("%")), where))
    return found


class Walk:
    """One reader, at one terminal."""

    def __init__(self, directory: Path, *, block_s: float, environment: dict[str, str] | None = None) -> None:
        self._directory = directory
        self._block_s = block_s
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        # A notebook that is run without a screen draws into files.
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", **(environment or {})}
        self._errors = directory / "walk.err"
        self._python: subprocess.Popen[str] | None = None

    def step(self, block: Block) -> str:
        """What it printed. Raises WalkFailed."""
        return self._bash(block) if block.language == "bash" else self._in_python(block)

    def close(self) -> None:
        if self._python is not None:
            assert self._python.stdin is not None and self._python.stdout is not None
            with suppress(OSError):
                # It may have ended already, with a block on its way to it.
                self._python.stdin.close()
            try:
                self._python.wait(60)
            except subprocess.TimeoutExpired:
                self._python.kill()
                self._python.wait()
            self._python.stdout.close()
            self._python = None

    def _bash(self, block: Block) -> str:
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.code],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self._block_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise WalkFailed(f"{block.where} had not ended after {self._block_s:.0f} s") from None
        if done.returncode:
            words = " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:])[-600:]
            raise WalkFailed(f"{block.where} ended with code {done.returncode}: {words}")
        return done.stdout

    def _in_python(self, block: Block) -> str:
        if self._python is None:
            with self._errors.open("wb") as errors:
                self._python = subprocess.Popen(
                    [sys.executable, "-c", PYTHON],
                    cwd=self._directory,
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        before = self._errors.stat().st_size
        assert self._python.stdin is not None and self._python.stdout is not None
        self._python.stdin.write(json.dumps(block.code) + "\n")
        self._python.stdin.flush()
        late = threading.Timer(self._block_s, self._python.kill)
        late.start()
        # The JVM prints to the same standard output.
        line = next((line for line in self._python.stdout if line.startswith('{"failed"')), "")
        late.cancel()
        with self._errors.open("rb") as errors:
            errors.seek(before)
            printed = errors.read().decode(errors="replace")
        if not line:
            words = " | ".join(printed.strip().splitlines()[-3:])[-600:]
            raise WalkFailed(f"{block.where} ended Python, or had not ended after {self._block_s:.0f} s: {words}")
        if failed := json.loads(line)["failed"]:
            raise WalkFailed(f"{block.where}: {' '.join(failed.split())[:600]}")
        return printed
