"""After a reconnect or a crash: what is unfinished comes again first, with the same numbers, and nothing that is finished."""

from __future__ import annotations

import pytest

from sessions.events import Effect, Event, QueryShard, ShardLinked, ShardLost, ToFeed, ToldBy
from sessions.frames import Attached, SendPubrel, Subacked, Subscribe
from sessions.options import SessionOptions
from shards.frames import FeedWant, RangeRead, ReadRange
from tests.sessions.scripted import Script, online


def crash(s: Script, receive_max: int = 100) -> int:
    """A new process; the client comes back."""
    s.start()
    s.owned()
    conn = s.attach(receive_max=receive_max)
    s.rest()
    return conn


def test_unfinished_ranges_come_first_in_order_with_dup() -> None:
    """Acknowledged ones are skipped, new messages follow; nothing gets another packet identifier."""
    s, conn = online()
    s.publish(4)
    s.live()
    s.rest()
    s.delivered()
    s.puback(conn, 2, 1)
    s.detach(conn)
    s.rest()
    s.publish(2)
    crash(s)
    assert s.delivered() == [(b"m2", 3, 0x3A), (b"m3", 4, 0x3A), (b"m4", 5, 0x32), (b"m5", 6, 0x32)]


def test_out_of_order_acknowledgements_are_lost_with_the_process_only_at_qos_1() -> None:
    """QoS 1 may repeat."""
    s, conn = online()
    s.publish(3)
    s.live()
    s.rest()
    s.delivered()
    s.puback(conn, 3)
    s.detach(conn)
    s.rest()
    crash(s)
    assert s.delivered() == [(b"m0", 1, 0x3A), (b"m1", 2, 0x3A), (b"m2", 3, 0x3A)]


def test_what_was_never_sent_comes_without_dup() -> None:
    """The window was full when the client went; the process lived to say so."""
    s, conn = online(qos=2, receive_max=2)
    s.publish(4, qos=2)
    s.live()
    s.rest()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [0x8001, 0x8002]
    s.detach(conn)
    s.rest()
    crash(s)
    assert s.delivered() == [(b"m0", 0x8001, 0x3C), (b"m1", 0x8002, 0x3C), (b"m2", 0x8003, 0x34), (b"m3", 0x8004, 0x34)]


def test_the_first_sending_of_an_old_qos_2_range_is_committed_as_sent() -> None:
    """The range's row says that nothing of it was sent; it must say so no more when it leaves [MQTT-3.3.1-1]."""
    s, conn = online(qos=2, receive_max=1)
    s.publish(2, qos=2)
    s.live()
    s.rest()
    s.delivered()
    s.detach(conn)
    s.rest()
    assert s.progress().sent2 == 1
    s.start()
    s.owned()
    s.attach(receive_max=5)
    s.tell()
    s.tick()
    (query,) = [query for query in s.queries if isinstance(query.ask, ReadRange)]
    s.tell(query)
    s.tick()
    assert s.delivered() == []
    s.commit()
    assert s.progress().sent2 == 2
    s.tick()
    assert s.delivered() == [(b"m0", 0x8001, 0x3C), (b"m1", 0x8002, 0x34)]


def test_an_uncommitted_range_that_is_read_again_still_waits_for_its_commit() -> None:
    """Taken over in memory before the commit of the range is answered: the new connection gets QoS 2 not before it."""
    s, _ = online(qos=2, options=SessionOptions(lazy_commit_ms=0))
    s.publish(1, qos=2)
    s.live()
    conn = s.attach()
    assert s.sent[-1] == Attached(conn, 0, [(b"#", 2, 0, 0)])
    s.tick()
    (query,) = [query for query in s.queries if isinstance(query.ask, ReadRange)]
    s.tell(query)
    s.tick()
    assert s.delivered() == [] and len(s.asked) == 1
    s.rest()
    assert s.delivered() == [(b"m0", 0x8001, 0x34)]


def test_received_qos_2_messages_only_get_pubrel() -> None:
    """In the order of their PUBRECs; one that was finished out of order gets nothing more, and is never published again."""
    s, conn = online(qos=2)
    s.publish(4, qos=2)
    s.live()
    s.rest()
    s.pubrec(conn, 0x8003, 0x8001, 0x8004)
    s.rest()
    s.pubcomp(conn, 0x8004)
    s.detach(conn)
    s.rest()
    s.take_sent()
    conn = crash(s)
    frames = [frame for frame in s.sent if isinstance(frame, SendPubrel)]
    assert frames == [SendPubrel(conn, [0x8003, 0x8001])]
    assert s.delivered() == [(b"m1", 0x8002, 0x3C)]
    assert s.progress().received2 == [3, 1, -4]
    s.pubcomp(conn, 0x8003, 0x8001)
    s.pubrec(conn, 0x8002)
    s.rest()
    s.pubcomp(conn, 0x8002)
    s.rest()
    assert s.range_rows() == [] and s.progress().received2 == []


