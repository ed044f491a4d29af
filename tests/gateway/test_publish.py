"""PUBLISH in: what goes to the shard, what is acknowledged when, and what happens at the bounds."""

from __future__ import annotations

import pytest

from gateway.events import CloseSocket, PauseReading, Replied, SocketLost, ToShard, Write
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Ack, AckKind, AckRun, Connack, Connect, Disconnect, Properties, Publish, Subscribe, Subscription, Will
from mqtt.reason import ReasonCode
from shards.frames import LOST, REFUSED_QUOTA, STORED, Published, Release, Released
from shards.frames import Disconnect as DisconnectEntry
from shards.frames import Publish as PublishEntry
from tests.gateway.scripted import Shell, message, subscribe


def puback(*packet_ids: int) -> list[AckRun]:
    return [AckRun(AckKind.PUBACK, [packet_id]) for packet_id in packet_ids]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_qos_1_is_acknowledged_by_the_shard_s_answer(version: int) -> None:
    """Two runs of one turn are one entry; no byte before the answer; then one write with both acknowledgements."""
    shell = Shell()
    shell.homes.durable_filters.append(b"#")
    client = shell.online("p", version)
    effects = shell.turn(client.event(message(b"a", b"1", 1, 1)), client.event(message(b"b", b"2", 1, 2)))
    wall = shell.wall_ms
    entry = PublishEntry(b"p", client.conn, False, wall, b"\x02\x02", [1, 2], [b"a", b"b"], [b"\x001", b"\x002"])
    assert effects == [ToShard(0, 2, [entry])]
    assert shell.answer() == [Write(client.socket, b"\x40\x02\x00\x01\x40\x02\x00\x02")]


def test_entries_of_several_connections_share_a_request() -> None:
    """One request per shard and turn, in the order of the wire within each connection."""
    shell = Shell()
    one, two = shell.online("one", 4), shell.online("two", 4)
    (effect,) = shell.turn(one.event(message(b"a", b"1", 1, 1)), two.event(message(b"a", b"2", 1, 1)), one.event(message(b"a", b"3", 1, 2)))
    assert isinstance(effect, ToShard)
    rows = [(entry.client, entry.bodies) for entry in effect.entries if isinstance(entry, PublishEntry)]
    assert rows == [(b"one", [b"\x001", b"\x003"]), (b"two", [b"\x002"])]


def test_nobody_is_a_reason_for_mqtt_5_only() -> None:
    """0x10 when neither the store nor a live subscriber wants the message."""
    shell = Shell()
    for version, answer in ((5, Ack(AckKind.PUBACK, 1, ReasonCode.NO_MATCHING_SUBSCRIBERS)), (4, AckRun(AckKind.PUBACK, [1]))):
        client = shell.online("p", version)
        client.send(message(b"a", b"1", 1, 1))
        shell.answer()
        assert client.take() == [answer]
    subscriber = shell.online("s", 4)
    subscriber.send(Subscribe(1, (Subscription(b"a"),)))
    client = shell.online("p", 5)
    client.send(message(b"a", b"1", 1, 1), message(b"b", b"1", 1, 2), message(b"a", b"1", 1, 3))
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBACK, [1]), Ack(AckKind.PUBACK, 2, ReasonCode.NO_MATCHING_SUBSCRIBERS), *puback(3)]


def test_qos_0_goes_live_at_once_and_to_the_shard_only_to_be_kept() -> None:
    """Without RETAIN nothing is asked of the shard; with RETAIN an entry goes there, and its answer acknowledges nothing."""
    shell = Shell()
    subscriber, client = shell.online("s", 4), shell.online("p", 4)
    subscriber.send(Subscribe(1, (Subscription(b"a"),)))
    subscriber.take()
    effects = client.send(message(b"a", b"1"))
    assert effects == [Write(subscriber.socket, b"\x30\x04\x00\x01a1")]
    effects = client.send(message(b"a", b"2", retain=True))
    entry = PublishEntry(b"p", client.conn, False, shell.wall_ms, b"\x01", [0], [b"a"], [b"\x002"])
    assert effects == [Write(subscriber.socket, b"\x30\x04\x00\x01a2"), ToShard(0, 3, [entry])]
    assert shell.answer() == []


