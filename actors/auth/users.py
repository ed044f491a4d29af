"""The password file in force: read in a thread, replaced as a whole, and who is in it no more.

Which version is in force is said by others (the bundle of actors.access, which looks at the file); here it is read, and taken when it is
that one.  A file that is newer still changes nothing: whoever looks at it says so soon, or says what is wrong with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from access.passwords import FILE_BYTES_MAX, PasswordFileError, Users, read_password_file
from actors.auth.asked import Workers
from actors.auth.settings import PasswordSettings

_Version = tuple[str, str]
_NONE: Final[_Version] = ("", "")

log = structlog.get_logger(__name__)


class UserFile:
    """taken: called with the users of each version that comes into force."""

    def __init__(self, workers: Workers, taken: Callable[[Users], None]) -> None:
        self._workers = workers
        self._taken = taken
        self._wanted = _NONE
        self._reading = False
        self._ready: list[Callable[[], None]] = []

    def want(self, settings: PasswordSettings) -> None:
        wanted = (settings.file, settings.sha256) if settings.file and settings.sha256 else _NONE
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self._read()

    def when_read(self, call: Callable[[], None]) -> None:
        """Called when nothing is being read: now, or soon."""
        if self._reading:
            self._ready.append(call)
        else:
            call()

    def _read(self) -> None:
        if self._reading:
            return  # The newest is read after this one.
        wanted = self._wanted
        if wanted == _NONE:
            self._taken(Users({}, {}, None))
            return
        self._reading = True
        self._workers.run(partial(_users, *wanted), partial(self._found, wanted))

    def _found(self, wanted: _Version, users: Users | Exception) -> None:
        self._reading = False
        if wanted != self._wanted:
            self._read()
        elif isinstance(users, Exception):
            log.warning("passwords.not_read", file=wanted[0], cause=_sentence(users))
        else:
            log.info("passwords.read", file=wanted[0], entries=len(users.passwords) + len(users.scram))
            self._taken(users)
        if not self._reading:
            ready, self._ready = self._ready, []
            for call in ready:
                call()


def revoked(before: Users, now: Users) -> set[str]:
    """Users of whose entries one is another, or gone."""
    gone = {user for user, entry in before.passwords.items() if now.passwords.get(user) != entry}
    return gone | {user for user, entry in before.scram.items() if now.scram.get(user) != entry}


def _users(path: str, sha256: str) -> Users:
    with open(path, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise PasswordFileError("another version than the one in force, which stays until this one was looked at")
    return read_password_file(data)


def _sentence(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
