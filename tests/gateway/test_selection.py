"""What a gateway decides by configuration: the zone of a connection, and which messages the store brings."""

from __future__ import annotations

import pytest

from access.identity import Identity
from gateway.events import Authenticated, Congested, FromPeer, Opened, PeerLinked
from gateway.frames import Forward, Interest, InterestSeen
from gateway.options import Options
from gateway.zones import NO_ZONE, Zone, zone_of
from mqtt.packets import Ack, AckKind, AckRun, Connect, Properties
from mqtt.reason import ReasonCode
from sessions.frames import ROUTED, Attach, Hold
from sessions.options import ReadOverrides
from shards.frames import Connect as ConnectEntry
from shards.frames import Publish
from shards.persistence import NOT_STORED, Persistence
from tests.gateway.scripted import Shell, message, subscribe

NOISE = Persistence(except_prefixes=(b"noise/",))


# ------------------------------------------------------------------ zones
ZONES = (
    Zone("user", users=frozenset(("ann",)), enable=False),
    Zone("prefix", client_prefixes=(b"meter-", b"gauge-"), reads=ReadOverrides(7, 8, 9)),
    Zone("listener", listeners=frozenset(("tls",)), enable=True),
    Zone("topics only"),
)


@pytest.mark.parametrize(
    ("listener", "user", "client", "zone"),
    [
        ("tcp", "", b"c", ""),
        ("tcp", "bob", b"c", ""),
        ("tcp", "ann", b"meter-1", "user"),
        ("tls", "bob", b"meter-1", "prefix"),
        ("tls", "", b"gauge-1", "prefix"),
        ("tls", "", b"a meter-1", "listener"),
        ("tls", "", b"", "listener"),
    ],
)
def test_the_first_zone_that_fits_counts(listener: str, user: str, client: bytes, zone: str) -> None:
    """Listener, user name or the beginning of the client id; a zone of topics holds no connection."""
    assert zone_of(ZONES, listener, user, client).name == zone


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(("listener", "user", "enable"), [("tcp", "ann", False), ("tls", None, True), ("tcp", None, None)])
def test_a_zone_says_where_a_new_session_lives(durable: bool, listener: str, user: str | None, enable: bool | None) -> None:
    """Else what is said for everybody; and of one that ends with its connection nothing."""
    shell = Shell(Options(zones=ZONES, durable=durable))
    for expiry_s in (60, 0):
        client = shell.client()
        shell.turn(Opened(client.socket + 100, listener, "peer"))
        shell.clients[client.socket + 100] = shell.clients.pop(client.socket)
        client.socket += 100
        client.send(Connect(5, "c", properties=Properties(session_expiry_interval=expiry_s), username="who knows" if user else None))
        if user is not None:
            shell.turn(Authenticated(client.socket, 1, Identity(user, "password")))
        (entry,) = [entry for entry in shell.requests[-1].entries if isinstance(entry, ConnectEntry)]
        assert entry.memory == (expiry_s > 0 and not (durable if enable is None else enable))
        shell.answer()


def test_the_session_actor_is_told_how_the_zone_reads() -> None:
    """What the zone leaves open is left open."""
    shell = Shell(Options(zones=ZONES))
    for client_id, reads in (("meter-1", (7, 8, 9)), ("other", (None, None, None))):
        client = shell.client()
        client.send(Connect(5, client_id, properties=Properties(session_expiry_interval=60)))
        shell.answer()
        (attach,) = [frame for _, frame in shell.to_session if isinstance(frame, Attach)]
        assert (attach.batch_size, attach.idle_poll_ms, attach.renew_streams_ms) == reads
        shell.to_session.clear()
    assert NO_ZONE.reads == ReadOverrides()


# ------------------------------------------------------------------ the persistence filter
def publishes(shell: Shell) -> list[Publish]:
    return [entry for request in shell.requests for entry in request.entries if isinstance(entry, Publish)]


def test_excluded_messages_are_marked_and_others_are_not() -> None:
    """In one run, at QoS 1 and 2; QoS 0 does not go to the shard."""
    shell = Shell(Options(persistence=NOISE))
    publisher = shell.online("p")
    publisher.send(message(b"noise/1", b"1", 1, 1), message(b"a", b"2", 1, 2), message(b"noise/2", b"3", 2, 3), message(b"noise/1", b"4"))
    assert [flags for entry in publishes(shell) for flags in entry.flags] == [2 | NOT_STORED, 2, 4 | NOT_STORED]


def test_without_a_filter_nothing_is_marked() -> None:
    """The default."""
    shell = Shell()
    publisher = shell.online("p")
    publisher.send(message(b"noise/1", b"1", 1, 1))
    assert [flags for entry in publishes(shell) for flags in entry.flags] == [2]


