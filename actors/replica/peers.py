"""Messages between the copies of a shard, over links: each dials every other one it speaks to, and speaks on what it has dialled.

A message is one frame or several: a byte that says whether more follows, and a part of it.  So a record of any size gets through, and
nothing behind it waits longer than it must.  What does not get through is lost: replicas ask again.

Always holds: a message to one copy is not given to another on the same site; parts of two messages of one link are never mixed; at most
QUEUED_BYTES_MAX wait for each site, or one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from actors.endpoints import Endpoint
from actors.links import Link, LinkClient
from actors.wire import Wire
from shards.replication.configuration import Rid, site_of
from shards.replication.entry import PAYLOAD_BYTES_MAX
from shards.replication.messages import BadMessage, Message, pack, unpack

ROLE = "replica"
PART_BYTES = 4 << 20
UNSENT_BYTES_MAX = 16 << 20
"""In the buffers of a socket; the next part waits until there is less."""
QUEUED_BYTES_MAX = 128 << 20
PUMP_S = 0.005
_MORE, _LAST = b"\x00", b"\x01"
_MESSAGE_BYTES_MAX = PAYLOAD_BYTES_MAX + (1 << 20)


class Peers:
    """where: of the process with the copy of this shard on a site; None: not known now."""

    def __init__(self, rid: Rid, where: Callable[[str], Endpoint | None], wire: Wire) -> None:
        self._rid = rid
        self._where = where
        self._wire = wire
        self._sites: dict[str, _Peer] = {}

    def send(self, to: Rid, message: Message) -> None:
        site = site_of(to)
        peer = self._sites.get(site)
        if peer is None:
            peer = self._sites[site] = _Peer(self._rid, partial(self._where, site), self._wire)
        peer.send(to, message)

    def look_again(self) -> None:
        """Somebody may be elsewhere now."""
        for peer in self._sites.values():
            peer.client.look_again()

    async def stop(self) -> None:
        for peer in self._sites.values():
            await peer.stop()
        self._sites.clear()


class _Peer:
    def __init__(self, rid: Rid, where: Callable[[], Endpoint | None], wire: Wire) -> None:
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._timer: asyncio.TimerHandle | None = None
        self.client = LinkClient(where, self, wire, ROLE, rid)
        self.client.start()

    def send(self, to: Rid, message: Message) -> None:
        link = self.client.link
        if link is None or not link.up or link.peer_name != to:
            return
        data = pack(message)
        if self._queue and self._queued + len(data) > QUEUED_BYTES_MAX:
            return
        for at in range(0, len(data), PART_BYTES):
            part = data[at : at + PART_BYTES]
            self._queue.append((_LAST if at + PART_BYTES >= len(data) else _MORE) + part)
            self._queued += len(part) + 1
        if self._timer is None:
            self._pump()

    async def stop(self) -> None:
        self._forget()
        await self.client.stop()

    def _pump(self) -> None:
        self._timer = None
        link = self.client.link
        if link is None:
            return
        while self._queue and link.unsent_bytes < UNSENT_BYTES_MAX:
            frame = self._queue.popleft()
            self._queued -= len(frame)
            link.send(frame)
        if self._queue:
            self._timer = asyncio.get_running_loop().call_later(PUMP_S, self._pump)

    def _forget(self) -> None:
        """What was on its way is lost with its link."""
        self._queue.clear()
        self._queued = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- the link

    def link_up(self, link: Link) -> None:
        self._forget()

    def link_frame(self, link: Link, data: bytes) -> None:
        link.close("a replica answers on the link that it has dialled itself")

    def link_down(self, link: Link) -> None:
        self._forget()


class Incoming:
    """What other copies say, on the links that they have dialled."""

    def __init__(self, received: Callable[[Rid, Message], None]) -> None:
        self._received = received
        self._parts: dict[int, list[bytes]] = {}

    def link_up(self, link: Link) -> None:
        self._parts[link.number] = []

    def link_frame(self, link: Link, data: bytes) -> None:
        parts = self._parts[link.number]
        parts.append(data[1:])
        if data[:1] == _MORE:
            if sum(map(len, parts)) > _MESSAGE_BYTES_MAX:
                link.close(f"a message of more than {_MESSAGE_BYTES_MAX} bytes")
            return
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        try:
            message = unpack(whole)
        except BadMessage as error:
            link.close(str(error))
            return
        self._received(Rid(link.peer_name), message)

    def link_down(self, link: Link) -> None:
        self._parts.pop(link.number, None)

    def has(self, link: Link) -> bool:
        return link.number in self._parts
