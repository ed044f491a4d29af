"""SUBSCRIBE and UNSUBSCRIBE of both kinds of sessions, the live table, retained messages."""

from __future__ import annotations

import pytest

from gateway.ephemeral import AWAIT_PUBACK, EphemeralSession
from gateway.events import (
    Congested,
    FromSession,
    RetainedQuery,
    RetainedTold,
    SessionLost,
    ShardLinked,
    ShardLost,
    ToSession,
    Write,
)
from gateway.options import Counters, Options
from mqtt.packets import Ack, AckKind, AckRun, Disconnect, Properties, Publish, Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqtt.reason import ReasonCode
from sessions.frames import Subacked, Unsubacked
from sessions.frames import Subscribe as SubscribeFrame
from sessions.frames import Unsubscribe as UnsubscribeFrame
from shards.messages import RETAIN, encode_message
from tests.gateway.scripted import Shell, message, subscribe

SUBSCRIBED = ReasonCode.GRANTED_QOS_1


# -------------------------------------------------------------------------------------------------- ephemeral
@pytest.mark.parametrize("version", [4, 5])
def test_suback_of_an_ephemeral_session(version: int) -> None:
    """Every filter gets its own code; a bad one does not harm the others."""
    shell = Shell(Options(subscriptions_max=2, shared=False))
    client = shell.online("s", version)
    filters = (b"a", b"$share/g/a", b"b/#", b"c")
    client.send(Subscribe(5, tuple([Subscription(filter, 1) for filter in filters])))
    wanted = (SUBSCRIBED, ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, SUBSCRIBED, ReasonCode.QUOTA_EXCEEDED)
    reasons = tuple([code if version == 5 else ReasonCode(min(code, 0x80)) for code in wanted])
    assert client.take() == [Suback(5, reasons)]
    client.send(Subscribe(6, (Subscription(b"a", 2),)))
    assert client.take() == [Suback(6, (ReasonCode.GRANTED_QOS_2,))]


def test_a_wildcard_in_the_wrong_place() -> None:
    """MQTT 5: 0x8F for that filter; 3.1.1 has no refusal for it, the connection is closed [MQTT-4.7.1-2]."""
    shell = Shell()
    five, old = shell.online("five", 5), shell.online("old", 4)
    five.send(Subscribe(1, (Subscription(b"a/#/b"), Subscription(b"a"))))
    assert five.take() == [Suback(1, (ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.SUCCESS))]
    old.send(Subscribe(1, (Subscription(b"a+"),)))
    assert old.closed and old.take() == []


def test_a_filter_may_have_so_many_levels() -> None:
    """One more is 0x8F."""
    shell = Shell(Options(filter_levels_max=3))
    client = shell.online("s", 5)
    client.send(Subscribe(1, (Subscription(b"a/b/c"), Subscription(b"a/b/c/#"))))
    assert client.take() == [Suback(1, (ReasonCode.SUCCESS, ReasonCode.TOPIC_FILTER_INVALID))]


def test_unsubscribe_of_an_ephemeral_session() -> None:
    """0x11 for what was not subscribed; nothing comes afterwards."""
    shell = Shell()
    client, publisher = shell.online("s", 5), shell.online("p", 4)
    subscribe(client, b"a")
    client.send(Unsubscribe(2, (b"a", b"b")))
    assert client.take() == [Unsuback(2, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED))]
    publisher.send(message(b"a", b"1"))
    assert client.take() == []


def test_overlapping_subscriptions_bring_one_copy_each() -> None:
    """Each with its own QoS and identifier; a repeated SUBSCRIBE replaces, it does not add."""
    shell = Shell()
    client, publisher = shell.online("s", 5), shell.online("p", 5)
    for filter, qos, identifier in ((b"a/#", 0, 7), (b"a/+", 1, 9), (b"a/#", 0, 8)):
        client.send(Subscribe(1, (Subscription(filter, qos),), Properties(subscription_identifiers=(identifier,))))
    client.take()
    publisher.send(Publish(2, 1, b"a/b", b"x", Properties(content_type="t")))
    shell.answer()
    got = [(packet.qos, packet.properties) for packet in client.take() if isinstance(packet, Publish)]
    assert sorted(got, key=lambda row: row[0]) == [
        (0, Properties(content_type="t", subscription_identifiers=(8,))),
        (1, Properties(content_type="t", subscription_identifiers=(9,))),
    ]


