"""The shard core, event by event: what is stored, what is answered, what survives."""

from __future__ import annotations

import pytest

from shards.core import ShardCore
from shards.engine_memory import MemoryEngine
from shards.feeds import CREDIT_FRAMES
from shards.frames import (
    NOBODY,
    Answer,
    Check,
    Connect,
    Connected,
    Feed,
    FeedTaken,
    FeedWant,
    Load,
    Loaded,
    Place,
    Publish,
    Published,
    Query,
    RangeRead,
    ReadRange,
    Refused,
    Request,
    Result,
    Retain,
    Retained,
    RetainedMessages,
    RetainedPage,
    Route,
    Routed,
)  # fmt: skip
from shards.ids import sub_id
from shards.messages import QOS_MASK, RETAIN, header, topic_of
from shards.options import StoreOptions
from shards.slots import SlotTable
from shards.store import Store
from tests.shards.harness import G, Harness, S, connect, linked, poll, publish, route, topics


def test_an_answer_leaves_only_when_its_record_is_committed() -> None:
    """PUBACK may follow only after the sync that covers the message."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"t")
    h.sent.clear()
    h.request(G, publish(b"p", conn, b"t"))
    h.tick(sync=False)
    assert not [frame for frame in h.sent[G] if isinstance(frame, Answer)]
    h.commit()
    (answer,) = h.take(G, Answer)
    assert answer.replies == [Published(False, b"")]


def test_only_what_a_route_before_it_asks_for_is_stored() -> None:
    """A message before the route is answered NOBODY; one after it is stored and read from the route's position."""
    h = linked()
    conn = connect(h, b"p").conn
    assert h.ask(G, publish(b"p", conn, b"a/b")) == [Published(False, bytes([NOBODY]))]
    position = route(h, b"a/+")
    assert h.ask(G, publish(b"p", conn, b"a/b", b"x")) == [Published(False, bytes([0, NOBODY]))]
    assert topics(poll(h, b"a/+", Place(position))) == [b"a/b"]
    assert h.ask(S, Route([], [(7, b"a/+")]))
    assert h.ask(G, publish(b"p", conn, b"a/b")) == [Published(False, bytes([NOBODY]))]


def test_a_route_is_a_set_of_ids_not_a_counter() -> None:
    """Repeated additions are removed by one removal of the id; another id keeps the route."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"t", 1)
    route(h, b"t", 1)
    route(h, b"t", 2)
    h.ask(S, Route([], [(1, b"t")]))
    assert h.ask(G, publish(b"p", conn, b"t")) == [Published(False, b"")]
    h.ask(S, Route([], [(1, b"t")]))
    assert h.ask(G, publish(b"p", conn, b"t")) == [Published(False, b"")]
    h.ask(S, Route([], [(2, b"t")]))
    assert h.ask(G, publish(b"p", conn, b"t")) == [Published(False, bytes([NOBODY]))]


@pytest.mark.parametrize("crash", [False, True])
def test_a_replaced_owner_adds_no_route_that_its_successor_has_removed(crash: bool) -> None:
    """Its addition may come late, from a process that stood still; a newer owner's own routes are added."""
    h = linked()
    conn = connect(h, b"p").conn
    late, fresh = sub_id(0, 1, 1), sub_id(0, 2, 1)
    h.ask(S, Route([], [(late, b"t")], (), ((0, 2),)))
    if crash:
        h.reopen()
        h.link(G, "gateway", "g0:a")
        h.link(S, "session", "s0:a")
    assert isinstance(h.ask(S, Route([(late, b"t")], [], (b"c",)))[0], Routed)
    assert h.ask(G, publish(b"p", conn, b"t")) == [Published(False, bytes([NOBODY]))]
    h.ask(S, Route([(fresh, b"t"), (sub_id(1, 1, 1), b"u")], [], (b"c", b"d")))
    assert h.ask(G, publish(b"p", conn, b"t", b"u")) == [Published(False, b"")]


