"""`holdfast access`: what it says of a file of rules, and of a question about one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from actors.access.publishing import publish
from actors.processes import identify
from actors.run import Run, boot_id, record_run
from cli.main import app
from tests.config.given import given

RULES = """\
version = 1
[[rule]]
deny = ["subscribe"]
topics = ["secret/#"]
[[rule]]
allow = ["all"]
topics = ["#"]
groups = ["staff"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["access", *words])


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (RULES, 0, "The rules are good: 2 of them."),
        ("version = 1", 0, "The file is good and has no rule: nobody may do anything."),
        ("", 1, "`version` is missing, wanted is `version = 1`."),
        (RULES.replace("deny", "dny"), 1, "rule 1: unknown key 'dny'"),
        ("\udcff", 1, "no UTF-8 at byte 0"),
    ],
)
def test_check_says_whether_the_rules_can_be_used(file: Path, text: str, code: int, said: str) -> None:
    """One sentence, that names the file when it is wrong."""
    file.write_bytes(text.encode(errors="surrogateescape"))
    found = run("check", str(file))
    assert found.exit_code == code and said in found.output and (str(file) in found.output) == bool(code)
    assert found.output.count("\n") == 1


def test_check_of_what_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    """A directory, and nothing at all."""
    assert f"{tmp_path} is no file." in run("check", str(tmp_path)).output
    assert "No such file or directory" in run("check", str(tmp_path / "none")).output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ann", "c", "publish", "a"), 1, "denied: no rule of those that are about him allows it"),
        (("ann", "c", "publish", "a", "--group", "staff"), 0, "allowed: rule 2 of 2 (allow) decides"),
        (("ann", "c", "subscribe", "#", "--group", "staff"), 0, "allowed in part: rule 2 of 2 (allow) decides; each message is asked for"),
        (("", "c", "subscribe", "secret/x"), 1, "denied: rule 1 of 2 (deny) decides"),
        (("ann", "c", "share", "$share/g/a", "--group", "staff"), 0, "allowed: rule 2"),
        (("ann", "c", "fly", "a"), 2, "'fly' is no right: one of publish, retain, delay, subscribe, share, replay is wanted."),
        (("ann", "c", "publish", "a/+"), 2, "'a/+' is no topic:"),
        (("ann", "c", "subscribe", "a/#/b"), 2, "'a/#/b' is no topic filter:"),
        (("a\nb", "c", "publish", "a"), 2, "control character U+000A"),
        (("ann", "c", "publish", "a", "--how", "luck"), 2, "nobody comes in by 'luck'"),
    ],
)
def test_explain_names_the_rule(file: Path, words: tuple[str, ...], code: int, said: str) -> None:
    """Exit 0 when it is allowed, 1 when it is not, 2 when the question makes no sense."""
    found = run("explain", *words, "--rules", str(file))
    assert (found.exit_code, said in found.output) == (code, True), found.output


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Of a broker that runs in tmp_path."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    launcher = identify(os.getpid())
    assert launcher is not None
    record_run(tmp_path, Run(run_dir, launcher, boot_id(), joined=False))
    return run_dir


def test_explain_says_what_is_left_to_a_plugin(file: Path, tmp_path: Path, run_dir: Path) -> None:
    """Where no rule says anything the answer of the rules is not the last word: exit 3, neither yes nor no; with no file of rules too."""
    plugin = {"kind": "holdfast", "plugins": ["a:B"], "decides": True}
    here = ("--data-dir", str(tmp_path))
    publish(run_dir, given(access={"rules": str(file), "plugin": plugin}))
    found = run("explain", "ann", "c", "publish", "a", *here)
    assert (found.exit_code, found.output.startswith("a plugin decides: ")) == (3, True), found.output
    assert run("explain", "ann", "c", "share", "$share/g/a", *here).exit_code == 3
    assert "denied: rule 1 of 2" in run("explain", "ann", "c", "subscribe", "secret/x", *here).output
    assert run("explain", "ann", "c", "publish", "a", "--group", "staff", *here).exit_code == 0
    for words in (("ann", "c", "replay", "a"), ("pipeline/ann", "", "publish", "a", "--how", "pipeline")):
        found = run("explain", *words, *here)
        assert found.exit_code == 1 and found.output.endswith("allows it\n"), found.output
    publish(run_dir, given(access={"plugin": plugin}))
    assert run("explain", "ann", "c", "publish", "a", *here).exit_code == 3
    assert "that is left to it" in run("explain", "ann", "c", "publish", "a", "--rules", str(file)).output


def test_explain_allows_nobody_where_only_tokens_have_rights(tmp_path: Path, run_dir: Path) -> None:
    """No file of rules is not the same as no rules."""
    publish(run_dir, given(access={"jwt": {"keys": "env:KEY", "algorithms": ["HS256"], "grants": "acl"}}))
    found = run("explain", "ann", "c", "publish", "a", "--data-dir", str(tmp_path))
    assert found.exit_code == 1 and "denied: no rule" in found.output


def test_explain_asks_the_rules_in_force_of_a_broker_that_runs(file: Path, tmp_path: Path, run_dir: Path) -> None:
    """Not what the file says since; and where there are none it says so."""
    question = ("explain", "ann", "c", "publish", "a", "--data-dir", str(tmp_path))
    assert "allowed: there are no rules" in run(*question).output
    publish(run_dir, given(access={"rules": str(file)}))
    file.write_text("version = 1\n")
    assert "denied: no rule" in run(*question).output and run(*question, "--group", "staff").exit_code == 0


def test_explain_without_a_broker_and_without_a_file_is_a_sentence(tmp_path: Path) -> None:
    """It never answers from nothing."""
    found = run("explain", "ann", "c", "publish", "a", "--data-dir", str(tmp_path))
    assert found.exit_code == 1 and "name a file with --rules." in found.output


def test_config_check_reads_the_rules_that_are_named(file: Path) -> None:
    """What `up` would refuse it does not call good."""
    words = ["config", "check", "--set", f"access.rules={file}"]
    assert CliRunner().invoke(app, words).exit_code == 0
    file.write_text("version = 2")
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1 and found.output == f"access.rules: {file}: `version` is 2, wanted is `version = 1`.\n"
