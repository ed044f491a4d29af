"""The shard core, event by event: who may write, what is stored, what is answered, what survives."""

from __future__ import annotations

import pytest

from shards.core import ShardOptions
from shards.frames import (
    LOST,
    NO_SESSION,
    NOBODY,
    NORMAL,
    OLD_CONN,
    OLD_TOKEN,
    REPEATED,
    TAKEN,
    Answer,
    Check,
    Checked,
    Commit,
    CommitDone,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    Feed,
    FeedTaken,
    FeedWant,
    Live,
    Load,
    Loaded,
    Own,
    Owned,
    Place,
    Poll,
    Polled,
    Publish,
    Published,
    Query,
    ReadRange,
    Refused,
    Release,
    Released,
    Request,
    Result,
    Retain,
    Retained,
    RetainedMessages,
    RetainedPage,
    Route,
    Routed,
    Superseded,
    Will,
    Work,
    WorkDone,
)  # fmt: skip
from shards.ids import EXPIRY_NEVER
from shards.messages import topic_of
from shards.rows import ACTIVE, SUBSCRIPTION, SubscriptionRow, pack_row, u64
from tests.shards.harness import Harness

G, S = 1, 2


def harness(**options: int | bool) -> Harness:
    made = Harness(options=ShardOptions(**options))  # type: ignore[arg-type]
    made.link(G, "gateway", "g0:a")
    made.link(S, "session", "s0:a")
    return made


def connect(h: Harness, client: bytes, expiry_s: int = 0, clean: bool = False, will: Will | None = None, link: int = G) -> Connected:
    (reply,) = h.ask(link, Connect(client, clean, expiry_s, 5, will))
    assert isinstance(reply, Connected)
    return reply


def publish(
    client: bytes, conn: int, *topics: bytes, qos: int = 1, ids: list[int] | None = None, keep: bool = False, retain: int = 0
) -> Publish:
    n = len(topics)
    flags = bytes([qos << 1 | retain]) * n
    return Publish(client, conn, keep, 77, flags, ids or list(range(1, n + 1)), list(topics), [b"\0" + b"m%d" % i for i in range(n)])


def poll(h: Harness, topic_filter: bytes, place: Place, count: int = 100, size: int = 1 << 20) -> Polled:
    h.receive(S, Query(9, Poll(topic_filter, place, count, size)))
    h.tick()
    (result,) = h.take(S, Result)
    assert isinstance(result.told, Polled)
    return result.told


def route(h: Harness, topic_filter: bytes, sub: int = 7) -> int:
    (reply,) = h.ask(S, Route([(sub, topic_filter)], []))
    assert isinstance(reply, Routed)
    return reply.position


def topics(polled: Polled) -> list[bytes]:
    return [topic_of(value) for segment in polled.segments for value in segment.values]


def test_an_answer_leaves_only_when_its_record_is_committed() -> None:
    """PUBACK may follow only after the sync that covers the message."""
    h = harness()
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
    h = harness()
    conn = connect(h, b"p").conn
    assert h.ask(G, publish(b"p", conn, b"a/b")) == [Published(False, bytes([NOBODY]))]
    position = route(h, b"a/+")
    assert h.ask(G, publish(b"p", conn, b"a/b", b"x")) == [Published(False, bytes([0, NOBODY]))]
    assert topics(poll(h, b"a/+", Place(position))) == [b"a/b"]
    assert h.ask(S, Route([], [(7, b"a/+")]))
    assert h.ask(G, publish(b"p", conn, b"a/b")) == [Published(False, bytes([NOBODY]))]


def test_a_route_is_a_set_of_ids_not_a_counter() -> None:
    """Repeated additions are removed by one removal of the id; another id keeps the route."""
    h = harness()
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


def test_a_repeated_frame_gets_its_old_answer_and_stores_nothing() -> None:
    """Across a reconnect and across a crash of the shard."""
    h = harness()
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


def test_a_gap_in_the_numbers_closes_the_link() -> None:
    h = harness()
    h.receive(G, Request(5, [Check([])]))
    h.tick()
    assert "gap" in h.closed[G]


def test_power_loss_before_the_sync_loses_record_and_number_together() -> None:
    """The gateway's second sending is then taken as new, and stored once."""
    h = harness()
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


