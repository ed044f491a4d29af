"""Peers that do not read, and peers that are gone while we do not read them: with sockets, on one loop."""

from __future__ import annotations

import asyncio
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable

import pytest

from actors.connection import SLOW_FACTOR, ClientConnection
from actors.listening.arrival import Arrival
from actors.listening.options import DoorOptions
from gateway.persisting import joins
from gateway.transport.limits import Limits
from mqtt.blocks import PropertyBlocks
from mqtt.packets import Item

BOUND = 64 << 10
WITHIN_S = 60


class Owner:
    """Knows its one connection, and what became of it."""

    connect_bytes_max = 1 << 20
    filters_max = user_properties_max = 10
    topic_levels_max = 8
    write_buffer_max = BOUND
    bytes_received = 0

    def __init__(self) -> None:
        self.property_blocks = PropertyBlocks(joins)
        self.connection: ClientConnection | None = None
        self.full: list[bool] = []
        self.ends: list[str] = []
        self.items = 0

    def opened(self, connection: ClientConnection) -> None:
        self.connection = connection

    def received(self, connection: ClientConnection, items: list[Item]) -> None:
        self.items += len(items)

    def malformed(self, connection: ClientConnection, code: int, detail: str) -> None:
        self.ends.append(detail)

    def lost(self, connection: ClientConnection, why: str) -> None:
        self.ends.append(why)

    def congested(self, connection: ClientConnection, full: bool) -> None:
        self.full.append(full)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110  # what is waited for happens in a transport
            await asyncio.sleep(0.001)


async def until_noticed(owner: Owner, look: Callable[[], None]) -> None:
    """Looked for again and again, as a gateway does: the kernel may say a moment later that a peer is gone."""

    def noticed() -> bool:
        look()
        return bool(owner.ends)

    await until(noticed)


@pytest.fixture
async def met() -> AsyncIterator[tuple[Owner, socket.socket]]:
    """An owner, and the client at the other end of its connection."""
    owner = Owner()
    arrival = Arrival(DoorOptions("tcp", "tcp", Limits(1)), "a client", "127.0.0.1", True, 0)
    server = await asyncio.get_running_loop().create_server(lambda: ClientConnection(owner, 1, arrival, lambda _: None), "127.0.0.1", 0)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(server.sockets[0].getsockname())
    await until(lambda: owner.connection)
    yield owner, client
    client.close()
    server.close()


async def test_a_client_that_does_not_read_is_not_read_and_then_cut_off(met: tuple[Owner, socket.socket]) -> None:
    """Above the bound it gets no QoS 0 and is not read; at eight times the bound it is closed."""
    owner, client = met
    connection = owner.connection
    assert connection is not None
    while not owner.full:
        connection.write(bytes(BOUND))
    assert owner.full == [True] and owner.ends == []
    client.send(bytes.fromhex("100d 0004 4d515454 04 02 003c 0001 63"))
    for _ in range(SLOW_FACTOR + 2):
        connection.write(bytes(BOUND))
    assert len(owner.ends) == 1 and "a client that does not read" in owner.ends[0]
    await asyncio.sleep(0.05)
    assert owner.items == 0 and len(owner.ends) == 1


async def test_one_packet_may_be_larger_than_what_may_wait(met: tuple[Owner, socket.socket]) -> None:
    """However large, and more than the kernel takes at once: it is what comes behind it that is too much."""
    owner, client = met
    connection = owner.connection
    assert connection is not None
    large = 256 * BOUND
    connection.write(bytes(large))
    loop, got = asyncio.get_running_loop(), 0
    client.setblocking(False)
    while got < large:
        data = await loop.sock_recv(client, 1 << 16)
        assert data, f"it was cut off: {owner.ends}"
        got += len(data)
    assert owner.ends == []


async def test_a_peer_that_is_gone_while_it_is_not_read_is_noticed(met: tuple[Owner, socket.socket]) -> None:
    """Nobody tells a loop that does not read; the kernel knows."""
    owner, client = met
    connection = owner.connection
    assert connection is not None
    connection.read(False)
    connection.look()
    await asyncio.sleep(0.01)
    assert owner.ends == [], "one that is there is left alone"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await until_noticed(owner, connection.look)
    assert owner.ends == ["closed by the peer"]


@pytest.mark.parametrize("politely", [True, False])
async def test_a_peer_that_has_to_be_there_is_looked_for(met: tuple[Owner, socket.socket], politely: bool) -> None:
    """While it is not read: whatever it had sent, and however it went.  One that is there is left alone."""
    owner, client = met
    connection = owner.connection
    assert connection is not None
    connection.read(False)
    client.sendall(bytes.fromhex("100d 0004 4d515454 04 02 003c 0001 63"))
    connection.look_for_end()
    await asyncio.sleep(0.01)
    assert owner.ends == []
    if not politely:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await until_noticed(owner, connection.look_for_end)
    assert len(owner.ends) == 1 and owner.items == 0


async def test_a_peer_that_said_that_it_sends_no_more_may_have_sent_something_before(met: tuple[Owner, socket.socket]) -> None:
    """What waits in its socket is read, and then it is gone."""
    owner, client = met
    connection = owner.connection
    assert connection is not None
    connection.read(False)
    client.sendall(bytes.fromhex("100d 0004 4d515454 04 02 003c 0001 63"))
    client.close()
    await asyncio.sleep(0.05)
    connection.look()
    await asyncio.sleep(0.01)
    assert owner.ends == []
    connection.read(True)
    await until(lambda: owner.ends)
    assert owner.items == 1


async def test_a_connection_that_both_sides_have_closed_is_not_held_until_it_would_be_cut_off() -> None:
    """With many who are refused that would be all who came within those seconds."""

    class Told:
        def __call__(self, _: Arrival) -> None:
            pass

    owner, watched = Owner(), []

    def made() -> ClientConnection:
        told = Told()
        watched.append(weakref.ref(told))
        return ClientConnection(owner, 1, Arrival(DoorOptions("tcp", "tcp", Limits(1)), "a client", "127.0.0.1", True, 0), told)

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        await until(lambda: owner.connection)
        assert owner.connection is not None
        owner.connection.close()
        owner.connection = None
    await until(lambda: watched[0]() is None)
    server.close()
