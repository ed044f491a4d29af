"""`$SYS`: the names, what they count over all gateways, who publishes them, and what a new subscription gets."""

from __future__ import annotations

import pytest

from access.rules import CLOSED
from gateway.events import AccessChanged, FromSession, HoldingsQuery, HoldingsTold, RetainedTold
from gateway.frames import Counts, SystemTable, decode, encode
from gateway.options import Options
from mqtt.packets import AckKind, AckRun, Pingreq, Properties, Publish, PublishRun, Subscribe, Subscription, Unsubscribe
from sessions.frames import Subacked
from sessions.live_frames import Forward, Interest
from shards.frames import HoldingsFound
from tests.gateway.linked import Linked
from tests.gateway.scripted import Client, Shell, message, subscribe

EVERY_MS = 10_000
TELLS = Options(sys_interval_ms=EVERY_MS, version="1.2")
_LOADED = (
    "messages/received", "messages/sent", "publish/dropped", "publish/received", "publish/sent", "bytes/received", "bytes/sent", "sockets",
    "connections",
)  # fmt: skip
NAMES = {
    "version", "uptime", "clients/maximum", "clients/active", "clients/connected", "subscriptions/count", "shared_subscriptions/count",
    "messages/received", "messages/sent", "bytes/received", "bytes/sent", "publish/messages/received", "publish/messages/sent",
    "publish/messages/dropped", "publish/bytes/received", "publish/bytes/sent",
    *[f"load/{name}/{minutes}min" for name in _LOADED for minutes in (1, 5, 15)],
}  # fmt: skip
"""Those of mosquitto 2.0 that we have (docs/mqtt.md)."""


def told(client: Client, flags: int = 0) -> dict[str, str]:
    """What came below $SYS/broker, each name once, all with these flags."""
    found: dict[str, str] = {}
    for packet in client.take():
        assert isinstance(packet, PublishRun) and packet.flags == [flags]
        name = packet.topics[0].decode().removeprefix("$SYS/broker/")
        assert name not in found
        found[name] = packet.bodies[0][1:].decode()
    return found


def test_the_names_are_those_of_mosquitto() -> None:
    """All of them at the first time; live, at QoS 0 and without RETAIN."""
    shell = Shell(TELLS)
    client = shell.online("s", 4)
    subscribe(client, b"$SYS/#", 2)
    client.take()
    shell.pass_time(EVERY_MS)
    values = told(client)
    assert values.keys() <= NAMES and {"uptime", "clients/connected", "subscriptions/count"} <= values.keys()


def test_a_new_subscription_gets_the_table_at_once_with_retain() -> None:
    """Behind its SUBACK; only what its filter says, and not at all with retain handling 2, or 1 when it was there."""
    shell = Shell(TELLS)
    client = shell.online("s", 5)
    for filter, handling, expected in (
        (b"$SYS/#", 0, NAMES), (b"$SYS/#", 1, set()), (b"$SYS/#", 2, set()), (b"$SYS/broker/+", 1, {"version", "uptime"}),
        (b"$SYS/broker/uptime", 2, set()), (b"#", 0, set()), (b"+/broker/uptime", 0, set()),
    ):  # fmt: skip
        client.send(Subscribe(1, (Subscription(filter, 1, retain_handling=handling),)))
        client.packets.pop(0)
        assert told(client, 1).keys() == expected, filter
        while shell.queries:
            query = shell.queries.pop()
            shell.turn(RetainedTold(query.shard, query.id, [], b""))


def test_durable_sessions_get_it_live() -> None:
    """Nothing of it is stored, so it comes at QoS 0 whatever was granted, the table first; store_qos0 changes nothing of that."""
    for store_qos0 in (False, True):
        shell = Shell(Options(sys_interval_ms=EVERY_MS, store_qos0=store_qos0))
        client = shell.online("d", 5, expiry_s=9)
        client.send(Subscribe(3, (Subscription(b"$SYS/broker/uptime", 1),)))
        shell.turn(FromSession(0, Subacked(client.conn, 3, [1])))
        client.packets.pop(0)
        first = told(client, 1)
        shell.pass_time(EVERY_MS)
        assert first == {"uptime": "0 seconds"} and told(client) == {"uptime": "10 seconds"}
        assert shell.homes.stored == []


