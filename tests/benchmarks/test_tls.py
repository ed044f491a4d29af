"""The generator's TLS: nothing waits in it that the kernel does not tell of, and a stranger's certificate is refused."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from pathlib import Path

import pytest

from benchmarks.tls import RECORD_BYTES_MAX, TlsSocket, issue


def opened(directory: Path, ca: str = "") -> tuple[TlsSocket, ssl.SSLSocket]:
    """Our end, and the other one with a certificate of its own."""
    shown = issue(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)
    ours, theirs = socket.socketpair()
    served: list[ssl.SSLSocket] = []

    def serve() -> None:
        try:
            served.append(context.wrap_socket(theirs, server_side=True))
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = TlsSocket(ours, "127.0.0.1", ca or shown.cert)
    finally:
        thread.join(10)
    return client, served[0]


def test_all_that_is_readable_is_told_by_the_kernel(tmp_path: Path) -> None:
    """Read only when epoll says so, into a view that never fits two records: every byte comes, and nothing is left behind."""
    client, server = opened(tmp_path)
    wanted = bytes(range(256)) * 4096
    sending = threading.Thread(target=server.sendall, args=(wanted,))
    sending.start()
    client.setblocking(False)
    view, got = memoryview(bytearray(RECORD_BYTES_MAX + 100)), b""
    while len(got) < len(wanted):
        assert select.select([client], [], [], 5)[0], f"{len(got)} of {len(wanted)} bytes"
        try:
            got += view[: client.recv_into(view)]
        except BlockingIOError:
            continue
    sending.join(10)
    assert got == wanted
    with pytest.raises(BlockingIOError):
        client.recv_into(view)
    server.close()
    client.close()


def test_a_full_socket_blocks_and_the_same_is_sent_again(tmp_path: Path) -> None:
    """As with a plain one: BlockingIOError, and what was taken is taken once."""
    client, server = opened(tmp_path)
    client.setblocking(False)
    data, at, got = bytes(range(256)) * 8192, 0, b""
    view = memoryview(data)
    while at < len(data):
        try:
            at += client.send(view[at:])
        except BlockingIOError:
            got += server.recv(1 << 16)
    client.setblocking(True)
    while len(got) < len(data):
        got += server.recv(1 << 16)
    assert got == data
    server.close()
    client.close()


def test_a_broker_with_another_certificate_is_refused(tmp_path: Path) -> None:
    """Its figures would be those of somebody else."""
    stranger = issue(tmp_path / "stranger")
    with pytest.raises(ssl.SSLCertVerificationError):
        opened(tmp_path / "broker", stranger.cert)