def test_pubrel_that_waits_for_its_commit_goes_to_the_next_connection() -> None:
    """PUBREC came, the commit is not answered, the client comes back in between: PUBREL once, after the commit."""
    s, conn = online(qos=2)
    s.publish(1, qos=2)
    s.live()
    s.rest()
    s.take_sent()
    s.pubrec(conn, 0x8001)
    conn = s.attach()
    s.take_sent()
    s.tick()
    assert s.sent == []
    s.rest()
    assert s.sent == [SendPubrel(conn, [0x8001])]


def test_resent_messages_respect_the_new_window() -> None:
    """The client comes back with a smaller Receive Maximum; PUBRELs under way count."""
    s, conn = online(qos=2)
    s.publish(5, qos=2)
    s.live()
    s.rest()
    s.delivered()
    s.pubrec(conn, 0x8001)
    s.detach(conn)
    s.rest()
    conn = crash(s, receive_max=3)
    assert [packet_id for _, packet_id, _ in s.delivered()] == [0x8002, 0x8003]
    s.pubcomp(conn, 0x8001)
    s.rest()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [0x8004]


def test_many_ranges_are_read_again_in_bounded_steps_and_in_order() -> None:
    """Asked for ahead, as far as there is room; answered in any order; sent in the order of their numbers."""
    options = SessionOptions(batch_size=4, range_messages_max=3, lazy_commit_ms=0)
    s, conn = online(receive_max=40, options=options)
    for _ in range(12):
        s.publish(3)
        s.live()
        s.rest()
    assert len(s.delivered()) == 36
    s.detach(conn)
    s.rest()
    s.start()
    s.owned()
    conn = s.attach(receive_max=4)
    s.tell()
    got: list[bytes] = []
    for _ in range(60):
        s.tick()
        assert len(s.queries) <= 3
        for query in reversed(list(s.queries)):
            s.tell(query)
        for ask in list(s.asked):
            s.commit(ask)
        delivered = s.delivered()
        got += [payload for payload, _, _ in delivered]
        assert s.core._state.by_conn[conn].window.unsent <= 8
        s.puback(conn, *[packet_id for _, packet_id, _ in delivered])
    assert got == [b"m%d" % n for n in range(36)]


def test_a_dropped_generation_closes_its_numbers_as_lost() -> None:
    """Never sent again; after PUBREC it goes on with PUBREL; what comes later is not blocked."""
    s, conn = online(qos=2)
    s.publish(3, qos=2)
    s.live()
    s.rest()
    s.pubrec(conn, 0x8002)
    s.detach(conn)
    s.rest()
    s.home.roll()
    s.publish(1, qos=2)
    s.home.dropped.add(1)
    s.take_sent()
    conn = crash(s)
    assert SendPubrel(conn, [0x8002]) in s.sent
    assert s.delivered() == [(b"m3", 0x8004, 0x34)]
    assert s.core.counters.lost == 2
    s.pubcomp(conn, 0x8002)
    s.pubrec(conn, 0x8004)
    s.rest()
    s.pubcomp(conn, 0x8004)
    s.rest()
    assert s.range_rows() == [] and s.progress().committed2 == 4


def test_a_range_that_reads_differently_is_lost_and_counted() -> None:
    """A fault that must not stop the session: the numbers are closed, a counter says so."""
    s, conn = online()
    s.publish(2)
    s.live()
    s.rest()
    s.delivered()
    s.detach(conn)
    s.rest()
    del s.home.log[0]
    s.publish(1)
    crash(s)
    assert s.delivered() == [(b"m1", 3, 0x32)]
    assert (s.core.counters.ranges_differ, s.core.counters.lost) == (1, 2)


def test_a_shard_that_cannot_answer_is_asked_again() -> None:
    """Ranges and polls, after a while; never in a hot loop."""
    s, conn = online(options=SessionOptions(retry_ms=500))
    s.publish(1)
    s.live()
    s.rest()
    s.delivered()
    s.detach(conn)
    s.rest()
    s.start()
    s.owned()
    s.attach()
    s.tell()
    for _ in range(2):
        s.tick()
        (query,) = s.queries
        s.queries.clear()
        s.feed(ToldBy(0, query.id, None))
        s.tick()
        assert s.queries == []
        s.tick(500)
    assert isinstance(s.queries[0].ask, ReadRange)
    s.rest()
    assert s.delivered() == [(b"m0", 1, 0x3A)]