def test_what_is_counted() -> None:
    """Packets and bytes of both ways, messages, subscriptions and who is connected."""
    shell = Shell(TELLS)
    watcher, client = shell.online("w", 4), shell.online("c", 5)
    subscribe(client, b"a/#", 1)
    subscribe(client, b"$share/g/b")
    before = _totals(shell, watcher)
    client.send(message(b"a/1", b"12345"), message(b"a/2", b"123", 1, 1))
    shell.answer()
    client.send(AckRun(AckKind.PUBACK, [1]), Pingreq())
    after = _totals(shell, watcher)
    grown = {name: int(after[name]) - int(before[name]) for name in after if name.startswith(("messages", "publish", "bytes"))}
    assert grown["publish/messages/received"] == 2 and grown["publish/bytes/received"] == 6 + 4
    # The watcher itself: a SUBSCRIBE and an UNSUBSCRIBE for each look, and one message.
    assert grown["publish/messages/sent"] == 2 + len(NAMES) and grown["messages/received"] == 2 + 2 + 2
    assert grown["messages/sent"] == 2 + len(NAMES) + 1 + 1 + 2
    assert grown["publish/messages/dropped"] == 0 and grown["bytes/sent"] > 0
    assert (after["clients/connected"], after["clients/active"], after["clients/maximum"]) == ("2", "2", "2")
    assert (after["subscriptions/count"], after["shared_subscriptions/count"]) == ("2", "1")


def _totals(shell: Shell, watcher: Client) -> dict[str, str]:
    """The table as of now, read by one more subscription that is gone behind it."""
    shell.pass_time(EVERY_MS)
    subscribe_to_all = Subscribe(1, (Subscription(b"$SYS/#"),))
    watcher.send(subscribe_to_all)
    shell.queries.clear()
    watcher.packets.pop(0)
    values = told(watcher, 1)
    watcher.send(Unsubscribe(2, (b"$SYS/#",)))
    watcher.take()
    return values


STORE = {
    "clients/total", "clients/disconnected", "clients/inactive", "clients/expired", "messages/stored", "store/messages/count",
    "store/messages/bytes", "retained messages/count",
}  # fmt: skip
"""Those of them that only the store knows."""


def test_what_only_the_store_knows_is_asked_of_every_shard() -> None:
    """Each time by the one that publishes, for its next time; nothing is told before all have answered."""
    shell = Shell(TELLS, n_shards=2)
    watcher = shell.online("w", 4)
    assert [effect for effect in shell.pass_time(EVERY_MS) if isinstance(effect, HoldingsQuery)] == [HoldingsQuery(0), HoldingsQuery(1)]
    shell.turn(HoldingsTold(1, HoldingsFound(3, 7, 100, 5_000, 20)))
    assert not STORE & _totals(shell, watcher).keys()
    shell.turn(HoldingsTold(0, HoldingsFound(1, 2, 10, 700, 4)))
    table = _totals(shell, watcher)
    assert {name: table[name] for name in STORE} == {
        "clients/total": "5", "clients/disconnected": "4", "clients/inactive": "4", "clients/expired": "9", "messages/stored": "110",
        "store/messages/count": "110", "store/messages/bytes": "5700", "retained messages/count": "24",
    }  # fmt: skip
    # A shard that has started again has forgotten what had expired.
    shell.turn(HoldingsTold(1, HoldingsFound(0, 1, 5, 50, 0)))
    table = _totals(shell, watcher)
    assert (table["clients/expired"], table["clients/disconnected"], table["store/messages/count"]) == ("10", "1", "15")


def test_shards_are_asked_by_one_gateway() -> None:
    """The others only show the table."""
    pair = Linked(2, TELLS)
    asked = [[effect for effect in shell.pass_time(EVERY_MS) if isinstance(effect, HoldingsQuery)] for shell in pair.shells]
    assert [bool(queries) for queries in asked] == [True, False]


def test_a_load_is_a_moving_mean_of_a_minute() -> None:
    """60 messages a minute for long enough are a load of 60; when they end it falls to 1/e in its period."""
    shell = Shell(TELLS)
    client = shell.online("c", 4)
    for _ in range(360):
        client.send(message(b"a", b"x"))
        shell.pass_time(1_000)
    subscribe(client, b"$SYS/broker/load/publish/received/#")
    shell.pass_time(EVERY_MS)
    loads = {name: float(value) for name, value in told(client).items()}
    one, five = loads["load/publish/received/1min"], loads["load/publish/received/5min"]
    assert 45 < one < 61 and 36 < five < 45
    shell.pass_time(60_000)
    assert float(_last(client, "load/publish/received/1min")) == pytest.approx(one * 0.368, rel=0.2)


