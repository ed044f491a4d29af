"""`python -m benchmarks.conformance`: other people's test suites against Holdfast, with a list of what may fail and why.

The suites are no part of this repository; HOLDFAST_CONFORMANCE names the directory with their runners. Each suite gets a broker of its
own, with the settings that its tests ask for, and its runner writes a JSON report; its own verdict is not used. Every failure that the
exceptions file does not name fails the command, and so does an exception whose tests ran and passed, because a list that is longer than
the truth hides the next mistake. What was skipped is printed with its reason.
"""

from __future__ import annotations

import fnmatch
import json
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.brokers import ended_from_outside, free_port
from benchmarks.workers import RunFailed

ROOT: Final = Path(__file__).resolve().parent.parent
PEER: Final = ROOT / "benchmarks" / "peers" / "holdfast.sh"
EXCEPTIONS: Final = ROOT / "tests" / "conformance" / "exceptions-01.toml"
UNSET: Final = (
    "HOLDFAST_CONFORMANCE is not set: it names the directory of the conformance suites (run_paho311, run_paho5, run_clients, run_durable)"
)
SUITES: Final = ("paho311", "paho5", "clients", "durable")
SUITE_S: Final = 1800
RULES: Final = """\
version = 1

[[rule]]
deny = ["subscribe"]
topics = ["test/nosubscribe"]

[[rule]]
allow = ["all"]
topics = ["#", "$SYS/#", "$TopicA/#"]
"""
"""What paho's suites want refused, and everything else that they do."""
PAHO: Final = ("paho311", "paho5")
SERVER_KEEP_ALIVE: Final = {"mqtt.keepalive_max": "60s"}
"""What paho's test of it expects to be told."""


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of one test of one suite."""

    suite: str
    test: str
    status: str
    detail: str


@dataclass(frozen=True, slots=True)
class Exempt:
    """Tests that may fail for now: a pattern of names, and why."""

    suite: str
    test: str
    reason: str

    def covers(self, row: Row) -> bool:
        return row.suite == self.suite and fnmatch.fnmatchcase(row.test, self.test)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run of the suites means."""

    passed: tuple[Row, ...]
    skipped: tuple[Row, ...]
    expected: tuple[tuple[Row, Exempt], ...]
    failed: tuple[Row, ...]
    outdated: tuple[Exempt, ...]
    """Exceptions whose tests ran and did not fail."""

    @property
    def good(self) -> bool:
        return bool(self.passed) and not self.failed and not self.outdated


def read_exceptions(path: Path) -> list[Exempt]:
    """The exceptions file: `[[exception]]` tables with suite, test (a pattern) and reason, each of them given."""
    found = []
    for number, table in enumerate(tomllib.loads(path.read_text()).get("exception", []), 1):
        wrong = {"suite", "test", "reason"} ^ table.keys()
        if wrong or not all(isinstance(value, str) and value.strip() for value in table.values()):
            raise RunFailed(f"{path.name}: exception {number} has {sorted(table)}, wanted suite, test and reason, none of them empty")
        if table["suite"] not in SUITES:
            raise RunFailed(f"{path.name}: exception {number} names suite {table['suite']!r}, wanted one of {', '.join(SUITES)}")
        found.append(Exempt(table["suite"], table["test"], table["reason"]))
    return found


def judge(rows: Sequence[Row], exempt: Sequence[Exempt]) -> Verdict:
    """Sorts outcomes by what they mean."""
    failed, expected = [], []
    for row in rows:
        if row.status == "FAIL":
            why = next((each for each in exempt if each.covers(row)), None)
            if why is None:
                failed.append(row)
            else:
                expected.append((row, why))
    outdated = []
    for each in exempt:
        ran = [row for row in rows if each.covers(row) and row.status in ("PASS", "FAIL")]
        if ran and not any(row.status == "FAIL" for row in ran):
            outdated.append(each)
    return Verdict(
        passed=tuple(row for row in rows if row.status == "PASS"),
        skipped=tuple(row for row in rows if row.status not in ("PASS", "FAIL")),
        expected=tuple(expected),
        failed=tuple(failed),
        outdated=tuple(outdated),
    )


def report(verdict: Verdict) -> str:
    """The verdict for people."""
    out = [f"expected  {row.suite} {row.test}: {why.reason}" for row, why in verdict.expected]
    out += [f"skipped   {row.suite} {row.test}: {row.detail[:200]}" for row in verdict.skipped]
    out += [f"outdated  {each.suite} {each.test} passes now; take the exception away ({each.reason})" for each in verdict.outdated]
    out += [f"FAILED    {row.suite} {row.test}: {row.detail[:400]}" for row in verdict.failed]
    counts = (
        f"{len(verdict.passed)} passed, {len(verdict.expected)} failed as expected, {len(verdict.failed)} failed, "
        f"{len(verdict.skipped)} skipped, {len(verdict.outdated)} exceptions outdated"
    )
    return "\n".join([*out, ("PASS " if verdict.good else "FAIL ") + counts])


