"""The proxy passes everything as it is, and cuts where it was asked to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lake.proxy import Address, CuttingProxy

ANSWER = bytes(range(256)) * 2000
WAIT_S = 60.0


@contextmanager
def answering(answer: bytes = ANSWER) -> Iterator[Address]:
    """A server that answers one line with ``answer``, for each connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        try:
            while connection.recv(100):
                connection.sendall(answer)
        except OSError:
            pass  # cut
        connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[:2]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def ask(address: Address, wanted: int = len(ANSWER)) -> bytes:
    """What comes until so many bytes are there, or the connection ends."""
    with socket.create_connection(address, WAIT_S) as asking:
        asking.sendall(b"all\n")
        found = b""
        while len(found) < wanted and (data := asking.recv(65536)):
            found += data
        return found


def test_what_is_not_cut_passes_as_it_is() -> None:
    """Several connections, one after the other."""
    with answering() as server, CuttingProxy(lambda: server) as proxy:
        assert [ask(proxy.address) == ANSWER for _ in range(3)] == [True] * 3
        assert proxy.connections == 3 and proxy.cuts == 0


@pytest.mark.parametrize("after", [0, 1, 4, 5, 65535, 65536, 65537, len(ANSWER) - 1])
def test_a_cut_lets_exactly_so_many_bytes_pass(after: int) -> None:
    """And the next connection passes whole."""
    with answering() as server, CuttingProxy(lambda: server) as proxy:
        cut = proxy.cut_after(after)
        assert ask(proxy.address) == ANSWER[:after]
        assert cut.done.is_set() and proxy.cuts == 1
        assert ask(proxy.address) == ANSWER


def test_a_connection_can_be_reset() -> None:
    """The client gets an error and not an end."""
    with answering() as server, CuttingProxy(lambda: server) as proxy:
        proxy.cut_after(10, reset=True)
        with pytest.raises(ConnectionResetError):
            ask(proxy.address)
        assert ask(proxy.address) == ANSWER


def test_bytes_count_from_where_the_cut_was_asked_for() -> None:
    """On a connection that has passed some already."""
    with answering(b"0123456789") as server, CuttingProxy(lambda: server) as proxy:
        with socket.create_connection(proxy.address, WAIT_S) as asking:
            asking.sendall(b"x")
            assert asking.recv(100, socket.MSG_WAITALL)[:1] == b"0"
            proxy.cut_after(3)
            asking.sendall(b"x")
            found = b""
            while data := asking.recv(100):
                found += data
            assert found.endswith(b"012") and len(found) <= 12


def test_a_target_that_is_away_is_a_connection_that_ends() -> None:
    """And when it is back, somewhere else, it is found."""
    with answering() as server:
        where: list[Address | None] = [None]
        with CuttingProxy(lambda: where[0]) as proxy:
            try:
                found = ask(proxy.address)
            except ConnectionResetError:
                found = b""
            assert found == b""
            where[0] = server
            assert ask(proxy.address) == ANSWER


def test_closing_ends_what_is_under_way() -> None:
    """No thread stays."""
    before = threading.active_count()
    with answering(b"0123456789") as server:
        proxy = CuttingProxy(lambda: server)
        with socket.create_connection(proxy.address, WAIT_S) as asking:
            asking.sendall(b"x")
            assert asking.recv(100)
            proxy.close()
            assert asking.recv(100) == b""
    assert threading.active_count() <= before + 1
