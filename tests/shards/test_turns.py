"""When the next turn of a shard is wanted (`ShardCore.wait_ms`): soon while there is work, seldom where there is none."""

from __future__ import annotations

from shards.bundles import FOLD_ROWS
from shards.events import SpaceChanged
from shards.housekeeping import TURN_MS, WORK_PAUSE_MS
from shards.options import ShardOptions, StoreOptions
from tests.shards.harness import G, Harness, S, connect, publish, route


def until_it_rests(h: Harness, pause_ms: int) -> int:
    """Turns that were wanted after this pause, before one was wanted after TURN_MS."""
    for turns in range(1000):
        if h.core.wait_ms == TURN_MS:
            return turns
        assert h.core.wait_ms == pause_ms
        h.tick(h.core.wait_ms)
    raise AssertionError("it never rests")


def stored(layout: str, messages: int) -> Harness:
    """So many, each of a topic of its own."""
    h = Harness(store=StoreOptions(layout, thresholds=(1, 1)))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"p").conn
    route(h, b"#")
    for number in range(messages // 100):
        h.ask(G, publish(b"p", conn, *[b"a/%d" % (number * 100 + at) for at in range(100)]))
    return h


def after_a_crash(layout: str, messages: int) -> Harness:
    """What was derived of them in memory is derived anew."""
    h = stored(layout, messages)
    h.reopen()
    h.tick()
    return h


def test_a_shard_with_nothing_to_do_wants_a_turn_now_and_then() -> None:
    """Each turn of an idle shard is processor time that somebody pays for nothing."""
    h = stored("skipstream", 1_000)
    assert h.core.wait_ms == TURN_MS


def test_what_is_derived_goes_on_when_nothing_comes_any_more() -> None:
    """A slice each turn, until there is nothing left to derive; then it rests."""
    h = after_a_crash("pagestream", 3_000)
    assert until_it_rests(h, WORK_PAUSE_MS) > 3
    assert not h.core._store.idle_work(h.core.watermark)


def test_nothing_is_derived_while_there_is_no_room() -> None:
    """So no turn is wanted for it."""
    h = after_a_crash("pagestream", 3_000)
    assert h.core.wait_ms == WORK_PAUSE_MS
    h.core.handle(SpaceChanged(1))
    h.tick()
    assert h.core.wait_ms == TURN_MS


def test_rows_that_are_old_enough_leave_their_bundles_one_slice_after_the_other() -> None:
    """However little happens meanwhile."""
    h = Harness(options=ShardOptions(bundled_ms=10_000))
    for number in range(10 * FOLD_ROWS):
        h.core._draft.bundle(b"x%d" % number, b"")
    h.tick()
    assert h.core.wait_ms == TURN_MS
    h.tick(10_000)
    assert until_it_rests(h, WORK_PAUSE_MS) == 9
    assert h.core._draft.bundled_rows == 0