def test_no_local_and_retain_as_published() -> None:
    """No local hides a client's own messages; RETAIN is kept only for those who asked for it."""
    shell = Shell()
    client, other, publisher = shell.online("s", 5), shell.online("o", 5), shell.online("p", 5)
    subscribe(client, b"a", no_local=True, retain_as_published=True)
    subscribe(other, b"a")
    client.send(message(b"a", b"own"))
    assert client.take() == [] and other.take() == [message(b"a", b"own")]
    publisher.send(message(b"a", b"kept", retain=True))
    assert client.take() == [message(b"a", b"kept", retain=True)] and other.take() == [message(b"a", b"kept")]


def test_a_client_s_maximum_packet_size_is_kept() -> None:
    """A message too large for one subscriber is not sent to it, and counted [MQTT-3.1.2-24]."""
    shell = Shell()
    client, publisher = shell.online("s", 5, maximum_packet_size=20), shell.online("p", 4)
    subscribe(client, b"a", 1)
    publisher.send(message(b"a", b"x" * 14), message(b"a", b"x" * 15))
    assert client.take() == [message(b"a", b"x" * 14)]
    publisher.send(message(b"a", b"x" * 12, 1, 1), message(b"a", b"x" * 13, 1, 2))
    shell.answer()
    assert client.take() == [message(b"a", b"x" * 12, 1, 1)]
    assert shell.core.counters.live_dropped_too_large == 2


def test_a_client_that_does_not_read_gets_no_qos_0() -> None:
    """Until it reads again; QoS 1 and retained messages wait."""
    shell = Shell()
    client, careful, publisher = shell.online("s", 4), shell.online("c", 5), shell.online("p", 4)
    subscribe(client, b"a")
    subscribe(careful, b"a", 1, retain_as_published=True)
    shell.turn(Congested(client.socket, True), Congested(careful.socket, True))
    publisher.send(message(b"a", b"0"), message(b"a", b"1", 1, 1))
    shell.answer()
    assert client.take() == [] == careful.take()
    assert shell.core.counters.live_dropped_slow == 3 and shell.core.counters.live_delivered == 1
    careful.send(Subscribe(2, (Subscription(b"r", 1),)))
    assert shell.queries == []
    shell.turn(Congested(client.socket, False), Congested(careful.socket, False))
    assert len(shell.queries) == 1
    assert message(b"a", b"1", 1, 1) in careful.take()
    shell.turn(Congested(careful.socket, True), RetainedTold(0, shell.queries[0].id, [stored(b"r", b"1", 1)], b""))
    assert careful.take() == []
    shell.turn(Congested(careful.socket, False))
    assert careful.take() == [message(b"r", b"1", 1, 2, retain=True)]
    publisher.send(message(b"a", b"2"))
    assert client.take() == [message(b"a", b"2")]


# -------------------------------------------------------------------------------------------------- the window
def test_the_window_of_an_ephemeral_session() -> None:
    """Receive Maximum bounds what is in flight; the rest waits in order; ids are not used twice at once."""
    shell = Shell()
    client, publisher = shell.online("s", 5, receive_maximum=2), shell.online("p", 4)
    subscribe(client, b"a", 2)
    publisher.send(*[message(b"a", b"%d" % number, 1 + number % 2, number) for number in range(1, 6)])
    shell.answer()
    assert client.take() == [message(b"a", b"1", 2, 1), message(b"a", b"2", 1, 2)]
    client.send(AckRun(AckKind.PUBACK, [2]))
    assert client.take() == [message(b"a", b"3", 2, 3)]
    client.send(AckRun(AckKind.PUBREC, [1, 3]))
    assert client.take() == [AckRun(AckKind.PUBREL, [1]), AckRun(AckKind.PUBREL, [3])]
    client.send(AckRun(AckKind.PUBCOMP, [1]))
    assert client.take() == [message(b"a", b"4", 1, 4)]
    client.send(AckRun(AckKind.PUBCOMP, [3]))
    assert client.take() == [message(b"a", b"5", 2, 5)]


