"""The links of whoever asks to every process of a running broker, and what becomes of a question that nobody answers.

A process that does not answer in time is away for a while: it is not waited for again with each further question, and every answer names
it (Page.missing).  Of several sites those are asked who lead the shards, and the gateways of all.  Nothing here is numbered or
remembered, so whoever asks may end at any moment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Self, TypeVar

from actors.asking import NotReached, Shards
from actors.endpoints import Endpoint
from actors.link import Link
from actors.links import LinkClient
from actors.sites.following import Following, whereabouts_of
from actors.topology import Topology, member_at, member_name
from actors.wire import Wire
from sessions.inquiry_frames import Ask, Told, decode_told, encode
from shards.frames import DESTROYED, Disconnect, Disconnected
from shards.queries import Ask as ShardAsk
from shards.queries import Rows, RowsFound
from shards.queries import Told as ShardTold
from shards.slots import SlotTable

WITHIN_SECONDS = 5.0
AWAY_SECONDS = 5.0
"""So long a process that has not answered is not asked again."""
ROLE = "admin"
Row = TypeVar("Row")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of an answer that may be long.

    cursor: to ask with for the next ones; empty when these are the last.  missing: processes that did not answer; what they know is not
    in the rows.
    """

    rows: tuple[Row, ...]
    cursor: str = ""
    missing: tuple[str, ...] = ()


class Asking:
    """Life cycle: made -> entered -> left.  For one loop."""

    def __init__(
        self, topology: Topology, within: float = WITHIN_SECONDS, clock: Callable[[], float] = time.monotonic, away_s: float = AWAY_SECONDS
    ) -> None:
        self.topology = topology
        self.slots = SlotTable.initial(topology.n_shards)
        self.shards = Shards(topology, within)
        self._within = within
        self._away_s = away_s
        self._clock = clock
        self._away: dict[str, float] = {}
        self._name = f"{ROLE}-{os.getpid()}:{secrets.token_hex(8)}"
        self._whereabouts = whereabouts_of(topology)
        self._following = Following(self._whereabouts, self._moved)
        self._wire = Wire.of(topology)
        self._sessions = [
            self._peer(member_name("session", index), partial(self._whereabouts.session, index)) for index in range(topology.n_sessions)
        ]
        self._gateways: dict[str, _Asked] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def _peer(self, name: str, where: Callable[[], Endpoint | None]) -> _Asked:
        return _Asked(name, where, self._wire, self._name)

    async def __aenter__(self) -> Self:
        await self.shards.__aenter__()
        for peer in self._sessions:
            peer.start()
        self._know_gateways()
        self._following.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._following.stop()
        for peer in (*self._gateways.values(), *self._sessions):
            await peer.stop()
        await self.shards.__aexit__(*exception)

    def _moved(self) -> None:
        for peer in (*self._sessions, *self._gateways.values()):
            peer.look_again()
        self._know_gateways()

    def _know_gateways(self) -> None:
        known = {self._gateway_at(*site): site for site in sorted(self._whereabouts.gateways())}
        for name in self._gateways.keys() - known.keys():
            stopping = asyncio.get_running_loop().create_task(self._gateways.pop(name).stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
        for name, site in known.items():
            if name not in self._gateways:
                peer = self._gateways[name] = self._peer(name, partial(self._of_gateway, site))
                peer.start()

    def _of_gateway(self, site: tuple[str, int]) -> Endpoint | None:
        return self._whereabouts.gateways().get(site)

    def _gateway_at(self, site: str, index: int) -> str:
        return member_at(self.topology, site, member_name("gateway", index))

    # ------------------------------------------------------------------ who is who

    def home_of(self, client: bytes) -> int:
        return self.slots.shard_of(client)

    @property
    def gateways(self) -> list[str]:
        """The names of all, of all sites; those of a broker that stands alone as its members are called."""
        return list(self._gateways)

    @property
    def own_gateways(self) -> list[str]:
        """Of this site, by index."""
        return [self._gateway_at(self.topology.site, index) for index in range(self.topology.n_gateways)]

    # ------------------------------------------------------------------ asking; None: it is away, and `missing` says so

    async def shard(self, shard: int, ask: ShardAsk, missing: dict[str, None]) -> ShardTold | None:
        return await self._asked(member_name("shard", shard), lambda: self.shards.query(shard, ask), missing)

    async def rows(self, shard: int, ask: Rows, missing: dict[str, None]) -> RowsFound | None:
        told = await self.shard(shard, ask, missing)
        return told if isinstance(told, RowsFound) else None

    async def gateway(self, name: str, ask: Ask, missing: dict[str, None]) -> Told | None:
        """name: as in `gateways`; of one that is not known nothing is said, and with several sites it is missing."""
        peer = self._gateways.get(name)
        if peer is None:
            if self.topology.sites is not None:
                missing[name] = None
            return None
        return await self._asked(name, lambda: peer.ask(ask, self._within), missing)

    async def session(self, index: int, ask: Ask, missing: dict[str, None]) -> Told | None:
        peer = self._sessions[index]
        return await self._asked(member_name("session", index), lambda: peer.ask(ask, self._within), missing)

    async def session_of(self, shard: int, ask: Ask, missing: dict[str, None]) -> Told | None:
        """The session actor that works for this home."""
        return await self.session(self.topology.session_of_shard(shard), ask, missing)

    async def destroy(self, client: bytes, session_id: int) -> bool:
        """End this session, with all that it has; whether it was still there.  Raises NotReached."""
        shard = self.home_of(client)
        reply = await self.shards.ask(shard, Disconnect(client, session_id, DESTROYED, None))
        return isinstance(reply, Disconnected) and not reply.stale

    async def _asked(self, name: str, ask: Callable[[], Awaitable[Answer]], missing: dict[str, None]) -> Answer | None:
        if self._clock() < self._away.get(name, 0.0):
            missing[name] = None
            return None
        try:
            return await ask()
        except NotReached:
            self._away[name] = self._clock() + self._away_s
            missing[name] = None
            return None


class _Asked:
    """A gateway or session actor."""

    def __init__(self, name: str, where: Callable[[], Endpoint | None], wire: Wire, own_name: str) -> None:
        self._name = name
        self._client = LinkClient(where, self, wire, ROLE, own_name)
        self._up = asyncio.Event()
        self._ids = 0
        self._waiting: dict[int, asyncio.Future[Told]] = {}

    def start(self) -> None:
        self._client.start()

    def look_again(self) -> None:
        self._client.look_again()

    async def stop(self) -> None:
        await self._client.stop()

    async def ask(self, ask: Ask, within: float) -> Told:
        """Raises NotReached.  What was asked before the link broke is not asked again."""
        self._ids += 1
        id = self._ids
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        try:
            async with asyncio.timeout(within):
                await self._up.wait()
                self._client.send(encode(ask._replace(id=id)))
                return await future
        except TimeoutError:
            raise NotReached(f"{self._name} does not answer; `holdfast status` says whether it runs") from None
        finally:
            del self._waiting[id]

    # ------------------------------------------------------------------ LinkOwner

    def link_up(self, link: Link) -> None:
        self._up.set()

    def link_down(self, link: Link) -> None:
        self._up.clear()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NotReached(f"{self._name} has ended while it was asked"))

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            told = decode_told(data)
        except ValueError as error:
            link.close(str(error))
            return
        future = self._waiting.get(told.id)
        if future is not None and not future.done():
            future.set_result(told)
