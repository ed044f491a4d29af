"""A password file as lines, for whoever changes one: what stands there for others stays as it is, comments and order included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from access.identity import check_name
from access.passwords import read_password_file


@dataclass(frozen=True, slots=True)
class Entered:
    """One user, and which entries there are."""

    user: str
    password: bool
    scram: bool


def check_user(user: str) -> str:
    """A name that a line can begin with.  Raises ValueError."""
    check_name(user)
    if ":" in user:
        raise ValueError("the user name has a ':', which ends it in a password file")
    if user.startswith("#"):
        raise ValueError("the user name begins with '#', as comments do in a password file")
    if user != user.strip(" \t"):
        raise ValueError("the user name begins or ends with a blank, which does not count in a password file")
    return user


def entered(data: bytes) -> list[Entered]:
    """By name.  Raises access.passwords.PasswordFileError, as the others here do."""
    users = read_password_file(data)
    return [Entered(user, user in users.passwords, user in users.scram) for user in sorted({*users.passwords, *users.scram})]


def with_entries(data: bytes, user: str, entries: Sequence[str]) -> bytes:
    """These instead of all that the user has: the first where his first one stood, or at the end; no entries take him out."""
    read_password_file(data)
    new = [f"{user}:{entry}" for entry in entries]
    lines: list[str] = []
    for line in data.decode("utf-8-sig").removesuffix("\n").split("\n") if data else []:
        if _user(line) == user:
            lines += new
            new = []
        else:
            lines.append(line)
    changed = "".join([line + "\n" for line in [*lines, *new]]).encode()
    read_password_file(changed)
    return changed


def _user(line: str) -> str | None:
    line = line.strip(" \t\r")
    if not line or line.startswith("#"):
        return None
    return line.partition(":")[0].rstrip(" \t")


def has_scram(data: bytes, user: str) -> bool:
    """Whether he can log in by SCRAM."""
    return any(each.scram for each in entered(data) if each.user == user)