def test_late_frames_of_an_older_connection_have_no_effect() -> None:
    """PUBLISH, PUBREL and DISCONNECT of a connection that was taken over are dropped whole; its gateway is told."""
    h = harness()
    h.link(3, "gateway", "g1:a")
    old = connect(h, b"c", expiry_s=60, will=Will(b"w", 1, False, 0, b"\0gone")).conn
    new = connect(h, b"c", expiry_s=60, link=3)
    assert new.present and new.conn > old
    assert h.take(G, Superseded) == [Superseded([[b"c", old]])]  # type: ignore[list-item]
    position = route(h, b"#")
    assert h.ask(G, publish(b"c", old, b"t"), Release(b"c", old, [1]), Disconnect(b"c", old, LOST, None)) == [
        Published(True, b""), Released(True, b""), Disconnected(True),
    ]  # fmt: skip
    assert topics(poll(h, b"#", Place(position))) == []
    assert h.ask(G, Check([(b"c", old), (b"c", new.conn)])) == [Checked([old])]
    assert h.ask(3, publish(b"c", new.conn, b"t")) == [Published(False, b"")]


def test_connection_numbers_grow_over_crashes() -> None:
    h = harness()
    first = connect(h, b"a").conn
    h.reopen()
    h.link(G, "gateway", "g0:b")
    second = connect(h, b"b").conn
    assert second > first


def test_a_qos2_id_is_known_until_released_whatever_crashes() -> None:
    """A repeat is answered and not stored; after PUBREL the id is new again."""
    h = harness()
    conn = connect(h, b"p", expiry_s=60).conn
    position = route(h, b"t")
    message = publish(b"p", conn, b"t", qos=2, ids=[5], keep=True)
    assert h.ask(G, message) == [Published(False, b"")]
    h.reopen()
    h.link(G, "gateway", "g0:c")
    h.link(S, "session", "s0:c")
    assert h.ask(G, message) == [Published(False, bytes([REPEATED]))]
    assert h.ask(G, Release(b"p", conn, [5, 6])) == [Released(False, b"\1\0")]
    assert h.ask(G, message) == [Published(False, b"")]
    assert topics(poll(h, b"t", Place(position))) == [b"t", b"t"]


