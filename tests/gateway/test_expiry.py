"""Message expiry on every path to a subscriber: what is left goes out [MQTT-3.3.2-6], what is over does not [MQTT-3.3.2-5].

Of sessions in memory the session actor sees to it (tests/sessions), of offline sessions the path is that of `stored` here, later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.events import FromPeer, FromSession, FromShard, RetainedTold, SocketLost
from gateway.options import Options
from mqtt.body import make_body
from mqtt.packets import AckKind, AckRun, Properties, Publish, PublishRun, Subscribe, Subscription
from sessions.frames import PUBACK, Acked, Deliver
from sessions.live_frames import HANDED_ON, Forward
from shards.frames import Live
from shards.messages import HAS_EXPIRY, HAS_PROPERTIES, encode_message
from tests.gateway.linked import Linked
from tests.gateway.scripted import Client, Shell, message, subscribe

EXPIRY_S = 10
GIVEN = Properties(message_expiry_interval=EXPIRY_S, user_properties=(("k", "v"),))
BODY = make_body(GIVEN, b"x")
FLAGS = HAS_EXPIRY | HAS_PROPERTIES


def live(age_ms: int, version: int) -> Client:
    """Never old: it leaves in the turn in which it comes.  age_ms is what it waited at its publisher, which nobody knows."""
    shell = Shell()
    client, publisher = shell.online("s", version), shell.online("p", 5)
    subscribe(client, b"a")
    shell.pass_time(age_ms)
    publisher.send(Publish(0, 0, b"a", b"x", GIVEN))
    return client


def queued(age_ms: int, version: int) -> Client:
    """For the window of an ephemeral session."""
    shell = Shell(Options(max_inflight=1))
    shell.homes.durable_filters.append(b"#")
    client, publisher = shell.online("s", version), shell.online("p", 5)
    subscribe(client, b"a", 1)
    publisher.send(message(b"a", b"first", 1, 1))
    publisher.send(Publish(2, 2, b"a", b"x", GIVEN))
    shell.answer()
    client.take()
    shell.pass_time(age_ms)
    client.send(AckRun(AckKind.PUBACK, [1]))
    return client


def retained(age_ms: int, version: int) -> Client:
    """From the store to a new ephemeral subscription."""
    shell = Shell()
    client = shell.online("s", version)
    client.send(Subscribe(1, (Subscription(b"a"),)))
    client.packets.clear()
    (query,) = shell.queries
    shell.turn(RetainedTold(query.shard, query.id, [encode_message(FLAGS, shell.wall_ms - age_ms, b"p", b"a", BODY)], b""))
    return client


def stored(age_ms: int, version: int) -> Client:
    """From the store to a durable session: live, offline for so long, or replayed."""
    shell = Shell()
    client = shell.online("d", version, clean=False, expiry_s=99)
    shell.turn(FromSession(0, Deliver([(b"a", BODY, shell.wall_ms - age_ms, FLAGS)], [(client.conn, [0], [7], b"\x32", [0])])))
    if age_ms >= EXPIRY_S * 1000:
        assert shell.to_session[-1] == (0, Acked(client.conn, PUBACK, [7], False)), "acknowledged in the client's place"
    return client


def handed_on(age_ms: int, version: int) -> Client:
    """A shared message whose member left without having taken it."""
    shell = Shell(Options(max_inflight=1))
    shell.homes.durable_filters.append(b"#")
    leaver, publisher = shell.online("m", 5), shell.online("p", 5)
    subscribe(leaver, b"$share/g/a", 1)
    publisher.send(message(b"a", b"first", 1, 1))
    publisher.send(Publish(2, 2, b"a", b"x", GIVEN))
    shell.answer()
    client = shell.online("s", version)
    subscribe(client, b"$share/g/a", 1)
    shell.pass_time(age_ms)
    shell.turn(SocketLost(leaver.socket, "gone"))
    client.send(AckRun(AckKind.PUBACK, [1]))
    client.packets = [packet for packet in client.packets if b"first" not in _payloads(packet)]
    return client


PATHS: dict[str, Callable[[int, int], Client]] = {"queued": queued, "retained": retained, "stored": stored, "handed on": handed_on}


def _payloads(packet: object) -> bytes:
    return b"".join(packet.bodies) if isinstance(packet, PublishRun) else getattr(packet, "payload", b"")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("age_ms", "left_s"), [(0, 10), (3_000, 7), (8_500, 2), (9_900, 1), (10_100, None), (20_000, None)])
@pytest.mark.parametrize("version", [5, 4])
def test_what_is_left_goes_out_and_what_is_over_does_not(path: str, age_ms: int, left_s: int | None, version: int) -> None:
    """Seconds are rounded up, so one that has any time left says at least one; 3.1.1 is told nothing and is spared what is over."""
    got = PATHS[path](age_ms, version).take()
    if left_s is None:
        assert got == []
    elif version == 5:
        (packet,) = got
        assert isinstance(packet, Publish) and packet.properties.user_properties == GIVEN.user_properties
        # Turns take some milliseconds of their own.
        assert packet.properties.message_expiry_interval in (left_s, left_s - 1)
    else:
        (run,) = got
        assert isinstance(run, PublishRun) and run.bodies[0].endswith(b"x")


def test_live_messages_have_all_of_it() -> None:
    """By whichever gateway or shard they come: none of them waits anywhere."""
    for age_ms in (0, 60_000):
        (packet,) = live(age_ms, 5).take()
        assert isinstance(packet, Publish) and packet.properties == GIVEN
    pair = Linked(2)
    client = pair[1].online("s", 5)
    client.send(Subscribe(1, (Subscription(b"a"),)))
    pair.settle()
    client.take()
    pair[1].turn(FromPeer(1, Forward(b"p", HANDED_ON, b"\0", [b"a"], [BODY], [])), FromShard(0, Live(b"w", 0, b"a", BODY)))
    for packet in client.take():
        assert isinstance(packet, Publish) and packet.properties == GIVEN


def test_what_was_sent_before_is_sent_again_however_old() -> None:
    """Its client may be waiting for it; it says one second."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=99)
    shell.turn(FromSession(0, Deliver([(b"a", BODY, shell.wall_ms - 60_000, FLAGS)], [(client.conn, [0], [7], b"\x3a", [0])])))
    (packet,) = client.take()
    assert isinstance(packet, Publish) and packet.dup and packet.properties.message_expiry_interval == 1


