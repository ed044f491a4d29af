"""A shard goes on as another incarnation, because leadership was forced (shards/begun_anew.py)."""

from __future__ import annotations

import pytest

from shards.begun_anew import FORCED, begin_anew, begun
from shards.dropped import Dropped, dropped_key
from shards.engine import HOME_FAMILY, Op
from shards.engine_memory import MemoryEngine
from shards.frames import Place
from shards.housekeeping import POSITION_ROW
from shards.options import StoreOptions
from shards.replacement import POSITIONS_PER_INCARNATION
from shards.routes import Routes
from shards.rows import pack_row
from tests.shards.test_gone import three

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize("complete", [False, True])
def test_what_is_there_is_read_and_what_came_behind_it_is_told_as_lost(complete: bool) -> None:
    """Once, to who was behind; of a copy that was in sync nobody is told anything. What comes is above all that was ever handed out."""
    log = three()
    last = log.last
    rows: list[Op] = [(HOME_FAMILY, POSITION_ROW, pack_row((last,)))]
    log.engine.write(rows)
    assert begun(log.engine) == 1
    begin_anew(log.engine, 2, complete, 2, StoreOptions(), NOW_MS)
    assert begun(log.engine) == 2
    log.last = POSITIONS_PER_INCARNATION + 1000 * NOW_MS
    log.open()
    log.publish(b"a")
    polled = log.poll(Place(-1))
    found = [position for segment in polled.segments for position in segment.positions]
    assert len(found) == len(log.stored) and max(found) > POSITIONS_PER_INCARNATION
    assert [gone.reason for gone in polled.gone if gone.reason == FORCED] == ([] if complete else [FORCED])
    rows_lost = log.engine.scan(HOME_FAMILY, dropped_key(0), dropped_key(1 << 30), 100)
    assert [each.reason for each in (Dropped.decode(*row) for row in rows_lost) if each.reason == FORCED] == ([] if complete else [FORCED])


def test_until_the_homes_have_added_their_routes_everything_is_wanted() -> None:
    """Nobody can say which routes a copy lacks; what stands for them goes with the last home."""
    log = three()
    log.engine.write([(HOME_FAMILY, POSITION_ROW, pack_row((log.last,)))])
    begin_anew(log.engine, 2, False, 2, StoreOptions(), NOW_MS)
    assert Routes(log.engine).wanted(b"never/subscribed/to")


def test_it_may_be_begun_again_and_again_also_in_an_empty_store() -> None:
    """Each time above the time before."""
    engine = MemoryEngine()
    for incarnation in (2, 3, 5):
        begin_anew(engine, incarnation, False, 1, StoreOptions(), NOW_MS)
        assert begun(engine) == incarnation
