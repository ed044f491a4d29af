"""How the results of other people's suites are judged, without running them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from access.identity import ANONYMOUS
from access.rights import Extent, Right
from access.rules import compile_access
from access.rules_file import parse_rules
from benchmarks.conformance import (
    EXCEPTIONS,
    Exempt,
    Place,
    Row,
    as_words,
    holdfast_place,
    judge,
    read_exceptions,
    report,
    run_suite,
    settings_for,
)
from benchmarks.workers import RunFailed

WILL = Exempt("clients", "*/willdelay5", "later")


def row(test: str, status: str, suite: str = "clients") -> Row:
    return Row(suite, test, status, "detail")


def test_a_failure_that_nobody_expected_fails() -> None:
    """And is told with its detail."""
    verdict = judge([row("a", "PASS"), row("b", "FAIL")], [WILL])
    assert not verdict.good
    assert "FAILED    clients b: detail" in report(verdict)
    assert report(verdict).endswith("FAIL 1 passed, 0 failed as expected, 1 failed, 0 skipped, 0 exceptions outdated")


def test_an_expected_failure_passes_with_its_reason() -> None:
    """Reasons are part of the result."""
    verdict = judge([row("a", "PASS"), row("paho/v5/willdelay5", "FAIL")], [WILL])
    assert verdict.good
    assert "expected  clients paho/v5/willdelay5: later" in report(verdict)


def test_an_exception_is_for_its_suite_only() -> None:
    """The same name in another suite is another test."""
    assert not judge([row("a", "PASS"), row("x/willdelay5", "FAIL", "durable")], [WILL]).good


def test_an_exception_whose_tests_pass_fails() -> None:
    """The list must not be longer than the truth; one of several failing keeps a pattern needed."""
    assert not judge([row("a", "PASS"), row("x/willdelay5", "PASS")], [WILL]).good
    assert judge([row("x/willdelay5", "PASS"), row("y/willdelay5", "FAIL")], [WILL]).good


def test_an_exception_whose_tests_did_not_run_is_let_be() -> None:
    """Skipped, or left out by a pattern."""
    assert judge([row("a", "PASS"), row("x/willdelay5", "SKIP")], [WILL]).good


def test_nothing_passed_is_no_success() -> None:
    """A suite that skips everything has shown nothing."""
    assert not judge([row("a", "SKIP")], []).good


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ('[[exception]]\nsuite = "clients"\ntest = "x"\n', "wanted suite, test and reason"),
        ('[[exception]]\nsuite = "clients"\ntest = "x"\nreason = " "\n', "none of them empty"),
        ('[[exception]]\nsuite = "client"\ntest = "x"\nreason = "y"\n', "names suite 'client'"),
    ],
)
def test_an_exception_without_a_reason_is_refused(text: str, story: str, tmp_path: Path) -> None:
    """So is one that could never match."""
    (tmp_path / "e.toml").write_text(text)
    with pytest.raises(RunFailed, match=story):
        read_exceptions(tmp_path / "e.toml")


def test_the_list_of_this_repository_can_be_read() -> None:
    """Every exception in it has its reason."""
    assert read_exceptions(EXCEPTIONS)


RUNNER = """
import json, sys
out = sys.argv[sys.argv.index("--json") + 1]
open(out, "w").write(json.dumps({"tests": [{"test": " ".join(sys.argv[1:3]), "status": "PASS", "detail": "", "secs": 1}]}))
sys.exit(1)
"""


def test_a_runner_is_called_with_the_broker_and_its_report_is_read(tmp_path: Path) -> None:
    """What it ends with does not matter, what it wrote does."""
    (tmp_path / "run_clients").write_text(RUNNER)
    found = run_suite(tmp_path, "clients", Place("127.0.0.1", 7, "r", "c"), [], tmp_path)
    assert found == [Row("clients", "127.0.0.1 7", "PASS", "")]


def test_pahos_suites_get_the_broker_that_their_tests_ask_for(tmp_path: Path) -> None:
    """One filter is refused and nothing else, and MQTT 5 clients are told a keep alive; also by the broker that a test restarts."""
    settings = settings_for("paho5", tmp_path)
    assert settings == {"access.rules": str(tmp_path / "rules.toml"), "mqtt.keepalive_max": "60s"}
    assert settings_for("paho311", tmp_path).keys() == {"access.rules"} and settings_for("clients", tmp_path) == {}
    profile = compile_access(1, parse_rules((tmp_path / "rules.toml").read_text()), claims=False, decides=False).profile(
        ANONYMOUS, b"c", "", ""
    )
    assert profile is not None and profile.grant(Right.SUBSCRIBE, b"test/nosubscribe") is Extent.NONE
    assert all(profile.grant(Right.SUBSCRIBE, each) is not Extent.NONE for each in (b"#", b"+/+", b"TopicA/B"))
    assert all(profile.may(Right.PUBLISH | Right.RETAIN, each) for each in (b"TopicA", b"$TopicA/B", b"/TopicA"))
    place = holdfast_place(tmp_path / "data", 7, settings)
    assert all(f"HOLDFAST_SET='{as_words(settings)}'" in command for command in (place.restart, place.crash))


@pytest.mark.parametrize("runner", ["", "import json, sys; open(sys.argv[4], 'w').write(json.dumps({'tests': []}))"])
def test_a_runner_without_a_report_is_no_pass(runner: str, tmp_path: Path) -> None:
    """One that breaks before its first test must not look like one without failures."""
    (tmp_path / "run_clients").write_text(runner)
    with pytest.raises(RunFailed, match="run_clients"):
        run_suite(tmp_path, "clients", Place("127.0.0.1", 7, "r", "c"), [], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "variable"), [("conformance", "HOLDFAST_CONFORMANCE"), ("agree", "HOLDFAST_LOAD")])
def test_what_is_not_set_is_one_sentence(module: str, variable: str) -> None:
    """No traceback and no usage page: the variable, and what it is for."""
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{module}"], env={"PATH": "/usr/bin"}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{variable} is not set: ")
    assert done.stderr.count("\n") == 1


def test_reports_are_json(tmp_path: Path) -> None:
    """A report that was cut off by a crash is a failure and no empty success."""
    (tmp_path / "run_clients").write_text("import sys; open(sys.argv[4], 'w').write('" + json.dumps({"tests": []})[:5] + "')")
    with pytest.raises(RunFailed, match="wrote no report"):
        run_suite(tmp_path, "clients", Place("127.0.0.1", 7, "r", "c"), [], tmp_path)
