"""Gate 4 of issue 8: three sites, one of them lost every 30 s for 20 minutes, and MQTT's promises hold.

Durable sessions on three filters and publishers at QoS 1 and 2, all of which come to another site's gateway with each connection; a durable
shared group; wills of clients that vanish; retained messages. A site is lost by SIGKILL to all of its processes and started again; its
clients are torn from it, others stay. At the end nothing that was acknowledged is missing, all is in order, QoS 2 came once, the group has
everything, each will of a client that was accepted came, and each retained topic has its newest acknowledged value or one after it.
"""

from __future__ import annotations

import asyncio
import random
import time

from tests.broker.client import Client
from tests.broker.history import History, parse_payload
from tests.gates.gate import GateFailed, Scale
from tests.gates.gate_07_1_groups import Ledger, Member, all_came, require_order
from tests.gates.traffic import Publisher, client_ids
from tests.sites.campaign import Campaign, campaign
from tests.sites.running import several
from tests.sites.wills import Vanishing

LIMIT_S = 3600
MINUTES, QUICK_MINUTES = 20, 2
LOST_EVERY_S = 30.0
BACK_S = 30.0
MEMBERS = 3
N_SHARDS = 2
TOPICS_RETAINED = 10


async def lose_sites(running: Campaign, minutes: float, chance: random.Random) -> int:
    until = time.monotonic() + 60 * minutes
    lost = 0
    while time.monotonic() < until:
        began = time.monotonic()
        site = chance.choice(running.up)
        await running.lose(site)
        try:
            await running.flows(BACK_S)
            await running.bring_back(site)
            await running.flows(BACK_S)
        except GateFailed as stuck:
            raise GateFailed(f"loss {lost + 1}, site {site}: {stuck}") from None
        lost += 1
        await asyncio.sleep(max(0.0, began + LOST_EVERY_S - time.monotonic()))
    return lost


class Keeper:
    """Sets retained topics, over and over; what was acknowledged last is due."""

    def __init__(self, port: int, prefix: str) -> None:
        self.history = History()
        topics = [f"{prefix}-kept/{at}" for at in range(TOPICS_RETAINED)]
        self.publisher = Publisher(Client(port, f"{prefix}-keeper", self.history, window=5, retain=True), 1, 5.0, topics)

    def due(self) -> dict[str, int]:
        """By topic, the number of the newest that was acknowledged."""
        newest: dict[str, int] = {}
        for (_, number), sent in self.history.sent.items():
            if sent.acknowledged_ns is not None:
                newest[sent.topic] = max(number, newest.get(sent.topic, -1))
        return newest


async def require_retained(port: int, prefix: str, keeper: Keeper) -> int:
    due = keeper.due()
    looking = Client(port, f"{prefix}-looking", keeper.history, version=4)
    await looking.start()
    await looking.subscribe(f"{prefix}-kept/#", 1)
    deadline = time.monotonic() + BACK_S
    found: dict[str, int] = {}
    while time.monotonic() < deadline and len(found) < len(due):
        await asyncio.sleep(0.1)
        for delivery in keeper.history.sessions[looking.client_id].deliveries:
            key = parse_payload(delivery.payload)
            if key is not None:
                found[delivery.topic] = max(key[1], found.get(delivery.topic, -1))
    await looking.stop()
    behind = {topic: (found.get(topic), number) for topic, number in due.items() if found.get(topic, -1) < number}
    if behind:
        raise GateFailed(f"retained topics older than what was acknowledged (found, acknowledged): {behind}")
    return len(due)


async def run(scale: Scale) -> str:
    prefix, chance = "g84", random.Random(84)
    minutes = QUICK_MINUTES if scale.quick else MINUTES
    async with several(3, n_shards=N_SHARDS, etcd_count=3) as sites, campaign(sites, prefix, n_shards=N_SHARDS) as running:
        port, ledger = running.relay.port, Ledger()
        # A history of their own: what is due is due to the group, not to each of them.
        members = [Member(port, name, History(), ledger) for name in client_ids(f"{prefix}-member", MEMBERS, N_SHARDS)]
        for member in members:
            await member.start()
            await member.subscribe(f"$share/crew/{prefix}/#", 1)
        since_ns = time.monotonic_ns()
        keeper, vanishing = Keeper(port, prefix), Vanishing(port, prefix, running.history)
        await keeper.publisher.begin()
        wills = asyncio.create_task(vanishing.run())
        try:
            await running.flows(BACK_S)
            lost = await lose_sites(running, minutes, chance)
            wills.cancel()
            await keeper.publisher.finish(BACK_S)
            judged = await running.judge(f"after {lost} sites lost")
            await all_came(ledger, running.history, since_ns)
            require_order(ledger, running.history)
            retained = await require_retained(port, prefix, keeper)
        finally:
            wills.cancel()
            keeper.publisher.cease()
            await asyncio.gather(*(each.stop() for each in [*members, keeper.publisher.client]), return_exceptions=True)
    took = sorted(running.took)
    return (
        f"{lost} sites lost in {minutes} minutes; everything flowed again within {took[len(took) // 2]:.1f} s (median) and {took[-1]:.1f} "
        f"(slowest); {judged}; {vanishing.left} wills, {retained} retained topics, a group of {MEMBERS} has everything"
    )
