"""Turns of a loop: events go into a core as they come, one TickEnded after each turn, timers when the core wants to be woken.

A turn costs something even when it brings nothing.  So what nobody waits for (the core says so: `patient`) is left to the turn of what
comes next, if that is soon.

Holds: at most one tick is scheduled; the earliest wake-up asked for is never missed; after stop there is no tick, asked for or not.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable

from actors.fatal import die_of

PATIENCE_S = 0.005


class Pump:
    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._scheduled = self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._later = math.inf
        """The earliest wake-up asked for behind the timer's: a tick at the timer's time does not stand for it."""
        self._loop = asyncio.get_running_loop()

    def soon(self) -> None:
        """A tick at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def patiently(self) -> None:
        """With the next tick, and not later than PATIENCE_S."""
        if not self._scheduled and self._patience is None:
            self._patience = self._loop.call_later(PATIENCE_S, self.soon)

    def within(self, after_ms: int) -> None:
        """A tick not later than this."""
        now = self._loop.time()
        due = now + after_ms / 1000
        if self._timer is not None:
            if self._due <= now:
                # It is due in this turn of the loop and has not run yet.  It must not stand for a later one: whoever asks now
                # has had the time of the one before, and will not ask again.
                self.soon()
            elif self._due <= due:
                self._later = min(self._later, due)
                return
            else:
                self._later = min(self._later, self._due)
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._wake)

    def stop(self) -> None:
        """Also what was asked for in this very turn of the loop does not come: its owner closes its store next."""
        self._scheduled = self._stopped = True
        self._end_patience()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _wake(self) -> None:
        self._timer = None
        if self._later < math.inf:
            self._due, self._later = self._later, math.inf
            self._timer = self._loop.call_at(self._due, self._wake)
        self.soon()

    def _run(self) -> None:
        if self._stopped:
            return
        self._scheduled = False
        self._end_patience()
        try:
            self._tick()
        except Exception as error:
            die_of(error, "a turn of the loop")

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def settle_gc() -> None:
    """What start-up made stays for good; full collections of it would only stop the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
