"""Who has not proved the secret takes a bounded part of a process, and is no obstacle to who has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.links import LinkClient
from actors.tcp_door import STRANGERS_MAX
from actors.wire import Wire
from tests.actors.links.ends import Ends, wire_of
from tests.actors.links.test_links import SECRET, WITHIN_S, Owner
from tests.listening.authority import Authority

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def strangers(port: int, count: int) -> list[Stream]:
    """They connect, and say nothing."""
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def dismiss(streams: list[Stream]) -> None:
    for _, writer in streams:
        writer.close()
    await asyncio.gather(*[writer.wait_closed() for _, writer in streams], return_exceptions=True)


@pytest.mark.slow
async def test_one_more_than_may_wait_for_their_proof_is_turned_away() -> None:
    """It finds its connection closed, without a byte; links that are up go on, and one that leaves makes room."""
    async with Ends(Wire(SECRET), Wire(SECRET)) as ends:
        await ends.ours.until(1)
        waiting = await strangers(ends.server.ports[0], STRANGERS_MAX)
        async with asyncio.timeout(WITHIN_S):
            # Each has been sent a nonce: all of them are there.
            for reader, _ in waiting:
                await reader.readexactly(4)
            (further,) = await strangers(ends.server.ports[0], 1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await further[0].readexactly(1)
        ends.client.send(b"still here")
        assert (await ends.theirs.until(2))[1] == b"still here"
        await dismiss([further, *waiting])
        other = Owner()
        client = LinkClient(lambda: ends.at, other, Wire(SECRET), "gateway", "gateway-1:c")
        client.start()
        assert await other.until(1) == ["up shard shard-0:a"]
        await client.stop()


@pytest.mark.slow
async def test_nobody_is_accepted_while_so_many_are_in_their_handshake(tmp_path: Path, authority: Authority) -> None:
    """Whoever comes waits in the kernel, and is served when one of them has left."""
    wire = wire_of(tmp_path, authority)
    async with Ends(wire, wire) as ends:
        await ends.ours.until(1)
        waiting = await strangers(ends.server.ports[0], STRANGERS_MAX)
        (door,) = ends.server._doors
        async with asyncio.timeout(WITHIN_S):
            while len(door._shaking) < STRANGERS_MAX:  # noqa: ASYNC110
                await asyncio.sleep(0)
        other = Owner()
        client = LinkClient(lambda: ends.at, other, wire, "gateway", "gateway-1:c")
        client.start()
        for _ in range(100):
            await asyncio.sleep(0)
            assert len(door._shaking) == STRANGERS_MAX
        assert other.heard == []
        await dismiss(waiting[:1])
        assert await other.until(1) == ["up shard shard-0:a"]
        await dismiss(waiting[1:])
        await client.stop()
