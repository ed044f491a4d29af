"""Connections that stay while their session moves to another site (gateway/moving.py)."""

from __future__ import annotations

import pytest

from gateway.events import Effect, FromSession, SessionLinked, SessionLost
from gateway.handshakes import ENDED_MAX, Handshakes
from gateway.moving import HELD_MAX, LOOK_EVERY_MS, QUIET_WITHIN_MS, REPLACED_MS
from mqtt.packets import Ack, AckKind, Disconnect, Pingreq, Pingresp, Subscribe, Subscription, Unsuback, Unsubscribe
from mqtt.reason import ReasonCode
from sessions.frames import PUBCOMP, PUBREC, Acked, Attach, Attached, Deliver, SendPubrel, SessionClosed, Subacked, Unsubacked
from sessions.frames import Subscribe as SubscribeFrame
from tests.gateway.scripted import Client, Shell, message

CLOSED = [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)]
ONE, TWO = b"\x32", b"\x34"


def roaming() -> tuple[Shell, Client]:
    """With a durable session."""
    shell = Shell(roams=True)
    client = shell.online("d", 5, expiry_s=9)
    shell.to_session.clear()
    return shell, client


def lost_and_linked(shell: Shell, away_ms: int = 100) -> None:
    shell.turn(SessionLost(0))
    shell.pass_time(away_ms)
    shell.turn(SessionLinked(0))
    shell.turn(after_ms=LOOK_EVERY_MS)


def deliver(shell: Shell, client: Client, packet_id: int, first: bytes = ONE) -> None:
    shell.turn(FromSession(0, Deliver([(b"t", b"\0x", shell.wall_ms, 0)], [(client.conn, [0], [packet_id], first, [0])])))


def attaches(shell: Shell) -> list[Attach]:
    return [frame for _, frame in shell.to_session if isinstance(frame, Attach)]


def attached(shell: Shell, client: Client, code: int = 0) -> list[Effect]:
    return shell.turn(FromSession(0, Attached(client.conn, code, [])))


def test_who_owes_nothing_is_attached_again_and_goes_on() -> None:
    """Under the same connection number; its home hears of nothing."""
    shell, client = roaming()
    deliver(shell, client, 1)
    client.send(Ack(AckKind.PUBACK, 1))
    lost_and_linked(shell, 60_000)
    (attach,) = attaches(shell)
    assert attach.conn == client.conn and attach.moved and not client.closed and not shell.homes.ended
    attached(shell, client)
    deliver(shell, client, 1)
    assert client.take() == [message(b"t", b"x", 1, 1), message(b"t", b"x", 1, 1)]
    assert shell.core.counters.connections_moved == 1


