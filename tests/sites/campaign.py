"""Clients that live through the loss of sites: what they do, and what must hold in the end.

Publishers at QoS 1 and 2 and durable sessions on a literal, a ``+`` and a ``#`` filter, all of which connect through a relay that brings a
client to another site's gateway each time (tests.gates.moving). What went wrong is left to the checks of the history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.broker.client import Client, settled
from tests.broker.history import History
from tests.gates.gate import filters, require_no_faults
from tests.gates.moving import Moving
from tests.gates.traffic import Publisher, at_work, client_ids, everything_flows, part_of, require_sessions_kept
from tests.sites.judging import require_none_repeated
from tests.sites.running import SeveralSites

SETTLE_S = 60.0
FINISH_S = 60.0


@dataclass(slots=True)
class Campaign:
    """publishers and sessions are at work; took: how long it was, each time, until everything flowed again."""

    sites: SeveralSites
    history: History
    publishers: list[Publisher]
    sessions: list[Client]
    relay: Moving
    up: list[int]
    """The sites that clients are brought to."""
    took: list[float] = field(default_factory=list)

    async def flows(self, within_s: float, since_s: float = 0.0) -> float:
        """Everybody gets acknowledgements and messages of what is published from now on. How long that took, since then (on the steady
        clock; 0: since it was asked)."""
        began = since_s or time.monotonic()
        await everything_flows(self.publishers, self.sessions[-2:], self.history, began + within_s)
        self.took.append(time.monotonic() - began)
        return self.took[-1]

    async def lose(self, site: int) -> float:
        """SIGKILL to all of this site.  When that was, on the steady clock."""
        self.up.remove(site)
        await asyncio.to_thread(self.sites.sites[site].kill_all)
        return self.sites.sites[site].killed_s

    async def bring_back(self, site: int) -> None:
        await asyncio.to_thread(self.sites.sites[site].up)
        self.up.append(site)

    async def judge(self, where: str) -> str:
        """Nobody publishes any more; everything acknowledged has come, once at QoS 2, in order, and no session was lost."""
        await asyncio.gather(*(publisher.finish(FINISH_S) for publisher in self.publishers))
        await settled(self.history, SETTLE_S)
        require_sessions_kept([*self.sessions, *(each.client for each in self.publishers)])
        require_no_faults(self.history, where)
        require_none_repeated(self.history)
        repeats = sum(self.history.repeats(name) for name in self.history.sessions)
        return (
            f"{self.history.acknowledged_count()} messages acknowledged, {self.history.delivery_count()} delivered, none missing, "
            f"in order, QoS 2 once, {repeats} repeats at QoS 1, {self.relay.moves} moves between sites"
        )


@asynccontextmanager
async def campaign(
    sites: SeveralSites, prefix: str, *, rate: float = 200.0, publishers: int = 4, n_shards: int = 1
) -> AsyncIterator[Campaign]:
    """rate: messages a second, of all publishers together."""
    history = History()
    up = list(range(len(sites.sites)))
    async with Moving(lambda: [sites.ports[site] for site in up] or sites.ports) as relay:
        sessions: list[Client] = []
        for which, topic_filter in enumerate(filters(prefix)):
            for qos in (1, 2):
                session = Client(relay.port, f"{prefix}-sub-{which}-{qos}", history, version=4 if qos == 1 else 5)
                sessions.append(session)
                await session.start()
                await session.subscribe(topic_filter, qos)
        sending = [
            Publisher(
                Client(relay.port, name, history, version=4 if at % 4 < 2 else 5, window=50), 1 + at % 2, rate / publishers,
                part_of(prefix, at, publishers),
            )
            for at, name in enumerate(client_ids(f"{prefix}-pub", publishers, n_shards))
        ]  # fmt: skip
        async with at_work(sending, sessions):
            yield Campaign(sites, history, sending, sessions, relay, up)
