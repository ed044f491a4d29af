"""Links over real TCP on loopback, with and without TLS: who belongs to the cluster is heard, and what is wrong with others is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from actors.endpoints import Endpoint
from actors.links import LinkClient, LinkServer
from actors.topology import SitesPlan
from actors.wire import Wire
from tests.actors.links.test_links import SECRET, Owner
from tests.actors.places import topology_in
from tests.listening.authority import Authority

LOOPBACK = Endpoint(host="127.0.0.1", port=0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


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


@pytest.mark.parametrize("secure", [False])
async def test_frames_go_both_ways_over_tcp(tmp_path: Path, authority: Authority, secure: bool) -> None:
    """Of any size and in order, with TLS and without."""
    wire = wire_of(tmp_path, authority) if secure else Wire(SECRET)
    frames = [b"", b"x", b"y" * (10 << 20), *(b"%d" % n for n in range(500))]
    async with Ends(wire, wire) as ends:
        assert await ends.ours.until(1) == ["up shard shard-0:a"]
        for frame in frames:
            ends.client.send(frame)
        assert await ends.theirs.until(1 + len(frames)) == ["up gateway gateway-0:b", *frames]
        for frame in frames:
            ends.theirs.links[0].send(frame)
        assert (await ends.ours.until(1 + len(frames)))[1:] == frames