def test_acknowledgements_of_the_wrong_kind() -> None:
    """Another answer than the one waited for is 0x82; one for an unknown id is let go, PUBREC with PUBREL 0x92."""
    shell = Shell()
    client, publisher = shell.online("s", 5), shell.online("p", 4)
    subscribe(client, b"a", 2)
    publisher.send(message(b"a", b"1", 1, 1))
    shell.answer()
    client.take()
    client.send(AckRun(AckKind.PUBACK, [9]), AckRun(AckKind.PUBCOMP, [9]))
    assert client.take() == []
    client.send(AckRun(AckKind.PUBREC, [9]))
    (pubrel,) = client.take()
    assert getattr(pubrel, "reason", None) == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    client.send(AckRun(AckKind.PUBREC, [1]))
    assert client.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


def test_a_delivery_that_the_client_refuses_is_over() -> None:
    """PUBREC with an error frees the window without PUBREL; for another kind of answer it is a violation."""
    shell = Shell()
    client, publisher = shell.online("s", 5, receive_maximum=1), shell.online("p", 4)
    subscribe(client, b"a", 2)
    publisher.send(message(b"a", b"1", 2, 1), message(b"a", b"2", 1, 2))
    shell.answer()
    assert client.take() == [message(b"a", b"1", 2, 1)]
    client.send(Ack(AckKind.PUBREC, 1, ReasonCode.QUOTA_EXCEEDED))
    assert client.take() == [message(b"a", b"2", 1, 2)]
    client.send(Ack(AckKind.PUBREC, 2, ReasonCode.QUOTA_EXCEEDED))
    assert client.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


def test_packet_ids_go_round_and_pass_over_those_in_flight() -> None:
    """1 to 65535, never 0, never one that still waits for its answer."""
    session = EphemeralSession(5, 3, 10, 1_000, Counters())
    out: list[bytes] = []
    session.offer(out, 2, b"", b"", 0)
    session.offer(out, 2, b"", b"", 0)
    for _ in range(65_533):
        session.offer(out, 1, b"", b"", 0)
        session.acknowledge([packet_id for packet_id in session.inflight if packet_id > 2], AWAIT_PUBACK)
    session.offer(out, 1, b"", b"", 0)
    assert [int.from_bytes(packet_id, "big") for packet_id in out[1::3]] == [*range(1, 65_536), 3]


def test_a_full_queue_drops_its_oldest() -> None:
    """Bounded in count and in bytes; order stays, drops are counted."""
    shell = Shell(Options(queue_count_max=2, queue_bytes_max=500))
    client, publisher = shell.online("s", 5, receive_maximum=1), shell.online("p", 4)
    subscribe(client, b"a", 1)
    publisher.send(*[message(b"a", b"%d" % number, 1, number) for number in range(1, 6)])
    shell.answer()
    assert client.take() == [message(b"a", b"1", 1, 1)]
    assert shell.core.counters.live_dropped_queue_full == 2
    publisher.send(message(b"a", b"x" * 490, 1, 6))
    shell.answer()
    client.send(AckRun(AckKind.PUBACK, [1]))
    assert client.take() == [message(b"a", b"x" * 490, 1, 2)]
    assert shell.core.counters.live_dropped_queue_full == 4


def test_a_message_may_expire_while_it_waits() -> None:
    """What is left of the interval is sent; nothing left, nothing sent, whatever the subscriber's version."""
    shell = Shell(Options(max_inflight=1))
    publisher = shell.online("p", 5)
    for version in (4, 5):
        client = shell.online("s", version)
        subscribe(client, b"a", 1)
        publisher.send(message(b"a", b"0", 1, 1), Publish(2, 2, b"a", b"2s", Properties(message_expiry_interval=2)))
        publisher.send(Publish(2, 3, b"a", b"9s", Properties(message_expiry_interval=9)))
        shell.answer()
        assert client.take() == [message(b"a", b"0", 1, 1)]
        shell.pass_time(3_000)
        client.send(AckRun(AckKind.PUBACK, [1]))
        (left,) = client.take()
        if version == 5:
            assert isinstance(left, Publish) and left.properties.message_expiry_interval == 6 and left.payload == b"9s"
        else:
            assert left == message(b"a", b"9s", 1, 2)
        client.send(Disconnect())
    assert shell.core.counters.live_dropped_expired == 2


