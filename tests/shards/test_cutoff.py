"""A shard whose layout has a cut-off: polls, and the empty record of an idle shard."""

from __future__ import annotations

import pytest

from shards.frames import Place, Poll, Polled, Query, Result
from shards.logical import Message, open_log
from shards.messages import topic_of
from shards.options import ShardOptions, StoreOptions
from tests.shards.harness import G, Harness, S, connect, poll, publish, route, topics

EPOCH_MS = 1049
"""A little more than 2 ** 20 us."""
BIT_FIELDS = StoreOptions("wildcard_optimized", (0,))


def shard(store: StoreOptions = BIT_FIELDS, tail_bytes_max: int = 1) -> Harness:
    made = Harness(options=ShardOptions(tail_bytes_max=tail_bytes_max), store=store)
    made.link(G, "gateway", "g0:a")
    made.link(S, "session", "s0:a")
    return made


def asked(h: Harness, topic_filter: bytes, place: Place, count: int = 100) -> Polled | None:
    h.receive(S, Query(9, Poll(topic_filter, place, count, 1 << 20)))
    h.tick()
    (result,) = h.take(S, Result)
    assert result.told is None or isinstance(result.told, Polled)
    return result.told


def all_of(h: Harness, topic_filter: bytes, place: Place, wait_ms: int = 500) -> tuple[list[bytes], int]:
    """As a session reads: asks again later when told nothing, until it is at the head; and how often it was told nothing."""
    found: list[bytes] = []
    waits = 0
    for _ in range(1000):
        polled = asked(h, topic_filter, place, 7)
        if polled is None:
            waits += 1
            h.pass_time(wait_ms)
            continue
        found += topics(polled)
        place = polled.place
        if polled.at_head:
            return found, waits
    raise AssertionError("the head is never reached")


def test_behind_the_tail_a_poll_stops_at_the_cut_off_and_asks_again() -> None:
    # Property: what is in an epoch that is not complete comes when it is, once, in order, without a further publish.
    h = shard()
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    sent = [b"d/%d" % (n % 9) for n in range(30)]
    h.ask(G, publish(b"p", conn, *sent))
    h.pass_time(EPOCH_MS)
    late = [b"d/%d" % (n % 4) for n in range(30, 40)]
    h.ask(G, publish(b"p", conn, *late))
    first = asked(h, b"#", Place(position))
    assert first is not None and sorted(topics(first)) == sorted(sent) and not first.at_head
    assert first.place.cut < h.core.watermark
    assert asked(h, b"#", first.place) is None, "the rest has to wait for the end of its epoch"
    found, waits = all_of(h, b"#", first.place)
    assert sorted(found) == sorted(late) and 1 <= waits <= 4


def test_the_tail_knows_no_cut_off() -> None:
    # Property: whom the tail reaches is served at once; only the store is read with a delay.
    h = shard(tail_bytes_max=1 << 20)
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    h.ask(G, publish(b"p", conn, b"a/1", b"a/2"))
    polled = poll(h, b"a/+", Place(position))
    assert topics(polled) == [b"a/1", b"a/2"] and polled.at_head
    h.ask(G, publish(b"p", conn, *[b"other/%d" % n for n in range(300)], b"a/3"))
    found, waits = all_of(h, b"a/+", polled.place)
    assert found == [b"a/3"] and waits == 0, "a filter that matches little goes through the tail, where a sweep would have to wait"


def test_a_range_is_read_again_beyond_the_cut_off() -> None:
    # Property: what was told from the tail can be read again at once, in the midst of its epoch.
    h = shard(tail_bytes_max=1 << 20)
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    h.ask(G, publish(b"p", conn, *[b"a/%d" % (n % 3) for n in range(20)]))
    (segment,) = poll(h, b"a/+", Place(position)).segments
    again = h.core._store.read_range(b"a/+", segment.streams, segment.after, segment.upto)
    assert [at for at, _ in again] == segment.positions and [value for _, value in again] == segment.values


@pytest.mark.parametrize("layout", ["wildcard_optimized", "pagestream", "skipstream", "record_batch"])
def test_an_idle_shard_commits_one_empty_record(layout: str) -> None:
    # Property: the last epoch is completed by a committed record that holds nothing but its position, once, and only for this layout.
    h = shard(StoreOptions(layout, (0,)))
    conn = connect(h, b"p").conn
    route(h, b"#")
    h.pass_time(3 * EPOCH_MS)
    quiet = h.core.watermark
    h.pass_time(3 * EPOCH_MS)
    assert h.core.watermark == quiet, "nothing waits, so nothing is written"
    h.ask(G, publish(b"p", conn, b"a/b"))
    written = h.core.watermark
    h.pass_time(2 * EPOCH_MS)
    ticked = h.core.watermark
    assert (ticked > written + 400_000) == (layout == "wildcard_optimized")
    h.pass_time(5 * EPOCH_MS)
    assert h.core.watermark == ticked


def test_what_was_put_before_a_crash_does_not_wait_for_the_next_message() -> None:
    # Property: after a restart the shard completes the epoch of messages that it has not put itself.
    h = shard()
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    h.ask(G, publish(b"p", conn, b"a/b", b"a/c"))
    h.reopen(power=True)
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:b")
    found, _ = all_of(h, b"#", Place(position))
    assert sorted(found) == [b"a/b", b"a/c"]


def test_a_full_disk_gets_no_empty_record() -> None:
    # Property: the idle record waits for room, like all that a shard does by itself.
    h = shard()
    conn = connect(h, b"p").conn
    route(h, b"#")
    h.ask(G, publish(b"p", conn, b"a/b"))
    written = h.core.watermark
    h.space(2)
    h.pass_time(4 * EPOCH_MS)
    assert h.core.watermark == written
    h.space(0)
    h.pass_time(EPOCH_MS)
    assert h.core.watermark > written


def test_the_library_reads_to_the_head() -> None:
    # Property: nobody waits there, so all that was appended is given at once, by streams and by subscription.
    with open_log("memory", "", BIT_FIELDS) as log:
        log.append([Message(b"a/%d" % n, b"x") for n in range(20)])
        subscription = log.subscribe(b"a/+")
        assert len(list(subscription)) == 20
        log.append([Message(b"a/5", b"y")])
        assert [message.payload for message in subscription] == [b"y"]
        (stream,) = log.get_streams(b"a/5")
        assert len(log.next(log.make_iterator(stream, b"a/5"), 9).messages) == 2


def test_generations_before_the_current_one_are_not_put_off() -> None:
    # Property: a roll completes all epochs before it.
    h = shard()
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    h.ask(G, publish(b"p", conn, b"a/b"))
    h.core._draft.ops.extend(h.core._store.roll(h.core._clock.take(), 0, 0))
    h.tick()
    polled = asked(h, b"#", Place(position))
    assert polled is not None and [topic_of(value) for segment in polled.segments for value in segment.values] == [b"a/b"]
