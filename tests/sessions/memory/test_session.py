"""The queue, the window and the acknowledgements of one session in memory."""

from __future__ import annotations

import pytest

from mqtt.body import with_message_expiry
from mqtt.reason import ReasonCode
from sessions.frames import PUBACK, Attached, Deliver, Hold, SendPubrel, SessionClosed
from sessions.memory.links import GatewayLink
from sessions.memory.message import Message
from sessions.memory.session import Held, MemorySession
from sessions.options import Counters, SessionOptions
from tests.sessions.memory.scripted import LINK, OTHER_LINK, Got, Script, owned

DUP = 8


def online(qos: int = 2, receive_max: int = 100, options: SessionOptions | None = None) -> tuple[Script, int]:
    s = owned(options)
    conn = s.attached(present=False, receive_max=receive_max)
    s.subscribe(conn, b"t", qos)
    return s, conn


def test_messages_are_sent_at_once_with_identifiers_that_count_up() -> None:
    """QoS is the lower of the two; QoS 0 has no identifier."""
    s, conn = online(qos=1)
    s.forward(b"0", qos=0)
    s.forward(b"1", qos=1)
    s.forward(b"2", qos=2)
    assert s.delivered() == [Got(conn, b"0", 0, 0x30, 0), Got(conn, b"1", 1, 0x32, 0), Got(conn, b"2", 2, 0x32, 0)]


def test_a_message_waits_while_the_window_is_full_and_goes_when_there_is_room() -> None:
    """In order, and acknowledged in any order."""
    s, conn = online(qos=1, receive_max=2)
    s.forward(b"1", b"2", b"3", b"4", b"5")
    assert s.payloads() == [b"1", b"2"]
    s.puback(conn, 2)
    assert s.payloads() == [b"3"]
    s.puback(conn, 1, 3)
    assert [(got.payload, got.packet_id) for got in s.delivered()] == [(b"4", 4), (b"5", 5)]


def test_messages_wait_while_the_client_does_not_read() -> None:
    """However much its window would take; and the next connection is not held."""
    s, conn = online(qos=1)
    s.frame(Hold(conn, True))
    s.forward(b"1", b"2", qos=2)
    assert s.payloads() == []
    s.frame(Hold(conn, False))
    s.tick()
    assert s.payloads() == [b"1", b"2"]
    s.frame(Hold(conn, True))
    s.forward(b"3")
    s.detach(conn)
    conn = s.attached()
    assert s.payloads() == [b"1", b"2", b"3"]


def test_messages_wait_while_the_client_is_away_but_not_those_of_qos_0() -> None:
    """What waits comes when it is attached again, over whichever gateway."""
    s, conn = online(qos=1)
    s.detach(conn)
    s.forward(b"0", qos=0)
    s.forward(b"1", b"2", link=OTHER_LINK)
    assert s.payloads() == []
    conn = s.attached(link=OTHER_LINK)
    assert [(got.conn, got.payload, got.dup) for got in s.delivered()] == [(conn, b"1", False), (conn, b"2", False)]


def test_a_new_connection_gets_pubrel_then_what_was_not_acknowledged_then_what_waits() -> None:
    """With the identifiers they had [MQTT-4.4.0-1]; what was acknowledged never comes again."""
    s, conn = online()
    s.forward(b"a", b"b", qos=1)
    s.forward(b"c", b"d", b"e", qos=2)
    s.puback(conn, 2)
    s.pubrec(conn, 4, 3)
    s.pubcomp(conn, 4)
    s.detach(conn)
    s.forward(b"f", qos=1)
    s.take()
    conn = s.attached()
    assert s.take()[0] == (LINK, SendPubrel(conn, [3]))
    s.detach(conn)
    conn = s.attached()
    again = s.delivered()
    assert [(got.payload, got.packet_id, got.first) for got in again] == [(b"a", 1, 0x3A), (b"e", 5, 0x3C), (b"f", 6, 0x3A)]


def test_no_more_is_sent_again_at_once_than_the_new_receive_maximum() -> None:
    """[MQTT-3.3.4-9]; what was received counts too."""
    s, conn = online()
    s.forward(b"a", b"b", b"c", b"d", qos=2)
    s.pubrec(conn, 1)
    s.detach(conn)
    s.delivered()
    conn = s.attached(receive_max=2)
    assert [(got.payload, got.dup) for got in s.delivered()] == [(b"b", True)]
    s.puback(conn, 3)  # not sent on this connection: means nothing
    s.pubcomp(conn, 1)
    assert s.payloads() == [b"c"]
    s.pubrec(conn, 2)
    s.pubcomp(conn, 2)
    assert [(got.payload, got.packet_id, got.dup) for got in s.delivered()] == [(b"d", 4, True)]


def test_an_identifier_is_not_given_twice_while_it_is_in_flight() -> None:
    """After the highest one the lowest free one follows."""
    gateway = GatewayLink(1 << 20)
    session = MemorySession(b"c", 50, 0, 10, 1 << 20, Held(1 << 20), Counters())
    session.attach(1, LINK, gateway, 2, 0)
    message = Message(b"p", 2, b"t", b"\0", 0)
    session.offer(message, 0x32, 0)
    for number in range(65_534):
        session.offer(message, 0x32, 0)
        assert session.acked(PUBACK, [number + 2], False)
    session.offer(message, 0x32, 0)
    assert list(session.inflight) == [1, 2]
    session.check()


