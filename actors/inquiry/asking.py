"""The links of whoever asks to every process of a running broker, and what becomes of a question that nobody answers.

A process that does not answer in time is away for a while: it is not waited for again with each further question, and every answer names
it (Page.missing).  Nothing here is numbered or remembered, so whoever asks may end at any moment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from actors.asking import NotReached, Shards
from actors.endpoints import Endpoint
from actors.links import Link, LinkClient
from actors.topology import Topology, member_name
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
        name = f"{ROLE}-{os.getpid()}:{secrets.token_hex(8)}"
        wire = Wire.of(topology)
        self._gateways = [
            _Asked(member_name("gateway", index), Endpoint(topology.gateway_endpoint(index)), wire, name)
            for index in range(topology.n_gateways)
        ]
        self._sessions = [
            _Asked(member_name("session", index), Endpoint(topology.session_endpoint(index)), wire, name)
            for index in range(topology.n_sessions)
        ]

    async def __aenter__(self) -> Self:
        await self.shards.__aenter__()
        for peer in (*self._gateways, *self._sessions):
            peer.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for peer in (*self._gateways, *self._sessions):
            await peer.stop()
        await self.shards.__aexit__(*exception)

    # ------------------------------------------------------------------ who is who

    def home_of(self, client: bytes) -> int:
        return self.slots.shard_of(client)

    @property
    def n_gateways(self) -> int:
        return len(self._gateways)

    # ------------------------------------------------------------------ asking; None: it is away, and `missing` says so

    async def shard(self, shard: int, ask: ShardAsk, missing: dict[str, None]) -> ShardTold | None:
        return await self._asked(member_name("shard", shard), lambda: self.shards.query(shard, ask), missing)

    async def rows(self, shard: int, ask: Rows, missing: dict[str, None]) -> RowsFound | None:
        told = await self.shard(shard, ask, missing)
        return told if isinstance(told, RowsFound) else None

    async def gateway(self, index: int, ask: Ask, missing: dict[str, None]) -> Told | None:
        return await self._peer(self._gateways, "gateway", index, ask, missing)

    async def session(self, index: int, ask: Ask, missing: dict[str, None]) -> Told | None:
        return await self._peer(self._sessions, "session", index, ask, missing)

    async def session_of(self, shard: int, ask: Ask, missing: dict[str, None]) -> Told | None:
        """The session actor that works for this home."""
        return await self.session(self.topology.session_of_shard(shard), ask, missing)

    async def destroy(self, client: bytes, session_id: int) -> bool:
        """End this session, with all that it has; whether it was still there.  Raises NotReached."""
        shard = self.home_of(client)
        reply = await self.shards.ask(shard, Disconnect(client, session_id, DESTROYED, None))
        return isinstance(reply, Disconnected) and not reply.stale

    async def _peer(self, peers: Sequence[_Asked], role: str, index: int, ask: Ask, missing: dict[str, None]) -> Told | None:
        if not 0 <= index < len(peers):
            return None
        return await self._asked(f"{role}-{index}", lambda: peers[index].ask(ask, self._within), missing)

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

    def __init__(self, name: str, at: Endpoint, wire: Wire, own_name: str) -> None:
        self._name = name
        self._client = LinkClient(lambda: at, self, wire, ROLE, own_name)
        self._up = asyncio.Event()
        self._ids = 0
        self._waiting: dict[int, asyncio.Future[Told]] = {}

    def start(self) -> None:
        self._client.start()

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
