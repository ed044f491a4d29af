"""Durable timers of a home: rows in order of the age at which they are due.

A timer is fired in the record that holds its effect, so it fires once whatever crashes.  A row may be stale (its session was
resumed): whoever fires it looks at the home rows first.  In RAM only the age of the earliest row is known.

Holds: no row is due earlier than `next_due_ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.rows import TIMER, successor, u64

EXPIRY, WILL, CONNECTION_END, DELAYED_DUE = b"e", b"w", b"c", b"d"
_NEVER = 1 << 62
_FEW = 8
"""At most ticks so many are due, of thousands that are to come."""


class Timer(NamedTuple):
    """client: for DELAYED_DUE the number of the row."""

    due_ms: int
    kind: bytes
    client: bytes


class Timers:
    def __init__(self, engine: Engine) -> None:
        first = engine.scan(HOME_FAMILY, TIMER, successor(TIMER), 1)
        self.next_due_ms = int.from_bytes(first[0][0][1:9], "big") if first else _NEVER

    def set(self, draft: Draft, due_ms: int, kind: bytes, client: bytes) -> None:
        draft.put(TIMER + u64(due_ms) + kind + client, b"")
        self.next_due_ms = min(self.next_due_ms, due_ms)

    def cancel(self, draft: Draft, due_ms: int, kind: bytes, client: bytes) -> None:
        draft.delete(TIMER + u64(due_ms) + kind + client)

    def is_set(self, draft: Draft, due_ms: int, kind: bytes, client: bytes) -> bool:
        return draft.get(TIMER + u64(due_ms) + kind + client) is not None

    @staticmethod
    def of_key(key: bytes) -> Timer:
        return Timer(int.from_bytes(key[1:9], "big"), key[9:10], key[10:])

    def take_due(self, draft: Draft, age_ms: int, limit: int, size: Callable[[Draft, Timer], int], bytes_max: int) -> list[Timer]:
        """Timers due by now, erased in this record; the rest at the next tick.  At most `limit`, and `bytes_max` of what `size` says comes
        with them: the first one is taken whatever its size."""
        if age_ms < self.next_due_ms:
            return []
        start = TIMER + u64(self.next_due_ms)
        rows = draft.scan(TIMER, _FEW, start)
        if len(rows) == _FEW and self.of_key(rows[-1][0]).due_ms <= age_ms:
            rows = draft.scan(TIMER, limit + 1, start)
        taken: list[Timer] = []
        left = bytes_max
        for key, _ in rows:
            timer = self.of_key(key)
            if timer.due_ms <= age_ms:
                left -= size(draft, timer)
            if timer.due_ms > age_ms or len(taken) == limit or (taken and left < 0):
                self.next_due_ms = timer.due_ms
                return taken
            draft.delete(key)
            taken.append(timer)
        self.next_due_ms = _NEVER
        return taken
