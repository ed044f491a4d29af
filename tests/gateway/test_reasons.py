"""Reason strings: who gets one, how large it may be, and what it never says."""

from __future__ import annotations

import pytest

from gateway.connection import Connection
from gateway.events import FromSession, FromShard, Malformed, Opened, ToSession
from gateway.reasons import LOST_MESSAGES, REASON_CHARS_MAX, cause, explained
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import AckKind, AckRun, Connack, Connect, Disconnect, Properties, Subscribe, Subscription, Will
from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached
from shards.frames import Superseded
from tests.gateway.scripted import Client, Shell, message


def _no_to_everything(shell: Shell, client: Client) -> list[str]:
    """What is said when a PUBLISH, a PUBREL, a SUBSCRIBE and then the connection are refused."""
    client.send(message(b"$SYS/x", b"1", 1, 1), message(b"$SYS/x", b"2", 2, 2))
    client.send(AckRun(AckKind.PUBREL, [9]))
    client.send(Subscribe(3, (Subscription(b"good"), Subscription(b"$share/g"))))
    shell.turn(FromShard(0, Superseded([(b"c", client.conn)])))
    return client.reasons


def _connection() -> Connection:
    connection = Connection(Opened(1, "tcp", "peer"))
    connection.version, connection.problem = 5, True
    return connection


def test_every_refusal_says_why() -> None:
    """PUBACK, PUBREC, PUBCOMP, SUBACK with the number of the filter, and DISCONNECT."""
    shell = Shell()
    assert _no_to_everything(shell, shell.online("c", 5)) == [
        "clients may not publish to this topic",
        "clients may not publish to this topic",
        "no message is under way with this packet identifier",
        "filter 2: the topic filter is not well formed",
        "session taken over",
    ]


@pytest.mark.parametrize(("asked", "said"), [(1, 5), (0, 0)])
def test_a_client_may_ask_to_be_spared(asked: int, said: int) -> None:
    """Request Problem Information [MQTT-3.1.2-29]; who does not mention it is as above."""
    shell = Shell()
    assert len(_no_to_everything(shell, shell.online("c", 5, request_problem_information=asked))) == said


@pytest.mark.parametrize(("version", "problem", "said"), [(5, None, True), (5, 0, False), (4, None, False)])
def test_a_connack_that_lets_in_tells_of_a_loss(version: int, problem: int | None, said: bool) -> None:
    """The session actor says that messages were gone before the session could get them; who did not ask to be spared hears of it."""
    shell = Shell()
    client = shell.client(version)
    properties = Properties(session_expiry_interval=9, request_problem_information=problem) if version == 5 else Properties()
    client.send(Connect(version, "c", False, properties=properties))
    (attach,) = [effect.frame for effect in shell.answer() if isinstance(effect, ToSession)]
    assert isinstance(attach, Attach)
    shell.turn(FromSession(0, Attached(attach.conn, 0, [], lost=True)))
    (connack,) = client.take()
    assert isinstance(connack, Connack) and connack.reason is ReasonCode.SUCCESS
    assert client.reasons == ([LOST_MESSAGES] if said else [])


def test_a_packet_goes_without_when_it_would_be_too_large() -> None:
    """[MQTT-3.4.2-2]: the code is told all the same, and to the byte: 46 is what the PUBACK has with its reason string."""
    shell = Shell()
    for packet_max, said in ((47, ["clients may not publish to this topic"]), (46, ["clients may not publish to this topic"]), (45, [])):
        client = shell.online(f"c{packet_max}", 5, maximum_packet_size=packet_max)
        before = len(client.reasons)
        client.send(message(b"$SYS/x", b"1", 1, 1))
        (ack,) = client.take()
        assert ack.reason is ReasonCode.TOPIC_NAME_INVALID  # type: ignore[union-attr]
        assert client.reasons[before:] == said, packet_max


def test_version_3_has_no_words() -> None:
    """The bytes are what they always were."""
    shell = Shell()
    client = shell.online("c", 4)
    client.send(message(b"$SYS/x", b"1", 1, 1))
    assert client.reasons == [] and client.take() == [AckRun(AckKind.PUBACK, [1])]


def test_connack_says_why_once_connect_was_read() -> None:
    """What a client takes is in its CONNECT: one that cannot be read gets the code alone."""
    shell = Shell()
    refused = shell.client()
    refused.send(Connect(5, "c", will=Will(b"$SYS/x", b"")))
    assert refused.reasons == ["clients may not publish to this topic"]
    unread = shell.client()
    shell.turn(Malformed(unread.socket, 0x81, "nonsense", 5))
    assert unread.reasons == [] and unread.take() == [Connack(False, ReasonCode.MALFORMED_PACKET)]


def test_a_refused_login_is_told_the_code_only() -> None:
    """Whether it was the name or the password is for the log."""
    for code in (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED, ReasonCode.BANNED, ReasonCode.BAD_AUTHENTICATION_METHOD):
        assert not cause(_connection(), code, "user nobody is not known")
    assert cause(_connection(), ReasonCode.SERVER_BUSY, "too many connections") == "too many connections"


def test_a_reason_is_short_and_plain() -> None:
    """However long the detail is, and whatever stands in it."""
    connection = _connection()
    (packet,) = Decoder(5, 1 << 20, role="client").feed(
        explained(connection, Disconnect(ReasonCode.PROTOCOL_ERROR), "\u2028\0" + "x" * 1000)
    )
    assert isinstance(packet, Disconnect) and packet.properties.reason_string is not None
    assert packet.properties.reason_string.isascii() and len(packet.properties.reason_string) == REASON_CHARS_MAX


def test_nothing_to_say_adds_nothing() -> None:
    """A code without words goes out as it always did."""
    connection = _connection()
    packet = Disconnect(ReasonCode.PROTOCOL_ERROR)
    assert explained(connection, packet, "") == encode(5, packet)
