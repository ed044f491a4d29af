"""What the house tests read: the files of the checkout that are or will be committed, and their syntax trees."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def files() -> tuple[Path, ...]:
    """Files that git keeps, and new ones it does not ignore, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    names = {Path(name) for name in listing.decode().split("\0") if name}
    # A file that was deleted and not yet committed is listed and not there.
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def texts() -> Iterator[tuple[Path, str]]:
    """Every file that is text."""
    for name in files():
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


@cache
def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> tuple[str, ...]:
    """The top-level packages that the wheel carries."""
    return tuple(project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


@cache
def modules() -> tuple[Path, ...]:
    """Python files, tests included."""
    return tuple(name for name in files() if name.suffix == ".py")


def shipped() -> tuple[Path, ...]:
    """Python files of the wheel."""
    return tuple(name for name in modules() if name.parts[0] in packages())


@cache
def tree(name: Path) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=str(name))


def imports(name: Path) -> Iterator[tuple[int, str, str]]:
    """(line, module, imported name or "") of every import statement, wherever it stands."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, node.module or "", alias.name
