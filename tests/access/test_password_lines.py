"""Changing a password file: the lines of others stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.password_lines import Entered, check_user, entered, has_scram, with_entries
from access.passwords import PasswordFileError, read_password_file
from access.scram import scram_entry
from tests.access.test_passwords import SALT, pbkdf2

NEW, OLD, SCRAM = pbkdf2(b"new"), pbkdf2(b"old"), scram_entry("old", SALT).text()
FILE = f"# meters\nann:{OLD}\n\n  bob : {OLD}\nann:{SCRAM}\r\n# end"


def test_a_new_user_stands_at_the_end() -> None:
    """Of a file that is there, with a line end or without, and of none."""
    assert with_entries(f"ann:{OLD}".encode(), "zoe", [NEW]) == f"ann:{OLD}\nzoe:{NEW}\n".encode()
    assert with_entries(b"", "zoe", [NEW]) == f"zoe:{NEW}\n".encode()


def test_a_user_who_is_there_keeps_his_place() -> None:
    """All his entries become the new ones; what else is there stays, byte by byte."""
    assert with_entries(FILE.encode(), "ann", [NEW]) == f"# meters\nann:{NEW}\n\n  bob : {OLD}\n# end\n".encode()
    assert with_entries(FILE.encode(), "bob", [NEW, SCRAM]).decode().splitlines()[3:5] == [f"bob:{NEW}", f"bob:{SCRAM}"]


def test_no_entries_take_a_user_out() -> None:
    """All his lines, and only his."""
    left = with_entries(FILE.encode(), "ann", ())
    assert entered(left) == [Entered("bob", True, False)] and b"# meters" in left


def test_users_are_listed_by_name_with_what_they_have() -> None:
    """Passwords and SCRAM."""
    assert entered(FILE.encode()) == [Entered("ann", True, True), Entered("bob", True, False)]
    assert has_scram(FILE.encode(), "ann") and not has_scram(FILE.encode(), "bob") and not has_scram(b"", "ann")


@pytest.mark.parametrize("name", ["a:b", "#a", " a", "a\t", "", "a\nb", "x" * 257])
def test_a_name_that_no_line_can_begin_with_is_refused(name: str) -> None:
    """Before anything is written."""
    with pytest.raises(ValueError):
        check_user(name)


def test_a_file_with_a_mistake_is_not_changed() -> None:
    """Half of it might be lost."""
    with pytest.raises(PasswordFileError, match="line 2"):
        with_entries(f"ann:{OLD}\nbob:secret\n".encode(), "ann", [NEW])


@settings(max_examples=25)
@given(st.text(max_size=20))
def test_what_was_entered_is_read_as_that_name(name: str) -> None:
    """Whatever name is taken."""
    try:
        check_user(name)
    except ValueError:
        return
    assert read_password_file(with_entries(FILE.encode(), name, [NEW])).passwords[name] == NEW