def test_an_excluded_message_goes_to_durable_sessions_at_qos_0_and_to_others_at_theirs() -> None:
    """After the shard's answer, which says that nobody durable wants it; the publisher is not told so, for somebody heard it."""
    shell = Shell(Options(persistence=NOISE))
    durable = shell.online("d", expiry_s=60, subscriptions=[(b"#", 2, 0, 0)])
    publisher = shell.online("p")
    publisher.send(message(b"noise/1", b"1", 1, 1))
    assert durable.take() == []
    shell.answer()
    assert durable.take() == [message(b"noise/1", b"1")]
    assert publisher.take() == [AckRun(AckKind.PUBACK, [1])]
    publisher.send(message(b"a", b"2", 1, 2))
    shell.answer()
    assert durable.take() == []
    assert publisher.take() == [Ack(AckKind.PUBACK, 2, ReasonCode.NO_MATCHING_SUBSCRIBERS)]


def test_an_excluded_message_goes_to_gateways_whose_durable_sessions_want_it() -> None:
    """They want only what is not stored; with the mark they know that it is not."""
    shell = Shell(Options(persistence=NOISE))
    shell.turn(PeerLinked(7, "g2"), FromPeer(7, Interest(1, True, [], [b"#"], [], [], [])), FromPeer(7, InterestSeen(1)))
    publisher = shell.online("p")
    shell.to_peer.clear()
    publisher.send(message(b"noise/1", b"1", 1, 1), message(b"a", b"2", 1, 2))
    shell.answer()
    (forward,) = [frame for _, frame in shell.to_peer if isinstance(frame, Forward)]
    assert (forward.topics, forward.flags) == ([b"noise/1"], bytes([2 | NOT_STORED]))
    there = Shell(Options(persistence=NOISE), name="g2")
    durable = there.online("d", expiry_s=60, subscriptions=[(b"#", 1, 0, 0)])
    there.turn(PeerLinked(7, "g1"), FromPeer(7, forward))
    assert durable.take() == [message(b"noise/1", b"1")]


# ------------------------------------------------------------------ store_qos0
def test_qos_0_goes_to_the_shard_and_at_once_to_who_is_not_durable() -> None:
    """Durable sessions get it from the store, also under a subscription of QoS 0."""
    shell = Shell(Options(store_qos0=True))
    ephemeral = shell.online("e")
    durable = shell.online("d", expiry_s=60, subscriptions=[(b"#", 1, 0, 0), (b"+", 0, ROUTED, 0), (b"old", 0, 0, 0)])
    subscribe(ephemeral, b"#")
    publisher = shell.online("p")
    publisher.send(message(b"a", b"1"), message(b"old", b"2"), message(b"a", b"3"))
    (entry,) = publishes(shell)
    assert (entry.topics, entry.flags, entry.packet_ids) == ([b"a", b"old", b"a"], b"\0\0\0", [0, 0, 0])
    assert ephemeral.take() == [message(b"a", b"1"), message(b"old", b"2"), message(b"a", b"3")]
    # One subscription is from before the option and has no route.
    assert durable.take() == [message(b"old", b"2")]
    shell.answer()
    assert publisher.take() == []
    assert ephemeral.take() == durable.take() == []


def test_qos_0_that_is_stored_stops_its_publisher_when_the_shard_is_behind() -> None:
    """No acknowledgement bounds it, so the bound of the shard has to; QoS 0 that is live only knows no bound."""
    for store_qos0 in (True, False):
        shell = Shell(Options(store_qos0=store_qos0, shard_messages_max=4))
        publisher = shell.online("p")
        publisher.send(*[message(b"a", b"%d" % n) for n in range(5)])
        assert publisher.paused == store_qos0
        shell.answer()
        assert not publisher.paused


def test_excluded_qos_0_goes_live_only() -> None:
    """As if there were no such option."""
    shell = Shell(Options(store_qos0=True, persistence=NOISE))
    durable = shell.online("d", expiry_s=60, subscriptions=[(b"#", 1, 0, 0)])
    publisher = shell.online("p")
    publisher.send(message(b"noise/1", b"1"))
    assert publishes(shell) == []
    assert durable.take() == [message(b"noise/1", b"1")]


@pytest.mark.parametrize("store_qos0", [True, False])
def test_the_session_actor_hears_whether_a_client_reads(store_qos0: bool) -> None:
    """Whatever it sends: no acknowledgement bounds QoS 0, and a window of large messages is more than may wait for a client."""
    shell = Shell(Options(store_qos0=store_qos0))
    client = shell.online("d", expiry_s=60)
    shell.to_session.clear()
    shell.turn(Congested(client.socket, True))
    shell.turn(Congested(client.socket, False))
    held = [(0, Hold(client.conn, True)), (0, Hold(client.conn, False))]
    assert [row for row in shell.to_session if isinstance(row[1], Hold)] == held