def test_the_oldest_message_is_dropped_when_too_many_wait() -> None:
    """Counted; what remains is in order."""
    s, conn = online(qos=1, options=SessionOptions(queue_count_max=3))
    s.detach(conn)
    s.forward(*[b"%d" % number for number in range(8)])
    assert s.counters.memory_dropped_queue_full == 5
    s.attached()
    assert s.payloads() == [b"5", b"6", b"7"]


def test_the_oldest_messages_are_dropped_when_too_many_bytes_wait() -> None:
    """Topic and body count; for one that is larger than the bound nothing else is dropped."""
    s, conn = online(qos=1, options=SessionOptions(queue_bytes_max=100))
    s.detach(conn)
    s.forward(b"a" * 30, b"b" * 30, b"c" * 60)
    assert s.counters.memory_dropped_queue_full == 1
    s.forward(b"d" * 200)
    assert s.counters.memory_dropped_queue_full == 2
    s.attached()
    assert s.payloads() == [b"b" * 30, b"c" * 60]


def test_all_sessions_together_are_bounded_and_what_waits_already_stays() -> None:
    """A message that would have to wait is dropped; one that can be sent at once is sent."""
    s = owned(SessionOptions(memory_bytes_max=1_000))
    away = s.attached(b"away", 51, present=False)
    s.subscribe(away, b"t", 1)
    there = s.attached(b"there", 52, present=False)
    s.subscribe(there, b"t", 1)
    s.detach(away)
    for number in range(5):
        s.forward(b"%d" % number * 298)
        (got,) = s.delivered()
        assert got.conn == there and got.payload == b"%d" % number * 298
        s.puback(there, got.packet_id)
    assert s.counters.memory_dropped_all_full == 2
    s.attached(b"away", 51)
    assert s.payloads() == [b"%d" % number * 298 for number in range(3)]


def test_a_message_that_is_over_is_dropped_and_one_that_waited_says_when_it_was_published() -> None:
    """The gateway counts the rest of its expiry down; what was sent once is sent again whatever its age."""
    s, conn = online(qos=1)
    properties = with_message_expiry(b"\0", 10)
    s.forward(b"sent", properties=properties)
    s.detach(conn)
    s.forward(b"over", properties=with_message_expiry(b"\0", 5))
    s.forward(b"not over", properties=with_message_expiry(b"\0", 60))
    at_ms = s.now_ms
    s.take()
    s.tick(20_000)
    conn = s.attached()
    frames = [frame for _, frame in s.sent]
    (deliver,) = frames
    assert isinstance(deliver, Deliver)
    assert [(body[6:], published, flags) for _, body, published, flags in deliver.messages] == [
        (properties[6:] + b"sent", 1_700_000_000_000 + at_ms - 3, 0x20),
        (b"not over", 1_700_000_000_000 + at_ms, 0x20),
    ]
    assert [got.first for got in s.delivered()] == [0x32 | DUP, 0x32]
    assert s.counters.memory_dropped_expired == 1


@pytest.mark.parametrize("how", ["puback of qos 2", "pubrec of qos 1", "failed pubrec of qos 1", "pubcomp of qos 1", "pubcomp too early"])
def test_an_acknowledgement_of_the_wrong_kind_closes_the_connection(how: str) -> None:
    """As for durable sessions; the session stays."""
    s, conn = online()
    s.forward(b"one", qos=1)
    s.forward(b"two", qos=2)
    s.take()
    match how:
        case "puback of qos 2":
            s.puback(conn, 2)
        case "pubrec of qos 1":
            s.pubrec(conn, 1)
        case "failed pubrec of qos 1":
            s.pubrec(conn, 1, failed=True)
        case "pubcomp of qos 1":
            s.pubcomp(conn, 1)
        case _:
            s.pubcomp(conn, 2)
    assert s.take() == [(LINK, SessionClosed(conn, ReasonCode.PROTOCOL_ERROR))]
    assert s.counters.acks_wrong == 1
    s.attached()
    assert [(got.payload, got.dup) for got in s.delivered()] == [(b"one", True), (b"two", True)]


def test_an_acknowledgement_of_nothing_is_ignored_but_pubrec_is_answered() -> None:
    """So that a client that repeats itself can finish."""
    s, conn = online()
    s.puback(conn, 77)
    s.pubcomp(conn, 77)
    s.pubrec(conn, 77, failed=True)
    assert s.take() == []
    s.pubrec(conn, 77)
    assert s.take() == [(LINK, SendPubrel(conn, [77], False))]
    assert s.counters.acks_unknown == 4


def test_pubrec_with_an_error_ends_the_delivery() -> None:
    """[MQTT-4.3.3]: no PUBREL, and its place in the window is free."""
    s, conn = online(receive_max=1)
    s.forward(b"a", b"b", qos=2)
    s.delivered()
    s.pubrec(conn, 1, failed=True)
    assert [(got.payload, got.packet_id) for got in s.delivered()] == [(b"b", 2)]
    assert s.take() == []


def test_frames_of_another_connection_are_not_heard() -> None:
    """An acknowledgement that comes over another link, or of an older connection, frees nothing."""
    s, conn = online(qos=1)
    s.forward(b"a")
    s.puback(conn, 1, link=OTHER_LINK)
    s.detach(conn)
    newer = s.attached()
    s.puback(conn, 1)
    s.detach(newer)
    s.delivered()
    s.attached()
    assert s.payloads() == [b"a"]


def test_a_known_connection_is_told_nothing_of_subscriptions() -> None:
    """They are in the memory, not in the gateway's table."""
    s, conn = online()
    s.detach(conn)
    conn = s.attach()
    assert s.take()[-1] == (LINK, Attached(conn, 0, []))
