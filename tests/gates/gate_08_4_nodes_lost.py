"""Gate 4 of issue 8: three nodes, one of them lost every 30 s for 20 minutes, and MQTT's promises hold.

A node is a site and a member of the register's etcd; it is lost by SIGKILL to all of its processes, and started again. Durable sessions on
three filters and publishers at QoS 1 and 2 come to another site's gateway with each connection, and also leave a good one all the time;
two durable shared groups, one at QoS 2; wills of clients that vanish; retained messages.

At the end nothing that was acknowledged is missing, all is in order, QoS 2 came once (to each session, and to one of the group), what was
stored once came without DUP once, no session was forgotten, each will of a client that was accepted came, and all replicas are in sync
and equal. After each loss everything flows within BACK_S, and who subscribes to the retained topics gets what was acknowledged before, or
newer.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

from tests.broker import wire
from tests.broker.history import History, parse_payload
from tests.gates.gate import GateFailed, Scale
from tests.gates.gate_07_1_groups import Key, Ledger, Member, all_came, require_order
from tests.gates.traffic import client_ids, require_sessions_kept
from tests.sites.campaign import Campaign, campaign
from tests.sites.judging import converged, require_equal_copies
from tests.sites.kept import Keeper
from tests.sites.running import several
from tests.sites.wandering import Wandering
from tests.sites.wills import Vanishing

LIMIT_S = 3600
MINUTES, QUICK_MINUTES = 20, 2
LOST_EVERY_S = 30.0
BACK_S = 10.0
"""After a node was lost; it is what is promised."""
FINISH_S = 60.0
MEMBERS = 3
N_SHARDS = 2


async def lose_nodes(running: Campaign, keeper: Keeper, minutes: float, chance: random.Random) -> list[float]:
    """How long it was after each loss until everything flowed again."""
    etcds = running.sites.etcds
    until = time.monotonic() + 60 * minutes
    took: list[float] = []
    while time.monotonic() < until:
        began = time.monotonic()
        site = chance.choice(running.up)
        print(f"{time.strftime('%H:%M:%S', time.gmtime())} site {site} is lost", flush=True)
        etcds[site].kill()
        await running.lose(site)
        try:
            took.append(await running.flows(BACK_S))
            await keeper.look()
            etcds[site].start()
            await running.bring_back(site)
            await running.flows(BACK_S)
        except GateFailed as stuck:
            raise GateFailed(f"loss {len(took) + 1}, site {site}, {time.monotonic() - began:.0f} s after it: {stuck}") from None
        await asyncio.sleep(max(0.0, began + LOST_EVERY_S - time.monotonic()))
    return sorted(took)


class Crewman(Member):
    """Says at once what comes to it late, for whoever looks for the cause in the logs of the sites."""

    def __init__(self, port: int, name: str, history: History, ledger: Ledger) -> None:
        super().__init__(port, name, history, ledger)
        self._newest: dict[tuple[str, str], tuple[Key, float]] = {}
        """By publisher and topic, of what came to this member for the first time; and when."""

    def _delivered(self, message: wire.Publish) -> None:
        key = parse_payload(message.payload)
        before = key in self._ledger.arrivals
        super()._delivered(message)
        if key is None or before or not self._ledger.arrivals.get(key):
            return
        line, now = (key[0], message.topic), time.monotonic()
        newest, at = self._newest.get(line, (key, now))
        if newest[1] <= key[1]:
            self._newest[line] = key, now
            return
        ends = [round(now - each, 2) for each in self.ends[-3:]]
        print(
            f"{time.strftime('%H:%M:%S', time.gmtime())} {key} on {message.topic} at {self.client_id}, QoS {message.qos}, "
            f"DUP {message.dup}, id {message.packet_id}, after {newest[1]} {now - at:.2f} s ago; its connections ended "
            f"{ends} s ago",
            flush=True,
        )


class Crew:
    """A durable shared group; what is due is due to the group, so its members have a history of their own."""

    def __init__(self, port: int, prefix: str, name: str, qos: int) -> None:
        self.ledger = Ledger()
        self._filter, self._qos = f"$share/{name}/{prefix}/#", qos
        self.members = [Crewman(port, each, History(), self.ledger) for each in client_ids(f"{prefix}-{name}", MEMBERS, N_SHARDS)]
        self.since_ns = 0

    async def begin(self) -> None:
        for member in self.members:
            await member.start()
            await member.subscribe(self._filter, self._qos)
        self.since_ns = time.monotonic_ns()

    def _in_order(self, history: History) -> Ledger:
        """What has to be in order over all members.  What was begun at QoS 2 waits for its client, and what is behind it waits for
        neither (docs/groups.md), so that is in order at each member only."""
        return Ledger({key: come for key, come in self.ledger.arrivals.items() if min(self._qos, history.sent[key].qos) < 2})

    async def judge(self, history: History) -> None:
        await all_came(self.ledger, history, self.since_ns)
        require_order(self._in_order(history), history)
        for member in self.members:
            # What came to another one before was stored twice: its publisher has sent it again, at QoS 1, behind what it had sent since.
            of_one = {key: come for key, come in self.ledger.arrivals.items() if come[0][1] == member.client_id}
            require_order(Ledger(of_one), history)
        require_sessions_kept(self.members)
        for key, arrivals in self.ledger.arrivals.items():
            if self._qos == history.sent[key].qos == 2 and len(arrivals) > 1:
                raise GateFailed(f"message {key[1]} of {key[0]} came to {', '.join(who for _, who in arrivals)} of a group at QoS 2")


async def run(scale: Scale) -> str:
    prefix, chance = "g84", random.Random(84)
    minutes = QUICK_MINUTES if scale.quick else MINUTES
    async with several(3, n_shards=N_SHARDS, etcd_count=3) as sites:
        names = [await asyncio.to_thread(sites.name_of, index) for index in range(len(sites.sites))]
        async with campaign(sites, prefix, n_shards=N_SHARDS) as running:
            port = running.relay.port
            crews = [Crew(port, prefix, "crew", 1), Crew(port, prefix, "exact", 2)]
            members = [member for crew in crews for member in crew.members]
            keeper, vanishing = Keeper(port, prefix), Vanishing(port, prefix, running.history)
            for crew in crews:
                await crew.begin()
            await keeper.publisher.begin()
            wandering = Wandering([*(each.client for each in running.publishers), *running.sessions, *members], chance)
            tasks = [asyncio.create_task(vanishing.run()), asyncio.create_task(wandering.run())]
            try:
                await running.flows(60)
                took = await lose_nodes(running, keeper, minutes, chance)
                for task in tasks:
                    if task.done():
                        task.result()
                    task.cancel()
                judged = await running.judge(f"after {len(took)} nodes lost")
                for crew in crews:
                    await crew.judge(running.history)
                require_sessions_kept([keeper.publisher.client])
                retained = await keeper.look()
                seen = await converged(sites, 0, names, FINISH_S)
            finally:
                for task in tasks:
                    task.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await task
                keeper.publisher.cease()
                await asyncio.gather(*(each.stop() for each in [*members, keeper.publisher.client]), return_exceptions=True)
        await require_equal_copies(sites, seen, names)
    return (
        f"{len(took)} nodes lost in {minutes} minutes; everything flowed again within {took[len(took) // 2]:.1f} s (median) and "
        f"{took[-1]:.1f} (slowest); {judged}; {wandering.moved} good connections left; {vanishing.left} wills, {retained} retained "
        f"topics looked at {keeper.looks} times, two groups of {MEMBERS} have everything, the one at QoS 2 once; copies in sync and equal"
    )
