"""From the feed and from polls to PUBLISH, and acknowledgements back: windows, order, what waits for which commit."""

from __future__ import annotations

import pytest

from sessions.events import AskShard, FeedReceived, ToFeed, ToGateway, Wake
from sessions.frames import Deliver
from sessions.options import SessionOptions
from sessions.reading import BATCH_FIRST
from shards.frames import Commit, Feed, FeedTaken, Place, Poll
from shards.messages import RETAIN
from shards.rows import PLACE, PROGRESS, RANGE, ProgressRow, RangeRow, pack_place, pack_progress, pack_range, u64
from tests.sessions.scripted import CLIENT, GATEWAY, Script, families, online

AT = 1_700_000_000_000


def test_a_feed_frame_step_by_step() -> None:
    """Taken, delivered in the same tick, and committed beside it: QoS 1 waits for nothing."""
    s, conn = online(identifier=5)
    start = s.home.position
    s.publish(2)
    s.publish(1, topic=b"b")
    (feed,) = s.home.feed(1000)
    assert s.feed(FeedReceived(0, feed)) == [ToFeed(0, FeedTaken(start + 9))]
    effects = s.tick()
    sub = next(iter(s.home.routes))
    messages = [(b"a/1", b"\0m0", AT, 1), (b"a/1", b"\0m1", AT, 1), (b"b", b"\0m2", AT, 1)]
    row = RangeRow(sub, b"#", 1, 0, 5, 0, True, [(1, b"a"), (1, b"b")], start, start + 9, 1, 3, 1, 0, [])
    puts = [
        (PLACE, u64(sub) + b"\0", pack_place(Place(start + 9))),
        (RANGE, u64(1), pack_range(row)),
        (PROGRESS, b"", pack_progress(ProgressRow(2, 0, 4, 3, 0, 1, 0, [], online=True))),
    ]
    assert effects == [
        AskShard(0, s.asked[0].id, [Commit(1, CLIENT, conn, conn, puts, [])]),
        ToGateway(GATEWAY, Deliver(messages, [(conn, [0, 1, 2], [1, 2, 3], b"\x32\x32\x32", [5, 5, 5])])),
    ]


def test_what_is_acknowledged_before_it_is_committed_leaves_no_range() -> None:
    """Lazy commits: the row of a range that was opened and finished in between is never written."""
    s, conn = online(options=SessionOptions(lazy_commit_ms=20))
    s.publish(1)
    s.live()
    s.rest()
    s.puback(conn, 1)
    s.tick(20)
    s.rest()
    s.publish(3)
    s.live()
    assert Wake(19) in s.tick()
    assert s.asked == []
    s.puback(conn, 2, 3, 4)
    s.tick(20)
    (commit,) = s.commits()
    assert families(commit) == "pq"
    s.answer()
    assert s.progress() == ProgressRow(3, 4, 5, 4, 0, 1, 0, [], again=[], online=True)


def test_the_first_message_of_a_connection_is_committed_at_once() -> None:
    """From then on the row says that messages may have been sent of which it does not know; after the connection it does not."""
    s, conn = online(options=SessionOptions(lazy_commit_ms=20))
    assert not s.progress().online
    s.publish(1)
    s.live()
    s.tick()
    assert [families(commit) for commit in s.commits()] == ["pqr"]
    s.rest()
    assert s.progress().online
    s.detach(conn)
    s.rest()
    assert not s.progress().online


def test_acknowledgements_alone_wait_for_the_heartbeat() -> None:
    """Only the progress row is changed; but the end of a range's row is committed soon."""
    s, conn = online()
    s.publish(2)
    s.live()
    s.rest()
    s.puback(conn, 1)
    s.tick(100)
    assert s.asked == []
    s.tick(5_000)
    assert [families(commit) for commit in s.commits()] == ["q"]
    s.rest()
    s.puback(conn, 2)
    s.tick()
    assert [families(commit) for commit in s.commits()] == ["q-r"]


