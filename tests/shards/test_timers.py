"""Timers of a home: what is due is taken in order, and what it costs to look does not depend on how many are to come."""

from __future__ import annotations

import pytest

from shards.draft import Draft
from shards.engine_memory import MemoryEngine
from shards.timers import EXPIRY, Timers


class Counting(MemoryEngine):
    """Counts the rows that scans read."""

    read = 0

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        rows = super().scan(family, start, end, limit, bytes_max)
        self.read += len(rows)
        return rows


def stored(*due_ms: int) -> tuple[Counting, Timers, Draft]:
    engine = Counting()
    draft = Draft(engine)
    timers = Timers(engine)
    for number, each in enumerate(due_ms):
        timers.set(draft, each, EXPIRY, b"c%d" % number)
    engine.write(draft.seal(1))
    draft.committed(1)
    engine.read = 0
    return engine, timers, draft


def take(timers: Timers, draft: Draft, age_ms: int, limit: int = 250) -> list[int]:
    return [timer.due_ms for timer in timers.take_due(draft, age_ms, limit, lambda *_: 0, 1)]


def test_a_few_that_are_due_cost_a_few_reads() -> None:
    """Of a shard with many clients that come and go some are due at every tick, and thousands are to come."""
    engine, timers, draft = stored(*range(10, 1_010))
    assert take(timers, draft, 12) == [10, 11, 12]
    assert timers.next_due_ms == 13
    assert engine.read <= 20


@pytest.mark.parametrize("due", [0, 1, 7, 8, 9, 20, 30])
def test_all_that_are_due_are_taken_in_order(due: int) -> None:
    """However many; from then on the earliest that is left is known, and if none is, nothing is read."""
    engine, timers, draft = stored(*range(1, 31))
    assert take(timers, draft, due) == list(range(1, due + 1))
    assert (timers.next_due_ms == due + 1) == (due < 30)
    engine.read = 0
    assert take(timers, draft, 30, limit=10) == list(range(due + 1, min(due + 11, 31)))


def test_no_more_than_the_limit_at_once() -> None:
    """The rest at the next tick, whether the limit is larger or smaller than what is read first."""
    for limit in (3, 8, 20):
        _, timers, draft = stored(*range(1, 101))
        assert take(timers, draft, 100, limit) == list(range(1, limit + 1))
        assert timers.next_due_ms == limit + 1
