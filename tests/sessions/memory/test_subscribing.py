"""Subscriptions of sessions in memory: what gateways are told, what comes, retained messages, groups."""

from __future__ import annotations

import pytest

from mqtt.reason import ReasonCode
from sessions.frames import Subacked, Subscribe, Unsubacked
from sessions.live_frames import HANDED_ON, ForGroups, Forward, Interest
from sessions.options import SessionOptions
from shards.messages import encode_message
from tests.sessions.memory.scripted import LINK, OTHER_LINK, WALL_MS, Script, owned

NO_LOCAL, AS_PUBLISHED = 1, 2
GROUP = b"$share/g/t"


def two(qos: int = 1, group: bytes = GROUP) -> tuple[Script, int, int]:
    """Two members of a group."""
    s = owned()
    a, b = s.attached(b"a", 51, present=False), s.attached(b"b", 52, present=False)
    s.subscribe(a, group, qos)
    s.subscribe(b, group, qos)
    return s, a, b


# ---------------------------------------------------------------- what gateways are told
def test_a_suback_waits_until_every_gateway_has_confirmed_the_filter() -> None:
    """From SUBACK on, every message that is acknowledged anywhere comes."""
    s = owned()
    conn = s.attached(present=False)
    s.mute.add(OTHER_LINK)
    s.frame(Subscribe(conn, 1, [(b"t", 1, 0, 2)], 0))
    s.tick()
    s.tick()
    assert s.take() == []
    told = s.interest[OTHER_LINK][-1]
    assert told == Interest(2, False, [b"t"], [], [], [], [])
    s.unlink(OTHER_LINK)
    assert s.take() == [(LINK, Subacked(conn, 1, [1]))]
    s.tick(1000)
    assert s.core._memory.next_ms is None  # Nobody waits any more, so nobody is to be woken every millisecond.


def test_a_suback_goes_out_after_a_second_all_the_same() -> None:
    """A gateway that stands still does not hold up every subscriber; it is counted."""
    s = owned()
    conn = s.attached(present=False)
    s.mute.add(OTHER_LINK)
    s.frame(Subscribe(conn, 1, [(b"t", 1, 0, 2)], 0))
    s.tick()
    s.tick(999)
    assert s.take() == []
    s.tick(1)
    assert s.take() == [(LINK, Subacked(conn, 1, [1]))]
    assert s.counters.memory_subacks_unconfirmed == 1


def test_a_new_gateway_is_told_everything_and_others_only_what_has_changed() -> None:
    """A filter that two want is told once, and its end when nobody wants it any more."""
    s = owned()
    a, b = s.attached(b"a", 51, present=False), s.attached(b"b", 52, present=False)
    s.subscribe(a, b"t/+")
    s.subscribe(b, b"t/+")
    s.subscribe(b, b"$share/g/u")
    s.link(9)
    s.tick()
    assert s.interest[9] == [Interest(1, True, [b"t/+"], [], [], [], [(b"$share/g/u", 1)])]
    s.unsubscribe(a, b"t/+")
    s.tick()
    assert len(s.interest[9]) == 1
    s.unsubscribe(b, b"t/+")
    s.unsubscribe(b, b"$share/g/u")
    s.tick()
    assert s.interest[9][1:] == [Interest(2, False, [], [], [b"t/+"], [], [(b"$share/g/u", 0)])]
    assert [frame.number for frame in s.interest[LINK]] == list(range(1, len(s.interest[LINK]) + 1))


def test_the_number_of_subscriptions_is_bounded() -> None:
    """0x97 for the one too many; one that is there may be changed."""
    s = owned(SessionOptions(max_subscriptions=1))
    conn = s.attached(present=False)
    s.frame(Subscribe(conn, 1, [(b"a", 1, 0, 2), (b"b", 1, 0, 2), (b"a", 2, 0, 2)], 0))
    s.tick()
    s.tick()
    assert s.take() == [(LINK, Subacked(conn, 1, [1, ReasonCode.QUOTA_EXCEEDED, 2]))]
    s.unsubscribe(conn, b"b")
    assert s.take() == [(LINK, Unsubacked(conn, 9, [ReasonCode.NO_SUBSCRIPTION_EXISTED]))]