def test_the_window_is_never_overrun_and_refilled_in_the_tick_of_the_acks() -> None:
    """As many messages come as acknowledgements went."""
    s, conn = online(receive_max=4)
    s.publish(10)
    s.live()
    s.rest()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [1, 2, 3, 4]
    s.puback(conn, 1, 2, 3)
    s.tick()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [5, 6, 7]
    s.puback(conn, 5)
    s.puback(conn, 6, 7, 4)
    s.tick()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [8, 9, 10]


def test_our_own_bound_holds_when_the_client_has_none() -> None:
    """Receive Maximum 65,535, max_inflight 3."""
    s, _ = online(receive_max=65_535, options=SessionOptions(max_inflight=3))
    s.publish(10)
    s.live()
    s.rest()
    assert len(s.delivered()) == 3


def test_out_of_order_acknowledgements_free_the_window_and_commit_in_order() -> None:
    """A slow first message holds back `committed`, nothing else; a repeat and an unknown one are ignored."""
    s, conn = online(receive_max=4)
    s.publish(8)
    s.live()
    s.rest()
    s.delivered()
    s.puback(conn, 3, 2, 2, 77)
    s.tick()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [5, 6]
    s.tick(5_000)
    s.answer()
    assert s.progress().committed1 == 0
    s.puback(conn, 1)
    s.tick(5_000)
    s.answer()
    assert s.progress().committed1 == 3
    assert s.core.counters.acks_unknown == 2


def test_a_backlog_is_polled_batch_by_batch_as_the_window_moves() -> None:
    """One poll at a time; the next one when half of the bound is free; what waits unsent stays below window and batch."""
    options = SessionOptions(batch_size=10, lazy_commit_ms=0)
    s, conn = online(receive_max=20, options=options)
    s.detach(conn)
    s.rest()
    s.publish(100)
    conn = s.attach(receive_max=20)
    got: list[bytes] = []
    for _ in range(40):
        s.tick()
        assert len(s.polls()) <= 1
        s.answer()
        delivered = s.delivered()
        got += [payload for payload, _, _ in delivered]
        window = s.core._state.by_conn[conn].window
        assert window.unsent <= 30
        s.puback(conn, *[packet_id for _, packet_id, _ in delivered[:7]])
        s.puback(conn, *[packet_id for _, packet_id, _ in delivered[7:]])
    assert got == [b"m%d" % n for n in range(100)]


@pytest.mark.parametrize(("receive_max", "grown"), [(400, 200), (1024, 512), (200, 100)])
def test_only_what_is_known_to_be_behind_asks_for_many_messages(receive_max: int, grown: int) -> None:
    """The first poll asks for BATCH_FIRST, and so does one behind a poll that did not bring all it asked for; others ask for half of a
    window that is larger, and for the batch at most."""
    s, conn = online(receive_max=receive_max, options=SessionOptions(batch_size=512, lazy_commit_ms=0))
    s.detach(conn)
    s.rest()
    s.publish(BATCH_FIRST + 2 * grown + 1)
    conn = s.attach(receive_max=receive_max)
    asked: list[int] = []
    for _ in range(100):
        s.tick()
        asked += [poll.count_max for poll in s.polls()]
        s.answer()
        s.puback(conn, *[packet_id for _, packet_id, _ in s.delivered()])
    assert asked == [BATCH_FIRST, grown, grown, grown]
    s.detach(conn)
    s.rest()
    s.publish(1)
    s.attach(receive_max=receive_max)
    s.answer()
    s.tick()
    assert [poll.count_max for poll in s.polls()] == [BATCH_FIRST]


def test_the_room_of_a_poll_whose_subscription_has_ended_is_for_those_that_wait() -> None:
    """The poll takes all the room and its answer is late, UNSUBSCRIBE is faster: nothing else would wake the other one."""
    s, conn = online(receive_max=5)
    s.subscribed(conn, b"b/1")
    s.detach(conn)
    s.rest()
    s.publish(1, topic=b"b/1")
    conn = s.attach(receive_max=5)
    s.answer()
    s.tick()
    (slow,) = s.queries
    s.unsubscribe(conn, b"#")
    s.tick()
    while s.asked:
        s.commit()
        s.tick()
    s.tell(slow)
    s.tick()
    assert [poll.filter for poll in s.polls()] == [b"b/1"]