def test_who_owes_an_answer_is_attached_when_it_has_come() -> None:
    """Until then its identifier may stand for another message."""
    shell, client = roaming()
    deliver(shell, client, 1)
    lost_and_linked(shell)
    shell.pass_time(QUIET_WITHIN_MS // 2)
    assert not attaches(shell)
    client.send(Ack(AckKind.PUBACK, 1))
    shell.turn(after_ms=LOOK_EVERY_MS)
    assert [attach.conn for attach in attaches(shell)] == [client.conn]
    client.take()
    client.send(Pingreq())
    assert client.take() == [Pingresp()]


def test_who_does_not_answer_is_closed_after_a_while() -> None:
    """It begins anew with another connection."""
    shell, client = roaming()
    deliver(shell, client, 1)
    lost_and_linked(shell)
    client.take()
    shell.pass_time(QUIET_WITHIN_MS + 1_000)
    assert client.take() == CLOSED and client.closed and not attaches(shell)


def test_the_next_actor_is_told_how_far_each_exchange_of_qos_2_is() -> None:
    """Of each identifier: sent, received, released, completed, refused."""
    shell, client = roaming()
    for packet_id in range(0x8001, 0x8007):
        deliver(shell, client, packet_id, TWO)
    for packet_id in (0x8002, 0x8003, 0x8004):
        client.send(Ack(AckKind.PUBREC, packet_id))
    client.send(Ack(AckKind.PUBREC, 0x8005, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
    shell.turn(FromSession(0, SendPubrel(client.conn, [0x8003, 0x8004], True)))
    client.send(Ack(AckKind.PUBCOMP, 0x8004))
    client.take()
    lost_and_linked(shell)
    (attach,) = attaches(shell)
    assert attach.unreleased == [0x8001, 0x8002, 0x8006]
    assert (attach.had_pubrel, attach.refused) == ([0x8003, 0x8004], [0x8005])
    assert client.take() == []


def test_what_is_answered_while_nobody_is_there_is_told_when_somebody_has_the_connection() -> None:
    """Not before: who has not attached it would not hear it."""
    shell, client = roaming()
    for packet_id in (0x8001, 0x8002, 0x8003):
        deliver(shell, client, packet_id, TWO)
    client.send(Ack(AckKind.PUBREC, 0x8003))
    shell.turn(FromSession(0, SendPubrel(client.conn, [0x8003], True)))
    shell.turn(SessionLost(0))
    client.send(Ack(AckKind.PUBREC, 0x8001))
    shell.turn(SessionLinked(0))
    shell.turn(after_ms=LOOK_EVERY_MS)
    client.send(Ack(AckKind.PUBREC, 0x8002, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
    client.send(Ack(AckKind.PUBCOMP, 0x8003))
    assert [frame for _, frame in shell.to_session if isinstance(frame, Acked)] == [Acked(client.conn, PUBREC, [0x8003], False)]
    shell.to_session.clear()
    attached(shell, client)
    shell.turn()
    assert [frame for _, frame in shell.to_session if isinstance(frame, Acked)] == [
        Acked(client.conn, PUBREC, [0x8001], False),
        Acked(client.conn, PUBREC, [0x8002], True),
        Acked(client.conn, PUBCOMP, [0x8003], False),
    ]


def test_what_has_ended_is_forgotten_after_a_while_and_when_its_identifier_is_used_again() -> None:
    """Bounded, and never taken for a newer message."""
    shakes = Handshakes()
    ids = list(range(0x8000, 0x8000 + ENDED_MAX + 1))
    shakes.given(ids)
    shakes.answered(AckKind.PUBREC, ids, False)
    shakes.released(ids)
    shakes.answered(AckKind.PUBCOMP, ids, False)
    assert shakes.seen() == ([], ids[1:], [])
    assert shakes.given([0, 1, ids[1]]) == 1
    assert shakes.seen() == ([ids[1]], ids[2:], [])
    shakes.check()


def test_an_actor_that_is_replaced_closes_nobody() -> None:
    """Its link may stay for a while; if it does, it is to serve them after all."""
    shell, client = roaming()
    shell.turn(FromSession(0, SessionClosed(client.conn, ReasonCode.SERVER_SHUTTING_DOWN)))
    shell.turn(after_ms=LOOK_EVERY_MS)
    assert client.take() == [] and not attaches(shell)
    shell.pass_time(REPLACED_MS)
    assert [attach.conn for attach in attaches(shell)] == [client.conn]
    attached(shell, client)
    shell.turn(FromSession(0, SessionClosed(client.conn, ReasonCode.PROTOCOL_ERROR)))
    assert client.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


@pytest.mark.parametrize("made", [False, True])
def test_a_subscribe_without_an_answer_is_asked_again(made: bool) -> None:
    """Whether or not the last actor has made it: for the client it is new, and wants its retained messages."""
    shell, client = roaming()
    client.send(Subscribe(7, (Subscription(b"a", 1, retain_handling=1),)))
    lost_and_linked(shell)
    shell.to_session.clear()
    shell.turn(FromSession(0, Attached(client.conn, 0, [(b"a", 1, 0, 0)] if made else [])))
    shell.turn()
    assert [frame for _, frame in shell.to_session if isinstance(frame, SubscribeFrame)] == [
        SubscribeFrame(client.conn, 7, [(b"a", 1, 0, 0)], 0)
    ]
    client.send(Subscribe(8, (Subscription(b"b", 1),)))
    client.send(Unsubscribe(9, (b"b",)))
    shell.turn(SessionLost(0))
    assert client.take() == CLOSED


def test_an_unsubscribe_without_an_answer_is_asked_again_and_was_there() -> None:
    """Though the next actor knows nothing of the subscription: the last one has removed it."""
    shell = Shell(roams=True)
    client = shell.online("d", 5, expiry_s=9)
    client.send(Subscribe(7, (Subscription(b"a", 1),)))
    shell.turn(FromSession(0, Subacked(client.conn, 7, [1])))
    client.take()
    client.send(Unsubscribe(8, (b"a",)))
    lost_and_linked(shell)
    attached(shell, client)
    shell.turn()
    shell.turn(FromSession(0, Unsubacked(client.conn, 8, [ReasonCode.NO_SUBSCRIPTION_EXISTED])))
    assert client.take() == [Unsuback(8, (ReasonCode.SUCCESS,))]


def test_a_subscribe_waits_for_the_next_actor_and_not_too_many_do() -> None:
    """While nobody has the connection."""
    shell, client = roaming()
    shell.turn(SessionLost(0))
    client.send(Subscribe(7, (Subscription(b"a", 1),)))
    assert shell.to_session == []
    shell.turn(SessionLinked(0))
    shell.turn(after_ms=LOOK_EVERY_MS)
    attached(shell, client)
    shell.turn()
    (asked,) = [frame for _, frame in shell.to_session if isinstance(frame, SubscribeFrame)]
    assert asked.conn == client.conn and asked.packet_id == 7
    shell, client = roaming()
    shell.turn(SessionLost(0))
    for packet_id in range(1, HELD_MAX + 1):
        client.send(Subscribe(packet_id, (Subscription(b"a", 1),)))
    assert client.take() == []
    client.send(Subscribe(HELD_MAX + 1, (Subscription(b"a", 1),)))
    assert client.take() == CLOSED


def test_who_is_refused_by_the_next_actor_is_closed() -> None:
    """A newer connection of the client was faster, or the session has ended."""
    shell, client = roaming()
    lost_and_linked(shell)
    attached(shell, client, ReasonCode.SERVER_UNAVAILABLE)
    assert client.take() == CLOSED


def test_an_actor_that_is_lost_before_it_has_attached_is_waited_for_again() -> None:
    """And what it has delivered by then has to be answered as well."""
    shell, client = roaming()
    for _ in range(3):
        lost_and_linked(shell)
    assert len(attaches(shell)) == 3
    attached(shell, client)
    assert not client.closed
