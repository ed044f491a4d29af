"""One client's connection over real sockets: how it ends."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

import actors.connection
from actors.connection import ClientConnection
from actors.listening.arrival import Arrival
from actors.listening.options import DoorOptions
from gateway.persisting import joins
from gateway.transport.limits import Limits
from mqtt.blocks import PropertyBlocks
from mqtt.packets import Item

CONNECT = bytes.fromhex("100e 0004 4d515454 05 02 003c 00 0001 63")
PUBLISH = b"\x30\x07\x00\x01t\x00xyz"
DISCONNECT = b"\xe0\x01\x8e"
WITHIN_S = 60.0


class Owner:
    """Closes a connection with a DISCONNECT when its CONNECT has come."""

    bytes_received = 0
    connect_bytes_max = 1 << 20
    filters_max = 1
    topic_levels_max = 8
    user_properties_max = 1
    write_buffer_max = 1 << 20

    def __init__(self) -> None:
        self.property_blocks = PropertyBlocks(joins)
        self.items = 0
        self.ends: list[str] = []
        self.closes = asyncio.Event()

    def opened(self, connection: ClientConnection) -> None:
        pass

    def received(self, connection: ClientConnection, items: list[Item]) -> None:
        self.items += len(items)
        connection.write(DISCONNECT)
        connection.close()
        self.closes.set()

    def malformed(self, connection: ClientConnection, code: int, detail: str) -> None:
        self.ends.append(f"{code:#04x} {detail}")

    def lost(self, connection: ClientConnection, why: str) -> None:
        self.ends.append(why)

    def congested(self, connection: ClientConnection, full: bool) -> None:
        pass


@pytest.fixture
async def owner_at(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Owner, int]]:
    # Nobody is cut off because the machine stood still.
    monkeypatch.setattr(actors.connection, "CLOSE_FLUSH_SECONDS", WITHIN_S)
    owner = Owner()
    arrival = Arrival(DoorOptions("tcp", "tcp", Limits(1)), "a client", "127.0.0.1", True, 0)
    server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(owner, 1, arrival, print), "127.0.0.1", 0)
    yield owner, server.sockets[0].getsockname()[1]
    server.close()


async def test_the_reason_for_a_close_reaches_a_client_that_is_sending(owner_at: tuple[Owner, int]) -> None:
    """What it has sent behind the last packet that was taken is no reason for a reset, which would take the DISCONNECT with it."""
    owner, port = owner_at
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(CONNECT)
        await asyncio.wait_for(owner.closes.wait(), WITHIN_S)
        for _ in range(50):
            client.sendall(PUBLISH * 200)
            await asyncio.sleep(0.001)
        taken = owner.items
        client.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + WITHIN_S
        got = b""
        client.setblocking(False)
        while not got.endswith(DISCONNECT) and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
            try:
                got += client.recv(4096)
            except BlockingIOError:
                continue
        assert got == DISCONNECT
        assert (owner.items, owner.ends) == (taken, []), "a connection that we close takes nothing more and is not lost"


async def test_a_packet_of_too_many_filters_is_refused_by_its_connection(owner_at: tuple[Owner, int]) -> None:
    """The bound of the owner counts, and its core is told with what code the connection ends."""
    owner, port = owner_at
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(CONNECT + bytes.fromhex("820b 0001 00 0001 61 00 0001 62 00"))
        await asyncio.wait_for(owner.closes.wait(), WITHIN_S)
        assert owner.ends == ["0x97 SUBSCRIBE 1 names more than 1 topic filters"]
