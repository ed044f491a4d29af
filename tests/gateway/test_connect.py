"""CONNECT to CONNACK: what is asked of the home and the session actor, and what the client is told."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from gateway.connection import Connection
from gateway.events import (
    CloseSocket,
    FromSession,
    Malformed,
    Opened,
    PauseReading,
    Replied,
    SessionLinked,
    SessionLost,
    SocketLost,
    TickEnded,
    ToSession,
    ToShard,
    Wake,
    Write,
)
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Properties, Will
from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached, Detach
from shards.frames import LOST, NORMAL, WITH_WILL, Connected
from shards.frames import Connect as ConnectEntry
from shards.frames import Disconnect as DisconnectEntry
from shards.frames import Will as WillEntry
from tests.gateway.scripted import Client, Shell, message

NOT_YOURS = "this client identifier cannot be used"
ANNOUNCED = Properties(receive_maximum=1024, topic_alias_maximum=32, maximum_packet_size=1 << 20)


def test_an_ephemeral_client_is_online_when_its_home_has_answered() -> None:
    """One Connect entry to the home; CONNACK at its answer and not before; no session actor takes part."""
    shell = Shell()
    client = shell.client(4)
    assert client.send(Connect(4, "c1", keep_alive=60)) == [ToShard(0, 1, [ConnectEntry(b"c1", True, 0, 4, None)])]
    assert shell.answer() == [Write(client.socket, b"\x20\x02\x00\x00")]


def test_connack_of_mqtt_5_says_what_the_broker_will_take() -> None:
    """Receive Maximum, Maximum Packet Size, Topic Alias Maximum; shared subscriptions where they are not available."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, "c1"))
    assert shell.answer() == [Write(client.socket, encode(5, Connack(False, ReasonCode.SUCCESS, ANNOUNCED)))]
    shell = Shell(Options(shared=False))
    client = shell.client(5)
    client.send(Connect(5, "c1"))
    without = replace(ANNOUNCED, shared_subscription_available=0)
    assert shell.answer() == [Write(client.socket, encode(5, Connack(False, ReasonCode.SUCCESS, without)))]


def test_nobody_is_told_in_connack_what_is_another_clients() -> None:
    """One after the other: a keep alive that is shortened and one that is not, an id that is assigned, MQTT 3.1.1, and the first again."""
    shell = Shell(Options(keep_alive_max_s=60))
    told = []
    for version, client_id, keep_alive in ((5, "c1", 60), (5, "c2", 100), (5, "", 60), (5, "", 60), (4, "c3", 100), (5, "c4", 60)):
        client = shell.client(version)
        client.send(Connect(version, client_id, keep_alive=keep_alive))
        (write,) = shell.answer()
        assert isinstance(write, Write) and write.socket == client.socket
        told.append(write.data)
    usual = encode(5, Connack(False, ReasonCode.SUCCESS, ANNOUNCED))
    shortened = encode(5, Connack(False, ReasonCode.SUCCESS, replace(ANNOUNCED, server_keep_alive=60)))
    assert [told[0], told[1], told[4], told[5]] == [usual, shortened, b"\x20\x02\x00\x00", usual]
    assert len({usual, told[2], told[3]}) == 3


def test_connack_says_that_there_are_no_shared_subscriptions_where_they_are_off() -> None:
    """Of a durable session as of others."""
    shell = Shell(Options(shared=False))
    client = shell.client(5)
    client.send(Connect(5, "c1", properties=Properties(session_expiry_interval=100)))
    shell.answer()
    without = replace(ANNOUNCED, shared_subscription_available=0)
    effects = shell.turn(FromSession(0, Attached(256, 0, [])))
    assert effects == [Write(client.socket, encode(5, Connack(False, ReasonCode.SUCCESS, without)))]


def test_a_durable_client_is_online_when_its_session_actor_has_it() -> None:
    """Connected with a session id leads to Attach; CONNACK waits for Attached, and says whether the session was there."""
    shell = Shell()
    client = shell.client(4)
    assert client.send(Connect(4, "c1", clean_start=False)) == [ToShard(0, 1, [ConnectEntry(b"c1", False, 7 * 86_400, 4, None)])]
    shell.homes.sessions[b"c1"] = 77
    assert shell.answer() == [ToSession(0, Attach(b"c1", 256, 77, True, 4, 100))]
    assert shell.turn(FromSession(0, Attached(256, 0, []))) == [Write(client.socket, b"\x20\x02\x01\x00")]