@pytest.mark.parametrize("version", [4, 5])
def test_qos_2_of_an_ephemeral_session(version: int) -> None:
    """PUBREC at the answer; a repeat is known by its id and asks the shard nothing; PUBREL is answered here."""
    shell = Shell()
    client = shell.online("p", version, request_problem_information=0)
    shell.homes.durable_filters.append(b"#")
    client.send(message(b"a", b"1", 2, 9))
    assert client.send(message(b"a", b"1", 2, 9, dup=True)) == []
    assert shell.answer() == [Write(client.socket, b"\x50\x02\x00\x09")]
    assert client.send(message(b"a", b"1", 2, 9, dup=True)) == [Write(client.socket, b"\x50\x02\x00\x09")]
    assert client.send(AckRun(AckKind.PUBREL, [9])) == [Write(client.socket, b"\x70\x02\x00\x09")]
    assert len(shell.homes.stored) == 1
    unknown = Ack(AckKind.PUBCOMP, 9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert client.send(AckRun(AckKind.PUBREL, [9])) == [Write(client.socket, encode(version, unknown))]


def test_a_pubrel_is_not_awaited_longer_than_configured() -> None:
    """Then the id of an ephemeral session is free, its message new, and it counts no more against the bound."""
    shell = Shell(Options(await_rel_ms=10_000, awaiting_rel_max=2))
    client = shell.online("p", 4)
    shell.homes.durable_filters.append(b"#")
    client.send(message(b"a", b"1", 2, 9))
    shell.answer()
    shell.pass_time(9_000)
    client.send(message(b"a", b"2", 2, 10))
    shell.answer()
    client.send(message(b"a", b"1", 2, 9, dup=True))
    assert len(shell.homes.stored) == 2
    shell.pass_time(1_000)
    client.send(message(b"a", b"1", 2, 9, dup=True), message(b"a", b"2", 2, 10, dup=True))
    shell.answer()
    assert len(shell.homes.stored) == 3 and shell.core.counters.publishes_await_rel_timed_out == 1
    shell.pass_time(9_500)
    client.take()
    client.send(AckRun(AckKind.PUBREL, [10, 9]), message(b"a", b"3", 2, 11), message(b"a", b"4", 2, 12))
    shell.answer()
    answers = [(run.kind, packet_id) for run in client.take() if isinstance(run, AckRun) for packet_id in run.packet_ids]
    assert sorted(answers) == [(AckKind.PUBREC, 11), (AckKind.PUBREC, 12), (AckKind.PUBCOMP, 9), (AckKind.PUBCOMP, 10)]
    assert shell.core.counters.publishes_await_rel_timed_out == 2


def test_qos_2_of_a_durable_session_is_known_by_its_home() -> None:
    """A repeat goes to the home, which answers "repeated": PUBREC again and nothing is handed on; PUBREL waits for the home."""
    shell = Shell()
    shell.homes.durable_filters.append(b"#")
    subscriber, client = shell.online("s", 5), shell.online("p", 5, expiry_s=100)
    subscriber.send(Subscribe(1, (Subscription(b"a"),)))
    subscriber.take()
    for _ in range(2):
        client.send(message(b"a", b"1", 2, 9))
        assert client.take() == []
        shell.answer()
        assert client.take() == [AckRun(AckKind.PUBREC, [9])]
    assert len(shell.homes.stored) == 1 and len(subscriber.take()) == 1
    effects = client.send(AckRun(AckKind.PUBREL, [9, 10]))
    assert effects == [ToShard(0, shell.requests[0].id, [Release(b"p", client.conn, [9, 10])])]
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBCOMP, [9]), Ack(AckKind.PUBCOMP, 10, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


def test_publish_and_release_keep_their_order() -> None:
    """An id used again after its PUBREL must not reach the home before that PUBREL."""
    shell = Shell()
    client = shell.online("p", 4, clean=False)
    once, release = [message(b"a", b"1", 2, 1)], [AckRun(AckKind.PUBREL, [1])]
    (effect,) = client.send(*once, *release, AckRun(AckKind.PUBREL, [2]), *once, *release)
    assert isinstance(effect, ToShard)
    assert [type(entry) for entry in effect.entries] == [PublishEntry, Release, PublishEntry, Release]
    assert effect.entries[1] == Release(b"p", client.conn, [1, 2])
    shell.answer()
    assert [packet.packet_ids for packet in client.take() if isinstance(packet, AckRun)] == [[1], [1], [2], [1], [1]]


def test_releases_of_several_events_are_one_entry() -> None:
    """As long as no message stands between them."""
    shell = Shell()
    client = shell.online("p", 4, clean=False)
    (effect,) = shell.turn(client.event(AckRun(AckKind.PUBREL, [1])), client.event(AckRun(AckKind.PUBREL, [2, 3])))
    assert isinstance(effect, ToShard) and effect.entries == [Release(b"p", client.conn, [1, 2, 3])]


def test_live_subscribers_get_qos_1_only_after_the_answer() -> None:
    """Nothing before the shard has answered (PROTOCOLS 9); granted QoS caps, 3.1.1 gets no properties."""
    shell = Shell()
    five, old = shell.online("five", 5), shell.online("old", 4)
    five.send(Subscribe(1, (Subscription(b"a/#", 2),)))
    old.send(Subscribe(1, (Subscription(b"a/+", 0),)))
    five.take(), old.take()
    client = shell.online("p", 5)
    client.send(Publish(2, 1, b"a/b", b"x", Properties(content_type="t")))
    assert five.take() == [] and old.take() == []
    shell.answer()
    (got,) = five.take()
    assert isinstance(got, Publish) and (got.qos, got.topic, got.payload, got.properties.content_type) == (1, b"a/b", b"x", "t")
    assert old.take() == [message(b"a/b", b"x")]


def test_messages_of_a_closed_connection_still_take_effect() -> None:
    """They were on their way to the home: live subscribers get them, nobody is acknowledged."""
    shell = Shell()
    subscriber, client = shell.online("s", 4), shell.online("p", 4)
    subscriber.send(Subscribe(1, (Subscription(b"a"),)))
    subscriber.take()
    client.send(message(b"a", b"1", 1, 1))
    shell.turn(SocketLost(client.socket, "reset"))
    shell.answer()
    assert subscriber.take() == [message(b"a", b"1")]


def test_a_stale_connection_is_closed_and_its_messages_are_not_handed_on() -> None:
    """The home took nothing: no acknowledgement, no delivery, 0x8E."""
    shell = Shell()
    subscriber, client = shell.online("s", 4), shell.online("p", 5, request_problem_information=0)
    subscriber.send(Subscribe(1, (Subscription(b"a"),)))
    subscriber.take()
    client.send(message(b"a", b"1", 1, 1))
    shell.homes.newest[b"p"] = 1 << 40
    effects = shell.answer()
    assert effects == [
        Write(client.socket, encode(5, Disconnect(ReasonCode.SESSION_TAKEN_OVER))),
        CloseSocket(client.socket, "session taken over"),
    ]
    assert subscriber.take() == []


@pytest.mark.parametrize("version", [4, 5])
def test_a_message_over_quota_is_not_acknowledged_as_stored(version: int) -> None:
    """0x97 for MQTT 5, whose id may be used again; 3.1.1 is closed, with what came before acknowledged."""
    shell = Shell()
    client = shell.online("p", version)
    client.send(message(b"a", b"1", 1, 1), message(b"a", b"2", 2, 2), message(b"a", b"3", 1, 3))
    request = shell.requests.popleft()
    shell.turn(Replied(0, request.id, [Published(False, bytes((STORED, REFUSED_QUOTA, STORED)))]))
    if version == 5:
        assert client.take() == [*puback(1), Ack(AckKind.PUBREC, 2, ReasonCode.QUOTA_EXCEEDED), *puback(3)]
        client.send(message(b"a", b"2", 2, 2))
        assert len(shell.requests) == 1
    else:
        assert client.take() == puback(1) and client.closed == "the store is over its quota"
        shell.answer()
        assert shell.homes.ended == [(b"p", client.conn, LOST, None)]


@pytest.mark.parametrize("version", [4, 5])
def test_a_quota_refuses_message_by_message(version: int) -> None:
    """Also when all of them are QoS 1, whose answers otherwise go out in bulk; what was refused is handed to nobody."""
    shell = Shell()
    subscriber, client = shell.online("s", 4), shell.online("p", version)
    subscribe(subscriber, b"a")
    client.send(message(b"a", b"1", 1, 1), message(b"a", b"2", 1, 2))
    request = shell.requests.popleft()
    shell.turn(Replied(0, request.id, [Published(False, bytes((STORED, REFUSED_QUOTA)))]))
    refusal = [Ack(AckKind.PUBACK, 2, ReasonCode.QUOTA_EXCEEDED)] if version == 5 else []
    assert client.take() == [*puback(1), *refusal] and subscriber.take() == [message(b"a", b"1")]


@pytest.mark.parametrize("topic", [b"$SYS/x", b"$share/g/x"])
def test_reserved_topics_are_refused_in_turn(topic: bytes) -> None:
    """0x90 for MQTT 5, an empty promise for 3.1.1; never ahead of the answers to earlier messages [MQTT-4.6.0-2]."""
    shell = Shell()
    shell.homes.durable_filters.append(b"#")
    for version in (4, 5):
        client = shell.online("p", version)
        client.send(message(b"a", b"1", 1, 1), message(topic, b"2", 1, 2), message(b"a", b"3", 1, 3), message(topic, b"4"))
        assert client.take() == []
        shell.answer()
        refusal = Ack(AckKind.PUBACK, 2, ReasonCode.TOPIC_NAME_INVALID) if version == 5 else AckRun(AckKind.PUBACK, [2])
        assert client.take() == [*puback(1), refusal, *puback(3)]
        client.send(message(topic, b"5", 2, 4))
        assert len(client.take()) == 1
    assert all(stored[1] == b"a" for stored in shell.homes.stored)


def test_other_dollar_topics_are_ordinary_but_hidden_from_leading_wildcards() -> None:
    """`#` does not match `$dollar/x` [MQTT-4.7.2-1]."""
    shell = Shell()
    wild, exact, client = shell.online("w", 4), shell.online("e", 4), shell.online("p", 4)
    wild.send(Subscribe(1, (Subscription(b"#"),)))
    exact.send(Subscribe(1, (Subscription(b"$dollar/#"),)))
    wild.take(), exact.take()
    client.send(message(b"$dollar/x", b"1"))
    assert wild.take() == [] and exact.take() == [message(b"$dollar/x", b"1")]


def test_topic_aliases() -> None:
    """An alias stands for the topic it was last given with; what is stored has the topic and no alias."""
    shell = Shell(Options(topic_alias_maximum=2))
    client = shell.online("p", 5)
    for topic, alias, wanted in ((b"a", 1, b"a"), (b"", 1, b"a"), (b"b", 1, b"b"), (b"", 1, b"b")):
        client.send(Publish(2, 1, topic, b"x", Properties(topic_alias=alias)))
        shell.answer()
        assert shell.homes.stored[-1] == (b"p", wanted, b"\0x")
    client.take()
    client.send(Publish(2, 1, b"c", b"x", Properties(topic_alias=3)))
    assert client.take() == [Disconnect(ReasonCode.TOPIC_ALIAS_INVALID)]
    client = shell.online("p", 5)
    client.send(Publish(2, 1, b"", b"x", Properties(topic_alias=1)))
    assert client.take() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


def test_receive_maximum_is_enforced_for_mqtt_5() -> None:
    """QoS 1 counts until PUBACK, QoS 2 until PUBCOMP; one more is 0x93."""
    shell = Shell(Options(receive_maximum_in=3))
    client = shell.online("p", 5)
    client.send(message(b"a", b"1", 1, 1), message(b"a", b"1", 2, 2), message(b"a", b"1", 2, 3))
    shell.answer()
    client.send(message(b"a", b"1", 1, 4))
    shell.answer()
    client.send(AckRun(AckKind.PUBREL, [2]))
    client.send(message(b"a", b"1", 1, 5), message(b"a", b"1", 1, 6))
    client.take()
    client.send(message(b"a", b"1", 1, 7))
    assert client.take() == [Disconnect(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)]


@pytest.mark.parametrize("version", [4, 5])
def test_messages_without_pubrel_are_bounded(version: int) -> None:
    """Answered or not, an id is held until its PUBREL; 3.1.1 can only be closed."""
    shell = Shell(Options(awaiting_rel_max=2))
    client = shell.online("p", version)
    client.send(message(b"a", b"1", 2, 1), message(b"a", b"1", 2, 2))
    shell.answer()
    client.send(AckRun(AckKind.PUBREL, [1]), message(b"a", b"1", 2, 3))
    shell.answer()
    assert client.closed is None
    client.take()
    client.send(message(b"a", b"1", 2, 4))
    assert client.closed and client.take() == ([Disconnect(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)] if version == 5 else [])


def test_retain_that_is_not_available() -> None:
    """CONNACK says so; a PUBLISH with RETAIN is 0x9A, a will with RETAIN is refused at CONNECT."""
    shell = Shell(Options(retain=False))
    client = shell.client(5)
    client.send(Connect(5, "p"))
    shell.answer()
    (connack,) = client.take()
    assert isinstance(connack, Connack) and connack.properties.retain_available == 0
    client.send(message(b"a", b"1", retain=True))
    assert client.take() == [Disconnect(ReasonCode.RETAIN_NOT_SUPPORTED)]
    assert [type(entry) for request in shell.requests for entry in request.entries] == [DisconnectEntry]
    client = shell.client(5)
    client.send(Connect(5, "p", will=Will(b"w", b"", retain=True)))
    assert client.take() == [Connack(False, ReasonCode.RETAIN_NOT_SUPPORTED)]


def test_a_3_1_1_client_over_the_bound_is_not_read() -> None:
    """Until half of its messages are answered; its keep alive does not run meanwhile."""
    shell = Shell(Options(receive_maximum_in=4))
    client = shell.online("p", 4)
    effects = client.send(*[message(b"a", b"1", 1, packet_id) for packet_id in range(1, 4)])
    assert not client.paused
    effects = client.send(*[message(b"a", b"1", 1, packet_id) for packet_id in range(4, 7)])
    assert effects[0] == PauseReading(client.socket, True)
    shell.answer(1)
    assert client.paused
    shell.answer(1)
    assert not client.paused and len(client.take()) == 6


def test_the_keep_alive_of_a_client_that_is_not_read_does_not_run() -> None:
    """What we do not read cannot be held against it; its time starts anew when it is read again."""
    shell = Shell(Options(receive_maximum_in=1))
    client = shell.client(4)
    client.send(Connect(4, "p", keep_alive=10))
    shell.answer()
    client.send(message(b"a", b"1", 1, 1), message(b"a", b"1", 1, 2))
    assert client.paused
    shell.pass_time(44_000)
    shell.answer()
    assert not client.paused
    shell.pass_time(13_000)
    assert client.closed is None
    shell.pass_time(3_000)
    assert client.closed


def test_a_shard_that_does_not_answer_stops_those_who_publish_to_it() -> None:
    """Bound in messages and in bytes; all are read again when it is at half; others were never stopped."""
    shell = Shell(Options(shard_messages_max=4, shard_bytes_max=1_000))
    one, two, idle = shell.online("one", 5), shell.online("two", 4), shell.online("idle", 4)
    one.send(*[message(b"a", b"1", 1, packet_id) for packet_id in range(1, 5)])
    assert not one.paused
    two.send(message(b"a", b"1", 1, 1))
    one.send(message(b"a", b"1", 1, 5))
    assert one.paused and two.paused and not idle.paused
    shell.answer(1)
    assert not one.paused and not two.paused
    shell.answer()
    two.send(message(b"a", b"x" * 1_000, 1, 2))
    assert two.paused
    shell.turn(SocketLost(two.socket, "reset"))
    assert not shell.core._state.outbox.shard(0).paused
    assert not any(isinstance(effect, PauseReading) for effect in shell.answer())


def test_frames_to_a_shard_are_cut() -> None:
    """Between entries, in order; every part is answered for itself."""
    shell = Shell(Options(frame_bytes_max=100))
    clients = [shell.online(f"p{number}", 4) for number in range(3)]
    effects = shell.turn(*[client.event(message(b"a", b"x" * 60, 1, 1)) for client in clients])
    requests = [effect for effect in effects if isinstance(effect, ToShard)]
    assert [[entry.client for entry in request.entries if isinstance(entry, PublishEntry)] for request in requests] == [
        [b"p0", b"p1"],
        [b"p2"],
    ]
    shell.answer(1)
    assert [len(client.take()) for client in clients] == [1, 1, 0]
    shell.answer(1)
    assert [len(client.take()) for client in clients] == [0, 0, 1]


def test_answers_of_the_wrong_length_are_the_shard_s_bug() -> None:
    """A reply for each entry, no more and no less."""
    shell = Shell()
    client = shell.online("p", 4)
    client.send(message(b"a", b"1", 1, 1))
    with pytest.raises(ValueError):
        shell.turn(Replied(0, shell.requests[0].id, [Published(False, b""), Released(False, b"")]))


def test_the_disconnect_entry_follows_what_was_published() -> None:
    """A publisher that sends and leaves in one turn loses nothing."""
    shell = Shell()
    client = shell.online("p", 4)
    client.send(message(b"a", b"1", 1, 1), Disconnect())
    entries = shell.requests[0].entries
    assert isinstance(entries[0], PublishEntry) and isinstance(entries[1], DisconnectEntry)
    assert shell.answer() == []
