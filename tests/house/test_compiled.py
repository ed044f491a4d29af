"""What `make wheel-compiled` compiles goes together with what it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.house.tree import project, shipped, tree


def module_of(file: Path) -> str:
    return ".".join(file.with_suffix("").parts)


def compiled() -> set[str]:
    """Modules. The hook's patterns are of files and of folders; one that does not begin with a slash is of the last part of a path."""
    hook = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]

    def fits(file: Path, pattern: str) -> bool:
        return file.name == pattern or any(fnmatch(f"/{each}", pattern) for each in (file, *file.parents))

    files = [file for file in shipped() if any(fits(file, pattern) for pattern in hook["include"])]
    return {module_of(file) for file in files if not any(fits(file, pattern) for pattern in hook["exclude"])}


def derived(file: Path, modules: set[str]) -> Iterator[str]:
    """Classes of this file that derive from one of these modules."""
    imports = [node for node in ast.walk(tree(file)) if isinstance(node, ast.ImportFrom) and node.module in modules]
    theirs = {alias.asname or alias.name for node in imports for alias in node.names}
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id in theirs for base in node.bases):
            yield f"{file}:{node.lineno}: {node.name}"


def test_nothing_interpreted_derives_from_a_class_that_is_compiled() -> None:
    """It would fail when its module is loaded, or the first object is made: mypyc's classes have no others below them."""
    modules = compiled()
    assert {"mqtt.decode", "gateway.core", "shards.layouts.skipstream"} < modules
    assert not modules & {"shards", "shards.store", "shards.engine_rocks", "shards.layouts.record_batch.values", "actors.link"}
    interpreted = [file for file in shipped() if module_of(file) not in modules]
    assert [found for file in interpreted for found in derived(file, modules)] == []
    assert list(derived(Path("actors/reader/views.py"), {"shards.view"})), "the search finds nothing at all"
