"""The links of this site's process with those of all other sites: who is up, and what their replicas say.

A site is up when it is linked with this one and has answered as the site that it is taken for.  Nobody is lost by being silent: that an
operator says (actors.sites.changing).

A question is `[ASK, number]` and its answer `[SAY, number, site, instance, rows of copies]`, msgpack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgpack
import structlog

from actors.endpoints import Endpoint
from actors.links import Link, LinkClient
from actors.sites.copies import CopyStatus
from actors.sites.records import SiteRecord
from actors.wire import Wire

ROLE: Final = "site"
ASK, SAY = 1, 2
PROBE_S: Final = 3.0
"""How long a site at another address has to say that it is this one."""

log = structlog.get_logger(__name__)


class Served:
    """The owner of links that others have dialled: answers their questions."""

    def __init__(self, site: str, instance: str, rows: Callable[[], list[dict[str, Any]]]) -> None:
        self._site = site
        self._instance = instance
        self._rows = rows

    def link_up(self, link: Link) -> None:
        pass

    def link_down(self, link: Link) -> None:
        pass

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            kind, number = msgpack.unpackb(data)
            if kind != ASK:
                raise ValueError(f"kind {kind!r}")
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            link.close(f"a question of a site that is none: {error}")
            return
        link.send(bytes(msgpack.packb([SAY, number, self._site, self._instance, self._rows()])))


class Peer:
    """One other site.  Life cycle: made -> started -> stopped."""

    def __init__(self, record: SiteRecord, wire: Wire, name: str, changed: Callable[[], None]) -> None:
        self.record = record
        self.up = False
        self.instance = ""
        self.copies: list[CopyStatus] = []
        self._changed = changed
        self._asked = 0
        self._said = ""
        self._client = LinkClient(self._where, self, wire, ROLE, name)

    def start(self) -> None:
        self._client.start()

    async def stop(self) -> None:
        await self._client.stop()

    def is_at(self, record: SiteRecord) -> None:
        moved = record.address != self.record.address
        self.record = record
        if moved:
            self._client.look_again()

    @property
    def refused(self) -> str:
        """Why it is not linked, as far as that is known."""
        return "" if self.up else self._client.refused

    @property
    def speaks(self) -> int:
        """The version of its link; 0: there is none."""
        return 0 if self._client.link is None else self._client.link.version

    def ask(self) -> None:
        self._asked += 1
        self._client.send(bytes(msgpack.packb([ASK, self._asked])))

    def _where(self) -> Endpoint:
        return Endpoint(host=self.record.host, port=self.record.port)

    # ------------------------------------------------------------------ LinkOwner

    def link_up(self, link: Link) -> None:
        self.ask()

    def link_down(self, link: Link) -> None:
        self.copies = []
        if self.up:
            self.up = False
            log.warning("site.down", site=self.record.site, address=self.record.address)
            self._changed()

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            kind, _, site, instance, rows = msgpack.unpackb(data)
            if kind != SAY or not isinstance(rows, list):
                raise ValueError(f"kind {kind!r}")
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            link.close(f"an answer of a site that is none: {error}")
            return
        if site != self.record.site:
            if self._said != site:
                self._said = site
                log.error("site.is_another", site=self.record.site, address=self.record.address, found=site)
            return
        self.instance = instance
        self.copies = [found for row in rows if (found := CopyStatus.of(row)) is not None]
        if not self.up:
            self.up = True
            log.info("site.up", site=site, address=self.record.address)
            self._changed()


class Peers:
    """All other sites that the register knows."""

    def __init__(self, here: str, wire: Wire, name: str, changed: Callable[[], None]) -> None:
        """changed: told when one comes up or goes down."""
        self._here = here
        self._wire = wire
        self._name = name
        self._changed = changed
        self._peers: dict[str, Peer] = {}

    def up(self) -> frozenset[str]:
        return frozenset(site for site, peer in self._peers.items() if peer.up)

    def refused(self, site: str) -> str:
        """Why this one is not up, with its address, as far as that is known; one sentence."""
        peer = self._peers.get(site)
        return "" if peer is None else peer.refused

    def speaks(self, site: str) -> int:
        """The version of the link with this one; 0: there is none."""
        peer = self._peers.get(site)
        return 0 if peer is None else peer.speaks

    def copies(self) -> list[CopyStatus]:
        """As they said last, of those that are up."""
        return [copy for peer in self._peers.values() for copy in peer.copies]

    def know(self, sites: Mapping[str, SiteRecord]) -> list[Peer]:
        """Dial who is new, and who has moved anew; those that are no more, to be stopped."""
        for site, record in sites.items():
            if site == self._here:
                continue
            if (peer := self._peers.get(site)) is not None:
                peer.is_at(record)
            else:
                peer = self._peers[site] = Peer(record, self._wire, self._name, self._changed)
                peer.start()
        return [self._peers.pop(site) for site in list(self._peers) if site not in sites]

    def ask(self) -> None:
        for peer in self._peers.values():
            peer.ask()

    async def stop(self) -> None:
        await stop_all(self._peers.values())


async def stop_all(peers: Iterable[Peer]) -> None:
    await asyncio.gather(*[peer.stop() for peer in peers])


async def probe(record: SiteRecord, wire: Wire, name: str, within_s: float = PROBE_S) -> str:
    """The instance of the process that answers as this site at this address; empty: none does."""
    answered = asyncio.Event()
    peer = Peer(record, wire, name, answered.set)
    peer.start()
    try:
        async with asyncio.timeout(within_s):
            await answered.wait()
        return peer.instance
    except TimeoutError:
        return ""
    finally:
        await peer.stop()