def test_a_repeated_frame_gets_its_old_answer_and_stores_nothing() -> None:
    """Across a reconnect and across a crash of the shard."""
    h = linked()
    conn = connect(h, b"p").conn
    position = route(h, b"t")
    number = h.request(G, publish(b"p", conn, b"t"))
    h.tick()
    for again in range(2):
        if again:
            h.reopen()
            h.link(G, "gateway", "g0:a")
            h.link(S, "session", "s0:a")
        h.take(G, Answer)
        h.receive(G, Request(number, [publish(b"p", conn, b"t")]))
        h.tick()
        (answer,) = h.take(G, Answer)
        assert (answer.number, answer.replies) == (number, [Published(False, b"")])
        assert topics(poll(h, b"t", Place(position))) == [b"t"]


@pytest.mark.parametrize("repeated_before_the_commit", [0, 1, 2])
def test_answers_stay_in_order_over_a_new_link(repeated_before_the_commit: int) -> None:
    """The answer to a frame under way left over a new link before the older ones, which were lost with the old link, were asked for
    again; the sender takes that for a fault and cuts the link."""
    h = linked()
    conn = connect(h, b"p").conn
    first = h.request(G, publish(b"p", conn, b"t"))
    h.tick()
    second = h.request(G, publish(b"p", conn, b"t"))
    h.tick(sync=False)
    h.sent[G].clear()
    h.unlink(G)
    h.link(7, "gateway", "g0:a")
    frames = [Request(number, [publish(b"p", conn, b"t")]) for number in (first, second)]
    for frame in frames[:repeated_before_the_commit]:
        h.receive(7, frame)
    h.tick(sync=False)
    h.commit()
    for frame in frames[repeated_before_the_commit:]:
        h.receive(7, frame)
    h.tick()
    assert [answer.number for answer in h.take(7, Answer)] == [first, second]
    assert h.core.counters["messages_nobody"] == 2


def test_a_gap_in_the_numbers_closes_the_link() -> None:
    """A frame ahead of the sequence means that one before it was lost, and is not taken."""
    h = linked()
    h.receive(G, Request(5, [Check([])]))
    h.tick()
    assert "gap" in h.closed[G]


def test_power_loss_before_the_sync_loses_record_and_number_together() -> None:
    """The gateway's second sending is then taken as new, and stored once."""
    h = linked()
    conn = connect(h, b"p").conn
    position = route(h, b"t")
    number = h.request(G, publish(b"p", conn, b"t"))
    h.tick(sync=False)
    h.reopen(power=True)
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    h.receive(G, Request(number, [publish(b"p", conn, b"t")]))
    h.tick()
    (answer,) = h.take(G, Answer)
    assert answer.replies == [Published(False, b"")]
    assert topics(poll(h, b"t", Place(position))) == [b"t"]


def test_a_query_is_answered_when_what_it_read_is_committed() -> None:
    """A page of retained messages was told while the record of one of them was not yet synced; rows of a session as well."""
    h = linked()
    conn = connect(h, b"p", expiry_s=60).conn
    h.request(G, publish(b"p", conn, b"r", retain=1))
    h.receive(S, Query(1, RetainedPage(b"r", b"", 10)))
    h.receive(S, Query(2, Load(b"p")))
    h.tick(sync=False)
    assert h.take(S, Result) == []
    h.commit()
    page, loaded = h.take(S, Result)
    assert isinstance(page.told, RetainedMessages) and [topic_of(value) for value in page.told.values] == [b"r"]
    assert isinstance(loaded.told, Loaded) and loaded.told.conn == conn


def test_after_a_kill_no_frame_is_taken_before_the_opening_sync() -> None:
    """A frame sent again after a restart got its old answer from the page cache, and a power cut lost what was acknowledged; a
    range that was read again was empty, and its messages counted as lost."""
    h = linked()
    conn = connect(h, b"p").conn
    start = route(h, b"#")
    number = h.request(G, publish(b"p", conn, b"t"))
    h.tick()
    h.take(G, Answer)
    (segment,) = poll(h, b"#", Place(start)).segments
    assert isinstance(h.engine, MemoryEngine)
    h.engine = h.engine.crash(power=False)
    h.core = ShardCore(0, SlotTable.initial(1), h.engine, Store.open(h.engine, StoreOptions(), h.now_ms, h.now_ms), h.options)
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    h.receive(G, Request(number, [publish(b"p", conn, b"t")]))
    h.receive(S, Query(1, ReadRange(b"#", segment.streams, segment.after, segment.upto, segment.merged)))
    h.tick(sync=False)
    assert h.take(G, Answer) == [] and h.take(S, Result) == [] and not h.core.busy
    h.uncommitted = [h.core.recovered]
    h.commit()
    assert h.core.busy
    h.tick()
    assert h.take(G, Answer) == [Answer(number, [Published(False, b"")])]
    (told,) = h.take(S, Result)
    assert isinstance(told.told, RangeRead) and told.told.values == segment.values


