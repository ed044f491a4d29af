"""A client id that others take from one another: whoever comes waits for it, and takes nothing over when it has gone meanwhile."""

from __future__ import annotations

import pytest

from gateway.events import CloseSocket, LookForEnd, Replied, SocketLost, ToShard, Write
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Ack, Connack, Connect, Properties
from mqtt.reason import ReasonCode
from shards.frames import Connected
from tests.gateway.scripted import Client, Shell, message


def test_a_contended_client_id_is_asked_for_again_when_its_time_has_come() -> None:
    """The newcomer waits for its CONNACK meanwhile; with 0x89 when it would wait for longer than it may."""
    shell = Shell(Options(home_wait_ms=5_000))
    client = shell.client()
    (first,) = client.send(Connect(5, "c"))
    assert isinstance(first, ToShard)
    assert shell.turn(Replied(0, 1, [Connected(0, False, 0, retry_ms=2_000)])) == []
    assert shell.pass_time(1_900) == []
    again = shell.pass_time(500)
    assert again == [ToShard(0, 2, first.entries)]
    effects = shell.turn(Replied(0, 2, [Connected(0, False, 0, retry_ms=3_000)]))
    why = "its client id is contended, to be tried in 3000 ms"
    connack = Connack(False, ReasonCode.SERVER_BUSY, Properties(reason_string=why))
    assert effects == [Write(client.socket, encode(5, connack)), CloseSocket(client.socket, why)]


@pytest.mark.parametrize("retry_ms", [4_000, 4_990])
def test_a_client_id_that_stays_contended_is_said_to_be(retry_ms: int) -> None:
    """With 0x89 too when the time for CONNACK is over before the home was asked again, or before it has answered: it is not away."""
    shell = Shell(Options(home_wait_ms=5_000))
    client = shell.client()
    client.send(Connect(5, "c"))
    shell.turn(Replied(0, 1, [Connected(0, False, 0, retry_ms=retry_ms)]))
    shell.pass_time(4_500)
    shell.pass_time(1_000)
    assert client.take() == [Connack(False, ReasonCode.SERVER_BUSY)] and client.closed == "its client id is contended"


def test_who_goes_away_while_it_waits_for_its_client_id_is_not_asked_for() -> None:
    """The home never hears of it again."""
    shell = Shell()
    client = shell.client()
    client.send(Connect(5, "c"))
    shell.turn(Replied(0, 1, [Connected(0, False, 0, retry_ms=2_000)]))
    shell.requests.clear()
    shell.turn(SocketLost(client.socket, "gone"))
    shell.pass_time(3_000)
    assert not shell.requests


def waits_unread(shell: Shell) -> Client:
    """Who has sent more than CONNECT is not read, so nobody sees it go; it waits for two seconds."""
    client = shell.client()
    client.send(Connect(5, "c"), message(b"t", b"", 1, 1))
    assert client.paused
    shell.turn(Replied(0, 1, [Connected(0, False, 0, retry_ms=2_000)]))
    shell.requests.clear()
    return client


def test_who_waits_for_its_client_id_unread_is_looked_for_before_it_takes_over() -> None:
    """And only then; who is still there goes on."""
    shell = Shell()
    client = waits_unread(shell)
    shell.pass_time(1_900)
    assert not shell.requests
    assert shell.pass_time(500) == [LookForEnd(client.socket)]
    shell.pass_time(20)
    shell.answer()
    shell.answer()
    assert [type(packet) for packet in client.take()] == [Connack, Ack] and not client.paused


def test_who_went_away_unread_while_it_waited_takes_nothing_over() -> None:
    """Its home is not asked, and what it had sent is not taken."""
    shell = Shell()
    client = waits_unread(shell)
    shell.pass_time(1_900)
    assert shell.pass_time(500) == [LookForEnd(client.socket)]
    shell.turn(SocketLost(client.socket, "closed by the peer"))
    shell.pass_time(3_000)
    assert not shell.requests and not shell.homes.stored and shell.core.connections == 0