def test_a_failed_attach_becomes_the_connack() -> None:
    """The code of Attached is the client's answer, and the home hears that the connection is over without a will."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, "c1", properties=Properties(session_expiry_interval=100, request_problem_information=0)))
    shell.answer()
    effects = shell.turn(FromSession(0, Attached(256, 0x89, [])))
    assert effects == [
        Write(client.socket, encode(5, Connack(False, ReasonCode.SERVER_BUSY))),
        CloseSocket(client.socket, "the session actor refused the connection"),
        ToShard(0, 2, [DisconnectEntry(b"c1", 256, NORMAL, None)]),
    ]


def test_a_missing_client_id_is_assigned() -> None:
    """MQTT 5 is told the id; 3.1.1 gets one too but cannot be told; the same seed gives the same ids."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, ""))
    shell.answer()
    connack = client.packets[0]
    assert isinstance(connack, Connack)
    assigned = connack.properties.assigned_client_identifier
    assert assigned is not None and assigned.startswith("holdfast-") and assigned.encode() in shell.homes.newest
    old = shell.client(4)
    old.send(Connect(4, ""))
    shell.answer()
    assert old.take() == [Connack(False)]
    assert len(shell.homes.newest) == 2


@pytest.mark.parametrize(("version", "answer"), [(4, b"\x20\x02\x00\x02"), (3, b"\x20\x02\x00\x02")])
def test_a_connect_that_the_decoder_refuses_is_answered_in_its_version(version: int, answer: bytes) -> None:
    """An empty client id with a session to keep is code 2 in 3.1.1 (the decoder finds it)."""
    shell = Shell()
    client = shell.client(version)
    effects = shell.turn(Malformed(client.socket, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "empty", version))
    assert effects == [Write(client.socket, answer), CloseSocket(client.socket, "empty")]


def test_an_unknown_protocol_version_is_answered_in_the_nearest_form() -> None:
    """0x84 in MQTT 5, code 1 before; without a version there is no answer at all."""
    shell = Shell()
    for version, answer in ((5, encode(5, Connack(False, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION))), (4, b"\x20\x02\x00\x01")):
        client = shell.client(version)
        effects = shell.turn(Malformed(client.socket, 0x84, "protocol", version))
        assert effects == [Write(client.socket, answer), CloseSocket(client.socket, "protocol")]
    client = shell.client()
    assert shell.turn(Malformed(client.socket, 0x84, "protocol", None)) == [CloseSocket(client.socket, "protocol")]


@pytest.mark.parametrize(
    ("version", "answer"), [(5, encode(5, Connack(False, ReasonCode(0x85), Properties(reason_string=NOT_YOURS)))), (4, b"\x20\x02\x00\x02")]
)
def test_a_client_id_of_somebody_else_is_refused_by_its_home(version: int, answer: bytes) -> None:
    """0x85, 2 in 3.1.1; there was no connection, so the home is told of no end."""
    shell = Shell()
    client = shell.client(version)
    client.send(Connect(version, "c"))
    effects = shell.turn(Replied(0, 1, [Connected(0, False, 0, refused=0x85)]))
    assert effects == [Write(client.socket, answer), CloseSocket(client.socket, NOT_YOURS)]


def test_the_will_goes_into_the_connect_record() -> None:
    """In MQTT 5 form, its delay apart."""
    shell = Shell()
    client = shell.client(5)
    will = Will(b"w", b"gone", 1, True, Properties(will_delay_interval=30, message_expiry_interval=9))
    (effect,) = client.send(Connect(5, "c1", will=will))
    body = b"\x05\x02\x00\x00\x00\x09gone"
    assert effect == ToShard(0, 1, [ConnectEntry(b"c1", True, 0, 5, WillEntry(b"w", 1, True, 30, body))])


