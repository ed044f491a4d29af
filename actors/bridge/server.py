"""The bridge process: runs every bridge that is not paused, each by itself, as settings say.

Nobody needs it to serve clients: when it dies Ray starts it again, and each bridge goes on where its session at the broker is.  What it
says of bridges is in the run directory (`bridges.json`), whole or not at all, for whoever asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import structlog

from actors.access.secrets import read_secrets
from actors.bridge.inward import InwardRunner
from actors.bridge.runner import Place, Runner
from actors.bridge.session import client_id
from actors.fatal import dies_with
from actors.metrics import of_bridge
from actors.metrics.sheet import Sheet
from actors.sites.following import Following, store_id, whereabouts_of
from actors.sites.whereabouts import SeveralSites
from actors.snapshot import settings_in_force
from actors.topology import Announcement, Health, Topology, announce, member_name, write_whole
from config.bridges import Bridge
from config.schema import Config
from shards.slots import SlotTable

STATUS_FILE = "bridges.json"
STATUS_EVERY_S = 1.0
log = structlog.get_logger(__name__)


class BridgeServer:
    """made -> started -> stopped."""

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._name = member_name("bridge", index)
        self._started: Announcement | None = None
        self._runners: dict[str, Runner | InwardRunner] = {}
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._measured: set[str] = set()
        self._secrets: dict[str, bytes] = {}
        self._status: asyncio.Task[None] | None = None

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology = self._topology
        self._slots = SlotTable.initial(topology.n_shards)
        self._whereabouts = whereabouts_of(topology)
        async with AsyncExitStack() as opened:
            following = Following(self._whereabouts, lambda: None)
            opened.callback(following.stop)
            following.start()
            opened.push_async_callback(self._stop_all)
            await self._change(settings_in_force(topology))
            started = Announcement("bridge", self._name, os.getpid())
            announce(topology, started)
            self._closing = opened.pop_all()
        self._status = asyncio.get_running_loop().create_task(self._say())
        dies_with(self._status, "saying how bridges are")
        self._started = started
        log.info("bridges.started", bridges=list(self._runners))
        return started

    async def stop(self) -> None:
        if self._started is None:
            return
        self._started = None
        if self._status is not None:
            self._status.cancel()
        await self._closing.aclose()

    async def _stop_all(self) -> None:
        async with self._changing:
            await asyncio.gather(*[runner.stop() for runner in self._runners.values()])
            self._runners.clear()

    async def health(self) -> Health:
        return Health(self._started is not None, f"{len(self._runners)} bridges")

    def reconfigure(self, config: Config) -> None:
        task = asyncio.get_running_loop().create_task(self._change(config))
        # Begun anew, the process has the settings that this one could not take.
        dies_with(task, "a change of bridges")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def measure(self, sheet: Sheet) -> None:
        for name, runner in self._runners.items():
            of_bridge.tell(sheet, name, runner)
        for name in self._measured - self._runners.keys():
            of_bridge.forget(sheet, name)
        self._measured = set(self._runners)

    async def _change(self, config: Config) -> None:
        """Those whose settings are others are stopped, and go on with the new ones where they are."""
        dead_letter_topic = config.durable_sessions.dead_letter_topic
        async with self._changing:
            self._secrets = await asyncio.to_thread(read_secrets, self._topology.run_dir)
            wanted = {name: bridge for name, bridge in config.bridges.items() if not bridge.paused}
            gone = [name for name, runner in self._runners.items() if not self._same(runner, wanted.get(name), dead_letter_topic)]
            stopped = [self._runners.pop(name) for name in gone]
            await asyncio.gather(*[runner.stop() for runner in stopped])
            for name, bridge in wanted.items():
                if name not in self._runners:
                    kind = InwardRunner if bridge.direction == "in" else Runner
                    runner = self._runners[name] = kind(name, bridge, dead_letter_topic, self._place(config))
                    runner.start()
            if gone:
                log.info("bridges.changed", stopped=gone, running=list(self._runners))

    def _same(self, runner: Runner | InwardRunner, bridge: Bridge | None, dead_letter_topic: str) -> bool:
        return bridge == runner.settings and runner.default_dead_letter_topic == dead_letter_topic

    def _place(self, config: Config) -> Place:
        topology = self._topology
        return Place(
            topology.run_dir, topology.data_dir, topology.secret, topology.n_gateways, self._is_here, self._store, self._secret,
            config.gateway.topic_levels_max,
        )  # fmt: skip

    def _is_here(self, name: str) -> bool:
        """Of several sites a bridge runs where its session is at home, so that it moves with that."""
        shard = self._slots.shard_of(client_id(name).encode())
        return not isinstance(self._whereabouts, SeveralSites) or self._whereabouts.known.leads_here(shard)

    def _store(self, name: str) -> tuple[str, str]:
        """id, and the incarnations of the store and of the home of the bridge's session."""
        store = store_id(self._topology, self._whereabouts)
        if not isinstance(self._whereabouts, SeveralSites):
            return store, str(self._topology.incarnation)
        known = self._whereabouts.known
        led = known.leads.get(self._slots.shard_of(client_id(name).encode()))
        return store, f"{known.store.partition(':')[2]}.{led.incarnation if led is not None else 1}"

    def _secret(self, place: str) -> bytes:
        return self._secrets[place]

    async def _say(self) -> None:
        hindered = False
        while True:
            said = {name: asdict(runner.status()) for name, runner in self._runners.items()}
            try:
                await asyncio.to_thread(write_status, self._topology.run_dir, said)
                hindered = False
            except OSError as error:
                if not hindered:
                    log.warning("bridges.not_told", cause=str(error))
                hindered = True
            await asyncio.sleep(STATUS_EVERY_S)


def write_status(run_dir: Path, bridges: dict[str, dict[str, object]]) -> None:
    write_whole(run_dir / STATUS_FILE, json.dumps({"at": time.time(), "bridges": bridges}))