# -------------------------------------------------------------------------------------------------- durable
def test_subscribe_of_a_durable_session_is_answered_by_its_session_actor() -> None:
    """What may not be subscribed is not asked; the codes are put together; live delivery begins with the SUBACK."""
    shell = Shell()
    client, publisher = shell.online("d", 5, expiry_s=100), shell.online("p", 4)
    rows = (Subscription(b"a", 1, True, True, 2), Subscription(b"$share/g+/x", 1), Subscription(b"b", 0))
    effects = client.send(Subscribe(3, rows, Properties(subscription_identifiers=(4,))))
    assert effects == [ToSession(0, SubscribeFrame(client.conn, 3, [(b"a", 1, 3, 2), (b"b", 0, 0, 0)], 4))]
    publisher.send(message(b"b", b"early"))
    shell.turn(FromSession(0, Subacked(client.conn, 3, [1, 0])))
    assert client.take() == [Suback(3, (SUBSCRIBED, ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.SUCCESS))]
    publisher.send(message(b"a", b"0"), message(b"b", b"0"), message(b"a", b"1", 1, 1), message(b"b", b"1", 1, 2))
    shell.answer()
    got = [(packet.topic, packet.payload, packet.qos) for packet in client.take() if isinstance(packet, Publish)]
    assert got == [(b"a", b"0", 0), (b"b", b"0", 0), (b"b", b"1", 0)], "granted QoS 1: only what was published at QoS 0"


def test_a_shard_that_was_away_fails_one_filter() -> None:
    """0x83 of the session actor reaches MQTT 5, 3.1.1 reads 0x80; nothing is live for it."""
    shell = Shell()
    for version in (5, 4):
        client = shell.online("d", version, clean=version == 5, expiry_s=100)
        client.send(Subscribe(3, (Subscription(b"a", 0),)))
        shell.turn(FromSession(0, Subacked(client.conn, 3, [0x83])))
        assert client.take() == [Suback(3, (ReasonCode(0x83 if version == 5 else 0x80),))]
    assert len(shell.core._table) == 0


def test_unsubscribe_of_a_durable_session() -> None:
    """UNSUBACK when the session actor says so; then nothing comes live."""
    shell = Shell()
    client, publisher = shell.online("d", 5, expiry_s=100, subscriptions=[(b"a", 0, 0, 0)]), shell.online("p", 4)
    publisher.send(message(b"a", b"1"))
    assert client.take() == [message(b"a", b"1")]
    assert client.send(Unsubscribe(3, (b"a", b"b"))) == [ToSession(0, UnsubscribeFrame(client.conn, 3, [b"a", b"b"]))]
    shell.turn(FromSession(0, Unsubacked(client.conn, 3, [0, 0x11])))
    assert client.take() == [Unsuback(3, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED))]
    publisher.send(message(b"a", b"2"))
    assert client.take() == [] and len(shell.core._table) == 0


def test_a_shared_subscription_of_a_session_is_never_live() -> None:
    """Its messages come by way of its group; the word $share is no topic level."""
    shell = Shell()
    shell.online("d", 5, expiry_s=100, subscriptions=[(b"$share/g/a", 0, 0, 0), (b"a", 1, 0, 0)])
    assert len(shell.core._table) == 1


def test_an_unsubscribe_that_failed_changes_nothing() -> None:
    """The session has the subscription still."""
    shell = Shell()
    client, publisher = shell.online("d", 5, expiry_s=100, subscriptions=[(b"a", 0, 0, 0)]), shell.online("p", 4)
    client.send(Unsubscribe(3, (b"a",)))
    shell.turn(FromSession(0, Unsubacked(client.conn, 3, [0x83])))
    publisher.send(message(b"a", b"1"))
    assert client.take() == [Unsuback(3, (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)), message(b"a", b"1")]