# ---------------------------------------------------------------- what comes
def test_every_matching_subscription_brings_a_copy_with_its_identifier() -> None:
    """As for all sessions of this broker [MQTT-3.3.4-2]."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"t/#", 2, identifier=5)
    s.subscribe(conn, b"t/+", 1, identifier=6)
    s.forward(b"x", qos=2, topic=b"t/1")
    assert sorted((got.first, got.identifier) for got in s.delivered()) == [(0x32, 6), (0x34, 5)]
    s.unsubscribe(conn, b"t/+")
    s.forward(b"y", qos=2, topic=b"t/1")
    assert [got.identifier for got in s.delivered()] == [5]


def test_no_local_and_retain_as_published() -> None:
    """A client's own messages do not come to it; the retain flag stays only where that is asked for [MQTT-3.3.1-12, -13]."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"own", 1, NO_LOCAL)
    s.subscribe(conn, b"kept", 1, AS_PUBLISHED)
    s.subscribe(conn, b"not", 1)
    for topic in (b"own", b"kept", b"not"):
        s.forward(topic, topic=topic, publisher=b"c", retain=1)
    s.forward(b"other", topic=b"own")
    assert [(got.payload, got.first) for got in s.delivered()] == [(b"kept", 0x33), (b"not", 0x32), (b"other", 0x32)]


def test_a_forward_that_is_older_than_the_newest_connection_of_its_publisher_is_dropped() -> None:
    """A paused gateway cannot reorder (PROTOCOLS 9); messages that were handed on have no order to keep."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"t")
    s.forward(b"new", conn=5)
    s.forward(b"old", conn=4, link=OTHER_LINK)
    s.forward(b"of another", publisher=b"q", conn=4)
    s.forward(b"handed on", conn=HANDED_ON)
    assert s.payloads() == [b"new", b"of another", b"handed on"]
    assert s.counters.memory_forwards_stale == 1


def test_a_message_that_entered_in_a_shard_comes_once() -> None:
    """A will: the shard tells the actor itself; members of groups get it from a gateway."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"t")
    s.subscribe(conn, GROUP)
    s.will(b"gone")
    assert s.payloads() == [b"gone"]
    s.forward(b"gone", conn=HANDED_ON, groups=[GROUP], plain=False)
    assert s.payloads() == [b"gone"]


# ---------------------------------------------------------------- retained
def stored(*payloads: bytes, qos: int = 1, publisher: bytes = b"p") -> list[bytes]:
    return [encode_message(qos | 4, WALL_MS, publisher, b"r/" + payload, b"\0" + payload) for payload in payloads]


def test_retained_messages_come_after_suback_page_by_page_as_the_client_takes_them() -> None:
    """With the retain flag; no faster than the queue has room."""
    s = owned(SessionOptions(batch_size=7, queue_count_max=4))
    s.retained = stored(b"1", b"2", b"3", b"4", b"5", b"6", b"7")
    conn = s.attached(present=False, receive_max=2)
    s.subscribe(conn, b"r/#", 1, handling=0)
    seen: list[bytes] = []
    for _ in range(20):
        s.tell_retained(7)
        s.tick()
        got = s.delivered()
        assert all(one.first == 0x33 for one in got)
        seen += [one.payload for one in got]
        s.puback(conn, *[one.packet_id for one in got])
    assert seen == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert s.counters.memory_dropped_queue_full == 0 and s.counters.retained == 7


def test_retain_handling() -> None:
    """0 always, 1 for a new subscription, 2 never; a shared one never."""
    s = owned()
    conn = s.attached(present=False)
    asked = []
    for filter, handling in ((b"a", 0), (b"a", 0), (b"b", 1), (b"b", 1), (b"c", 2), (b"$share/g/d", 0)):
        s.subscribe(conn, filter, 1, handling=handling)
        asked.append(len(s.queries))
        s.tell_retained()
        s.tick()
    assert asked == [1, 1, 1, 0, 0, 0]


def test_a_newer_retained_message_that_went_out_live_is_the_last_one_of_its_topic() -> None:
    """The value that the home told is left out; no local and expiry count for retained messages too."""
    s = owned()
    s.retained = [*stored(b"1", b"2"), *stored(b"own", publisher=b"c")]
    conn = s.attached(present=False)
    s.subscribe(conn, b"r/#", 1, NO_LOCAL, handling=0)
    s.forward(b"newer", topic=b"r/1", retain=1)
    s.tell_retained()
    s.tick()
    assert s.payloads() == [b"newer", b"2"]