def test_ranges_that_grew_together_read_the_same_again() -> None:
    """Many small frames of several streams, one row for some of them: every message has its number again."""
    options = SessionOptions(range_messages_max=10, range_streams_max=3, lazy_commit_ms=1_000)
    s, conn = online(receive_max=1000, options=options)
    for n in range(40):
        s.publish(1 + n % 2, topic=b"abcde"[n * 7 % 5 :][:1] + b"/x", qos=1 + n % 2)
        s.live()
        s.tick()
        s.answer()
    sent = s.delivered()
    s.subscribed(conn, b"#", qos=2)
    for n in range(40):
        s.publish(1 + n % 3, topic=b"abcde"[n * 3 % 5 :][:1] + b"/x", qos=1 + n % 2)
        s.live()
        s.tick()
        if n % 7 == 0:
            s.answer()
    s.rest()
    before = {packet_id: payload for payload, packet_id, _ in sent + s.delivered()}
    s.detach(conn)
    s.rest()
    assert 10 < len(s.range_rows()) < 60
    crash(s, receive_max=1000)
    assert {packet_id: payload for payload, packet_id, _ in s.delivered()} == before
    assert len(before) == 139 and s.core.counters.ranges_differ == 0


def test_sweeps_and_merged_reads_give_the_same_order_per_topic() -> None:
    """A place in the middle of a sweep goes on there after a crash."""
    s, conn = online(receive_max=1000)
    s.detach(conn)
    s.rest()
    s.home.sweeps = True
    for n in range(90):
        s.publish(1, topic=b"%d/x" % (n % 3))
    for batch in (7, 13, 100):
        s.options = SessionOptions(batch_size=batch, lazy_commit_ms=0)
        s.start()
        s.owned()
        conn = s.attach(receive_max=1000)
        for _ in range(4):
            s.tick()
            s.answer()
        s.detach(conn)
        s.tick()
        s.answer()
    crash(s, receive_max=1000)
    payloads = [payload for payload, _, _ in s.delivered()]
    assert sorted(payloads[-90:]) == sorted(b"m%d" % n for n in range(90))


STEPS = 60


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_shard_link_may_break_at_every_step(shard: int, qos: int) -> None:
    """Attach, subscribe, live and polled delivery, acknowledgements, unsubscribe: lost queries are asked again, nothing is lost."""
    broken = 0
    for at in range(STEPS):
        s = _Breaking(shard, at)
        s.link()
        conn = s.attach(receive_max=4)
        s.rest()
        assert s.take_sent() == [Attached(conn, 0, [])]
        s.gateway(Subscribe(conn, 1, [(b"#", qos, 0, 2)], 0))
        s.rest()
        assert s.take_sent() == [Subacked(conn, 1, [qos])]
        got: list[bytes] = []
        for n in range(6):
            s.publish(2, qos=2, shard=n % 2, publisher=b"p%d" % n)
            s.live(n % 2)
            for _ in range(4):
                s.rest()
                for payload, packet_id, _ in s.delivered():
                    got.append(payload)
                    if qos == 1:
                        s.puback(conn, packet_id)
                    else:
                        s.pubrec(conn, packet_id)
                s.rest()
                for frame in s.take_sent():
                    assert isinstance(frame, SendPubrel)
                    s.pubcomp(conn, *frame.packet_ids)
        s.rest()
        assert sorted(got) == sorted([b"m%d" % n for n in range(6)] * 2), f"broken at step {at}"
        s.unsubscribe(conn, b"#")
        s.rest()
        assert [model.routes for model in s.shards] == [{}, {}]
        broken += s.count > at
    assert broken == STEPS, "the history is shorter than the steps at which it is to break"


class _Breaking(Script):
    """Breaks the link to one shard after the n-th event."""

    def __init__(self, shard: int, at: int) -> None:
        self.count = 0
        self._shard = shard
        self._at = at
        super().__init__(2)

    def feed(self, event: Event) -> list[Effect]:
        effects = super().feed(event)
        if not isinstance(event, ShardLost | ShardLinked):
            self.count += 1
            if self.count == self._at:
                self.relink(self._shard)
        return effects