def test_commits_are_fenced_by_token_session_and_connection() -> None:
    """Each wrong one is refused inside the record, and writes nothing."""
    h = harness()
    connected = connect(h, b"c", expiry_s=60)
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    row = (SUBSCRIPTION, u64(1), b"x")
    sid, conn = connected.session_id, connected.conn
    assert h.ask(S, Commit(owned.token, b"c", sid, conn, [row], [])) == [CommitDone(TAKEN)]
    assert h.ask(S, Commit(owned.token, b"c", sid + 256, conn, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(NO_SESSION)]
    assert h.ask(S, Commit(owned.token, b"c", sid, conn + 256, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(OLD_CONN)]
    h.link(4, "session", "s0:b")
    (newer,) = h.ask(4, Own())
    assert isinstance(newer, Owned) and newer.token > owned.token
    assert h.ask(S, Commit(owned.token, b"c", sid, conn, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(OLD_TOKEN)]
    h.receive(4, Query(1, Load(b"c")))
    h.tick()
    (result,) = h.take(4, Result)
    assert isinstance(result.told, Loaded)
    assert (result.told.session_id, [tuple(found) for found in result.told.rows]) == (sid, [row])


def subscribe_row(h: Harness, client: bytes, connected: Connected, token: int, sub: int, topic_filter: bytes) -> None:
    row = pack_row(SubscriptionRow(topic_filter, 1, 0, 0, ACTIVE, []))
    assert h.ask(S, Commit(token, client, connected.session_id, connected.conn, [(SUBSCRIPTION, u64(sub), row)], [])) == [CommitDone(TAKEN)]


@pytest.mark.parametrize("how", ["clean start", "expiry", "expiry over a crash"])
def test_an_ended_session_leaves_work_until_it_is_done(how: str) -> None:
    """Its rows go at once, its routes become work for the owner, told and kept until WorkDone."""
    h = harness()
    connected = connect(h, b"c", expiry_s=10)
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    subscribe_row(h, b"c", connected, owned.token, 7, b"t")
    if how == "clean start":
        fresh = connect(h, b"c", expiry_s=10, clean=True)
        assert not fresh.present and fresh.session_id != connected.session_id
    else:
        h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
        if how == "expiry":
            h.tick(9_999)
            assert h.take(S, Work) == []
            h.tick(2)
        else:
            h.reopen()
            h.link(S, "session", "s0:a")
            h.tick(10_001)
    assert h.take(S, Work) == [Work([[b"c", 7, b"t"]])]  # type: ignore[list-item]
    h.reopen()
    h.link(S, "session", "s1:a")
    (again,) = h.ask(S, Own())
    assert isinstance(again, Owned) and [tuple(item) for item in again.work] == [(b"c", 7, b"t")]
    h.ask(S, WorkDone(again.token, [(b"c", 7)]))
    (clean,) = h.ask(S, Own())
    assert isinstance(clean, Owned) and clean.work == []


def test_a_session_without_end_never_expires_and_a_resume_cancels_the_timer() -> None:
    h = harness()
    forever = connect(h, b"a", expiry_s=EXPIRY_NEVER)
    short = connect(h, b"b", expiry_s=10)
    h.ask(G, Disconnect(b"a", forever.conn, NORMAL, None), Disconnect(b"b", short.conn, NORMAL, None))
    h.tick(9_000)
    assert connect(h, b"b", expiry_s=10).present
    h.tick(1_000_000)
    assert connect(h, b"a", expiry_s=EXPIRY_NEVER).present and connect(h, b"b", expiry_s=10).present


def test_a_disconnect_can_change_the_expiry_and_zero_ends_the_session() -> None:
    h = harness()
    first = connect(h, b"c", expiry_s=60)
    h.ask(G, Disconnect(b"c", first.conn, NORMAL, 0))
    assert not connect(h, b"c", expiry_s=60).present


@pytest.mark.parametrize(("how", "told"), [(NORMAL, 0), (LOST, 1)])
def test_a_will_is_stored_in_the_record_that_ends_its_connection(how: int, told: int) -> None:
    """Stored for durable subscribers, told to gateways for live ones, once; a normal end discards it."""
    h = harness()
    position = route(h, b"w")
    connected = connect(h, b"c", will=Will(b"w", 1, False, 0, b"\0gone"))
    h.ask(G, Disconnect(b"c", connected.conn, how, None))
    h.ask(G, Disconnect(b"c", connected.conn, how, None))
    assert len(topics(poll(h, b"w", Place(position)))) == told
    assert h.take(G, Live) == [Live(b"c", 2, b"w", b"\0gone")] * told


def test_a_delayed_will_waits_and_a_resume_cancels_it() -> None:
    h = harness()
    position = route(h, b"w")
    will = Will(b"w", 1, False, 5, b"\0gone")
    one = connect(h, b"a", expiry_s=60, will=will)
    two = connect(h, b"b", expiry_s=60, will=will)
    h.ask(G, Disconnect(b"a", one.conn, LOST, None), Disconnect(b"b", two.conn, LOST, None))
    h.tick(4_000)
    assert connect(h, b"b", expiry_s=60).present
    assert topics(poll(h, b"w", Place(position))) == []
    h.tick(2_000)
    h.tick(1)
    assert topics(poll(h, b"w", Place(position))) == [b"w"]


def test_a_gateway_that_is_silent_for_20_seconds_is_lost_and_cannot_come_back() -> None:
    """Its connections end under new numbers, so what it still sends is refused."""
    h = harness()
    position = route(h, b"w")
    connected = connect(h, b"c", expiry_s=600, will=Will(b"w", 1, False, 0, b"\0gone"))
    h.tick(19_000)
    assert topics(poll(h, b"w", Place(position))) == []
    h.tick(2_000)
    h.tick(1_001)
    assert topics(poll(h, b"w", Place(position))) == [b"w"]
    assert h.ask(G, publish(b"c", connected.conn, b"w")) == [Published(True, b"")]
    assert connect(h, b"c", expiry_s=600).present


def test_retained_here_and_deleted_by_an_empty_payload() -> None:
    h = harness()
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
    assert [answer.number for answer in h.take(G, Answer)] == [number]

    home = Harness(shard=1, n_shards=3)
    home.link(5, "shard", "shard-0:a")
    assert home.ask(5, Retain(0, forward.items)) == [Retained(forward.items[-1][0])]
    assert home.ask(5, Retain(0, [(forward.items[0][0], away, b"")])) == [Retained(forward.items[-1][0])]
    home.receive(5, Query(1, RetainedPage(away, b"", 10)))
    home.tick()
    (result,) = home.take(5, Result)
    assert isinstance(result.told, RetainedMessages) and len(result.told.values) == 1


def test_a_feed_has_no_hole_and_obeys_its_credit() -> None:
    """Frames follow each other without gap until the credit is used; then one begins where the last ended."""
    h = harness()
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
    h.tick()
    seen += h.take(S, Feed)
    assert [feed.after for feed in seen[1:]] == [feed.upto for feed in seen[:-1]]
    assert sum(len(feed.values) for feed in seen) == 16
    assert all(feed.after < position <= feed.upto for feed in seen for position in feed.positions)


def test_a_late_want_begins_where_the_log_was_examined() -> None:
    """A filter added later is covered from a position that a poll after it reaches, so nothing falls between."""
    h = harness()
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
    h = harness(tail_bytes_max=1)
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
    h = harness()
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


def test_generations_roll_and_are_dropped_by_age() -> None:
    """Order continues over a roll; what is older than the retention period is gone, and reading it says so."""
    h = harness(generation_ms=10_000, retention_ms=30_000)
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
