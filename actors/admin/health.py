"""Whether the broker serves, looked at from outside, and what survives what by its settings.

Everybody has to answer within a second, over links of our own and at the listeners; who does not is away, whatever the table of
processes says of him.  Nothing waits for anything else that is asked of the admin process, so an answer is there within two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from actors.admin.broker import Broker
from actors.admin.flight import Shared
from actors.census import Census, take_census
from actors.inquiry.asking import Asking
from actors.inquiry.findings import IN_MEMORY, OVER_A_NETWORK, file_system
from actors.release import release
from actors.topology import member_name
from config.schema import Config
from sessions.inquiry_frames import ConnectionsOf, SessionsOf
from shards.queries import Rows

LIVE_PATH: Final = "/health/live"
READY_PATH: Final = "/health/ready"
ANSWER_S: Final = 1.0
CENSUS_S: Final = 1.4
FRESH_S: Final = 0.5
_ON_DISK: Final = ("builtin_local", "rocksdb")
_MEANS: Final = {
    "shard": "sessions and publishers at home there wait until it is back",
    "session": "durable sessions that it works for get nothing until it is back",
    "gateway": "its clients connect again",
    "controller": "clients are served, and nobody begins a process anew that Ray has given up",
}


class Survives(BaseModel):
    """What acknowledged messages of durable sessions survive; null: nobody here can say."""

    process_kill: bool | None
    power_loss: bool | None
    node_loss: bool | None


class LiveAnswer(BaseModel):
    status: Literal["alive"]
    site: str
    version: str


class ReadyAnswer(BaseModel):
    ready: bool
    away: list[str]
    listening: bool
    alarms: int
    survives: Survives
    because: list[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """away: by name, in the order of members.  listening: every gateway has answered a CONNECT.  alarms None: nobody had time to look."""

    away: tuple[str, ...]
    listening: bool
    alarms: int | None


class Health:
    """For one loop.  Life cycle: made -> stopped."""

    def __init__(self, broker: Broker, census: Callable[[], Census] | None = None) -> None:
        self._broker = broker
        self._topology = broker.topology
        self._census = census or (lambda: take_census(broker.topology.data_dir, inside=True))
        self._asking: Asking | None = None
        # Its own: what is asked of the store takes long, and this must not wait.
        self._thread = ThreadPoolExecutor(1, "health")
        self._disk: str | None = None
        self._shared = Shared(self._look, FRESH_S)

    async def ready(self) -> ReadyAnswer:
        seen = await self._shared.get()
        survives, because = survives_what(self._broker.config, self._disk or "")
        ready = not seen.away and seen.listening and seen.alarms is not None
        said = [f"{name} does not answer: {_MEANS[name.rpartition('-')[0]]}" for name in seen.away]
        if seen.alarms is None:
            said.append("the table of processes could not be read in time, so the machine is overloaded")
        elif not seen.away and not seen.listening:
            said.append("every process answers, and not every listener takes a CONNECT")
        return ReadyAnswer(
            ready=ready,
            away=list(seen.away),
            listening=seen.listening,
            alarms=seen.alarms or 0,
            survives=survives,
            because=[*said, *because],
        )

    async def stop(self) -> None:
        if self._asking is not None:
            await self._asking.__aexit__()
            self._asking = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ within

    async def _look(self) -> Seen:
        if self._asking is None:
            # Whoever was away is asked again at once.
            asking = Asking(self._topology, ANSWER_S, away_s=0.0)
            await asking.__aenter__()
            self._asking = asking
        silent, census = await asyncio.gather(silent_ones(self._asking), self._counted())
        members = [member_name(*member) for member in [*self._topology.members(), ("controller", 0)]]
        there = {row.name for row in census.processes} if census is not None else set(members)
        away = tuple(name for name in members if name in silent or name not in there)
        if census is None:
            return Seen(away, False, None)
        return Seen(away, census.listening, len(census.alarms))

    async def _counted(self) -> Census | None:
        counting = asyncio.get_running_loop().run_in_executor(self._thread, self._count)
        done, _ = await asyncio.wait([counting], timeout=CENSUS_S)
        return counting.result() if done else None

    def _count(self) -> Census:
        if self._disk is None:
            self._disk = file_system(self._topology.store_dir)
        return self._census()


async def silent_ones(asking: Asking) -> set[str]:
    """Who has not answered, of those that can be asked over a link; of several sites the leaders of shards, and gateways of this one."""
    topology = asking.topology
    missing: dict[str, None] = {}
    asks: list[Awaitable[Any]] = [asking.rows(shard, Rows([], 0), missing) for shard in range(topology.n_shards)]
    asks += [asking.session(index, SessionsOf(0, []), missing) for index in range(topology.n_sessions)]
    asks += [asking.gateway(name, ConnectionsOf(0, []), missing) for name in asking.own_gateways]
    await asyncio.gather(*asks)
    # A gateway of this site is a member of it under its plain name.
    return {name.partition("@")[0] for name in missing}


def survives_what(config: Config, disk: str) -> tuple[Survives, Sequence[str]]:
    """disk: the kind of file system below the store; empty: nobody knows.  And why, in sentences."""
    backend = config.durable_storage.messages.backend
    one_copy = "there is one copy, on this node: with its disk the store is lost"
    if not config.durable_sessions.enable:
        return Survives(process_kill=False, power_loss=False, node_loss=False), (
            "durable_sessions.enable is false: new sessions live in the memory of a session actor, and end with it",
        )
    if backend == "memory":
        return Survives(process_kill=False, power_loss=False, node_loss=False), (
            "durable_storage.messages.backend is memory: what a shard has stored ends with it",
        )
    if backend not in _ON_DISK:
        return Survives(process_kill=None, power_loss=None, node_loss=None), (
            f"what is acknowledged survives what the backend {backend} says that it survives",
        )
    if disk in IN_MEMORY:
        return Survives(process_kill=True, power_loss=False, node_loss=False), (
            f"the store lies in memory ({disk}): it outlives killed processes, and no power cut",
        )
    if disk in OVER_A_NETWORK:
        return Survives(process_kill=True, power_loss=None, node_loss=None), (
            f"the store lies on {disk}: over a network nobody can say what is on a disk when a sync has returned",
        )
    synced = "a message is acknowledged when it is on disk (fsync), so killed processes and a power cut lose none"
    copies = config.durable_storage.messages.copies
    if copies > 1:
        at = f"at all sites with a copy in sync, {copies // 2 + 1} of {copies} or more: losing a node loses nothing"
        return Survives(process_kill=True, power_loss=True, node_loss=True), (synced, at)
    return Survives(process_kill=True, power_loss=True, node_loss=False), (synced, one_copy)


TAGS: Final[list[str | Enum]] = ["health"]


def add(app: FastAPI, broker: Broker, health: Health) -> None:
    alive = {"status": "alive", "site": broker.topology.site.upper(), "version": release()}

    @app.get(LIVE_PATH, response_model=LiveAnswer, tags=TAGS)
    async def live() -> JSONResponse:
        """Whether the admin process turns; nobody else is asked."""
        return JSONResponse(alive)

    @app.get(READY_PATH, response_model=ReadyAnswer, responses={503: {"model": ReadyAnswer, "description": "Not ready."}}, tags=TAGS)
    async def ready() -> JSONResponse:
        """Whether every process of the broker answers and every listener takes clients, and what survives what."""
        found = await health.ready()
        return JSONResponse(found.model_dump(), 200 if found.ready else 503)
