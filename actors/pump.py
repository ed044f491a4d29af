"""Turns of a loop: events go into a core as they come, one TickEnded after each turn, timers when the core wants to be woken.

A turn costs something even when it brings nothing.  So what nobody waits for (the core says so: `patient`) is left to the turn of what
comes next, if that is soon.

Two kinds of cores ask to be woken: those that ask for each time once (`within`), and those that are asked after each turn when the next one
is wanted, whatever they said before (`next_within`).  If the latter's were kept one beside the other, each would ask for one more: a shard
with nothing to do had sixteen turns where it wanted one.

Holds: at most one tick is scheduled; of the wake-ups asked for by `within` the earliest ASKED_MAX are never missed; after stop there is no
tick, asked for or not.
"""

from __future__ import annotations

import asyncio
import gc
from bisect import insort
from collections.abc import Callable

from actors.fatal import die_of

PATIENCE_S = 0.005
ASKED_MAX = 16
"""A core has a few, and each turn asks for one that is far away and asked for again by the next turn: those are left out first."""


class Pump:
    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._scheduled = self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._asked: list[float] = []
        """The wake-ups that are to come, the earliest first, which is the timer's: a tick at one's time does not stand for another."""
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
        """A tick not later than this, however many come before."""
        now = self._loop.time()
        asked, at = self._asked, now + after_ms / 1000
        if len(asked) < ASKED_MAX or at < asked[-1]:
            insort(asked, at)
            del asked[ASKED_MAX:]
        if asked[0] <= now:
            self._rid_of(now)
        if asked and (self._timer is None or self._due != asked[0]):
            self._set()

    def next_within(self, after_ms: int) -> None:
        """A tick not later than this, and none for what was asked for before."""
        at = self._loop.time() + after_ms / 1000
        self._asked = [at]
        # A timer that is earlier stays, as the next turn asks again: its wake-up brings no tick, and goes on to this.
        if self._timer is None or self._due > at:
            self._set()

    def _rid_of(self, now: float) -> None:
        """One that is due in this turn of the loop, and whose timer has not run yet, must not stand for a later one: whoever asks now has
        had its time, and will not ask again."""
        while self._asked and self._asked[0] <= now:
            self._asked.pop(0)
            self.soon()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._asked[0]
        self._timer = self._loop.call_at(self._due, self._wake)

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
        # A timer of the loop may be a little early.
        self._rid_of(max(self._due, self._loop.time()))
        if self._asked:
            self._set()

    def _run(self) -> None:
        if self._stopped:
            return
        self._scheduled = False
        if self._patience is not None:
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
