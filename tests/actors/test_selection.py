"""Which sessions are durable and which messages are stored, over real servers on one loop: zones, filters, QoS 0 in the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from mqtt.encode import encode
from mqtt.packets import Connect, Properties
from tests.actors.hand import Got, Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire

pytestmark = [pytest.mark.slow]
HOUR_S = 3600
PASSWORD = b"secret"
USERS = {"cache": PASSWORD, "someone": PASSWORD}


async def connect(port: int, client: str, user: str | None = None, expiry_s: int = HOUR_S, receive_max: int = 1000) -> Hand:
    """An MQTT 5 client; with expiry 0 its session ends with the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hand = Hand(5, reader, writer)
    properties = Properties(session_expiry_interval=expiry_s, receive_maximum=receive_max)
    password = PASSWORD if user is not None else None
    hand.send(encode(5, Connect(5, client, clean_start=False, username=user, password=password, properties=properties)))
    connack = wire.read_connack(5, (await hand.next(wire.CONNACK)).body)
    assert connack.code == 0
    hand.present = connack.session_present
    return hand


def gateways(broker: OneLoop) -> list[int]:
    """The port of each gateway alone; where there is one, the common port."""
    rows = [info for gateway in broker.gateways if gateway._started for info in gateway._started.listeners]
    return [info.port for info in rows if not info.shared] or [broker.port]


async def completed(hand: Hand) -> Got:
    got = await hand.message()
    if got.qos:
        await hand.complete_all(got)
    return got


async def taken(hand: Hand, count: int) -> list[tuple[str, int]]:
    """(payload, QoS) of so many messages, acknowledged, and nothing after them."""
    found = [await completed(hand) for _ in range(count)]
    await hand.alive()
    return [(got.payload, got.qos) for got in found]


# ------------------------------------------------------------------ zones
async def test_a_zone_decides_by_user_client_or_listener_whose_session_is_durable(tmp_path: Path) -> None:
    """Durable ones survive the death of their session actor; a session in memory does not.  The first zone that fits counts."""
    sets = (
        'zones.exempt.client_id_prefixes=["keep-"]',
        'zones.cache.users=["cache"]',
        "zones.cache.durable_sessions.enable=false",
    )
    async with OneLoop(tmp_path, sets=sets, users=USERS) as broker:
        clients = [("plain", None), ("volatile", "cache"), ("keep-1", "cache"), ("other", "someone")]
        hands = [await connect(broker.port, client, user) for client, user in clients]
        for hand in hands:
            await hand.subscribe("a", 1)
            await hand.close()
        again = [await connect(broker.port, client, user) for client, user in clients]
        assert [hand.present for hand in again] == [True, True, True, True]
        for hand in again:
            await hand.close()
        await broker.kill_session()
        after = [await connect(broker.port, client, user) for client, user in clients]
        assert [hand.present for hand in after] == [True, False, True, True]
        for hand in after:
            hand.drop()


async def test_a_zone_may_make_sessions_durable_where_others_are_not(tmp_path: Path) -> None:
    """Globally off, on for a listener: everybody comes in by it."""
    sets = ("durable_sessions.enable=false", 'zones.all.listeners=["tcp"]', "zones.all.durable_sessions.enable=true")
    async with OneLoop(tmp_path, sets=sets) as broker:
        hand = await connect(broker.port, "c")
        await hand.subscribe("a", 1)
        await hand.close()
        await broker.kill_session()
        hand = await connect(broker.port, "c")
        assert hand.present
        hand.drop()


async def test_a_zone_of_topics_sets_the_batch_of_its_subscriptions_and_a_zone_of_clients_that_of_its_own(tmp_path: Path) -> None:
    """Twelve messages are read in polls of two, of four, or in one; for a subscription the zone of its topics comes first."""
    sets = (
        'zones.topics.topic_prefixes=["slow/"]',
        "zones.topics.durable_sessions.batch_size=2",
        'zones.clients.client_id_prefixes=["meter-"]',
        "zones.clients.durable_sessions.batch_size=4",
        "durable_sessions.idle_poll_interval=1h",
    )
    async with OneLoop(tmp_path, sets=sets) as broker:
        publisher = await connect(broker.port, "p")
        polls = []
        for client, topic in (("x", "slow/1"), ("meter-1", "fast/1"), ("meter-2", "slow/2"), ("y", "fast/2")):
            hand = await connect(broker.port, client)
            await hand.subscribe(topic, 1)
            await hand.close()
            await publisher.published(topic, *map(str, range(12)))
            before = broker.sessions[0].core.counters.polls
            hand = await connect(broker.port, client)
            assert len(await taken(hand, 12)) == 12
            polls.append(broker.sessions[0].core.counters.polls - before)
            await hand.close()
        # The last poll of each says that it has read everything.
        assert polls == [6, 3, 6, 1]
        publisher.drop()