def test_a_packet_id_of_an_unanswered_subscribe_is_not_used_again() -> None:
    """It could not be told whose SUBACK it is."""
    shell = Shell()
    client = shell.online("d", 5, expiry_s=100)
    client.send(Subscribe(3, (Subscription(b"a", 0),)), Subscribe(3, (Subscription(b"b", 0),)))
    assert client.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


def test_a_packet_id_of_an_unanswered_unsubscribe_is_not_used_again() -> None:
    """Two of them would take each other's answers; the client that uses the id again is closed, nobody else does (found by fuzzing)."""
    shell = Shell()
    client = shell.online("c", expiry_s=60)
    client.send(Unsubscribe(7, (b"a", b"b")), Unsubscribe(7, (b"c",)))
    assert client.closed == "packet id 7 is in use by another UNSUBSCRIBE"
    shell.turn(FromSession(0, Unsubacked(client.conn, 7, [0, 0])), FromSession(0, Unsubacked(client.conn, 7, [0])))


def test_nothing_is_live_for_a_connection_that_is_over() -> None:
    """Whatever its end, its filters leave the table."""
    shell = Shell()
    clients = [shell.online("d", 5, expiry_s=100, subscriptions=[(b"a/#", 0, 0, 0)]), shell.online("e", 4)]
    subscribe(clients[1], b"a")
    shell.turn(SessionLost(0))
    clients[1].send(Disconnect())
    assert len(shell.core._table) == 0


# -------------------------------------------------------------------------------------------------- retained
def stored(topic: bytes, payload: bytes, qos: int = 0, publisher: bytes = b"p", at_ms: int = 0, properties: bytes = b"\0") -> bytes:
    return encode_message(qos | RETAIN, at_ms, publisher, topic, properties + payload)


def test_retained_messages_follow_the_suback_page_by_page() -> None:
    """Of every shard in turn for a wildcard; RETAIN set; QoS capped."""
    shell = Shell(Options(retained_page=2), n_shards=2)
    client = shell.online("s", 5)
    effects = client.send(Subscribe(1, (Subscription(b"a/#", 1),)))
    assert effects[0] == RetainedQuery(0, 1, b"a/#", b"", 2) or isinstance(effects[0], Write)
    assert [effect for effect in effects if isinstance(effect, RetainedQuery)] == [RetainedQuery(0, 1, b"a/#", b"", 2)]
    assert client.take() == [Suback(1, (SUBSCRIBED,))]
    shell.turn(RetainedTold(0, 1, [stored(b"a/1", b"1"), stored(b"a/2", b"2", 2)], b"a/2"))
    assert client.take() == [message(b"a/1", b"1", retain=True), message(b"a/2", b"2", 1, 1, retain=True)]
    assert shell.queries[-1] == RetainedQuery(0, 2, b"a/#", b"a/2", 2)
    shell.turn(RetainedTold(0, 2, [], b""))
    assert shell.queries[-1] == RetainedQuery(1, 3, b"a/#", b"", 2)
    shell.turn(RetainedTold(1, 3, [stored(b"a/3", b"3")], b""))
    assert client.take() == [message(b"a/3", b"3", retain=True)]
    assert len(shell.queries) == 3


def test_a_filter_without_wildcards_is_asked_of_one_shard() -> None:
    """The home of the topic."""
    shell = Shell(n_shards=16)
    client = shell.online("s", 5)
    client.send(Subscribe(1, (Subscription(b"client-1", 1),)))
    assert [query.shard for query in shell.queries] == [239 % 16]


@pytest.mark.parametrize(("handling", "asked"), [(0, [True, True]), (1, [True, False]), (2, [False, False])])
def test_retain_handling(handling: int, asked: list[bool]) -> None:
    """0: always; 1: only with a new subscription; 2: never."""
    shell = Shell()
    client = shell.online("s", 5)
    for wanted in asked:
        client.send(Subscribe(1, (Subscription(b"a", 1, retain_handling=handling),)))
        assert bool(shell.queries) is wanted
        for query in shell.queries:
            shell.turn(RetainedTold(query.shard, query.id, [], b""))
        shell.queries.clear()


