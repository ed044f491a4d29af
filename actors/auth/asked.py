"""A question of the gateway core, on its way through the desk, and what every part of the desk may do with it.

Life cycle of a question: asked -> answered or forgotten.  Parts that kept one ask `waits` before they work for it: it may be neither
wanted nor right any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from access.identity import Identity
from access.login import Login
from mqtt.reason import ReasonCode

Found = TypeVar("Found")


@dataclass(eq=False, slots=True)
class Question:
    """until_s: of the clock; nobody wants the answer later."""

    socket: int
    attempt: int
    login: Login
    until_s: float


class Answers(Protocol):
    """The desk, as its parts see it."""

    def waits(self, question: Question) -> bool:
        """Whether somebody still wants to know."""

    def accept(self, question: Question, identity: Identity, data: bytes | None = None, ends_in_ms: int | None = None) -> None: ...

    def challenge(self, question: Question, data: bytes) -> None: ...

    def refuse(self, question: Question, code: ReasonCode, cause: str) -> None: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Of a loop.  Tests have one that they turn by hand."""

    def now_s(self) -> float:
        """Monotonic."""

    def wall_s(self) -> float:
        """Since 1970, as tokens count."""

    def later(self, after_s: float, call: Callable[[], None]) -> Timer: ...


class Workers(Protocol):
    """Threads of the process."""

    def run(self, work: Callable[[], Found], done: Callable[[Found | Exception], None]) -> None:
        """Does the work in a thread, and says on the loop what came of it."""


class LoopClock:
    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wall_s = wall_s

    def now_s(self) -> float:
        return self._loop.time()

    def wall_s(self) -> float:
        return self._wall_s()

    def later(self, after_s: float, call: Callable[[], None]) -> Timer:
        return self._loop.call_later(after_s, call)