def test_a_capped_session_expiry_is_told() -> None:
    """The client asked for more than the broker grants."""
    shell = Shell(Options(session_expiry_max_s=100))
    client = shell.client(5)
    client.send(Connect(5, "c1", properties=Properties(session_expiry_interval=500)))
    shell.answer()
    shell.turn(FromSession(0, Attached(256, 0, [])))
    (connack,) = client.take()
    assert isinstance(connack, Connack) and connack.properties.session_expiry_interval == 100


def test_packets_behind_connect_wait_for_connack() -> None:
    """They are held, nothing more is read, and they are handled in order after CONNACK."""
    shell = Shell()
    client = shell.client(4)
    effects = client.send(Connect(4, "c1"), Pingreq(), message(b"t", b"x", 1, 7))
    assert effects == [PauseReading(client.socket, True), ToShard(0, 1, [ConnectEntry(b"c1", True, 0, 4, None)])]
    effects = shell.answer()
    assert effects[:2] == [Write(client.socket, b"\x20\x02\x00\x00\xd0\x00"), PauseReading(client.socket, False)]
    assert isinstance(effects[2], ToShard)
    shell.answer()
    assert client.take()[:2] == [Connack(False), Pingresp()]


def test_a_home_that_does_not_answer_is_waited_for_so_long() -> None:
    """CONNACK 0x88 after home_wait_ms; the late number is given back so that its fences and timers end."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, "c1"))
    assert shell.pass_time(9_000) == []
    shell.pass_time(2_000)
    assert client.take() == [Connack(False, ReasonCode.SERVER_UNAVAILABLE)] and client.closed
    assert shell.answer() == [ToShard(0, 2, [DisconnectEntry(b"c1", 256, NORMAL, None)])]


def test_a_home_that_is_still_erasing_a_former_session_is_asked_again() -> None:
    """CONNACK waits until the last row is gone, within the bound of every CONNECT; a client that leaves ends the asking."""
    shell = Shell()
    client, slow, gone = shell.client(4), shell.client(4), shell.client(4)
    shell.homes.erasing = 3
    client.send(Connect(4, "c1"))
    for _ in range(3):
        shell.answer()
        assert client.take() == []
    shell.answer()
    assert client.take() == [Connack(False, ReasonCode.SUCCESS)]
    shell.homes.erasing = 1 << 30
    slow.send(Connect(4, "c2"))
    gone.send(Connect(4, "c3"))
    shell.answer()
    shell.turn(SocketLost(gone.socket, "reset"))
    shell.answer()
    assert [entry.client for request in shell.requests for entry in request.entries] == [b"c2"]  # type: ignore[union-attr]
    shell.pass_time(11_000)
    assert slow.take() == [Connack(False, ReasonCode.SERVER_UNAVAILABLE)] and slow.closed
    shell.answer()
    assert not shell.requests


def test_an_attach_waits_for_its_session_actor_within_the_same_bound() -> None:
    """Sent when the session actor is linked; sent again when it was lost; 0x88 when it stays away."""
    shell = Shell()
    shell.turn(SessionLost(0))
    client = shell.client(5)
    client.send(Connect(5, "c1", properties=Properties(session_expiry_interval=100)))
    assert shell.answer() == []
    attach = ToSession(0, Attach(b"c1", 256, 1001, False, 5, 100))
    assert shell.turn(SessionLinked(0)) == [attach]
    assert shell.turn(SessionLost(0)) == []
    assert shell.turn(SessionLinked(0)) == [attach]
    shell.pass_time(11_000)
    assert client.take() == [Connack(False, ReasonCode.SERVER_UNAVAILABLE)]
    assert shell.to_session[-1] == (0, Detach(256))


@pytest.mark.parametrize("version", [4, 5])
def test_the_end_of_a_connection_is_told_to_the_home(version: int) -> None:
    """DISCONNECT deletes the will, a lost socket does not; entries before the end go before it."""
    shell = Shell()
    polite, lost = shell.online("polite", version), shell.online("lost", version)
    effects = polite.send(message(b"t", b"x", 1, 1), Disconnect())
    assert effects[0] == CloseSocket(polite.socket, "client disconnected")
    assert isinstance(effects[1], ToShard)
    assert effects[1].entries[1:] == [DisconnectEntry(b"polite", polite.conn, NORMAL, None)]
    (effect,) = shell.turn(SocketLost(lost.socket, "reset"))
    assert isinstance(effect, ToShard)
    assert effect.entries == [DisconnectEntry(b"lost", lost.conn, LOST, None)]


def test_disconnect_may_ask_for_the_will_and_for_another_expiry() -> None:
    """0x04 lets the will come; an expiry may be changed, but not from 0 to something [MQTT-3.1.2-23]."""
    shell = Shell()
    client = shell.online("c1", 5, expiry_s=100)
    effects = client.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, Properties(session_expiry_interval=7)))
    assert ToShard(0, 2, [DisconnectEntry(b"c1", client.conn, WITH_WILL, 7)]) in effects
    assert ToSession(0, Detach(client.conn, 7)) in effects
    capped = Shell(Options(session_expiry_max_s=50))
    client = capped.online("c1", 5, expiry_s=40)
    client.send(Disconnect(properties=Properties(session_expiry_interval=70)))
    capped.answer()
    assert capped.homes.ended == [(b"c1", client.conn, NORMAL, 50)]
    still = shell.online("c3", 5)
    still.send(Disconnect(properties=Properties(session_expiry_interval=0)))
    assert still.closed == "client disconnected"
    ephemeral = shell.online("c2", 5)
    ephemeral.send(Disconnect(properties=Properties(session_expiry_interval=7)))
    assert ephemeral.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]
    shell.answer()
    assert shell.homes.ended[-1] == (b"c2", ephemeral.conn, LOST, None)


@pytest.mark.parametrize(("code", "told"), [(0x81, 0x81), (0x95, 0x95), (0x94, 0x82)])
def test_malformed_bytes_behind_a_connect_are_answered_by_its_connack(code: int, told: int) -> None:
    """MQTT 5 says why, with a reason that a CONNACK may have; 3.1.1 has no word for it."""
    for version in (4, 5):
        shell = Shell()
        client = shell.client(version)
        shell.turn(client.event(Connect(version, "c")), Malformed(client.socket, code, "what followed it", version))
        assert client.closed == "what followed it"
        assert client.take() == ([Connack(False, ReasonCode(told))] if version == 5 else [])
        shell.answer()
        assert shell.core.connections == 0


def test_malformed_bytes_close_an_online_connection_with_their_code() -> None:
    """DISCONNECT with the decoder's code for MQTT 5; the will comes."""
    shell = Shell()
    client = shell.online("c1")
    shell.turn(Malformed(client.socket, 0x95, "too large", 5))
    assert client.take() == [Disconnect(ReasonCode.PACKET_TOO_LARGE)] and client.closed == "too large"
    shell.answer()
    assert shell.homes.ended == [(b"c1", client.conn, LOST, None)]