def test_retained_messages_wait_for_the_client() -> None:
    """A page is sent only as far as the queue is less than half full; the next is asked for afterwards."""
    shell = Shell(Options(queue_count_max=4, retained_page=10))
    client = shell.online("s", 5, receive_maximum=1)
    client.send(Subscribe(1, (Subscription(b"#", 1),)))
    client.take()
    shell.turn(RetainedTold(0, 1, [stored(b"a/%d" % number, b"x", 1) for number in range(6)], b"a/5"))
    session = shell.core._state.by_conn[client.conn].ephemeral
    assert session is not None and len(session.queue) == 2 and len(shell.queries) == 1
    for packet_id in range(1, 7):
        assert len(client.take()) == 1
        client.send(AckRun(AckKind.PUBACK, [packet_id]))
    assert len(shell.queries) == 2 and shell.core.counters.live_dropped_queue_full == 0


def test_a_newer_live_value_is_not_followed_by_the_older_retained_one() -> None:
    """The last one comes last (PROTOCOLS 10)."""
    shell = Shell()
    client, publisher = shell.online("s", 5), shell.online("p", 4)
    client.send(Subscribe(1, (Subscription(b"#", 0),)))
    client.take()
    publisher.send(message(b"a", b"new", retain=True), message(b"b", b"other"))
    assert len(client.take()) == 2
    shell.turn(RetainedTold(0, 1, [stored(b"a", b"old"), stored(b"b", b"kept")], b""))
    assert client.take() == [message(b"b", b"kept", retain=True)]


def test_no_retained_message_follows_an_unsubscribe() -> None:
    """Nor does one of the earlier subscription follow a new one that takes over its retained messages."""
    shell = Shell()
    client = shell.online("s", 5)
    client.send(Subscribe(1, (Subscription(b"a", 0),)))
    client.send(Unsubscribe(2, (b"a",)))
    client.take()
    shell.turn(RetainedTold(0, 1, [stored(b"a", b"1")], b""))
    assert client.take() == []
    for packet_id in (3, 4):
        client.send(Subscribe(packet_id, (Subscription(b"a", 0, retain_handling=1),)))
    client.take()
    for query in shell.queries[1:]:
        shell.turn(RetainedTold(0, query.id, [stored(b"a", b"1")], b""))
    assert client.take() == [message(b"a", b"1", retain=True)]


def test_retained_queries_are_asked_again() -> None:
    """After a break of the link, and a few times when the shard could not answer; not for a connection that is over."""
    shell = Shell(Options(retained_tries=2))
    client = shell.online("s", 5)
    client.send(Subscribe(1, (Subscription(b"a", 0),)))
    shell.turn(ShardLost(0))
    shell.turn(ShardLinked(0))
    assert [query.id for query in shell.queries] == [1, 2]
    shell.turn(RetainedTold(0, 1, [stored(b"a", b"late")], b""))
    shell.turn(RetainedTold(0, 2, None, b""))
    assert [query.id for query in shell.queries] == [1, 2, 3]
    shell.turn(RetainedTold(0, 3, None, b""))
    assert len(shell.queries) == 3 and shell.core.counters.retained_pages_failed == 1
    client.send(Subscribe(2, (Subscription(b"a", 0),)))
    client.send(Disconnect())
    shell.turn(RetainedTold(0, 4, [stored(b"a", b"1")], b""))
    assert not shell.core._retained._fetching and not shell.core._retained._queries


def test_an_expired_or_own_retained_message_is_not_sent() -> None:
    """The interval runs while it is retained; no local holds for retained messages too."""
    shell = Shell()
    client = shell.online("s", 5)
    client.send(Subscribe(1, (Subscription(b"#", 0, no_local=True),)))
    client.take()
    expiry = b"\x05\x02\x00\x00\x00\x0a"
    values = [
        stored(b"old", b"x", at_ms=shell.wall_ms - 11_000, properties=expiry),
        stored(b"own", b"x", publisher=b"s"),
        stored(b"young", b"x", at_ms=shell.wall_ms - 3_000, properties=expiry),
    ]
    shell.turn(RetainedTold(0, 1, values, b""))
    (got,) = client.take()
    assert isinstance(got, Publish) and got.topic == b"young" and got.properties.message_expiry_interval == 7
