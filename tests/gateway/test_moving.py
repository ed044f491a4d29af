"""Connections that stay while their session moves to another site (gateway/moving.py)."""

from __future__ import annotations

import pytest

from gateway.events import Effect, FromSession, SessionLinked, SessionLost
from gateway.moving import HELD_MAX, LOOK_EVERY_MS, QUIET_WITHIN_MS
from mqtt.packets import Ack, AckKind, Disconnect, Pingreq, Pingresp, Subscribe, Subscription
from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached, Deliver, SendPubrel
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


@pytest.mark.parametrize("finished", [False, True])
def test_an_open_exchange_of_qos_2_closes_the_connection_and_a_finished_one_does_not(finished: bool) -> None:
    """It must not be begun again on the same connection [MQTT-4.4.0-1]."""
    shell, client = roaming()
    deliver(shell, client, 0x8001, TWO)
    client.send(Ack(AckKind.PUBREC, 0x8001))
    shell.turn(FromSession(0, SendPubrel(client.conn, [0x8001], True)))
    if finished:
        client.send(Ack(AckKind.PUBCOMP, 0x8001))
    client.take()
    lost_and_linked(shell)
    assert client.take() == ([] if finished else CLOSED)
    assert bool(attaches(shell)) is finished


def test_an_exchange_that_begins_while_nobody_is_there_closes_the_connection() -> None:
    """PUBREC comes, and nobody can answer it."""
    shell, client = roaming()
    deliver(shell, client, 0x8001, TWO)
    shell.turn(SessionLost(0))
    client.take()
    client.send(Ack(AckKind.PUBREC, 0x8001))
    shell.turn(SessionLinked(0))
    shell.turn(after_ms=LOOK_EVERY_MS)
    assert client.take() == CLOSED


def test_a_subscribe_waits_for_the_next_actor_and_not_too_many_do() -> None:
    """What was under way when the actor was lost closes the connection: nobody knows whether it holds."""
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
    shell.turn(SessionLost(0))
    assert client.take() == CLOSED
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
