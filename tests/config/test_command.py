"""`holdfast config`: exit codes and streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.config import app


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("HOLDFAST__GATEWAY__COUNT", "2")
    return CliRunner()


def test_check_accepts_a_good_configuration(runner: CliRunner) -> None:
    """Exit 0 and one sentence."""
    result = runner.invoke(app, ["check", "--set", "log.level=debug"])
    assert result.exit_code == 0
    assert result.stdout == "The configuration is good; 2 settings differ from their defaults.\n"


def test_check_prints_one_line_for_each_mistake_and_fails(runner: CliRunner, tmp_path: Path) -> None:
    """On standard error, with exit 1 and nothing on standard output."""
    file = tmp_path / "a.toml"
    file.write_text("[log]\nlevel = 1\n")
    result = runner.invoke(app, ["check", "--config", str(file), "--set", "x=1"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 2


def test_show_prints_toml_or_json_of_what_would_be_used(runner: CliRunner) -> None:
    """The environment counts, and is named."""
    assert runner.invoke(app, ["show", "--changed"]).stdout == (
        "[gateway]\ncount = 2  # from the environment variable HOLDFAST__GATEWAY__COUNT\n"
    )
    assert json.loads(runner.invoke(app, ["show", "--json"]).stdout)["gateway"]["count"] == 2


def test_schema_prints_a_json_schema(runner: CliRunner) -> None:
    """What editors read."""
    assert json.loads(runner.invoke(app, ["schema"]).stdout)["title"] == "Holdfast configuration"
