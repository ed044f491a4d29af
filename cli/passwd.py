"""`holdfast passwd`: the users of a password file (docs/access.md): who is in it, a new password, one who goes.

A broker that has the file configured sees the change by itself.  Always holds: the file is replaced as a whole and stays what it was when
anything is wrong; nobody but its owner, and its group where it could before, can read it; no password is ever printed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from access.password_lines import check_user, entered, has_scram, with_entries
from access.passwords import FILE_BYTES_MAX, PasswordFileError, argon2id_entry
from access.scram import scram_entry
from cli.changed_files import alone, replace
from cli.stores import refuse

SALT_BYTES = 16
PASSWORD_BYTES_MAX = 65_535
"""What fits into CONNECT."""


def passwd(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The password file, which need not be there yet.")],
    user: Annotated[str | None, typer.Argument(metavar="USER", help="Whose password is set; without one, users are listed.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Take the user out.")] = False,
    scram: Annotated[
        bool | None, typer.Option("--scram/--no-scram", help="Also an entry for SCRAM-SHA-256; if not given: for those who have one.")
    ] = None,
) -> None:
    """Set the password of a user, read from the terminal or, as one line, from standard input; list users, or take one out."""
    path = Path(os.path.realpath(os.path.expanduser(file)))
    if user is None:
        if delete or scram is not None:
            refuse("a USER is wanted with --delete and --scram.", 2)
        _list(path)
        return
    try:
        check_user(user)
    except ValueError as error:
        refuse(f"{error}.", 2)
    if delete:
        if scram is not None:
            refuse("--delete takes all entries of the user, so --scram makes no sense with it.", 2)
        _delete(path, user)
    else:
        _set(path, user, _password(user), scram)


def _list(path: Path) -> None:
    try:
        users = entered(_read(path))
    except PasswordFileError as error:
        refuse(f"{path}: {error}.")
    for each in users:
        kinds = [kind for kind, there in (("password", each.password), ("scram", each.scram)) if there]
        print(f"{each.user}  {', '.join(kinds)}")


def _delete(path: Path, user: str) -> None:
    with alone(path), _as_sentence(path):
        data = _read(path)
        if all(each.user != user for each in entered(data)):
            refuse(f"{path} has no user {user!r}.")
        replace(path, with_entries(data, user, ()))


def _set(path: Path, user: str, password: bytes, scram: bool | None) -> None:
    with alone(path), _as_sentence(path):
        data = _read(path) if path.exists() else b""
        entries = [argon2id_entry(password, secrets.token_bytes(SALT_BYTES))]
        # Who has both would otherwise get in by the former password, the other way.
        if has_scram(data, user) if scram is None else scram:
            entries.append(_scram(password))
        replace(path, with_entries(data, user, entries))


def _scram(password: bytes) -> str:
    try:
        return scram_entry(password.decode(), secrets.token_bytes(SALT_BYTES)).text()
    except UnicodeDecodeError:
        refuse("a password for SCRAM has to be UTF-8; nothing was changed.")
    except ValueError as error:
        refuse(f"{error}; nothing was changed.")


def _password(user: str) -> bytes:
    if sys.stdin.isatty():
        first, second = getpass.getpass(f"Password of {user}: "), getpass.getpass("Again: ")
        if first != second:
            refuse("the two were not the same; nothing was changed.")
        password = first.encode(errors="surrogateescape")
    else:
        password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    if not 1 <= len(password) <= PASSWORD_BYTES_MAX:
        refuse(f"a password of {len(password)} bytes found, 1 to {PASSWORD_BYTES_MAX} are allowed; nothing was changed.")
    return password


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


@contextlib.contextmanager
def _as_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except PasswordFileError as error:
        refuse(f"{path}: {error}; nothing was changed.")