@pytest.mark.needs("interpreted")
async def test_a_lost_wake_up_delays_a_message_by_the_idle_poll_interval_of_its_zone(tmp_path: Path) -> None:
    """The shard pushes nothing: who is in the zone asks by itself after a while, the other one does not yet."""
    sets = (
        "durable_sessions.idle_poll_interval=1h",
        'zones.quick.client_id_prefixes=["quick-"]',
        "zones.quick.durable_sessions.idle_poll_interval=300ms",
    )
    async with OneLoop(tmp_path, sets=sets) as broker:
        hands = [await connect(broker.port, client) for client in ("quick-1", "patient")]
        for hand in hands:
            await hand.subscribe("a", 1)
        publisher = await connect(broker.port, "p")
        await publisher.published("a", "pushed")
        for hand in hands:
            assert await taken(hand, 1) == [("pushed", 1)]
        feeds = broker.shards[0]._core._feeds
        advance = feeds.advance
        feeds.advance = lambda watermark: []  # type: ignore[method-assign]
        await publisher.published("a", "found")
        assert await taken(hands[0], 1) == [("found", 1)]
        await hands[1].alive()
        feeds.advance = advance  # type: ignore[method-assign]
        await publisher.published("a", "pushed again")
        assert await taken(hands[0], 1) == [("pushed again", 1)]
        assert await taken(hands[1], 2) == [("found", 1), ("pushed again", 1)]
        for hand in (publisher, *hands):
            hand.drop()


# ------------------------------------------------------------------ the persistence filter
FILTERED = (
    "durable_sessions.persistence.min_qos=2",
    'durable_sessions.persistence.except_topic_prefixes=["noise/"]',
    'zones.halls.topic_prefixes=["halls/"]',
    "zones.halls.durable_sessions.enable=false",
    'zones.cache.users=["cache"]',
    "zones.cache.durable_sessions.enable=false",
)


