"""`holdfast passwd`: what it writes lets the user in, and nothing is lost when it cannot."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from access.passwords import read_password_file, verify
from cli.main import app
from tests.access.test_passwords import pbkdf2
from tests.needs import find_program


def holdfast(*words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["passwd", *words], input=stdin)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def test_a_password_from_standard_input_lets_its_user_in(file: Path) -> None:
    """Its first line, whatever bytes are in it; nobody else may read the file."""
    done = holdfast(str(file), "ann", stdin=b" se:cret \xff\nmore\n")
    assert done.exit_code == 0 and done.output == ""
    entry = read_password_file(file.read_bytes()).passwords["ann"]
    assert verify(entry, b" se:cret \xff") and entry.startswith("$argon2id$")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and os.listdir(file.parent) == ["passwords"]


def test_a_new_password_is_new_for_scram_too(file: Path) -> None:
    """Else the former one would still be good, the other way."""
    holdfast(str(file), "ann", "--scram", stdin=b"old\n")
    before = read_password_file(file.read_bytes())
    holdfast(str(file), "ann", stdin=b"new\n")
    after = read_password_file(file.read_bytes())
    assert verify(after.passwords["ann"], b"new") and before.scram["ann"] != after.scram["ann"]
    holdfast(str(file), "ann", "--no-scram", stdin=b"new\n")
    assert not read_password_file(file.read_bytes()).scram


def test_users_are_listed_and_taken_out(file: Path) -> None:
    """By name, with what they have; no part of an entry is shown."""
    holdfast(str(file), "zoe", "--scram", stdin=b"x\n")
    holdfast(str(file), "ann", stdin=b"x\n")
    assert holdfast(str(file)).output == "ann  password\nzoe  password, scram\n"
    assert holdfast(str(file), "zoe", "--delete").exit_code == 0
    assert holdfast(str(file)).output == "ann  password\n"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "said"),
    [
        (["a:b"], b"x\n", 2, "':'"),
        (["--delete"], b"", 2, "USER is wanted"),
        (["ann", "--delete", "--scram"], b"", 2, "makes no sense"),
        (["bob", "--delete"], b"", 1, "no user 'bob'"),
        (["bob"], b"", 1, "0 bytes found"),
        (["bob"], b"\n", 1, "0 bytes found"),
        (["bob"], b"x" * 65_536 + b"\n", 1, "65536 bytes found"),
        (["bob", "--scram"], b"\xff\n", 1, "UTF-8"),
        (["bob", "--scram"], b"a\x07\n", 1, "U+0007"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(file: Path, words: list[str], stdin: bytes, code: int, said: str) -> None:
    """And changes nothing."""
    file.write_text(f"ann:{pbkdf2()}\n")
    before = file.read_bytes()
    done = holdfast(str(file), *words, stdin=stdin)
    assert (done.exit_code, done.output.count("\n")) == (code, 1) and said in done.output
    assert file.read_bytes() == before and os.listdir(file.parent) == ["passwords"]


def test_a_file_with_a_mistake_is_named_with_its_line(file: Path) -> None:
    """And not with what is there."""
    file.write_text(f"ann:{pbkdf2()}\nbob:topsecret\n")
    for words in (["ann"], ["ann", "--delete"], []):
        done = holdfast(str(file), *words, stdin=b"x\n")
        assert done.exit_code == 1 and "line 2" in done.output and "topsecret" not in done.output
    assert "topsecret" in file.read_text()


def test_who_could_read_the_file_in_its_group_still_can(file: Path) -> None:
    """The broker may be another user; everybody else loses what he should not have had.  A link stays a link."""
    file.write_text(f"ann:{pbkdf2()}\n")
    file.chmod(0o664)
    link = file.with_name("link")
    link.symlink_to(file)
    assert holdfast(str(link), "bob", stdin=b"x\n").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o640 and link.is_symlink() and "bob" in file.read_text()


@pytest.mark.needs("mosquitto")
def test_a_file_of_mosquitto_is_changed_by_either(file: Path) -> None:
    """Its users stay, and it goes on with what we have written."""
    program = find_program("mosquitto_passwd")
    assert program is not None
    subprocess.run([program, "-c", "-b", str(file), "ann", "first"], check=True, capture_output=True)
    assert holdfast(str(file), "bob", stdin=b"second\n").exit_code == 0
    users = read_password_file(file.read_bytes()).passwords
    assert verify(users["ann"], b"first") and verify(users["bob"], b"second")