def test_the_answer_to_a_query_of_an_earlier_connection_is_ignored() -> None:
    """A poll and a range that were asked for before the takeover must not put messages behind those of the new one."""
    s, conn = online()
    s.publish(1)
    s.live()
    s.rest()
    s.delivered()
    s.detach(conn)
    s.rest()
    s.publish(1)
    s.attach()
    s.tell()
    s.tick()
    old: list[QueryShard] = list(s.queries)
    s.queries.clear()
    s.attach()
    s.rest()
    before = s.delivered()
    for query in old:
        s.feed(ToldBy(0, query.id, RangeRead(True, [], []) if isinstance(query.ask, ReadRange) else s.home.query(query.ask)))
    s.rest()
    assert before == [(b"m0", 1, 0x3A), (b"m1", 2, 0x32)] and s.delivered() == []
    assert s.core.counters.lost == 0


def test_what_is_published_while_a_link_is_down_is_polled_when_it_is_back() -> None:
    """The new feed begins at its end; wants are stated before anything is asked."""
    s, _ = online()
    s.feed(ShardLost(0))
    s.home.unlink()
    s.publish(2)
    s.tick()
    assert s.queries == []
    assert s.feed(ShardLinked(0)) == [ToFeed(0, FeedWant(1, [b"#"], []))]
    assert isinstance(s.tick()[0], QueryShard)
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1"]


def test_a_refused_qos_2_message_is_not_published_again_after_a_crash() -> None:
    """PUBREC with an error, out of order: the row remembers that it is over, and no PUBREL follows [MQTT-4.3.3-4]."""
    s, conn = online(qos=2)
    s.publish(2, qos=2)
    s.live()
    s.rest()
    s.pubrec(conn, 0x8002, failed=True)
    s.tick(5_000)
    s.answer()
    s.take_sent()
    conn = crash(s)
    assert s.delivered() == [(b"m0", 0x8001, 0x3C)]
    assert not [frame for frame in s.sent if isinstance(frame, SendPubrel)]
    s.publish(1, qos=2)
    s.live()
    s.rest()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [0x8003]
    s.pubrec(conn, 0x8001, 0x8003)
    s.rest()
    s.pubcomp(conn, 0x8001, 0x8003)
    s.rest()
    assert s.progress().committed2 == 3 and s.range_rows() == []


def test_a_completed_exchange_whose_end_was_not_committed_is_completed_again() -> None:
    """PUBCOMP came, out of order, and the process died before the heartbeat: PUBREL once more, never PUBLISH."""
    s, conn = online(qos=2)
    s.publish(2, qos=2)
    s.live()
    s.rest()
    s.pubrec(conn, 0x8002)
    s.rest()
    s.pubcomp(conn, 0x8002)
    s.tick()
    s.take_sent()
    conn = crash(s)
    assert s.delivered() == [(b"m0", 0x8001, 0x3C)]
    assert SendPubrel(conn, [0x8002]) in s.sent


def unacknowledged(s: Script, conn: int) -> None:
    """One message is acknowledged and committed, another was sent after that, and the process has died."""
    s.publish(1)
    s.live()
    s.rest()
    s.puback(conn, 1)
    s.tick(s.options.lazy_commit_ms)
    s.rest()
    s.publish(1)
    s.live()
    s.tick()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1"]
    assert s.commits() == []


def test_what_was_sent_and_never_committed_comes_again_with_dup() -> None:
    """Nobody knows whether it was sent: it counts as sent, also on connections after that [MQTT-3.3.1-1].  New messages do not."""
    s, conn = online(options=SessionOptions(lazy_commit_ms=20))
    unacknowledged(s, conn)
    s.publish(2)
    conn = crash(s, receive_max=1)
    assert s.delivered() == [(b"m1", 2, 0x3A)]
    s.detach(conn)
    s.rest()
    conn = crash(s)
    assert s.delivered() == [(b"m1", 2, 0x3A), (b"m2", 3, 0x3A), (b"m3", 4, 0x3A)]
    s.publish(1)
    s.live()
    s.rest()
    assert s.delivered() == [(b"m4", 5, 0x32)]


def test_what_nobody_can_have_sent_comes_without_dup() -> None:
    """The process has died after the connection had ended, and was said to have."""
    s, conn = online(options=SessionOptions(lazy_commit_ms=20))
    s.publish(1)
    s.live()
    s.rest()
    s.delivered()
    s.puback(conn, 1)
    s.detach(conn)
    s.rest()
    s.publish(1)
    crash(s)
    assert s.delivered() == [(b"m1", 2, 0x32)]
