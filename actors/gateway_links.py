"""All links of a gateway: to every shard and session actor, from and to the other gateways, and from whoever asks about connections.

Of several sites, shards and session actors are where they are led, and gateways are those of all sites; `look_again` takes over what is
known now.  Each pair of gateways is linked once: the later one dials, by site and index.

Always holds: an accepted link of a gateway that is in the list no more is closed, one that is not in it yet is kept: who dials may have
been told earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from actors.endpoints import Endpoint
from actors.link import Carried, Link, taken
from actors.links import LinkClient, LinkServer
from actors.shard_client import ShardClient, ShardListener
from actors.sites.whereabouts import Whereabouts, gateway_listens
from actors.topology import Topology, member_at, member_name
from actors.wire import Wire
from gateway import frames as peer_frames
from gateway.events import Event, FromInquirer, FromPeer, PeerLinked, PeerLost, SessionLinked, SessionLost
from sessions import frames as session_frames
from sessions import inquiry_frames
from sessions.frames import Frame as SessionFrame

Where = Callable[[], Endpoint | None]
Site = tuple[str, int]
"""Of a gateway: site and index."""


class Server(ShardListener, Protocol):
    """What the links are of: actors.gateway."""

    def feed(self, event: Event) -> None: ...

    def from_session(self, session: int, frame: session_frames.Frame) -> None: ...


class GatewayLinks:
    """Life cycle: made -> started -> stopped."""

    def __init__(self, topology: Topology, index: int, whereabouts: Whereabouts, server: Server, name: str) -> None:
        wire = Wire.of(topology)
        shards, sessions = range(topology.n_shards), range(topology.n_sessions)
        self.shards = [ShardClient(i, partial(whereabouts.shard, i), server, wire, "gateway", name) for i in shards]
        self.sessions = [SessionLink(server, i, partial(whereabouts.session, i), wire, name) for i in sessions]
        self.peers = PeerLinks(server)
        self._topology = topology
        self._index = index
        self._whereabouts = whereabouts
        self._wire = wire
        self._name = name
        self._server = LinkServer(gateway_listens(topology, index), self.peers, wire, "gateway", name)
        self._dialled: dict[Site, LinkClient] = {}
        self._known: dict[Site, Endpoint] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._server.start()
        for link in self._clients():
            link.start()
        self._dial_peers()

    def look_again(self) -> None:
        """Somebody is elsewhere than before, or new, or gone."""
        for link in self._clients():
            link.look_again()
        self._dial_peers()

    def _clients(self) -> list[ShardClient | SessionLink | LinkClient]:
        return [*self._dialled.values(), *self.sessions, *self.shards]

    def _dial_peers(self) -> None:
        before, self._known = self._known, dict(self._whereabouts.gateways())
        own = (self._topology.site, self._index)
        for site in before.keys() - self._known.keys():
            client = self._dialled.pop(site, None)
            if client is not None:
                task = asyncio.get_running_loop().create_task(client.stop())
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)
            self.peers.end(f"{_named(self._topology, site)}:", "its site is not one of ours any more")
        for site in sorted(self._known):
            if site < own and site not in self._dialled:
                client = self._dialled[site] = LinkClient(partial(self._of_peer, site), self.peers, self._wire, "gateway", self._name)
                client.start()

    def _of_peer(self, site: Site) -> Endpoint | None:
        return self._known.get(site)

    @property
    def linked(self) -> bool:
        """With every shard and session actor."""
        return all(client.linked for client in self.shards) and all(client.linked for client in self.sessions)

    async def stop(self) -> None:
        for link in self._clients():
            await link.stop()
        await self._server.stop()


def _named(topology: Topology, site: Site) -> str:
    return member_at(topology, site[0], member_name("gateway", site[1]))


class SessionLink:
    """The link to one session actor."""

    def __init__(self, server: Server, session: int, where: Where, wire: Wire, name: str) -> None:
        self._server = server
        self._session = session
        self._client = LinkClient(where, self, wire, "gateway", name)
        self.linked = False

    def start(self) -> None:
        self._client.start()

    def look_again(self) -> None:
        self._client.look_again()

    async def stop(self) -> None:
        await self._client.stop()

    def hand_on(self, frame: SessionFrame) -> None:
        self._client.hand_on(frame, session_frames.encode)

    def link_up(self, link: Link) -> None:
        self.linked = True
        self._server.feed(SessionLinked(self._session))

    def link_frame(self, link: Link, data: Carried) -> None:
        try:
            frame = taken(data, session_frames.decode)
        except ValueError as error:
            link.close(str(error))
            return
        self._server.from_session(self._session, frame)

    def link_down(self, link: Link) -> None:
        self.linked = False
        self._server.feed(SessionLost(self._session))


class PeerLinks:
    """Links from and to the other gateways, and from whoever asks about connections."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._links: dict[int, Link] = {}

    def send(self, link: int, data: bytes) -> None:
        found = self._links.get(link)
        if found is not None:
            found.send(data)

    def end(self, member: str, why: str) -> None:
        """Close the links of this gateway, called so without its incarnation."""
        for link in list(self._links.values()):
            if link.peer_role == "gateway" and link.peer_name.startswith(member):
                link.close(why)

    def link_up(self, link: Link) -> None:
        self._links[link.number] = link
        if link.peer_role == "gateway":
            self._server.feed(PeerLinked(link.number, link.peer_name))

    def link_frame(self, link: Link, data: Carried) -> None:
        try:
            event = (
                FromPeer(link.number, taken(data, peer_frames.decode))
                if link.peer_role == "gateway"
                else FromInquirer(link.number, taken(data, inquiry_frames.decode_ask))
            )
        except ValueError as error:
            link.close(str(error))
            return
        self._server.feed(event)

    def link_down(self, link: Link) -> None:
        del self._links[link.number]
        if link.peer_role == "gateway":
            self._server.feed(PeerLost(link.number))
