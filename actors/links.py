"""Both ends of links: who listens for them, and who keeps one to wherever a part is now.

One link is actors.link's, what it proves itself with actors.wire's.  Unix sockets are for processes of one site that never move; TCP
for those of several sites, with TLS where `cluster.tls` is set.  Where parts share a process (`Wire.directory`), who listens at a path
there is linked with directly (actors.direct); those of other processes find the socket at the same path.

Always holds:
1. of two links of a LinkClient one after the other the owner hears link_down of the first before link_up of the second;
2. what is wrong with the other end is logged once by who dials, until it is something else, and sparingly by who listens.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

import structlog

from actors.direct import DirectLink
from actors.endpoints import Endpoint
from actors.fatal import dies_with
from actors.link import FRAME_BYTES_MAX, HANDSHAKE_SECONDS, Carried, F, FramedLink, Link, LinkOwner, taken
from actors.sparing import Sparing
from actors.tcp_door import STRANGERS_MAX, TcpDoor, TurnedAway
from actors.wire import Wire, said_of

RECONNECT_SECONDS = (0.02, 0.5)
CONNECT_SECONDS = 5.0
"""For a connection and its TLS; a machine that is off answers nothing at all."""

log = structlog.get_logger(__name__)


class NotListening(OSError):
    """One sentence: where it was to listen, by which setting, and why it cannot."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class LinkServer:
    """Accepts links at unix socket paths of this node (mode 0600; a stale socket file is replaced) and at TCP ports."""

    def __init__(self, endpoints: Sequence[Endpoint], owner: LinkOwner, wire: Wire, role: str, name: str) -> None:
        self._endpoints = tuple(endpoints)
        self._owner = owner
        self._wire = wire
        self._role = role
        self._name = name
        self._servers: list[asyncio.Server] = []
        self._doors: list[TcpDoor] = []
        self._links: dict[int, Link] = {}
        self._refused = Sparing("link.refused")

    async def start(self) -> None:
        """At all of them or, with NotListening, at none."""
        try:
            for endpoint in self._endpoints:
                await (self._open_unix(endpoint.path) if endpoint.path else self._open_tcp(endpoint))
        except OSError:
            await self._close()
            raise

    async def _open_unix(self, path: str) -> None:
        if os.path.exists(path):
            os.unlink(path)
        self._servers.append(await asyncio.get_running_loop().create_unix_server(self._accept, path))
        os.chmod(path, 0o600)
        if self._wire.directory is not None:
            self._wire.directory.enter(path, self._accept_directly)

    async def _open_tcp(self, endpoint: Endpoint) -> None:
        door = TcpDoor(endpoint, self._wire, self._accept, self._say)
        try:
            await door.open()
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            raise NotListening(f"the {self._role} cannot listen at {endpoint}, which is counted from cluster.listen: {why}") from None
        self._doors.append(door)

    @property
    def ports(self) -> list[int]:
        """Of the endpoints with TCP, in their order, as the system gave them."""
        return [door.port for door in self._doors]

    def _accept(self) -> FramedLink | TurnedAway:
        if sum(not link.peer_name for link in self._links.values()) >= STRANGERS_MAX:
            return TurnedAway()
        return FramedLink(self._owner, self._wire, self._role, self._name, False, self._forget, self._remember)

    def _accept_directly(self, dialling: DirectLink) -> None:
        link = DirectLink(self._owner, self._wire.speaks, self._role, self._name, self._forget)
        self._remember(link)
        dialling.connect(link)

    def _remember(self, link: Link) -> None:
        self._links[link.number] = link

    def _forget(self, link: Link) -> None:
        self._links.pop(link.number, None)
        if not link.peer_name:
            self._say(link.address, link.cause)

    def _say(self, peer: str, cause: str) -> None:
        if cause:
            self._refused.info(time.monotonic_ns() // 1_000_000, role=self._role, peer=peer, cause=cause)

    async def _close(self) -> None:
        for endpoint in self._endpoints:
            if self._wire.directory is not None:
                self._wire.directory.leave(endpoint.path, self._accept_directly)
        for server in self._servers:
            server.close()
        for door in self._doors:
            await door.close()

    async def stop(self) -> None:
        await self._close()
        for link in list(self._links.values()):
            link.close("this process stops")


class LinkClient:
    """Keeps one link to where a part is: dials until it answers, and again whenever it is lost."""

    def __init__(self, where: Callable[[], Endpoint | None], owner: LinkOwner, wire: Wire, role: str, name: str) -> None:
        """where: asked before each dialling; None: nobody knows yet, and it is asked again."""
        self.link: Link | None = None
        self._where = where
        self._owner = owner
        self._wire = wire
        self._role = role
        self._name = name
        self._at: Endpoint | None = None
        self._moved = asyncio.Event()
        self._lost = asyncio.Event()
        self._connecting: asyncio.Timeout | None = None
        self._task: asyncio.Task[None] | None = None
        self.refused = ""
        """Why the last dialling brought no link, with the endpoint, as far as it is known; empty: it did, or there was none."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        dies_with(self._task, "dialling")

    def look_again(self) -> None:
        """Hang up, and dial anew, when where() says another endpoint than the one it is linked with, dials or waits to dial.
        While nobody knows, a link stays as it is: where it leads is still where the part was last."""
        now = self._where()
        if now is None or now == self._at or self._moved.is_set() or self._task is None:
            return
        self._moved.set()
        if self._connecting is not None and not self._connecting.expired():
            self._connecting.reschedule(asyncio.get_running_loop().time())
        elif self.link is not None:
            self.link.close(f"it is at {now} now")

    async def _run(self) -> None:
        wait, longest = RECONNECT_SECONDS
        while True:
            self._moved.clear()
            self._at = self._where()
            began_s = time.monotonic()
            # Who is let in and sent away at once, as by a shard that is being opened, has not been linked: it asks less and less often.
            if self._at is not None and await self._linked(self._at) and time.monotonic() - began_s >= longest:
                wait = RECONNECT_SECONDS[0]
            if self._moved.is_set():
                wait = RECONNECT_SECONDS[0]
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._moved.wait()
            except TimeoutError:
                wait = min(wait * 2, longest)

    async def _linked(self, at: Endpoint) -> bool:
        """From dialling to the loss; whether it was up between them."""
        self._lost.clear()
        link = self._link_directly(at) or await self._link_framed(at)
        if self._moved.is_set():
            link.close("it has moved")
        if not link.lost:
            await self._lost.wait()
        self.link = None
        if link.peer_name:
            self.refused = ""
            return True
        if link.cause and (said := f"{at}: {link.cause}") != self.refused:
            self.refused = said
            log.warning("link.refused", role=self._role, peer=str(at), cause=link.cause)
        return False

    def _link_directly(self, at: Endpoint) -> Link | None:
        """Who listens there in this process; None: nobody."""
        listening = self._wire.directory.found(at.path) if self._wire.directory is not None else None
        if listening is None:
            return None
        # Known before it is connected: its owner may hear link_up, and send, before that returns here.
        self.link = link = DirectLink(self._owner, self._wire.speaks, self._role, self._name, lambda _: self._lost.set())
        listening(link)
        return link

    async def _link_framed(self, at: Endpoint) -> Link:
        self.link = link = FramedLink(self._owner, self._wire, self._role, self._name, True, lambda _: self._lost.set())
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as self._connecting:
                await self._connect(link, at)
        except OSError as error:
            link.cause = link.cause or said_of(error)
            link.abandon("dialling it was given up")
        finally:
            self._connecting = None
        return link

    async def _connect(self, link: FramedLink, at: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        if at.path:
            await loop.create_unix_connection(lambda: link, at.path)
        elif self._wire.client is None:
            await loop.create_connection(lambda: link, at.host, at.port)
        else:
            self._wire.look()
            await loop.create_connection(lambda: link, at.host, at.port, ssl=self._wire.client, ssl_handshake_timeout=HANDSHAKE_SECONDS)

    def send(self, data: bytes) -> None:
        if self.link is not None and self.link.up:
            self.link.send(data)

    def hand_on(self, frame: F, encode: Callable[[F], bytes]) -> None:
        if self.link is not None and self.link.up:
            self.link.hand_on(frame, encode)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self.link is not None:
            self.link.close("this process stops")


__all__ = ["FRAME_BYTES_MAX", "Carried", "Link", "LinkClient", "LinkOwner", "LinkServer", "NotListening", "taken"]
