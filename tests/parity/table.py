"""docs/parity.md, read: its rows with the tests that they name."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "parity.md"
KINDS = {
    "Concept": "concepts", "Parameter": "parameters", "Command": "commands", "Endpoint": "endpoints", "Metric": "metrics",
}  # fmt: skip
"""Head of the first column -> what its rows are."""
_TICKED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    names: tuple[str, ...]
    here: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(self.names)}"


def rows(text: str | None = None) -> list[Row]:
    """Of the page, or of a text like it."""
    found: list[Row] = []
    kind = ""
    for line in (PAGE.read_text(encoding="utf-8") if text is None else text).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            kind = ""
        elif cells[0] in KINDS:
            kind = KINDS[cells[0]]
        elif kind and not cells[0].startswith("---"):
            here, tests = (*cells[1:3], "", "")[:2]
            names = _TICKED.findall(cells[0]) or [cells[0]]
            found.append(Row(kind, tuple(names), here, tuple(_TICKED.findall(tests))))
    return found


@cache
def _tests_in(path: Path) -> frozenset[str]:
    nodes = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    return frozenset([node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)])


def is_there(test: str) -> bool:
    """Whether `tests/area/test_x.py::test_y` names a test."""
    file, _, name = test.partition("::")
    parts = Path(file)
    is_file = parts.parts[:1] == ("tests",) and parts.name.startswith("test_") and parts.suffix == ".py"
    return is_file and name.startswith("test_") and name in _tests_in(ROOT / parts)
