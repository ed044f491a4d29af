"""Work that nobody waits for takes a share of a core: each piece of it is followed by a rest that is as much longer.

What is measured is the CPU of the whole process: who waits for an answer does not work, and what else the process does counts against the
share. Rests on a loop are as long as they have to be; those in a thread are short, and what is left of them is owed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

REST_LEAST_S: Final = 0.02
REST_IN_THREAD_MAX_S: Final = 0.5


class Ended(Exception):
    """Raised to whoever wants to rest when the work has been called off."""


class Pace:
    """For one piece of work after the other, wherever each is done."""

    def __init__(self, share: float, clock: Callable[[], float] = time.process_time, sleep: Callable[[float], None] = time.sleep) -> None:
        """share: of one core, above 0 and below 1."""
        self._rest_for_work = (1 - share) / share
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._owed = 0.0
        self.ended = False

    def begin(self) -> None:
        """Nothing was done until now, and nothing is owed."""
        self._since, self._owed = self._clock(), 0.0

    def rest(self) -> None:
        """In a thread. Raises Ended."""
        if self.ended:
            raise Ended
        self._owe()
        if self._owed >= REST_LEAST_S:
            rest = min(self._owed, REST_IN_THREAD_MAX_S)
            self._sleep(rest)
            self._rested(rest)

    async def pause(self) -> None:
        """On a loop."""
        self._owe()
        rest = self._owed
        await asyncio.sleep(rest)
        self._rested(rest)

    def _owe(self) -> None:
        now = self._clock()
        self._owed += (now - self._since) * self._rest_for_work
        self._since = now

    def _rested(self, rest: float) -> None:
        self._owed -= rest
        self._since = self._clock()