@pytest.mark.parametrize("version", [5, 4])
@pytest.mark.parametrize("expiry_s", [0, 1, 2, 10])
def test_a_young_message_goes_out_as_it_does_beside_an_old_one(expiry_s: int, version: int) -> None:
    """All of a frame goes out at once where nothing is to be written anew, which is told to the millisecond."""
    shell = Shell()
    client = shell.online("d", version, clean=False, expiry_s=99)
    body = make_body(Properties(message_expiry_interval=expiry_s), b"y")
    for number, age_ms in enumerate((-5, 0, 1, *range(990, 1012), 1999, 2000, 2001)):
        young = b"a", body, shell.wall_ms - age_ms, FLAGS
        old = b"old", BODY, shell.wall_ms - 5_000, FLAGS
        shell.turn(
            FromSession(0, Deliver([young], [(client.conn, [0], [2 * number + 1], b"\x32", [0])])),
            FromSession(0, Deliver([young, old], [(client.conn, [0, 1], [2 * number + 1, 2 * number + 2], b"\x32\x32", [0, 0])])),
        )
        sent = [(topic, body) for packet in client.take() for topic, body in _messages(packet)]
        of_young = [body for topic, body in sent if topic == b"a"]
        assert len(sent) == len(of_young) + 1
        assert of_young == of_young[:1] * (2 if of_young else 0)
        assert of_young or age_ms > 1000 * expiry_s - 20


def _messages(packet: object) -> list[tuple[bytes, bytes]]:
    if isinstance(packet, PublishRun):
        return list(zip(packet.topics, packet.bodies, strict=True))
    assert isinstance(packet, Publish)
    return [(packet.topic, packet.body)]