def read_report(suite: str, path: Path) -> list[Row]:
    """The rows a runner wrote; one that wrote none has not run, which is a failure."""
    try:
        tests = json.loads(path.read_text())["tests"]
    except (OSError, ValueError, KeyError) as error:
        raise RunFailed(f"run_{suite} wrote no report: {error}") from error
    if not tests:
        raise RunFailed(f"run_{suite} ran no test")
    return [Row(suite, str(row["test"]), str(row["status"]), str(row.get("detail", ""))) for row in tests]


@dataclass(frozen=True, slots=True)
class Place:
    """A broker under test: where it is, and the commands that restart it gently and by SIGKILL."""

    host: str
    port: int
    restart: str
    crash: str


def holdfast_place(data_dir: Path, port: int, settings: Mapping[str, str]) -> Place:
    """Holdfast, restarted by the peer script as every comparison does it."""
    peer, where = f"HOLDFAST_SET={shlex.quote(as_words(settings))} {shlex.quote(str(PEER))}", f"{shlex.quote(str(data_dir))} {port}"
    return Place("127.0.0.1", port, f"{peer} stop {where} && {peer} start {where}", f"{peer} restart9 {where}")


def as_words(settings: Mapping[str, str]) -> str:
    """In the form of HOLDFAST_SET."""
    return " ".join(f"{key}={value}" for key, value in settings.items())


def settings_for(suite: str, work: Path) -> dict[str, str]:
    """What the tests of this suite ask of a broker beyond its defaults; files of it are written into `work`."""
    if suite not in PAHO:
        return {}
    rules = work / "rules.toml"
    rules.write_text(RULES)
    return {"access.rules": str(rules), **(SERVER_KEEP_ALIVE if suite == "paho5" else {})}


def run_suite(directory: Path, suite: str, place: Place, extra: Sequence[str], work: Path) -> list[Row]:
    """One suite; its lines go through to our output as they come."""
    runner = directory / f"run_{suite}"
    if not runner.is_file():
        raise RunFailed(f"HOLDFAST_CONFORMANCE names {directory}, where there is no run_{suite}")
    written = work / f"{suite}.json"
    words = [sys.executable, str(runner), place.host, str(place.port), "--json", str(written), "--restart-cmd", place.restart]
    if suite == "durable":
        words += ["--part", "open", "--crash-cmd", place.crash]
    try:
        subprocess.run([*words, *extra], stdin=subprocess.DEVNULL, timeout=SUITE_S)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"run_{suite} did not end within {SUITE_S} s") from None
    return read_report(suite, written)


def conformance(
    suites: Annotated[Path | None, typer.Option(envvar="HOLDFAST_CONFORMANCE", help="Directory of the runners.")] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(SUITES)}; may be given often.")] = None,
    exceptions: Annotated[Path, typer.Option(help="What may fail, and why.")] = EXCEPTIONS,
    tests: Annotated[list[str] | None, typer.Option(help="Pattern of tests to run; may be given often.")] = None,
    port: Annotated[int, typer.Option(help="Of a broker that runs already; 0 starts Holdfast.")] = 0,
    restart_cmd: Annotated[str, typer.Option(help="Restarts that broker gently.")] = "",
    crash_cmd: Annotated[str, typer.Option(help="Kills and starts that broker.")] = "",
) -> None:
    """Run the conformance suites and compare with the list of exceptions."""
    if suites is None:
        print(UNSET, file=sys.stderr)
        raise typer.Exit(2)
    chosen = [suite for suite in SUITES if not only or suite in only]
    extra = [word for pattern in tests or () for word in ("--only", pattern)]
    try:
        exempt = read_exceptions(exceptions)
        with ended_from_outside(), tempfile.TemporaryDirectory(prefix="conformance-") as work:
            if port:
                place = Place("127.0.0.1", port, restart_cmd, crash_cmd)
                rows = [row for suite in chosen for row in run_suite(suites, suite, place, extra, Path(work))]
            else:
                rows = [row for suite in chosen for row in _on_holdfast(suites, suite, extra, Path(work))]
    except RunFailed as failure:
        print(f"FAIL conformance: {failure}", file=sys.stderr)
        raise typer.Exit(2) from None
    verdict = judge(rows, exempt)
    print(report(verdict))
    raise typer.Exit(0 if verdict.good else 1)


def _on_holdfast(suites: Path, suite: str, extra: Sequence[str], work: Path) -> list[Row]:
    data_dir, port, settings = work / suite, free_port(), settings_for(suite, work)
    place = holdfast_place(data_dir, port, settings)
    try:
        _peer("start", data_dir, port, settings)
        return run_suite(suites, suite, place, [*extra, *(["--acl"] if suite in PAHO else [])], work)
    finally:
        _peer("stop", data_dir, port, settings)


def _peer(word: str, data_dir: Path, port: int, settings: Mapping[str, str]) -> None:
    words = ["env", f"HOLDFAST_SET={as_words(settings)}", str(PEER), word, str(data_dir), str(port)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise RunFailed(f"`{PEER.name} {word}` ended with {done.returncode}")


if __name__ == "__main__":
    typer.run(conformance)
