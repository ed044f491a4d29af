"""The session actor: carries out what the session core decides, over links to every shard and from every gateway (actors.serving).

Durable sessions live in the rows of their home shards; this process is a cache of them and can be killed at any moment.
Sessions that are not durable live here alone and end with it.

Of several sites it serves one shard, with its index, and only while its site leads that: idle <-> serving.  While it is idle it listens
nowhere, so a gateway that was told late dials in vain and looks again.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import structlog

from actors.clocks import Steady
from actors.fatal import dies_with
from actors.metrics.of_session import tell
from actors.pump import settle_gc
from actors.serving import Serving
from actors.sites.following import Following, whereabouts_of
from actors.sites.whereabouts import SeveralSites
from actors.snapshot import settings_in_force
from actors.topology import Announcement, Health, Topology, announce, member_name
from config.schema import Config
from sessions.core import SessionCore
from sessions.options import Counters

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

log = structlog.get_logger(__name__)

BEGIN_AGAIN_S = 0.5
"""After an attempt to begin that failed: its port may be taken for a moment."""


class SessionServer:
    """Serves the sessions of some shards that outlive their connections.

    If a call returns, its change survives any crash of other processes; this one alone knows nothing but sessions in memory.
    """

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._index = index
        self._started: Announcement | None = None
        self._serving: Serving | None = None
        self._settling: asyncio.Task[None] | None = None
        self._fault = ""
        """Why it could not begin."""
        self._epoch = 0
        """Of its shard, as heard of last."""
        self._before: Counter[str] = Counter()
        """What cores that are over have counted."""

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology = self._topology
        self._config = settings_in_force(topology)
        self._steady = Steady(topology.run_dir, topology.n_shards)
        self._whereabouts = whereabouts_of(topology)
        self._served = frozenset(shard for shard in range(topology.n_shards) if topology.session_of_shard(shard) == self._index)
        self._following = Following(self._whereabouts, self._moved)
        async with AsyncExitStack() as opened:
            if self._wanted:
                opened.push_async_callback(self._begun_in_vain)
                await self._begin()
            opened.callback(self._following.stop)
            self._following.start()
            settle_gc()
            started = Announcement("session", member_name("session", self._index), os.getpid())
            announce(topology, started)
            opened.pop_all()
        self._started = started
        return started

    async def stop(self) -> None:
        if self._started is None:
            return
        self._started = None
        self._following.stop()
        if self._settling is not None:
            self._settling.cancel()
        if self._serving is not None:
            await self._serving.finish()

    async def _begun_in_vain(self) -> None:
        """The start fails, and the next one begins with another core."""
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.finish()

    async def health(self) -> Health:
        if self._started is None or self._fault:
            return Health(False, self._fault)
        if self._serving is None:
            return Health(True, "another site serves these sessions")
        away = self._serving.away
        return Health(not away, f"shards away: {away}" if away else "")

    def reconfigure(self, config: Config) -> None:
        self._config = config
        if self._serving is not None:
            self._serving.reconfigure(config)

    @property
    def core(self) -> SessionCore:
        """That serves now."""
        assert self._serving is not None, "nothing is served"
        return self._serving.core

    def counters(self) -> dict[str, int]:
        serving = self._serving
        if serving is None:
            counted = {**asdict(Counters()), "loaded": 0, "online": 0, "shards_away": 0}
        else:
            core = serving.core
            counted = {**asdict(core.counters), "loaded": core.loaded, "online": core.online, "shards_away": len(serving.away)}
        for name, count in self._before.items():
            counted[name] += count
        return counted

    def measure(self, sheet: Sheet) -> None:
        tell(sheet, self._index, self.counters())

    # ------------------------------------------------------------------ idle <-> serving

    @property
    def _wanted(self) -> bool:
        whereabouts = self._whereabouts
        return not isinstance(whereabouts, SeveralSites) or all(map(whereabouts.known.leads_here, self._served))

    def _moved(self) -> None:
        """Somebody leads elsewhere."""
        self._steady.look_again()
        if self._serving is not None:
            self._serving.look_again()
        if self._settling is None or self._settling.done():
            self._settling = asyncio.get_running_loop().create_task(self._settle())
            dies_with(self._settling, "beginning or ending to serve")

    @property
    def _led(self) -> int:
        """The epoch in which its shard is led, as far as was heard; 0 with one site."""
        whereabouts = self._whereabouts
        led = whereabouts.known.leads.get(self._index) if isinstance(whereabouts, SeveralSites) else None
        return 0 if led is None else led.epoch

    async def _settle(self) -> None:
        while True:
            serving, led = self._serving, self._led
            # Each takeover takes the next epoch: behind more than one of this site somebody else may have led in between.
            if serving is not None and (not self._wanted or led > self._epoch + 1):
                await self._end(serving)
            elif serving is None and self._wanted:
                await self._try_to_begin()
            else:
                self._epoch = led
                return

    async def _try_to_begin(self) -> None:
        try:
            await self._begin()
        except OSError as error:
            self._fault = f"cannot listen yet: {error}"
            log.error("session.cannot_serve_yet", index=self._index, cause=str(error))
            await asyncio.sleep(BEGIN_AGAIN_S)

    async def _begin(self) -> None:
        self._epoch = self._led
        serving = Serving(self._topology, self._index, self._served, self._whereabouts, self._steady, self._config)
        await serving.begin()
        self._serving, self._fault = serving, ""
        log.info("session.started", name=serving.name, shards=sorted(self._served))

    async def _end(self, serving: Serving) -> None:
        self._serving = None
        self._before.update(asdict(serving.core.counters))
        await serving.end(f"{serving.name} serves no more: another site leads its shard now")
        log.info("session.ended", name=serving.name, shards=sorted(self._served))