def test_each_message_is_stored_with_its_own_topic_flags_and_body() -> None:
    """Length of the topic, QoS and retain change one at a time, each against its neighbours; what is the same is there twice in a row."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"#")
    ways = [(b"a", 1), (b"b", 1), (b"bb", 1), (b"bb", 2), (b"bb", 1), (b"b", 1), (b"b", 1 | RETAIN), (b"b", 1), (b"a", 2)]
    rows = [(topic, kind, b"\0%d" % number) for number, (topic, kind) in enumerate(way for way in ways for _ in range(2))]
    flags = bytes((kind & QOS_MASK) << 1 | (kind & RETAIN != 0) for _, kind, _ in rows)
    ids, names, bodies = list(range(1, len(rows) + 1)), [topic for topic, *_ in rows], [body for *_, body in rows]
    h.ask(G, Publish(b"p", conn, False, 77, flags, ids, names, bodies))
    found = [header(value) for segment in poll(h, b"#", Place(0), len(rows)).segments for value in segment.values]
    assert found == [(kind, 77, b"p", topic, body) for topic, kind, body in rows]


def test_retained_here_and_deleted_by_an_empty_payload() -> None:
    """A query gets what matches, in order; what was deleted stays deleted over a restart."""
    h = linked()
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"a/b", b"a/c", b"b", retain=1))
    h.receive(G, Query(1, RetainedPage(b"a/+", b"", 10)))
    h.tick()
    (result,) = h.take(G, Result)
    assert isinstance(result.told, RetainedMessages)
    assert [topic_of(value) for value in result.told.values] == [b"a/b", b"a/c"]
    h.ask(G, Publish(b"p", conn, False, 1, b"\3", [1], [b"a/b"], [b"\0"]))
    h.reopen()
    h.link(G, "gateway", "g0:b")
    h.receive(G, Query(1, RetainedPage(b"a/#", b"", 10)))
    h.tick()
    (result,) = h.take(G, Result)
    assert isinstance(result.told, RetainedMessages)
    assert [topic_of(value) for value in result.told.values] == [b"a/c"]


def test_the_publisher_waits_until_a_retained_message_is_at_its_home() -> None:
    """With three shards: outbox row, forward after the commit, answer after the home has it; also over a crash."""
    h = Harness(n_shards=3)
    h.link(G, "gateway", "g0:a")
    conn = connect(h, b"p").conn
    away = next(b"t%d" % i for i in range(100) if h.core._slots.shard_of(b"t%d" % i) == 1)
    number = h.request(G, publish(b"p", conn, away, retain=1))
    h.tick()
    assert h.take(G, Answer)[1:] == []
    (forward,) = h.forwarded
    h.forwarded.clear()
    h.reopen()
    h.link(G, "gateway", "g0:a")
    h.tick()
    (again,) = h.forwarded
    assert (again.shard, again.source, again.items) == (1, 0, forward.items)
    h.receive(G, Request(number, [publish(b"p", conn, away, retain=1)]))
    h.tick()
    assert h.take(G, Answer) == []
    h._carry_out(h.core.outbox_arrived(1, forward.items[-1][0]))
    h.tick()
    # Older answers come again before it, in order; a sender that has them passes over them.
    assert [answer.number for answer in h.take(G, Answer)] == list(range(1, number + 1))

    home = Harness(shard=1, n_shards=3)
    home.link(5, "shard", "shard-0:a")
    assert home.ask(5, Retain(0, forward.items)) == [Retained(forward.items[-1][0])]
    assert home.ask(5, Retain(0, [(forward.items[0][0], away, b"", b"")])) == [Retained(forward.items[-1][0])]
    home.receive(5, Query(1, RetainedPage(away, b"", 10)))
    home.tick()
    (result,) = home.take(5, Result)
    assert isinstance(result.told, RetainedMessages) and len(result.told.values) == 1


def test_a_feed_has_no_hole_and_obeys_its_credit() -> None:
    """Frames follow each other without gap until the credit is used; then one begins where the last ended, without a turn for it."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"t/#")
    h.receive(S, FeedWant(1, [b"t/#"], []))
    h.tick()
    seen = []
    for _ in range(8):
        h.ask(G, publish(b"p", conn, b"t/1", b"t/2"))
        seen += h.take(S, Feed)
    assert len(seen) == 4
    h.receive(S, FeedTaken(seen[-1].upto))
    assert not h.core.busy
    seen += h.take(S, Feed)
    assert [feed.after for feed in seen[1:]] == [feed.upto for feed in seen[:-1]]
    assert sum(len(feed.values) for feed in seen) == 16
    assert all(feed.after < position <= feed.upto for feed in seen for position in feed.positions)


