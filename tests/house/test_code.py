"""Rules for code that no linter knows."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import USES_SPARK
from tests.house.tree import ROOT, imports, modules, packages, project, shipped, tree

LINES_MAX = 500

# The data plane never calls Ray: it goes on while Ray's own control service is down. Who may name it, and why.
MAY_NAME_RAY = {
    "actors/deploy.py": "makes actors of plain classes and says where and how they run",
    "actors/ports.py": "wraps every call of an actor, and maps Ray's errors to ours",
    "actors/embedded.py": "starts and ends a Ray of our own",
    "actors/driver.py": "the process that is connected to Ray",
    "actors/joining.py": "joins a Ray that is there, and says why it cannot",
    "actors/metrics/to_ray.py": "hands a few figures to Ray's own metrics, in the admin process",
    "tests/conftest.py": "makes ray.init raise",
}

_MAY_BE_RAY = re.compile(r"\b(ray|remote)\b")
"""Without one of the words nothing of it can be there, and most files have none."""

# Configuration has one entrance. Who else may read or pass on the environment, and why.
MAY_READ_ENVIRONMENT = {
    "config/load.py": "the entrance",
    "cli/up.py": "hands its environment on to the launcher",
    "actors/environment.py": "Ray is configured by variables of its own, and our processes inherit the rest",
    "pipeline/session.py": "Spark's launcher takes Java and Python from the environment and from nowhere else",
    "pipeline/cache.py": "where its user keeps what can be made again",
}

# Floors of pure code: no await, clock, randomness, thread, process or socket. The shells in them, and what they do.
PURE_FLOORS = ("config", "mqtt", "access", "shards", "sessions", "gateway")
IMPURE = {
    *("asyncio", "concurrent", "multiprocessing", "os", "psutil", "random", "ray", "rocksdict", "secrets", "select"),
    *("selectors", "signal", "socket", "subprocess", "threading", "time", "uuid", "uvloop"),
}
SHELLS = {
    "config/load.py": "reads the environment",
    "shards/engine_rocks.py": "the engine port over RocksDB",
    "shards/engine_scans.py": "how it scans",
    "shards/engine_kept.py": "what a scan goes on with",
    "shards/store_files.py": "the files of a RocksDB store",
    "shards/read_only.py": "a RocksDB store, opened for reading only",
    "shards/rocks_options.py": "how RocksDB is set up",
    "shards/engine_secondary.py": "the same, for looking only",
    "shards/view.py": "the store behind it, for the threads of a reader",
    "shards/log_files.py": "the logs of RocksDB, looked at from outside",
    "shards/log_garbage.py": "what keeps RocksDB from opening them",
    "shards/salvage.py": "opens a store with broken files",
    "shards/suspects.py": "which files were met broken",
    "shards/replication/log.py": "the log of a replica",
    "shards/replication/log_opening.py": "opens it",
    "shards/replication/log_segment.py": "its files",
    "shards/replication/promise.py": "the file with what a replica has promised",
}

# What reads the store with Spark; the commands and benchmarks import it where they need it.
WITH_SPARK = ("pipeline", "holdfast_spark", "cli", "benchmarks")
BESIDE_SPARK = Path("bridge/targets/parquet.py")
"""Says so where that extra is not installed."""


def _offending(found: Iterator[str]) -> list[str]:
    return sorted(set(found))


def test_no_module_is_longer_than_people_read_in_one_go() -> None:
    """No Python file has more than 500 lines; a longer one is split by who owns which state."""
    too_long = (f"{name}: {lines} lines" for name in modules() if (lines := (ROOT / name).read_text().count("\n")) > LINES_MAX)
    assert _offending(too_long) == []


def _naming_ray(name: Path) -> Iterator[str]:
    if not _MAY_BE_RAY.search((ROOT / name).read_text(encoding="utf-8")):
        return
    for line, module, _ in imports(name):
        if module.split(".")[0] == "ray":
            yield f"{name}:{line}: imports {module}"
    for node in ast.walk(tree(name)):
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr == "remote":
            yield f"{name}:{node.lineno}: .remote"
        if isinstance(node.value, ast.Name) and node.value.id == "ray":
            yield f"{name}:{node.lineno}: ray.{node.attr}"


def _reading_environment(name: Path) -> Iterator[str]:
    words = ("environ", "getenv", "environb")
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Attribute) and node.attr in words and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield f"{name}:{node.lineno}"
    for line, module, what in imports(name):
        if module == "os" and what in words:
            yield f"{name}:{line}"


def _acting(name: Path) -> Iterator[str]:
    for line, module, what in imports(name):
        # The type of a source of randomness that somebody hands in is fine.
        if module.split(".")[0] in IMPURE and (module, what) != ("random", "Random"):
            yield f"{name}:{line}: imports {module}"
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield f"{name}:{node.lineno}: async"


def test_ray_is_named_only_where_actors_are_made_and_called() -> None:
    """`import ray`, `ray.` and `.remote(` occur in the files listed here and nowhere else."""
    others = (name for name in modules() if str(name) not in MAY_NAME_RAY and name.parts[:2] != ("tests", "cluster"))
    assert _offending(found for name in others for found in _naming_ray(name)) == []


def test_only_the_loader_reads_the_environment() -> None:
    """A setting that is read elsewhere is in no page, no schema and no error sentence."""
    others = (name for name in shipped() if str(name) not in MAY_READ_ENVIRONMENT)
    assert _offending(found for name in others for found in _reading_environment(name)) == []


def test_pure_floors_have_no_clock_thread_socket_or_await() -> None:
    """The simulator runs these files as they are shipped, so nothing in them may act by itself."""
    pure = (name for name in shipped() if name.parts[0] in PURE_FLOORS and str(name) not in SHELLS)
    assert _offending(found for name in pure for found in _acting(name)) == []


def test_every_exception_is_needed() -> None:
    """A permission that nobody uses any more is taken away, and so is one for a file that is gone."""
    unused = [name for name in MAY_NAME_RAY if not any(_naming_ray(Path(name)))]
    unused += [name for name in MAY_READ_ENVIRONMENT if not any(_reading_environment(Path(name)))]
    unused += [name for name in SHELLS if not any(_acting(Path(name)))]
    assert unused == []


def test_every_module_says_what_it_is() -> None:
    """The first thing in a shipped file is its docstring."""
    silent = (str(name) for name in shipped() if tree(name).body and not ast.get_docstring(tree(name)))
    assert _offending(silent) == []


def test_every_test_says_its_property() -> None:
    """A test function begins with a docstring or a comment that states what must hold."""

    def silent() -> Iterator[str]:
        for name in modules():
            if not name.name.startswith("test_"):
                continue
            lines = (ROOT / name).read_text().splitlines()
            for node in ast.walk(tree(name)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                    continue
                between = lines[node.lineno : node.body[0].lineno]
                if not ast.get_docstring(node) and not any(line.strip().startswith("#") for line in between):
                    yield f"{name}:{node.lineno}: {node.name}"

    assert _offending(silent()) == []


def test_what_is_imported_is_declared() -> None:
    """Every foreign package that shipped code imports stands in [project] dependencies; what reads the store with Spark has its extra."""
    renamed = {"prometheus-client": "prometheus_client", "argon2-cffi": "argon2", "pyjwt": "jwt", "paho-mqtt": "paho"}

    def known(wanted: list[str]) -> set[str]:
        names = {re.split(r"[\[<>=!~ ]", each)[0] for each in wanted}
        return {renamed.get(name, name.replace("-", "_")) for name in names}

    # pydantic ships these two as its own parts and pins them itself, and so does pyspark the third.
    always = known(project()["project"]["dependencies"]) | {"pydantic_core", "annotated_types"}
    spark = known(project()["project"]["optional-dependencies"]["spark"]) | {"py4j"}

    def foreign() -> Iterator[str]:
        for name in shipped():
            declared = always | (spark if name.parts[0] in WITH_SPARK or name == BESIDE_SPARK else set())
            for line, module, _ in imports(name):
                top = module.split(".")[0]
                if top not in declared and top not in packages() and top not in sys.stdlib_module_names:
                    yield f"{name}:{line}: {top}"

    assert _offending(foreign()) == []


def test_shipped_code_does_not_import_tests() -> None:
    """tests/ is not in the wheel."""
    assert _offending(f"{name}:{line}" for name in shipped() for line, module, _ in imports(name) if module.split(".")[0] == "tests") == []


def test_fast_tests_do_not_sleep() -> None:
    """Time is an event in the cores, so waiting for it is left to tests with real processes."""
    real = {"broker", "browser", "cluster", "faultdisk", "gates", "interop", "benchmarks", "actors", "sites", "bridge", *USES_SPARK}

    def sleeping() -> Iterator[str]:
        for name in modules():
            if name.parts[0] != "tests" or (len(name.parts) > 2 and name.parts[1] in real):
                continue
            for node in ast.walk(tree(name)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep":
                    yield f"{name}:{node.lineno}"

    assert _offending(sleeping()) == []


def test_this_file_reads_the_tree_it_means() -> None:
    """The rules above are not green because they look at nothing."""
    assert Path("config/load.py") in shipped()
    assert Path("tests/house/test_code.py") in modules()
    assert any(module == "os" for _, module, _ in imports(Path("config/load.py")))
