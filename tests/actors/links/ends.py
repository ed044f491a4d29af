"""Both ends of a link over TCP, and what a site proves itself with."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

from actors.endpoints import Endpoint
from actors.links import LinkClient, LinkServer
from actors.topology import SitesPlan
from actors.wire import Wire
from tests.actors.links.test_links import WITHIN_S, Owner
from tests.actors.places import topology_in
from tests.listening.authority import Authority

LOOPBACK = Endpoint(host="127.0.0.1", port=0)


def wire_of(tmp_path: Path, authority: Authority, name: str = "site", days: int = 30, ca: str = "") -> Wire:
    """Of a site whose certificate this authority has signed.  ca: whom it believes instead."""
    issued = authority.issue(name, days=days, file=f"{name}{days}")
    plan = SitesPlan(3, 3, "127.0.0.1", 7400, ca or authority.ca, issued.cert, issued.key)
    return Wire.of(dataclasses.replace(topology_in(tmp_path), sites=plan))


class Ends:
    """A server and one client of it."""

    def __init__(self, server: Wire, client: Wire) -> None:
        self.theirs, self.ours = Owner(), Owner()
        self.server = LinkServer([LOOPBACK], self.theirs, server, "shard", "shard-0:a")
        self.client = LinkClient(lambda: self.at, self.ours, client, "gateway", "gateway-0:b")
        self.at: Endpoint | None = None

    async def __aenter__(self) -> Ends:
        await self.server.start()
        self.at = Endpoint(host="127.0.0.1", port=self.server.ports[0])
        self.client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.stop()
        await self.server.stop()


async def passed(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)
