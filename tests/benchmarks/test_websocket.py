"""The generator's WebSocket, against a server protocol that is not ours."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from benchmarks.websocket import Unframer, WebSocket
from benchmarks.wire import Refused

YES = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


def opened() -> tuple[WebSocket, socket.socket, ServerProtocol]:
    """Our end, the other end of its socket, and the server there."""
    ours, theirs = socket.socketpair()
    theirs.sendall(YES)
    web = WebSocket(ours, "localhost")
    server = ServerProtocol(subprotocols=[Subprotocol("mqtt")])
    server.receive_data(theirs.recv(65_536))
    (request,) = server.events_received()
    assert isinstance(request, Request)
    response = server.accept(request)
    assert (response.status_code, response.headers["Sec-WebSocket-Protocol"]) == (101, "mqtt")
    server.send_response(response)
    server.data_to_send()
    return web, theirs, server


def payload(server: ServerProtocol) -> bytes:
    """Of the binary frames that have come."""
    return b"".join([bytes(frame.data) for frame in server.events_received() if isinstance(frame, Frame)])


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536])
def test_what_is_sent_comes_out_of_its_frame(size: int) -> None:
    """Of each way to write a length."""
    web, theirs, server = opened()
    data = bytes(size - 1) + b"x"
    web.sendall(data)
    web.close()
    while more := theirs.recv(1 << 20):
        server.receive_data(more)
    assert payload(server) == data
    theirs.close()


def test_what_did_not_fit_is_sent_whole_by_the_next_try() -> None:
    """Frames of a full socket do not mix, and nothing of them is sent twice."""
    web, theirs, server = opened()
    web.setblocking(False)
    theirs.setblocking(False)
    wanted = b""
    for number in range(8):
        data = bytes([number]) * 100_000
        while True:
            try:
                assert web.send(data) == len(data)
                break
            except BlockingIOError:
                server.receive_data(theirs.recv(1 << 20))
        wanted += data
    web.close()
    while more := theirs.recv(1 << 20):
        server.receive_data(more)
    assert payload(server) == wanted
    theirs.close()


@given(st.lists(st.integers(0, 70_000), max_size=4), st.lists(st.integers(1, 40_000), min_size=1, max_size=5))
def test_what_comes_is_the_payload_whatever_the_pieces(sizes: list[int], cuts: list[int]) -> None:
    """Heads, and frames, cut anywhere."""
    wanted = stream = b""
    for number, size in enumerate(sizes):
        data = bytes([number + 1]) * size
        wanted += data
        stream += Frame(Opcode.BINARY, data).serialize(mask=False)
    unframer, found = Unframer(), b""
    while stream:
        cut = cuts[len(found) % len(cuts)]
        found += unframer.feed(stream[:cut])
        stream = stream[cut:]
    assert found == wanted


def test_the_end_is_the_end_of_a_socket() -> None:
    """A close frame: what came before it is read, and then there is nothing."""
    web, theirs, server = opened()
    server.send_binary(b"last")
    server.send_close(1000)
    theirs.sendall(b"".join(server.data_to_send()))
    assert (web.recv(100), web.recv(100)) == (b"last", b"")
    web.close()
    theirs.close()


def test_who_is_no_websocket_is_refused() -> None:
    """Another answer than 101, none, and frames of other kinds."""
    for answer in (b"HTTP/1.1 404 Not Found\r\n\r\n", b"", b"\x20\x02\x00\x00"):
        ours, theirs = socket.socketpair()
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(Refused):
            WebSocket(ours, "localhost")
        ours.close()
        theirs.close()
    with pytest.raises(Refused, match="0x81"):
        Unframer().feed(Frame(Opcode.TEXT, b"text").serialize(mask=False))
