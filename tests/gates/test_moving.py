"""The relay that moves clients between gateways: each connection of a client goes to another one, byte for byte."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.broker import wire
from tests.broker.wire import Version
from tests.gates.moving import Moving, client_id_of


def connect(version: Version, client: str) -> bytes:
    return wire.connect(version, client, clean=False, keep_alive_s=10, expiry_s=60, receive_maximum=5)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("client", ["", "c", "c" * 300])
def test_the_client_id_is_read_when_all_of_it_is_there(version: Version, client: str) -> None:
    """Whatever comes behind it; a packet that is no CONNECT has none."""
    packet = connect(version, client)
    assert [client_id_of(packet[:at]) for at in range(len(packet))] == [None] * len(packet)
    assert client_id_of(packet + b"\xc0\x00") == client.encode()
    assert client_id_of(b"\xc0\x00") == b"" and client_id_of(b"\xff" * 9) == b""


async def test_a_client_never_comes_to_the_same_gateway_twice_in_a_row() -> None:
    """Newcomers are spread; bytes go through both ways, and the end of one side is the end of the other."""
    came: list[tuple[int, bytes]] = []

    async def accepted(index: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        came.append((index, client_id_of(data) or b"nobody"))
        writer.write(data)
        writer.close()

    servers = [await asyncio.start_server(partial(accepted, index), "127.0.0.1", 0) for index in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    async with Moving(lambda: ports) as moving:
        for client in ("a", "b", "a", "a", "", "b"):
            reader, writer = await asyncio.open_connection("127.0.0.1", moving.port)
            sent = connect(5, client) + b"more"
            writer.write(sent)
            writer.write_eof()
            assert await reader.read() == sent
            writer.close()
        assert (moving.connections, moving.moves) == (6, 3)
    for server in servers:
        server.close()
    assert came == [(0, b"a"), (1, b"b"), (1, b"a"), (0, b"a"), (0, b"nobody"), (0, b"b")]
