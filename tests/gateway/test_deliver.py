"""What session actors send to durable connections, the acknowledgements that go back, and the shutdown."""

from __future__ import annotations

import pytest

from gateway.events import CloseSocket, FromSession, FromShard, PauseReading, Stopping, ToSession, ToShard, Write
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Ack, AckKind, AckRun, Connack, Connect, Disconnect, Item, Pingreq, Properties, Publish, Subscribe, Subscription
from mqtt.reason import ReasonCode
from sessions.frames import PUBACK, PUBCOMP, PUBREC, Acked, Deliver, Detach, SendPubrel, SessionClosed
from shards.frames import LOST, Live
from shards.frames import Disconnect as DisconnectEntry
from shards.messages import HAS_EXPIRY, HAS_PROPERTIES
from tests.gateway.scripted import Shell, message

Row = tuple[int, list[int], list[int], bytes, list[int]]


def deliver(shell: Shell, messages: list[tuple[bytes, bytes, int]], *to: Row) -> list[object]:
    """messages: (topic, body, flags), published now."""
    rows = [(topic, body, shell.wall_ms, flags) for topic, body, flags in messages]
    return list(shell.turn(FromSession(0, Deliver(rows, list(to)))))


def test_a_message_reaches_many_connections_in_one_write_each() -> None:
    """Each with its own packet ids and first bytes; 3.1.1 without the properties; unknown connections are left out."""
    shell = Shell()
    five, old = shell.online("five", 5, expiry_s=9), shell.online("old", 4, clean=False)
    body = b"\x04\x03\x00\x01tx"  # content type "t"
    effects = deliver(
        shell,
        [(b"a", b"\0one", 0), (b"b", body, HAS_PROPERTIES)],
        (five.conn, [0, 1], [1, 2], b"\x32\x3c", [0, 0]),
        (old.conn, [1, 0], [7, 0], b"\x33\x30", [0, 0]),
        (99, [0], [1], b"\x32", [0]),
    )
    assert effects == [
        Write(five.socket, b"\x32\x09\x00\x01a\x00\x01\x00one" + b"\x3c\x0b\x00\x01b\x00\x02" + body),
        Write(old.socket, b"\x33\x06\x00\x01b\x00\x07x" + b"\x30\x06\x00\x01aone"),
    ]
    assert shell.core.counters.durable_delivered == 4


def test_subscription_identifiers_go_to_mqtt_5_only() -> None:
    """A 3.1.1 session has none, but a frame may carry them for another connection."""
    shell = Shell()
    five, old = shell.online("five", 5, expiry_s=9), shell.online("old", 4, clean=False)
    deliver(shell, [(b"a", b"\0x", 0)], (five.conn, [0, 0], [1, 2], b"\x32\x32", [5, 0]), (old.conn, [0], [1], b"\x32", [5]))
    first, second = five.take()
    assert isinstance(first, Publish) and first.properties.subscription_identifiers == (5,)
    assert second == message(b"a", b"x", 1, 2) and old.take() == [message(b"a", b"x", 1, 1)]


def test_the_expiry_interval_is_counted_down() -> None:
    """What is left goes out [MQTT-3.3.2-6]; what is over is acknowledged in the client's place, unless it was sent before."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9)
    body = b"\x05\x02\x00\x00\x00\x0ax"
    rows = [(b"a", body, shell.wall_ms - age_ms, HAS_EXPIRY | HAS_PROPERTIES) for age_ms in (3_500, 20_000)]
    to = (client.conn, [0, 1, 1, 1, 1], [1, 2, 3, 0, 4], b"\x32\x32\x34\x30\x3a", [0, 0, 0, 0, 0])
    effects = shell.turn(FromSession(0, Deliver(rows, [to])))
    got = [packet for packet in client.take() if isinstance(packet, Publish)]
    assert [(packet.packet_id, packet.dup, packet.properties.message_expiry_interval) for packet in got] == [(1, False, 7), (4, True, 1)]
    assert effects[1:] == [ToSession(0, Acked(client.conn, PUBACK, [2], False)), ToSession(0, Acked(client.conn, PUBREC, [3], True))]
    assert shell.core.counters.durable_expired == 3
    rows = [(b"a", body, shell.wall_ms + 5_000, HAS_EXPIRY | HAS_PROPERTIES)]
    shell.turn(FromSession(0, Deliver(rows, [(client.conn, [0], [9], b"\x32", [0])])))
    (ahead,) = client.take()
    assert isinstance(ahead, Publish) and ahead.properties.message_expiry_interval == 10, "a clock ahead of ours adds nothing"


def test_a_message_larger_than_the_client_takes_is_done_without_being_sent() -> None:
    """[MQTT-3.1.2-25]: as if it had been delivered; with its identifier counted in."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9, maximum_packet_size=20)
    effects = deliver(
        shell, [(b"a", b"\0" + b"x" * 12, 0), (b"a", b"\0" + b"x" * 13, 0)], (client.conn, [0, 1, 0], [1, 2, 3], b"\x32\x34\x32", [0, 0, 1])
    )
    assert client.take() == [message(b"a", b"x" * 12, 1, 1)]
    assert effects[1:] == [ToSession(0, Acked(client.conn, PUBREC, [2], True)), ToSession(0, Acked(client.conn, PUBACK, [3], False))]
    assert shell.core.counters.durable_too_large == 2