def test_who_leaves_while_retained_messages_come_gets_the_rest_later() -> None:
    """What was asked and not told is asked again."""
    s = owned()
    s.retained = stored(b"1", b"2", b"3")
    conn = s.attached(present=False)
    s.subscribe(conn, b"r/#", 1, handling=0)
    s.tell_retained(2)
    s.tick()
    assert s.payloads() == [b"1", b"2"]
    s.detach(conn)
    s.queries.clear()
    conn = s.attached()
    s.tell_retained(2)
    s.tick()
    assert [(got.payload, got.dup) for got in s.delivered()] == [(b"1", True), (b"2", True), (b"3", False)]


# ---------------------------------------------------------------- groups
def test_members_take_turns_and_those_who_are_away_only_when_nobody_is_there() -> None:
    """They count for one when they are all that is left, so that messages wait for somebody."""
    s, a, b = two()
    s.forward(*[b"%d" % n for n in range(4)], groups=[GROUP], plain=False)
    assert sorted((got.payload, got.conn) for got in s.delivered()) == [(b"0", a), (b"1", b), (b"2", a), (b"3", b)]
    assert s.interest[LINK][-1].groups == [(GROUP, 2)]
    s.detach(a)
    assert s.interest[LINK][-1].groups == [(GROUP, 1)]
    s.forward(b"4", b"5", groups=[GROUP], plain=False)
    assert [got.conn for got in s.delivered()] == [b, b]
    told = len(s.interest[LINK])
    s.detach(b)
    assert len(s.interest[LINK]) == told
    s.forward(b"6", b"7", groups=[GROUP], plain=False)
    a = s.attached(b"a", 51)
    b = s.attached(b"b", 52)
    fresh = [(got.conn, got.payload) for got in s.delivered() if not got.dup]
    assert sorted(conn for conn, _ in fresh) == [a, b] and sorted(payload for _, payload in fresh) == [b"6", b"7"]


def test_a_member_without_room_is_passed_over() -> None:
    """Its window and its queue are full; another one has room."""
    s = owned(SessionOptions(queue_count_max=1))
    a = s.attached(b"a", 51, present=False, receive_max=1)
    b = s.attached(b"b", 52, present=False, receive_max=100)
    s.subscribe(a, GROUP)
    s.subscribe(b, GROUP)
    s.forward(*[b"%d" % n for n in range(10)], groups=[GROUP], plain=False)
    got = s.delivered()
    assert len([one for one in got if one.conn == a]) == 1 and len([one for one in got if one.conn == b]) == 8
    assert s.counters.memory_dropped_queue_full == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_what_an_ended_member_leaves_goes_to_another_one(qos: int) -> None:
    """All that was not sent, and QoS 1 that was not acknowledged; QoS 2 that was sent goes to nobody else [MQTT-4.8.2-5]."""
    s = owned()
    a = s.attached(b"a", 51, present=False, receive_max=2)
    s.subscribe(a, GROUP, qos)
    s.forward(b"1", b"2", b"3", qos=qos, groups=[GROUP], plain=False)
    s.subscribe(a, b"t", qos)
    b = s.attached(b"b", 52, present=False)
    s.subscribe(b, GROUP, qos)
    s.delivered()
    s.attached(b"a", 60, present=False)  # another session: the first one has ended
    assert [got.payload for got in s.delivered() if got.conn == b] == ([b"1", b"2", b"3"] if qos == 1 else [b"3"])


def test_what_the_last_member_here_leaves_goes_to_a_gateway() -> None:
    """It knows who else has members; it was told before that there is none here."""
    s = owned()
    a = s.attached(b"a", 51, present=False)
    s.subscribe(a, GROUP)
    s.forward(b"1", groups=[GROUP], plain=False)
    s.take()
    s.attached(b"a", 60, present=False)
    assert s.interest[LINK][-1].groups == [(GROUP, 0)]
    forward = Forward(b"p", HANDED_ON, b"\x02", [b"t"], [b"\x001"], [ForGroups(0, False, [GROUP])])
    (sent,) = [frame for _, frame in s.take() if isinstance(frame, Forward)]
    assert sent == forward
    assert s.counters.memory_handed_on == 1
    s.forward(b"2", groups=[GROUP], plain=False)
    assert len([frame for _, frame in s.take() if isinstance(frame, Forward)]) == 1