def test_bytes_are_bounded_too() -> None:
    """Large messages are polled with less room; one larger than the bound still comes."""
    options = SessionOptions(unsent_bytes_max=3_000, poll_bytes_max=1_000, deliver_bytes_max=1_000)
    s, conn = online(receive_max=1, options=options)
    s.detach(conn)
    s.rest()
    for n in range(30):
        s.home.publish(b"p", b"a", 1, b"\0%d" % n + b"x" * 400)
    s.home.publish(b"p", b"a", 1, b"\0" + b"y" * 10_000)
    conn = s.attach(receive_max=1)
    count = 0
    for _ in range(200):
        s.tick()
        assert all(poll.bytes_max <= 1_000 for poll in s.polls())
        s.answer()
        assert s.core._state.by_conn[conn].window.unsent_bytes < 4_000 + 10_000
        for _, packet_id, _ in s.delivered():
            count += 1
            s.puback(conn, packet_id)
    assert count == 31


def test_a_body_is_in_a_frame_once_however_many_sessions_get_it() -> None:
    """Two subscribers of one gateway; one of them takes only a part of the frame."""
    s = Script()
    s.owned()
    everything, some = s.attached(b"c1"), s.attached(b"c2")
    s.subscribed(everything, b"#")
    s.subscribed(some, b"b/#", qos=2)
    s.rest()
    s.publish(1, topic=b"a/1")
    s.publish(1, topic=b"b/1")
    s.live()
    s.tick()
    messages = [(b"a/1", b"\0m0", AT, 1), (b"b/1", b"\0m1", AT, 1)]
    assert s.sent == [Deliver(messages, [(everything, [0, 1], [1, 2], b"\x32\x32", [0, 0]), (some, [1], [1], b"\x32", [0])])]


def test_deliver_frames_are_bounded_in_bytes() -> None:
    """What is larger goes in several frames, in order."""
    s, _ = online(options=SessionOptions(deliver_bytes_max=1_000))
    for n in range(10):
        s.home.publish(b"p", b"a", 1, b"\0%d" % n + b"x" * 250)
    s.live()
    s.tick()
    frames = [frame for frame in s.sent if isinstance(frame, Deliver)]
    assert len(frames) == 4
    assert max(sum(len(message[1]) for message in frame.messages) for frame in frames) < 1_000
    assert [payload[:1] for payload, _, _ in s.delivered()] == [b"%d" % n for n in range(10)]


def test_what_a_subscription_makes_of_messages() -> None:
    """QoS is the lower of both; retain is kept only as published; own messages are left out with no local."""
    s, conn = online(qos=1, options=SessionOptions(lazy_commit_ms=0))
    s.publish(1, qos=2, flags=RETAIN)
    s.publish(1, qos=1)
    s.live()
    s.rest()
    assert s.delivered() == [(b"m0", 1, 0x32), (b"m1", 2, 0x32)]
    s.subscribed(conn, b"#", qos=2, options=3)
    s.publish(1, qos=2, flags=RETAIN)
    s.publish(1, qos=2, publisher=CLIENT)
    s.publish(1, qos=1, flags=RETAIN)
    s.live()
    s.rest()
    assert s.delivered() == [(b"m2", 0x8001, 0x35), (b"m4", 3, 0x33)]


def test_a_frame_that_holds_only_own_messages_moves_the_place() -> None:
    """Nothing gets a number, and nothing is read again after the next attach."""
    s, conn = online(options=SessionOptions(lazy_commit_ms=0))
    s.subscribed(conn, b"#", qos=1, options=1)
    s.publish(2, publisher=CLIENT)
    s.live()
    s.detach(conn)
    s.rest()
    assert s.delivered() == [] and s.progress().next1 == 1
    s.attach()
    s.answer()
    s.tick()
    assert [poll.place.cut for poll in s.polls()] == [s.home.position]


