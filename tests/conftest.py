"""Rules that hold for every test.

- `needs(name)`: skipped when this machine lacks it, with one cure at the end; a failure when HOLDFAST_REQUIRE names it.
- With HOLDFAST_REQUIRE set (CI), every other skip is a failure too: what is not run is not green.
- `ray.init` raises in every test process: outside tests/cluster nothing embeds Ray, brokers are started as processes.
- Fast suites first, real brokers last, so that a red run says so early.
- All tests that need Spark share one session (`spark`): its JVM takes ten seconds of a core to start.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.needs import NEEDS, SYSTEM_CURE, required

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In this order; whatever is not named comes between the two groups.
FIRST = ("house", "config", "mqtt", "access", "shards", "sessions", "gateway")
LAST = ("faultdisk", "interop", "gates", "broker", "cluster", "sites")
STARTS_BROKERS = ("broker", "cluster", "sites")
USES_SPARK = ("holdfast_spark", "pipeline", "lake")
"""Their modules import pyarrow where they begin, so without it they are not looked at; those are counted as one test each."""
# A broker start is allowed 60 s by itself; the tests that use one need room for it.
BROKER_TEST_TIMEOUT_S = 400
# A session takes ten seconds of a core to start, and Spark's first job as much again, whichever test comes first.
SPARK_TEST_TIMEOUT_S = 600
SLOW_SECONDS = 0.25

# Of all JVMs of Spark that tests start, also in processes of their own: compiling well pays off later than a test ends.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# Time says nothing about our code on a machine that others use too. CI draws the same examples every time, so that red is
# always about the change; elsewhere each run draws new ones.
settings.register_profile(
    "house", deadline=None, derandomize="CI" in os.environ, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")

_skipped = pytest.StashKey[dict[str, int]]()
_other_skips = pytest.StashKey[list[str]]()
_unmarked_slow = pytest.StashKey[list[tuple[float, str]]]()
_failed_before = pytest.StashKey[bool]()


def suite_of(item: pytest.Item) -> str:
    """Name of the directory directly below tests/ that holds the test."""
    parts = item.path.relative_to(item.config.rootpath).parts
    return parts[1] if len(parts) > 2 else ""


def _rank(item: pytest.Item) -> int:
    suite = suite_of(item)
    if suite in FIRST:
        return FIRST.index(suite)
    if suite in LAST:
        return 200 + LAST.index(suite)
    return 300 if item.get_closest_marker("broker") else 100


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_skipped] = defaultdict(int)
    config.stash[_other_skips] = []
    config.stash[_unmarked_slow] = []
    config.stash[_failed_before] = False
    unknown = required() - NEEDS.keys()
    if unknown:
        raise pytest.UsageError(f"HOLDFAST_REQUIRE names {sorted(unknown)}; tests/needs.py knows {sorted(NEEDS)}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    if collection_path.parent.name not in USES_SPARK or "arrow" in required() or NEEDS["arrow"].missing() is None:
        return None
    config.stash[_skipped]["arrow"] += 1
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)
    for item in items:
        if suite_of(item) in STARTS_BROKERS:
            item.add_marker(pytest.mark.broker)
        in_spark = any("spark" in mark.args for mark in item.iter_markers("needs"))
        if (in_spark or item.get_closest_marker("broker")) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TEST_TIMEOUT_S if in_spark else BROKER_TEST_TIMEOUT_S))


def _sweep() -> None:
    """What a failed test has left open is held by its traceback, and would fail whichever test runs when it is collected."""
    for name in ("last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.stash[_failed_before]:
        item.config.stash[_failed_before] = False
        _sweep()
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            assert name in NEEDS, f"{item.nodeid}: needs({name!r}) is not in tests/needs.py, which knows {sorted(NEEDS)}"
            missing = NEEDS[name].missing()
            if missing is None:
                continue
            if name in required():
                pytest.fail(f"HOLDFAST_REQUIRE names {name}, but there is {missing}; cure: {NEEDS[name].cure}", pytrace=False)
            item.config.stash[_skipped][name] += 1
            pytest.skip(f"needs {name}: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]  # the type is pluggy's own generator
    report = yield
    item.config.stash[_failed_before] |= report.failed
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if "needs " not in reason:
            item.config.stash[_other_skips].append(f"{item.nodeid}: {reason}")
    marked = item.get_closest_marker("slow") or item.get_closest_marker("broker")
    if report.when == "call" and report.duration > SLOW_SECONDS and not marked:
        item.config.stash[_unmarked_slow].append((report.duration, item.nodeid))
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    skips = session.config.stash[_other_skips]
    if required() and skips and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    write = terminalreporter.write_line
    slow = config.stash[_unmarked_slow]
    if slow:
        slow.sort(reverse=True)
        write(f"{len(slow)} tests took over {SLOW_SECONDS} s without @pytest.mark.slow (a busy machine may be the reason):")
        for seconds, name in slow[:20]:
            write(f"  {seconds:6.2f} s  {name}")
    other_skips = config.stash[_other_skips]
    if required() and other_skips:
        write("HOLDFAST_REQUIRE is set, so these skips are failures:", red=True)
        for line in other_skips:
            write(f"  {line}", red=True)
    if skipped := config.stash[_skipped]:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(skipped.items()))
        write(f"{sum(skipped.values())} tests skipped for what this machine lacks ({counts}).")
        cures = sorted({NEEDS[name].cure for name in skipped}, key=lambda cure: (cure != SYSTEM_CURE, cure))
        for cure in cures:
            write(f"  cure: {cure}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as users get it; the test says `needs("spark")`. A read that names no brokers is told that nobody answers."""
    from pipeline.session import session

    directory = tmp_path_factory.mktemp("spark")
    found = session(
        brokers="127.0.0.1:1",
        token="none",
        master="local[2,4]",
        app="tests",
        progress=False,
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "600m",
            # As with compiling well, collecting in parallel pays off later than a test ends.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
            "spark.local.dir": str(directory),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.checkpointLocation": str(directory / "checkpoints"),
        },
    )
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _no_ray_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray.init` raises: a test that embeds Ray is slow, leaks processes, and belongs into tests/cluster."""
    if suite_of(request.node) in STARTS_BROKERS:
        return
    import ray

    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("ray.init outside tests/broker and tests/cluster")

    monkeypatch.setattr(ray, "init", refuse)


def pytest_report_header() -> str:
    there = [name for name, need in NEEDS.items() if need.missing() is None]
    return f"python {sys.version.split()[0]}; this machine has: {' '.join(there)}; required: {' '.join(sorted(required())) or 'nothing'}"
