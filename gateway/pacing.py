"""How fast one client may publish: who sends more is read more slowly, nothing is dropped, and nothing changes its place.

What came is counted when it has been taken, so a client gets into debt by one read at most; it is not read until the debt is paid,
in time.  Counted are PUBLISH packets, and the bytes of their topics and bodies.  Acknowledgements and PINGREQ are not; those
behind the messages of a client in debt wait in its socket like these, and its keep alive starts anew when it is read again.

Holds: a client without a rate costs one look at None for each read; whoever is paced is delayed by its own messages only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.connection import RATE_BOUND, Connection, Phase
from gateway.state import Deadline, State
from mqtt.packets import Item, Publish, PublishRun

NO_RATE: Final = 0
Rates = tuple[int, int]
"""Messages and bytes a second; 0: as many as come."""


class Pace:
    """What one client has used of its rates.  A second's worth of each may come at once."""

    __slots__ = ("_rates", "_since_ms", "_used", "fresh")

    def __init__(self, rates: Rates, now_ms: int) -> None:
        self._rates = rates
        self._used = [0, 0]
        """In thousandths: so they are paid back at the rate, a millisecond at a time."""
        self._since_ms = now_ms
        self.fresh = (0, 0)
        """Messages and bytes of this turn, not yet taken into account."""

    def took(self, count: int, size: int, now_ms: int) -> int:
        """Count what came until now; for how many milliseconds to read no more, 0: go on."""
        passed_ms, self._since_ms = now_ms - self._since_ms, now_ms
        pause_ms = 0
        for index, more in enumerate((count, size)):
            rate = self._rates[index]
            if rate != NO_RATE:
                used = self._used[index] = max(0, self._used[index] - passed_ms * rate) + more * 1_000
                pause_ms = max(pause_ms, -(-used // rate) - 1_000)
        return pause_ms


class Pacing:
    def __init__(self, state: State) -> None:
        self._state = state
        self._fresh: list[Connection] = []

    def begin(self, connection: Connection) -> None:
        """A connection is online."""
        rates = self._state.options.rates.get(connection.listener)
        if rates is not None:
            connection.pace = Pace(rates, self._state.now_ms)

    def took(self, connection: Connection, items: list[Item]) -> None:
        """These packets of a paced connection have been taken; the turn's end knows when that was."""
        pace = connection.pace
        assert pace is not None
        count, size = pace.fresh
        if not count:
            self._fresh.append(connection)
        for item in items:
            if isinstance(item, PublishRun):
                count += len(item.flags)
                size += sum(map(len, item.topics)) + sum(map(len, item.bodies))
            elif isinstance(item, Publish):
                count += 1
                size += len(item.topic) + len(item.body)
        if not count:
            self._fresh.pop()
        pace.fresh = (count, size)

    def turn(self, now_ms: int) -> None:
        state = self._state
        for connection in self._fresh:
            pace = connection.pace
            if pace is None or connection.phase is not Phase.ONLINE:
                continue
            count, size = pace.fresh
            pace.fresh = (0, 0)
            pause_ms = pace.took(count, size, now_ms)
            if pause_ms:
                state.counters.pauses_rate += 1
                state.outbox.pause(connection, RATE_BOUND)
                state.wheel.at(now_ms + pause_ms, (Deadline.RATE, connection.socket))
        self._fresh.clear()

    def changed(self, before: Mapping[str, Rates]) -> None:
        """Settings have changed: other rates begin anew, for whoever is there too."""
        rates = self._state.options.rates
        if rates == before:
            return
        for connection in self._state.by_conn.values():
            if rates.get(connection.listener) == before.get(connection.listener):
                continue
            connection.pace = None
            if connection.phase is Phase.ONLINE:
                self.begin(connection)
            self._state.resume(connection, RATE_BOUND)