def _last(client: Client, name: str) -> str:
    packets = [packet for packet in client.take() if isinstance(packet, PublishRun)]
    return [packet.bodies[0][1:].decode() for packet in packets if packet.topics[0].endswith(name.encode())][-1]


def test_the_gateway_with_the_smallest_name_speaks_for_all() -> None:
    """Others tell it what they count; subscribers anywhere get one copy, and each gateway has the table for new ones."""
    pair = Linked(2, TELLS)
    watchers = [pair[index].online(f"w{index}", 4) for index in (0, 1)]
    for watcher in watchers:
        watcher.send(Subscribe(1, (Subscription(b"$SYS/broker/clients/#"),)))
    pair.settle()
    for watcher in watchers:
        watcher.take()
    pair[0].online("more", 4)
    for _ in range(2):
        for index in (1, 0):
            pair[index].pass_time(EVERY_MS)
            pair.settle()
    for watcher in watchers:
        assert set(told(watcher).items()) >= {("clients/connected", "3")}
    late = pair[1].online("late", 4)
    late.send(Subscribe(1, (Subscription(b"$SYS/broker/clients/connected"),)))
    pair.settle()
    assert message(b"$SYS/broker/clients/connected", b"3", retain=True) in late.take()


def test_when_the_first_gateway_is_gone_the_next_one_speaks() -> None:
    """With what is there then."""
    pair = Linked(2, TELLS)
    watcher = pair[1].online("w", 4)
    pair[0].online("x", 4)
    pair[1].pass_time(EVERY_MS)
    pair.die(0)
    pair[1].pass_time(EVERY_MS)
    watcher.send(Subscribe(1, (Subscription(b"$SYS/broker/clients/connected"),)))
    assert message(b"$SYS/broker/clients/connected", b"1", retain=True) in watcher.take()


def test_sessions_in_memory_get_it_from_their_session_actor() -> None:
    """It has told its interest like a gateway, and is told by the first gateway only."""
    shell = Shell(TELLS)
    shell.turn(FromSession(0, Interest(2, False, [b"$SYS/broker/uptime"], [], [], [], [])))
    shell.to_session.clear()
    shell.pass_time(EVERY_MS)
    frames = [frame for _, frame in shell.to_session if isinstance(frame, Forward)]
    assert [(frame.topics, frame.bodies) for frame in frames] == [([b"$SYS/broker/uptime"], [b"\0" + b"10 seconds"])]


def test_rules_keep_it_from_whom_they_say() -> None:
    """Somebody who may read nothing reads nothing of this either."""
    shell = Shell(TELLS)
    client = shell.online("s", 4)
    subscribe(client, b"$SYS/#")
    client.take()
    shell.turn(AccessChanged(CLOSED))
    shell.pass_time(EVERY_MS)
    assert client.take() == []


def test_none_is_published_where_nobody_wants_it() -> None:
    """sys_interval infinity: no message, no table, and no wake-up for it."""
    shell = Shell(Options(sys_interval_ms=0))
    client = shell.online("s", 4)
    subscribe(client, b"$SYS/#")
    shell.pass_time(60_000)
    assert client.take() == []


def test_frames_survive_their_link_and_others_do_not_count() -> None:
    """A gateway of another version may count other things: what it says is left out."""
    for frame in (Counts([1, 2, 1 << 60]), SystemTable([b"$SYS/x"], [b"\0y"])):
        assert decode(encode(frame)) == frame
    pair = Linked(2, TELLS)
    pair[1].to_peer.append((1, Counts([7])))
    pair.settle()
    pair[0].pass_time(EVERY_MS)
    watcher = pair[0].online("w", 5)
    watcher.send(Subscribe(1, (Subscription(b"$SYS/broker/clients/connected"),), Properties(subscription_identifiers=(4,))))
    pair.settle()
    (_, shown) = watcher.take()
    assert isinstance(shown, Publish) and shown.payload == b"0" and shown.properties.subscription_identifiers == (4,)
