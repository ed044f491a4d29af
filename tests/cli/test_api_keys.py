"""`holdfast api-keys`: a key that is made is taken, and one that is taken away is gone."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from access.api_keys import FILE_NAME, read_keys
from cli.main import app


def holdfast(data_dir: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["api-keys", *words, "--data-dir", str(data_dir)])


def told(data_dir: Path, *words: str) -> Any:
    done = holdfast(data_dir, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_key_is_made_listed_and_taken_away(tmp_path: Path) -> None:
    """Its secret is said once, and lies nowhere."""
    made = told(tmp_path, "add", "grafana")
    file = tmp_path / FILE_NAME
    (key,) = read_keys(file.read_bytes())
    assert key.matches(made["secret"]) and made["bearer"] == f"{key.id}.{made['secret']}" and key.scope == "read"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and made["secret"] not in file.read_text() and key.hash.startswith("$argon2id$")
    written = holdfast(tmp_path, "add", "deploy", "--scope", "write", "--expires", "90d")
    assert written.exit_code == 0 and "secret  " in written.stdout
    assert [(one["name"], one["scope"], one["expired"]) for one in told(tmp_path, "ls")] == [
        ("grafana", "read", False), ("deploy", "write", False),
    ]  # fmt: skip
    assert "deploy" in holdfast(tmp_path, "ls").stdout
    assert holdfast(tmp_path, "rm", "grafana").exit_code == 0
    assert [key.name for key in read_keys(file.read_bytes())] == ["deploy"]


def test_what_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    """One sentence each."""
    holdfast(tmp_path, "add", "grafana")
    before = (tmp_path / FILE_NAME).read_bytes()
    for words, code, said in (
        (("add", "grafana"), 1, "there is a key grafana already"),
        (("add", "a b"), 2, "is no name of a key"),
        (("add", "x", "--expires", "soon"), 2, "is no duration"),
        (("rm", "nobody"), 1, "there is no API key nobody"),
    ):
        done = holdfast(tmp_path, *words)
        assert done.exit_code == code and said in done.stderr and done.stderr.count("\n") == 1, done.output
    assert (tmp_path / FILE_NAME).read_bytes() == before
    (tmp_path / FILE_NAME).write_bytes(b"{")
    done = holdfast(tmp_path, "add", "y")
    assert done.exit_code == 1 and "nothing was changed" in done.stderr and (tmp_path / FILE_NAME).read_bytes() == b"{"
    assert holdfast(tmp_path / "none", "ls").exit_code == 1