def test_a_late_want_begins_where_the_log_was_examined() -> None:
    """A filter added later is covered from a position that a poll after it reaches, so nothing falls between."""
    h = linked()
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    h.receive(S, FeedWant(1, [b"a"], []))
    h.ask(G, publish(b"p", conn, b"b"))
    h.receive(S, FeedWant(2, [b"b"], []))
    polled = poll(h, b"b", Place(position))
    assert topics(polled) == [b"b"] and polled.at_head
    h.ask(G, publish(b"p", conn, b"b"))
    feed = [frame for frame in h.take(S, Feed) if frame.values][-1]
    assert feed.version == 2 and feed.after <= polled.place.cut < feed.positions[0]


def test_a_sweep_goes_stream_by_stream_and_is_repeatable() -> None:
    """Behind the tail: every message once, FIFO per topic, each segment readable again, in any size of step."""
    h = linked(tail_bytes_max=1)
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    sent: dict[bytes, int] = {}
    for n in range(40):
        batch = [b"s%d" % ((n * 7 + i) % 11) for i in range(5)]
        for topic in batch:
            sent[topic] = sent.get(topic, 0) + 1
        h.ask(G, publish(b"p", conn, *batch))
    for step in (1, 3, 7, 50, 1000):
        place, got, positions = Place(position), dict[bytes, int](), dict[bytes, list[int]]()
        while True:
            polled = poll(h, b"#", place, count=step)
            for segment in polled.segments:
                assert len(segment.values) <= step
                again = ReadRange(b"#", segment.streams, segment.after, segment.upto, segment.merged)
                h.receive(S, Query(3, again))
                h.tick()
                (result,) = h.take(S, Result)
                assert result.told is not None and result.told.positions == segment.positions  # type: ignore[union-attr]
                assert result.told.values == segment.values  # type: ignore[union-attr]
                for at, value in zip(segment.positions, segment.values, strict=True):
                    got[topic_of(value)] = got.get(topic_of(value), 0) + 1
                    positions.setdefault(topic_of(value), []).append(at)
            place = polled.place
            if polled.at_head:
                break
        assert got == sent, step
        assert all(found == sorted(set(found)) for found in positions.values())