async def test_what_the_filter_excludes_is_not_stored_and_goes_live(tmp_path: Path) -> None:
    """At QoS 0 to a durable session that is online, at its QoS to one that is not durable, at both gateways; offline: not at all."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=FILTERED, users=USERS) as broker:
        here, there = gateways(broker)
        publisher = await connect(here, "p")
        away = await connect(there, "away")
        await away.subscribe("#", 2)
        await away.close()
        durable = [await connect(here, "d-here"), await connect(there, "d-there")]
        ram = [await connect(here, "r-here", expiry_s=0), await connect(there, "r-there", expiry_s=0)]
        ram += [await connect(here, "m-here", user="cache"), await connect(there, "m-there", user="cache")]
        for hand in (*durable, *ram):
            await hand.subscribe("#", 2)
        for topic in ("noise/1", "halls/1", "kept"):
            await publisher.published(topic, f"{topic} 0", qos=0)
            await publisher.published(topic, f"{topic} 1", qos=1)
            await publisher.published(topic, f"{topic} 2", qos=2)
        everything = [(f"{topic} {qos}", qos) for topic in ("noise/1", "halls/1", "kept") for qos in range(3)]
        for hand in ram:
            assert Counter(await taken(hand, 9)) == Counter(everything)
        for hand in durable:
            expected = [(payload, qos if payload == "kept 2" else 0) for payload, qos in everything]
            assert Counter(await taken(hand, 9)) == Counter(expected)
        away = await connect(there, "away")
        assert await taken(away, 1) == [("kept 2", 2)]
        for hand in (publisher, away, *durable, *ram):
            hand.drop()


async def test_an_excluded_message_that_nobody_hears_is_answered_so_and_one_that_is_heard_is_not(tmp_path: Path) -> None:
    """0x10 as long as no session is online for it, also while a durable one is subscribed and away."""
    async with OneLoop(tmp_path, sets=('durable_sessions.persistence.topic_prefixes=["alarms/"]',)) as broker:
        publisher = await connect(broker.port, "p")
        durable = await connect(broker.port, "d")
        await durable.subscribe("#", 1)
        await durable.close()
        publisher.publish("other", "1", 1, 1)
        assert await publisher.answer(wire.PUBACK, 1) == 0x10
        publisher.publish("alarms/1", "2", 1, 2)
        assert await publisher.answer(wire.PUBACK, 2) == 0
        durable = await connect(broker.port, "d")
        assert await taken(durable, 1) == [("2", 1)]
        publisher.publish("other", "3", 1, 3)
        assert await publisher.answer(wire.PUBACK, 3) == 0
        assert await taken(durable, 1) == [("3", 0)]
        for hand in (publisher, durable):
            hand.drop()


async def test_an_excluded_message_is_retained_and_its_qos2_id_is_kept(tmp_path: Path) -> None:
    """It goes through its home shard like any other, only not into the store."""
    async with OneLoop(tmp_path, sets=('durable_sessions.persistence.except_topic_prefixes=["noise/"]',)) as broker:
        publisher = await connect(broker.port, "p")
        ram = await connect(broker.port, "r", expiry_s=0)
        await ram.subscribe("#", 2)
        publisher.publish("noise/1", "once", 2, 1, retain=True)
        assert await publisher.answer(wire.PUBREC, 1) == 0
        publisher.drop()
        publisher = await connect(broker.port, "p")
        publisher.publish("noise/1", "once", 2, 1, dup=True, retain=True)
        assert await publisher.answer(wire.PUBREC, 1) == 0
        assert await taken(ram, 1) == [("once", 2)]
        late = await connect(broker.port, "late")
        await late.subscribe("noise/#", 2)
        got = await completed(late)
        assert (got.payload, got.retain) == ("once", True)
        for hand in (publisher, ram, late):
            hand.drop()


# ------------------------------------------------------------------ QoS 0 in the store
async def test_stored_qos0_reaches_durable_sessions_once_in_every_direction(tmp_path: Path) -> None:
    """Online and offline, at both gateways, in the order of the publisher; at QoS 0 wherever one side says so."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=("durable_storage.messages.store_qos0=true",)) as broker:
        here, there = gateways(broker)
        publisher = await connect(here, "p")
        names = [(f"s{qos}-{at}", port, qos) for qos in range(3) for at, port in enumerate((here, there))]
        hands = {name: await connect(port, name) for name, port, _ in names}
        ram = [await connect(here, "r-here", expiry_s=0), await connect(there, "r-there", expiry_s=0)]
        for name, _, qos in names:
            await hands[name].subscribe("a/+", qos)
        for hand in ram:
            await hand.subscribe("a/+", 1)
        sent = [(f"{n}", n % 3) for n in range(30)]
        for payload, qos in sent[:15]:
            await publisher.published("a/b", payload, qos=qos)
        for name, _, granted in names:
            assert await taken(hands[name], 15) == [(payload, min(qos, granted)) for payload, qos in sent[:15]]
            await hands[name].close()
        for payload, qos in sent[15:]:
            await publisher.published("a/b", payload, qos=qos)
        for name, port, granted in reversed(names):
            hands[name] = await connect(there if port == here else here, name)
            assert await taken(hands[name], 15) == [(payload, min(qos, granted)) for payload, qos in sent[15:]]
        for hand in ram:
            assert Counter(await taken(hand, 30)) == Counter((payload, min(qos, 1)) for payload, qos in sent)
        for hand in (publisher, *hands.values(), *ram):
            hand.drop()


