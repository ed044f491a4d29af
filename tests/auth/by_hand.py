"""A desk whose clock and threads are turned by the test, and an owner that writes down what it is told."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from access.login import Login
from access.passwords import CHEAP_ITERATIONS_MAX
from access.scram import scram_entry
from access.tokens import TokenOptions
from actors.auth.desk import Desk, Verdict
from actors.auth.settings import AuthSettings, TokenSettings
from gateway.events import AuthChallenged, Authenticated, AuthRefused

NOW_S = 1_800_000_000.0
SALT = bytes(range(16))
SECRET = b"d" * 32


@dataclass
class HandTimer:
    at_s: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class HandClock:
    """Starts at NOW_S of the wall."""

    passed_s: float = 0.0
    timers: list[HandTimer] = field(default_factory=list)

    def now_s(self) -> float:
        return self.passed_s

    def wall_s(self) -> float:
        return NOW_S + self.passed_s

    def later(self, after_s: float, call: Callable[[], None]) -> HandTimer:
        timer = HandTimer(self.passed_s + after_s, call)
        self.timers.append(timer)
        return timer

    @property
    def planned(self) -> list[HandTimer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def turn(self, by_s: float) -> None:
        """Everything that is due meanwhile happens when it is."""
        end_s = self.passed_s + by_s
        while due := [timer for timer in self.planned if timer.at_s <= end_s]:
            timer = min(due, key=lambda each: each.at_s)
            self.timers.remove(timer)
            self.passed_s = max(self.passed_s, timer.at_s)
            timer.call()
        self.passed_s = end_s


@dataclass
class HandThreads:
    """What is to be done, and was not yet."""

    work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = field(default_factory=list)
    ran: int = 0

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.work.append((work, done))

    def one(self, fails: Exception | None = None) -> None:
        work, done = self.work.pop(0)
        self.ran += 1
        try:
            found = work() if fails is None else fails
        except Exception as error:  # as a thread says it
            found = error
        done(found)

    def all(self) -> None:
        while self.work:
            self.one()


@dataclass
class Owner:
    verdicts: list[Verdict] = field(default_factory=list)
    alarms: dict[str, str] = field(default_factory=dict)

    def verdict(self, event: Verdict) -> None:
        self.verdicts.append(event)

    def alarm(self, kind: str, cause: str) -> None:
        self.alarms.pop(kind, None)
        if cause:
            self.alarms[kind] = cause

    def taken(self) -> list[Verdict]:
        """What came since the last look."""
        found, self.verdicts = self.verdicts, []
        return found


def login(**changed: Any) -> Login:
    """From this machine, with nothing."""
    nothing = Login("c1", 5, None, None, None, b"", "tcp", "127.0.0.1", True, (), "", False)
    return replace(nothing, **changed)


def by_password(user: str = "ann", password: bytes | None = b"secret", **changed: Any) -> Login:
    return login(user=user, password=password, **changed)


@cache
def dear(password: bytes) -> str:
    """An entry that has to be checked in a thread, and costs as little as such a one may."""
    iterations = CHEAP_ITERATIONS_MAX + 1
    digest = hashlib.pbkdf2_hmac("sha512", password, SALT, iterations)
    return f"$7${iterations}${b64encode(SALT).decode()}${b64encode(digest).decode()}"


@cache
def scram(password: str) -> str:
    return scram_entry(password, SALT).text()


class At:
    """A desk, and all that is around it."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        self.path = tmp_path / "passwords"
        self.owner, self.clock = Owner(), HandClock()
        self.checkers, self.fetchers = HandThreads(), HandThreads()
        self.settings = AuthSettings(**settings)
        self.desk = Desk(self.owner, self.clock, self.checkers, self.fetchers, SECRET, self.settings)
        self._sockets = count(1)

    def write(self, *lines: str, **changed: Any) -> None:
        """A new version of the password file comes into force."""
        data = "".join([line + "\n" for line in lines]).encode()
        self.path.write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        self.change(passwords=replace(self.settings.passwords, file=str(self.path), sha256=sha256, **changed))
        self.fetchers.all()

    def change(self, **changed: Any) -> None:
        self.settings = replace(self.settings, **changed)
        self.desk.changed(self.settings)

    def begin(self, asked: Login) -> int:
        """The socket."""
        socket = next(self._sockets)
        self.desk.ask(socket, 1, asked)
        return socket

    def ask(self, asked: Login) -> Authenticated | AuthChallenged | AuthRefused:
        """Asked and answered, with whatever threads had to do."""
        self.owner.taken()
        socket = self.begin(asked)
        self.checkers.all()
        (found,) = self.owner.taken()
        assert isinstance(found, Authenticated | AuthChallenged | AuthRefused) and found.socket == socket
        return found

    def user(self, asked: Login) -> str | int:
        """Who it is, or the code of the refusal."""
        found = self.ask(asked)
        assert not isinstance(found, AuthChallenged)
        return found.identity.user if isinstance(found, Authenticated) else found.code


def token_settings(**changed: Any) -> TokenSettings:
    return replace(TokenSettings(TokenOptions(("RS256", "ES256", "EdDSA", "HS256"))), **changed)