def test_what_may_have_been_sent_before_ends_by_pubrel_when_it_is_too_large_now() -> None:
    """The client may hold its identifier: freed by a PUBREC with an error, it would make the next message a repeat of this one."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9, maximum_packet_size=20)
    row = (client.conn, [0, 0], [2, 3], b"\x3c\x3a", [0, 0])
    effects = deliver(shell, [(b"a", b"\0" + b"x" * 20, 0)], row)
    assert client.take() == []
    assert effects == [ToSession(0, Acked(client.conn, PUBREC, [2], False)), ToSession(0, Acked(client.conn, PUBACK, [3], False))]
    assert shell.core.counters.durable_too_large == 2


def test_acknowledgements_of_a_durable_client_are_joined_per_turn() -> None:
    """One frame while the kind stays the same, in the order of the wire; an error is a frame of its own."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9)
    effects = shell.turn(
        client.event(AckRun(AckKind.PUBACK, [1])),
        client.event(AckRun(AckKind.PUBACK, [2, 9]), AckRun(AckKind.PUBREC, [3]), Ack(AckKind.PUBREC, 4, ReasonCode.QUOTA_EXCEEDED)),
        client.event(AckRun(AckKind.PUBREC, [5]), AckRun(AckKind.PUBCOMP, [6]), Ack(AckKind.PUBACK, 7, ReasonCode.NOT_AUTHORIZED)),
    )
    conn = client.conn
    assert [effect.frame for effect in effects if isinstance(effect, ToSession)] == [
        Acked(conn, PUBACK, [1, 2, 9], False),
        Acked(conn, PUBREC, [3], False),
        Acked(conn, PUBREC, [4], True),
        Acked(conn, PUBREC, [5], False),
        Acked(conn, PUBCOMP, [6], False),
        Acked(conn, PUBACK, [7], False),
    ]
    assert client.send(AckRun(AckKind.PUBACK, [8])) == [ToSession(0, Acked(conn, PUBACK, [8], False))], "a new turn, a new frame"


def test_acknowledgements_go_before_the_detach() -> None:
    """A client that acknowledges and leaves has acknowledged."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9)
    effects = client.send(AckRun(AckKind.PUBACK, [1]), Disconnect())
    frames = [effect.frame for effect in effects if isinstance(effect, ToSession)]
    assert frames == [Acked(client.conn, PUBACK, [1], False), Detach(client.conn)]


def test_pubrel_for_what_is_not_under_way_says_so_in_mqtt_5() -> None:
    """3.1.1 has no words for it, and its client gets the PUBREL all the same."""
    for version, expected in ((5, b"\x62\x03\x00\x01\x92"), (4, b"\x62\x02\x00\x01")):
        shell = Shell()
        client = shell.online("d", version, clean=False, expiry_s=9, request_problem_information=0)
        assert shell.turn(FromSession(0, SendPubrel(client.conn, [1], False))) == [Write(client.socket, expected)]


def test_pubrel_and_close_by_the_session_actor() -> None:
    """PUBREL for all ids in one write; a close has the session actor's code and needs no Detach."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9, request_problem_information=0)
    assert shell.turn(FromSession(0, SendPubrel(client.conn, [1, 2]))) == [Write(client.socket, b"\x62\x02\x00\x01\x62\x02\x00\x02")]
    effects = shell.turn(FromSession(0, SessionClosed(client.conn, 0x82)))
    assert effects == [
        Write(client.socket, encode(5, Disconnect(ReasonCode.PROTOCOL_ERROR))),
        CloseSocket(client.socket, "closed by the session actor"),
        ToShard(0, 2, [DisconnectEntry(b"d", client.conn, LOST, None)]),
    ]


def test_frames_of_another_session_actor_mean_nothing() -> None:
    """Only the one that has the session may speak for it."""
    shell = Shell(n_sessions=2)
    client = shell.online("d", 5, expiry_s=9)
    assert shell.turn(FromSession(1, SessionClosed(client.conn, 0x82)), FromSession(1, SendPubrel(client.conn, [1]))) == []
    assert client.closed is None