async def test_stored_qos0_may_be_retained_as_well(tmp_path: Path) -> None:
    """One message with RETAIN: once from the store to who is subscribed, once as retained to who comes later."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=("durable_storage.messages.store_qos0=true",)) as broker:
        here, there = gateways(broker)
        publisher = await connect(here, "p")
        subscribed = [await connect(here, "s"), await connect(there, "e", expiry_s=0)]
        for hand in subscribed:
            await hand.subscribe("a", 1)
        await publisher.published("a", "kept", qos=0, retain=True)
        for hand in subscribed:
            got = await completed(hand)
            assert (got.payload, got.qos, got.retain) == ("kept", 0, False)
            await hand.alive()
        await publisher.published("b", "behind it", qos=1)
        late = await connect(there, "late")
        await late.subscribe("a", 1)
        got = await completed(late)
        assert (got.payload, got.qos, got.retain) == ("kept", 0, True)
        await late.alive()
        for hand in (publisher, late, *subscribed):
            hand.drop()


async def test_stored_qos0_survives_the_death_of_the_session_actor_and_comes_once(tmp_path: Path) -> None:
    """What was published while nobody served the session comes afterwards, what was delivered before does not."""
    async with OneLoop(tmp_path, sets=("durable_storage.messages.store_qos0=true",)) as broker:
        publisher = await connect(broker.port, "p")
        subscriber = await connect(broker.port, "s")
        await subscriber.subscribe("a", 0)
        await publisher.published("a", "1", "2", qos=0)
        await publisher.published("a", "3", qos=1)
        assert [payload for payload, _ in await taken(subscriber, 3)] == ["1", "2", "3"]
        await publisher.close()
        await broker.kill_session()
        other = await connect(broker.port, "q", expiry_s=0)
        await other.published("a", "4", qos=0)
        subscriber = await connect(broker.port, "s")
        assert subscriber.present
        assert await taken(subscriber, 1) == [("4", 0)]
        for hand in (other, subscriber):
            hand.drop()


async def test_stored_qos0_is_not_held_up_by_a_full_window(tmp_path: Path) -> None:
    """A client that acknowledges nothing still gets what needs no acknowledgement; the rest when it does, all once."""
    async with OneLoop(tmp_path, sets=("durable_storage.messages.store_qos0=true",)) as broker:
        publisher = await connect(broker.port, "p")
        subscriber = await connect(broker.port, "s", receive_max=1)
        await subscriber.subscribe("a", 1)
        await subscriber.close()
        for n in range(20):
            await publisher.published("a", f"{n}", qos=n % 2)
        subscriber = await connect(broker.port, "s", receive_max=1)
        first = await subscriber.messages(11)
        assert [got.payload for got in first if got.qos == 0] == [f"{n}" for n in range(0, 20, 2)]
        (one,) = [got for got in first if got.qos]
        await subscriber.complete(one)
        rest = await taken(subscriber, 9)
        assert [one.payload, *[payload for payload, _ in rest]] == [f"{n}" for n in range(1, 20, 2)]
        for hand in (publisher, subscriber):
            hand.drop()


async def test_without_store_qos0_it_is_live_only(tmp_path: Path) -> None:
    """The default: online sessions get QoS 0 once, those that are away never; a subscription of QoS 0 stores nothing."""
    async with OneLoop(tmp_path) as broker:
        publisher = await connect(broker.port, "p")
        online, away = await connect(broker.port, "on"), await connect(broker.port, "off")
        for hand in (online, away):
            await hand.subscribe("a", 0)
            await hand.subscribe("b", 1)
        await away.close()
        for topic in "ab":
            await publisher.published(topic, f"{topic}0", qos=0)
            await publisher.published(topic, f"{topic}1", qos=1)
        assert Counter(await taken(online, 4)) == Counter([("a0", 0), ("a1", 0), ("b0", 0), ("b1", 1)])
        away = await connect(broker.port, "off")
        assert await taken(away, 1) == [("b1", 1)]
        for hand in (publisher, online, away):
            hand.drop()


# ------------------------------------------------------------------ all together
@pytest.mark.parametrize("stored", [False, True], ids=["qos0-live", "qos0-stored"])
async def test_each_subscription_brings_each_message_once_whatever_the_kind_of_its_session(tmp_path: Path, stored: bool) -> None:
    """Durable, in memory and ephemeral sessions with overlapping filters, at both gateways, and a publisher at each."""
    sets = (
        f"durable_storage.messages.store_qos0={str(stored).lower()}",
        'zones.cache.users=["cache"]',
        "zones.cache.durable_sessions.enable=false",
    )
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=sets, users=USERS) as broker:
        ports = gateways(broker)
        publishers = [await connect(port, f"p{at}") for at, port in enumerate(ports)]
        hands = []
        for at, port in enumerate(ports):
            hands.append(await connect(port, f"durable-{at}"))
            hands.append(await connect(port, f"memory-{at}", user="cache"))
            hands.append(await connect(port, f"ephemeral-{at}", expiry_s=0))
        filters = {1: "a/#", 2: "a/+", 3: "a/b", 4: "+/b"}
        for hand in hands:
            for identifier, topic_filter in filters.items():
                await hand.subscribe(topic_filter, identifier % 3, identifier)
        for at, publisher in enumerate(publishers):
            for n in range(9):
                await publisher.published("a/b", f"{at} {n}", qos=n % 3)
        expected = Counter(
            (f"{at} {n}", min(n % 3, identifier % 3), (identifier,)) for at in range(2) for n in range(9) for identifier in filters
        )
        for hand in hands:
            found = [await completed(hand) for _ in range(expected.total())]
            await hand.alive()
            assert Counter((got.payload, got.qos, got.identifiers) for got in found) == expected
        for hand in (*publishers, *hands):
            hand.drop()
