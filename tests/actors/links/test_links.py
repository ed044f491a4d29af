"""Links over real unix sockets: who proved the secret is heard, in order and whole; nobody else is."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from actors.endpoints import Endpoint
from actors.link import FRAME_BYTES_MAX, FramedLink
from actors.links import RECONNECT_SECONDS, Link, LinkClient, LinkServer
from actors.wire import Wire

SECRET = b"s" * 32
WIRE = Wire(SECRET)
WITHIN_S = 60.0
TICK_S = 0.001
"""Uvloop counts in whole milliseconds, so it may wait for up to one less than it was told: 0.0192 s of 0.02 were seen."""


class Owner:
    """Writes down what it hears, and answers nothing."""

    def __init__(self) -> None:
        self.heard: list[str | bytes] = []
        self.links: list[Link] = []
        self.changed = asyncio.Event()

    def link_up(self, link: Link) -> None:
        self.links.append(link)
        self._note(f"up {link.peer_role} {link.peer_name}")

    def link_frame(self, link: Link, data: bytes) -> None:
        self._note(data)

    def link_down(self, link: Link) -> None:
        self._note("down")

    def _note(self, what: str | bytes) -> None:
        self.heard.append(what)
        self.changed.set()

    async def until(self, count: int) -> list[str | bytes]:
        """Wait until so much was heard."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.heard) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.heard


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "l.sock")


@pytest.fixture
async def server(path: str) -> AsyncIterator[Owner]:
    owner = Owner()
    listening = LinkServer([Endpoint(path)], owner, WIRE, "shard", "shard-0:a")
    await listening.start()
    yield owner
    await listening.stop()


async def test_both_ends_hear_who_the_other_is_then_its_frames_then_its_end(path: str, server: Owner) -> None:
    """Up before the first frame, down after the last, once each; frames of any size, in order."""
    ours = Owner()
    client = LinkClient(lambda: Endpoint(path), ours, WIRE, "gateway", "gateway-0:b")
    client.start()
    assert await ours.until(1) == ["up shard shard-0:a"]
    await server.until(1)
    frames = [b"", b"x", b"y" * 300_000, *(b"%d" % n for n in range(500))]
    for frame in frames:
        client.send(frame)
    server.links[0].send(b"back")
    assert await server.until(1 + len(frames)) == ["up gateway gateway-0:b", *frames]
    assert (await ours.until(2))[1:] == [b"back"]
    await client.stop()
    assert (await server.until(2 + len(frames)))[-1] == "down"
    assert (await ours.until(3))[2:] == ["down"]


async def test_a_client_dials_until_there_is_a_server_and_again_when_it_was_lost(path: str) -> None:
    """Nobody has to be started before the other; a stale socket file is in nobody's way."""
    ours = Owner()
    client = LinkClient(lambda: Endpoint(path), ours, WIRE, "gateway", "gateway-0:b")
    client.start()
    for life in range(2):
        theirs = Owner()
        server = LinkServer([Endpoint(path)], theirs, WIRE, "shard", f"shard-0:{life}")
        await server.start()
        assert (await ours.until(1 + 2 * life))[-1] == f"up shard shard-0:{life}"
        await theirs.until(1)
        await server.stop()
        await ours.until(2 + 2 * life)
        assert Path(path).exists()
    await client.stop()
    assert len({link.number for link in ours.links}) == 2


class Doorkeeper(Owner):
    """Lets everybody in and sends them away at once."""

    def __init__(self) -> None:
        super().__init__()
        self.came_s: list[float] = []

    def link_up(self, link: Link) -> None:
        super().link_up(link)
        self.came_s.append(time.monotonic())
        link.close("not now")


async def test_who_is_sent_away_each_time_asks_less_and_less_often(path: str) -> None:
    """A shard that is being opened has something else to do."""
    theirs, ours = Doorkeeper(), Owner()
    server = LinkServer([Endpoint(path)], theirs, WIRE, "shard", "shard-0:a")
    await server.start()
    client = LinkClient(lambda: Endpoint(path), ours, WIRE, "gateway", "gateway-0:b")
    client.start()
    await theirs.until(8)
    await client.stop()
    await server.stop()
    first, second, third = (later - sooner for sooner, later in pairwise(theirs.came_s[:4]))
    for waited, times in ((first, 1), (second, 2), (third, 4)):
        assert waited > times * RECONNECT_SECONDS[0] - TICK_S


@pytest.mark.parametrize("wrong", [b"t" * 32, b""])
async def test_whoever_does_not_know_the_secret_is_not_heard_and_hears_nothing(path: str, server: Owner, wrong: bytes) -> None:
    """Neither end takes the other for up, whatever is sent behind the failed proof."""
    ours = Owner()
    reader, writer = await asyncio.open_unix_connection(path)
    lost = asyncio.Event()
    link = FramedLink(ours, Wire(wrong), "gateway", "liar", True, lambda _: lost.set())
    await asyncio.get_running_loop().create_unix_connection(lambda: link, path)
    async with asyncio.timeout(WITHIN_S):
        await lost.wait()
    # Somebody who skips the proof altogether.
    for frame in (b"\x91\xc4\x01x", b"\x93\xa7gateway\xa1x\xc4\x01x", b"let me in"):
        writer.write(struct.pack(">I", len(frame)) + frame)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(1 << 16)
    writer.close()
    assert ours.heard == [] and server.heard == []


async def test_a_frame_longer_than_allowed_ends_the_link_before_it_is_buffered(path: str, server: Owner) -> None:
    """The length alone is enough."""
    ours = Owner()
    client = LinkClient(lambda: Endpoint(path), ours, WIRE, "gateway", "gateway-0:b")
    client.start()
    await server.until(1)
    assert isinstance(client.link, FramedLink) and client.link._transport is not None
    client.link._transport.write(struct.pack(">I", FRAME_BYTES_MAX + 1))
    assert (await server.until(2))[1:2] == ["down"]
    await client.stop()


async def test_the_socket_is_for_this_user_alone(path: str, server: Owner) -> None:
    """The proof is the second lock; this is the first."""
    assert Path(path).stat().st_mode & 0o777 == 0o600