def test_a_client_that_never_got_connack_has_no_will() -> None:
    """Its socket is lost while the session actor makes it ready: the home hears of an end without a will."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, "c1", properties=Properties(session_expiry_interval=100)))
    shell.answer()
    effects = shell.turn(SocketLost(client.socket, "reset"))
    assert effects == [ToShard(0, 2, [DisconnectEntry(b"c1", 256, NORMAL, None)]), ToSession(0, Detach(256))]


def test_no_connect_and_no_keep_alive() -> None:
    """A silent socket is closed after connect_wait_ms; a silent client after one and a half keep alives."""
    shell = Shell()
    silent = shell.client()
    shell.pass_time(4_500)
    assert silent.closed is None
    shell.pass_time(1_000)
    assert silent.closed == "no CONNECT in time"
    client = shell.client(5)
    client.send(Connect(5, "c1", keep_alive=2))
    shell.answer()
    client.take()
    for _ in range(3):
        shell.pass_time(2_900)
        assert client.closed is None
        client.send(Pingreq())
    client.take()
    shell.pass_time(2_900)
    assert client.closed is None
    shell.pass_time(500)
    assert client.take() == [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)] and client.closed
    shell.answer()
    assert shell.homes.ended[-1] == (b"c1", 256, LOST, None)


def test_a_connection_that_is_over_is_not_remembered_for_its_keep_alive() -> None:
    """Which may be 27 hours: whoever comes and goes would fill the memory (found by the fuzz run)."""
    shell = Shell()
    client = shell.client(4)
    client.send(Connect(4, "goes at once", keep_alive=65_535))
    shell.answer()
    shell.turn(SocketLost(client.socket, "gone"))
    shell.answer()
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Connection) and each.client == b"goes at once"] == []
    shell.pass_time(31_000)
    assert shell.core._state.wheel.next_ms() is None


def test_a_long_keep_alive_is_shortened() -> None:
    """MQTT 5 is told and held to it; 3.1.1 cannot be told and keeps its own."""
    shell = Shell(Options(keep_alive_max_s=10))
    for keep_alive, told in ((0, 10), (60, 10), (5, None)):
        client = shell.client(5)
        client.send(Connect(5, f"c{keep_alive}", keep_alive=keep_alive))
        shell.answer()
        (connack,) = client.take()
        assert isinstance(connack, Connack) and connack.properties.server_keep_alive == told
    old = shell.client(4)
    old.send(Connect(4, "old", keep_alive=60))
    shell.answer()
    shell.pass_time(16_000)
    assert [client.closed is None for client in shell.clients.values()] == [False, False, False, True]


def test_more_connections_than_allowed_are_turned_away() -> None:
    """At once, before a byte is read; a place that is free again may be taken."""
    shell = Shell(Options(connections_max=1))
    first, second = shell.client(), shell.client()
    assert first.closed is None and second.closed == "too many connections"
    shell.turn(SocketLost(first.socket, "reset"))
    assert shell.client().closed is None


def arrived(shell: Shell, **about: int) -> Client:
    """Of whom the door knows more than that it came."""
    client = Client(shell, len(shell.clients) + 1, 5)
    shell.clients[client.socket] = client
    shell.turn(Opened(client.socket, "tls", "peer", **about))  # type: ignore[arg-type]
    return client


def test_the_time_until_connect_begins_when_the_connection_was_accepted() -> None:
    """What TLS and a proxy took of it is gone; whoever took all of it is closed at the next turns."""
    shell = Shell(Options(connect_wait_ms=5_000))
    clients = [arrived(shell, waited_ms=waited_ms) for waited_ms in (0, 4_000, 9_000)]
    shell.pass_time(2_000)
    assert [client.closed for client in clients] == [None, "no CONNECT in time", "no CONNECT in time"]
    shell.pass_time(4_000)
    assert clients[0].closed == "no CONNECT in time"


def test_the_largest_packet_that_is_announced_is_that_of_the_listener() -> None:
    """Where it takes less than the others."""
    shell = Shell(Options(packet_bytes_max=1 << 20))
    client = arrived(shell, packet_bytes_max=5_000)
    client.send(Connect(5, "c", True))
    shell.answer()
    (connack,) = client.take()
    assert isinstance(connack, Connack) and connack.properties.maximum_packet_size == 5_000


def test_the_clock_is_never_older_than_a_second_while_there_are_connections() -> None:
    """The shell is asked to wake the core, once per second and not once per turn; without connections not at all."""
    core = Shell().core
    assert core.handle(TickEnded(7_000_100, 0)) == []
    core.handle(Opened(1, "tcp", "peer"))
    assert core.handle(TickEnded(7_000_200, 0)) == [Wake(800)]
    assert core.handle(TickEnded(7_000_300, 0)) == []
    assert core.handle(TickEnded(7_001_000, 0)) == [Wake(1_000)]
    core.handle(SocketLost(1, "reset"))
    assert core.handle(TickEnded(7_010_000, 0)) == []


def test_a_lost_session_actor_closes_its_connections() -> None:
    """They come back and resume; ephemeral ones are not touched."""
    shell = Shell()
    durable, ephemeral = shell.online("d", 5, expiry_s=9), shell.online("e", 5)
    shell.turn(SessionLost(0))
    assert durable.take() == [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)]
    assert durable.closed and not ephemeral.closed
    assert shell.to_session == [], "there is nobody to be told"


def test_a_second_opened_of_a_socket_is_a_bug_of_the_shell() -> None:
    """Numbers of sockets are never used twice."""
    shell = Shell()
    client = shell.client()
    with pytest.raises(ValueError):
        shell.core.handle(Opened(client.socket, "tcp", "peer"))
