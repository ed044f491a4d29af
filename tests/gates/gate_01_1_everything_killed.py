"""Gate 1 of issue 1: everything is killed, everything comes back, and every stored message is there.

Sessions of mosquitto_sub, paho-mqtt, aiomqtt and amqtt (3.1.1 and 5 where they speak it) at QoS 1 and 2 on a literal, a ``+`` and a ``#``
filter subscribe and go offline; 20 publishers, foreign and our own, send at QoS 1 and 2; every process of ``status`` is killed; the
broker comes up again; the sessions resume. Once with the page cache left whole, as kill -9 leaves it, and once with it lost, as a power
cut would; each with one shard and with three.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tests.broker import crowd
from tests.broker.client import Client
from tests.broker.crowd import SPEAKS, Member, Planned
from tests.broker.history import History
from tests.gates.gate import SHARD_COUNTS, GateFailed, Scale, filters, literal, require_no_faults, running, settings, topics

LIMIT_S = 2400
PUBLISHERS = 20
TOPICS_OF_ONE = 32
RESUME_DEADLINE_S = 400.0
PUBLISH_DEADLINE_S = 300.0
ACK_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of kill and resume showed."""

    sessions: int
    delivered: int
    up_s: float


def sessions(prefix: str, scale: Scale) -> list[Member]:
    """Every library, version and QoS on every filter; quick: on one filter each, in turn."""
    found = []
    for at, (library, version) in enumerate(SPEAKS):
        for qos in (1, 2):
            for which, topic_filter in enumerate(filters(prefix)):
                if not scale.quick or which == (at + qos) % 3:
                    found.append(Member(library, version, f"{prefix}-sub-{library}-{version}-{qos}-{which}", qos, topic_filter))
    return found


def foreign_plans(prefix: str, count: int) -> list[Planned]:
    """Twelve foreign publishers of ``count`` messages: each library and version, and each QoS."""
    speakers = [("mosquitto", 4, 1), ("mosquitto", 4, 2), ("mosquitto", 5, 1), ("mosquitto", 5, 2), ("paho", 4, 1), ("paho", 4, 2)]
    speakers += [("paho", 5, 1), ("paho", 5, 2), ("aiomqtt", 4, 2), ("aiomqtt", 5, 1), ("amqtt", 4, 1), ("amqtt", 4, 2)]
    plans = []
    for at, (library, version, qos) in enumerate(speakers):
        member = Member(library, version, f"{prefix}-pub-{library}-{version}-{qos}", qos)
        # mosquitto_pub knows one topic; two of its four take the one that the literal filter names.
        one = literal(prefix) if at % 2 == 0 else f"{prefix}/{at}/7"
        chosen = (one,) * count if library == "mosquitto" else route(prefix, at, count)
        plans.append(Planned(member, chosen))
    return plans


def route(prefix: str, publisher: int, count: int) -> tuple[str, ...]:
    """The topics of one publisher's messages: every fifth on the literal one, the others over its own part of the 500."""
    every = topics(prefix)
    own = [every[(publisher * TOPICS_OF_ONE + n) % len(every)] for n in range(TOPICS_OF_ONE)]
    return tuple(literal(prefix) if n % 5 == 4 else own[n % TOPICS_OF_ONE] for n in range(count))


async def own_publisher(client: Client, qos: int, chosen: tuple[str, ...]) -> None:
    await client.start()
    for topic in chosen:
        await client.publish(topic, qos, size=64)
    await client.acknowledged(ACK_DEADLINE_S)
    await client.stop()


async def one_round(n_shards: int, cut_power: bool, scale: Scale) -> Round:
    prefix = f"g1s{n_shards}{'c' if cut_power else 'k'}"
    where = f"n_shards={n_shards}, {'page cache lost' if cut_power else 'kill -9'}"
    history = History()
    count = scale.of(10_000) // PUBLISHERS
    async with running(settings(n_shards), on_fault_disk=cut_power) as watched:
        port = watched.broker.port
        members = sessions(prefix, scale)
        await crowd.create(port, history, members)

        foreign = foreign_plans(prefix, count)
        own = [Client(port, f"{prefix}-own-{n}", history, version=4 if n % 2 else 5) for n in range(PUBLISHERS - len(foreign))]
        await asyncio.gather(
            crowd.publish(port, history, foreign, PUBLISH_DEADLINE_S, size=64),
            *(own_publisher(client, 1 + n // 2 % 2, route(prefix, n + len(foreign), count)) for n, client in enumerate(own)),
        )
        if history.acknowledged_count() != count * PUBLISHERS:
            raise GateFailed(f"{where}: {history.acknowledged_count()} of {count * PUBLISHERS} messages were acknowledged")
        empty = [member.client_id for member in members if not history.due(member.client_id)]
        if empty:
            raise GateFailed(f"{where}: the gate is wrong, nothing is due to {empty}")

        await watched.kill_all()
        if cut_power:
            await watched.cut_power()
        began = time.monotonic()
        await watched.up()
        up_s = time.monotonic() - began

        absent = await crowd.resume(port, history, members, RESUME_DEADLINE_S)
        require_no_faults(history, where)
        if absent:
            raise GateFailed(f"{where}: session not present for {len(absent)} sessions, first {absent[0]}")
        return Round(len(members), history.delivery_count(), up_s)


async def run(scale: Scale) -> str:
    rounds = [await one_round(n_shards, cut_power, scale) for n_shards in SHARD_COUNTS for cut_power in (False, True)]
    return (
        f"{scale.of(10_000)} messages of {PUBLISHERS} publishers to {rounds[0].sessions} offline sessions, killed with and without loss of "
        f"the page cache, n_shards 1 and 3: {sum(each.delivered for each in rounds)} deliveries, none missing, QoS 2 once, in order, "
        f"session present; up again within {max(each.up_s for each in rounds):.1f} s"
    )