def test_without_room_messages_are_refused_and_everything_else_goes_on() -> None:
    """Level 1: reason code per message; level 2: the whole frame stays with its sender and uses no number."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"t")
    h.space(1)
    (reply,) = h.ask(G, publish(b"p", conn, b"t", b"nobody"))
    assert reply == Published(False, bytes([3, NOBODY]))
    h.space(2)
    number = h.request(G, publish(b"p", conn, b"t"))
    h.tick()
    assert [frame.number for frame in h.take(G, Refused)] == [number]
    h.space(0)
    h.take(G, Answer)
    h.receive(G, Request(number, [publish(b"p", conn, b"t")]))
    h.tick()
    assert [answer.replies for answer in h.take(G, Answer)] == [[Published(False, b"")]]


def test_nothing_that_a_client_of_3_1_1_sent_behind_a_refused_message_is_taken_before_it() -> None:
    """It cannot be told, so it is closed and sends everything again: what is on its way from the old connection is stale."""
    h = linked()
    (old,) = h.ask(G, Connect(b"old", False, 60, 4, None))
    (new,) = h.ask(G, Connect(b"new", False, 60, 5, None))
    assert isinstance(old, Connected) and isinstance(new, Connected)
    route(h, b"t")
    h.space(1)
    assert h.ask(G, publish(b"old", old.conn, b"t"), publish(b"new", new.conn, b"t")) == [Published(False, b"\3")] * 2
    h.space(0)
    assert h.ask(G, publish(b"old", old.conn, b"t"), publish(b"new", new.conn, b"t")) == [Published(True, b""), Published(False, b"")]


def test_no_generation_is_made_or_dropped_on_a_full_disk() -> None:
    """Both write to the disk at once, outside of any record, and would fail; they wait until there is room."""
    h = linked(generation_ms=10_000, retention_ms=30_000)
    conn = connect(h, b"p").conn
    route(h, b"t")
    h.ask(G, publish(b"p", conn, b"t"))
    h.space(2)
    for _ in range(30):
        h.tick(2_000)
    assert [info.id for info in h.core._store.generations()] == [1]
    h.space(0)
    h.tick(2_000)
    assert [info.id for info in h.core._store.generations()] == [1, 2]


def test_generations_roll_and_are_dropped_by_age() -> None:
    """Order continues over a roll; what is older than the retention period is gone, and reading it says so."""
    h = linked(generation_ms=10_000, retention_ms=30_000)
    conn = connect(h, b"p").conn
    position = route(h, b"t")
    for _ in range(5):
        h.ask(G, publish(b"p", conn, b"t"))
        for _ in range(6):
            h.tick(2_000)
            h.receive(G, Request(0, []))
    assert len({info.id for info in h.core._store.generations()}) >= 3
    polled = poll(h, b"t", Place(position))
    segment = next(segment for segment in polled.segments)
    for _ in range(40):
        h.tick(2_000)
    h.receive(S, Query(3, ReadRange(b"t", segment.streams, segment.after, segment.upto, segment.merged)))
    h.tick()
    (result,) = h.take(S, Result)
    assert result.told is not None and result.told.lost  # type: ignore[union-attr]


def test_a_reading_by_time_begins_before_the_first_message_of_that_time_and_not_much_earlier() -> None:
    """Marks every ten seconds, over generations; a wall clock that was set back gives more, never less."""
    h = linked(generation_ms=40_000)
    conn = connect(h, b"p").conn
    route(h, b"t")
    published: list[tuple[int, int]] = []
    for _ in range(60):
        h.ask(G, publish(b"p", conn, b"t"))
        published.append((h.now_ms, h.core.watermark))
        h.tick(2_000)
    assert len(h.core._store.generations()) >= 3
    for wanted_ms, position in published:
        at = h.core._store.position_at(wanted_ms)
        assert at < position
        assert sum(at < other < position for _, other in published) <= 6
    assert h.core._store.position_at(0) < published[0][1]


def test_a_hole_is_told_even_when_nothing_in_what_follows_matches() -> None:
    """Who stands at the head must learn at once that the tail has moved past it, not with its next message."""
    h = linked(tail_bytes_max=1)
    conn = connect(h, b"p").conn
    route(h, b"#")
    h.receive(S, FeedWant(1, [b"wanted"], []))
    for _ in range(CREDIT_FRAMES):
        h.ask(G, publish(b"p", conn, b"wanted"))
    last = h.take(S, Feed)[-1].upto
    h.ask(G, publish(b"p", conn, b"wanted"))
    h.ask(G, publish(b"p", conn, b"other"))
    h.receive(S, FeedTaken(last))
    h.tick()
    (frame,) = h.take(S, Feed)
    assert frame.after > last and not frame.values


def test_a_new_answer_does_not_overtake_one_that_waits_for_a_retained_message() -> None:
    """Found by the simulator: after a restart the old answer waited for the outbox, and the next frame was answered first."""
    h = Harness(n_shards=3)
    h.link(G, "gateway", "g0:a")
    conn = connect(h, b"p").conn
    away = next(b"t%d" % i for i in range(100) if h.core._slots.shard_of(b"t%d" % i) == 1)
    number = h.request(G, publish(b"p", conn, away, retain=1))
    h.tick()
    (forward,) = h.forwarded
    h.reopen()
    h.link(G, "gateway", "g0:a")
    h.receive(G, Request(number, [publish(b"p", conn, away, retain=1)]))
    h.request(G, publish(b"p", conn, b"other"))
    h.tick()
    assert h.take(G, Answer) == []
    h._carry_out(h.core.outbox_arrived(1, forward.items[-1][0]))
    assert [answer.number for answer in h.take(G, Answer)] == [1, number, number + 1]