def test_a_will_goes_to_the_live_subscribers_here() -> None:
    """Every gateway hears it from the shard, so none forwards it."""
    shell = Shell()
    client = shell.online("s", 4)
    client.send(Subscribe(1, (Subscription(b"w", 1),)))
    client.take()
    shell.turn(FromShard(0, Live(b"gone", 3, b"w", b"\0bye")))
    assert client.take() == [message(b"w", b"bye", 1, 1)]


@pytest.mark.parametrize("version", [4, 5])
def test_shutdown_finishes_the_acknowledgements_first(version: int) -> None:
    """Nobody is read any more; a connection with nothing unanswered is closed at once, the others when they are answered;
    the home keeps the session, and the will comes [MQTT-3.1.2-8]."""
    shell = Shell()
    idle, busy = shell.online("idle", version), shell.online("busy", version)
    shell.homes.durable_filters.append(b"#")
    busy.send(message(b"a", b"1", 1, 1))
    effects = shell.turn(Stopping())
    assert PauseReading(busy.socket, True) in effects and busy.closed is None and idle.closed == "shutdown"
    assert idle.take() == ([Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)] if version == 5 else [])
    shell.answer()
    farewell = [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)] if version == 5 else []
    assert busy.take() == [AckRun(AckKind.PUBACK, [1]), *farewell] and busy.closed == "shutdown"
    shell.answer()
    assert shell.homes.ended == [(b"idle", idle.conn, LOST, None), (b"busy", busy.conn, LOST, None)]
    assert shell.core.connections == 0 and shell.core.settled() and not shell.core.ready()


@pytest.mark.parametrize(("version", "packet_max", "told"), [(5, 0, "b1:1883 b2:1883"), (5, 20, None), (4, 0, None)])
def test_shutdown_says_where_else_to_go(version: int, packet_max: int, told: str | None) -> None:
    """0x9C with a Server Reference where one is set, without it where the packet would be too large; 3.1.1 has no word for it."""
    shell = Shell(Options(server_reference="b1:1883 b2:1883"))
    limits = {"maximum_packet_size": packet_max} if packet_max else {}
    online, waiting = shell.online("c", version, **limits), shell.client(version)  # type: ignore[arg-type]
    waiting.send(Connect(version, "w", properties=Properties(**limits)))  # type: ignore[arg-type]
    shell.turn(Stopping())
    if version == 4:
        assert online.take() == [] and waiting.take() == [Connack(False, ReasonCode.SERVER_UNAVAILABLE)]
        return
    elsewhere, where = ReasonCode.USE_ANOTHER_SERVER, Properties(server_reference=told)
    assert online.take() == [Disconnect(elsewhere, where)] and waiting.take() == [Connack(False, elsewhere, where)]


def test_shutdown_does_not_wait_for_ever() -> None:
    """A shard that does not answer holds a connection for stop_wait_ms; who comes now is turned away."""
    shell = Shell(Options(stop_wait_ms=2_000))
    busy, waiting = shell.online("busy", 5), shell.client(5)
    busy.send(message(b"a", b"1", 1, 1))
    shell.turn(Stopping())
    assert waiting.closed == "shutdown" and busy.closed is None
    shell.pass_time(3_000)
    assert busy.closed == "shutdown" and busy.take() == [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)]
    late = shell.client(5)
    assert late.closed == "shutdown"


def test_nobody_waits_for_an_acknowledgement_while_there_is_plenty_of_room() -> None:
    """It keeps company with the next turn; one that frees room, and whatever else a client sends, has a turn of its own."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=9, receive_maximum=16)

    def patient(*packets: Item) -> bool:
        shell.core.handle(client.event(*packets))
        return shell.core.patient

    to = [(client.conn, [0], [packet_id], b"\x32", [0]) for packet_id in (1, 2, 3, 4)]
    deliver(shell, [(b"a", b"\0x", 0)], *to[:2])
    assert patient(AckRun(AckKind.PUBACK, [1]))
    assert shell.turn() == [ToSession(0, Acked(client.conn, PUBACK, [1], False))]
    deliver(shell, [(b"a", b"\0x", 0)], *to[2:])
    assert not patient(AckRun(AckKind.PUBACK, [2]))
    assert patient(AckRun(AckKind.PUBACK, [3]))
    assert not patient(AckRun(AckKind.PUBACK, [4]), AckRun(AckKind.PUBREC, [9]))
    assert not patient(Pingreq())
    shell.core.handle(FromSession(0, Deliver([(b"a", b"\0x", shell.wall_ms, 0)], to[:1])))
    assert not shell.core.patient


def test_an_ephemeral_session_has_what_waits_sent_at_once() -> None:
    """Its window is the gateway's own."""
    shell = Shell()
    client = shell.online("e", 4)
    shell.core.handle(client.event(AckRun(AckKind.PUBACK, [1])))
    assert not shell.core.patient