def test_a_session_without_room_leaves_the_feed_and_polls() -> None:
    """It takes no part of the frame; when room comes it reads from where it stood, and joins again."""
    options = SessionOptions(batch_size=5, lazy_commit_ms=0)
    s, conn = online(receive_max=5, options=options)
    s.publish(5)
    s.live()
    s.publish(4)
    s.live()
    s.rest()
    place = s.home.position
    s.publish(7)
    s.live()
    s.publish(1)
    s.live()
    s.tick()
    assert s.core.counters.feed_missed == 1
    assert s.polls() == [Poll(b"#", Place(place), 5, 1 << 20)]
    for _ in range(10):
        s.rest()
        for _, packet_id, _ in s.delivered():
            s.puback(conn, packet_id)
    s.publish(1)
    s.live()
    s.tick()
    assert s.polls() == [] and [payload for payload, _, _ in s.delivered()] == [b"m17"]


def test_a_hole_in_the_feed_makes_the_subscription_poll() -> None:
    """Messages before the frame's beginning were not fed: polling finds them, in order."""
    s, _ = online()
    s.publish(3)
    for frame in s.home.leave_hole():
        s.feed(FeedReceived(0, frame))
    s.publish(1)
    s.live()
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1", b"m2", b"m3"]


def test_what_a_poll_brought_is_not_taken_from_the_feed_again() -> None:
    """The feed lags behind the poll's answer: its frame reaches back over messages that were read."""
    s, conn = online()
    s.detach(conn)
    s.rest()
    s.publish(2)
    conn = s.attach()
    s.answer()
    s.tick()
    start = s.home.sent
    s.publish(1)
    s.answer()
    values = [value for _, _, _, value in s.home.log]
    positions = [position for position, _, _, _ in s.home.log]
    s.feed(FeedReceived(0, Feed(1, start, positions[2], [(1, b"a")], [0], positions[2:], values[2:])))
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1", b"m2"]


# -------------------------------------------------------------------------------------------------- QoS 2


def test_several_commits_share_one_request_per_home() -> None:
    """While one is under way everything that changes joins the next one."""
    s = Script()
    s.owned()
    conns = [s.attached(b"c%d" % n) for n in range(5)]
    for conn in conns:
        s.subscribed(conn, b"#", qos=2)
    s.rest()
    s.publish(1, qos=2)
    s.live()
    s.tick()
    assert [len(ask.entries) for ask in s.asked] == [5]
    s.publish(1, qos=2)
    s.live()
    assert not [effect for effect in s.tick() if isinstance(effect, AskShard)]
    s.commit()
    s.tick()
    assert [len(ask.entries) for ask in s.asked] == [5]


def test_messages_at_qos_0_that_were_stored_need_no_number() -> None:
    """store_qos0: they leave in order with the others and are never sent again."""
    s, conn = online(qos=1, receive_max=2)
    s.publish(1, qos=0)
    s.publish(2, qos=1)
    s.publish(1, qos=0)
    s.publish(1, qos=1)
    s.live()
    s.rest()
    assert s.delivered() == [(b"m0", 0, 0x30), (b"m1", 1, 0x32), (b"m2", 2, 0x32), (b"m3", 0, 0x30)]
    s.detach(conn)
    s.rest()
    s.attach()
    s.rest()
    assert s.delivered() == [(b"m1", 1, 0x3A), (b"m2", 2, 0x3A), (b"m4", 3, 0x32)]


def test_nothing_follows_the_end_of_a_connection() -> None:
    """What was to be sent in the same tick is not sent any more."""
    s, conn = online(qos=2)
    s.publish(1, qos=2)
    s.live()
    s.pubrec(conn, 0x8077)
    s.puback(conn, 1)
    s.detach(conn)
    s.rest()
    assert s.sent == []
