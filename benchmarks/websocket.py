"""A socket of the load generator that speaks WebSocket: MQTT in binary frames, behind the same few calls as a plain one.

Written for the generator alone, like `benchmarks.wire`.  Its masks are zeros, which a server has to take off like any other, so that to
mask costs the generator nothing.
Holds: what `recv` gives are the bytes that the broker put into its frames, whatever pieces these came in; frames are sent whole.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from os import urandom
from struct import Struct
from typing import Final

from benchmarks.wire import Refused

PATH: Final = "/mqtt"
_BINARY, _CLOSE = 0x02, 0x08
_FIN, _MASKED = 0x80, 0x80
_NO_MASK: Final = bytes(4)
_ANSWER_BYTES_MAX: Final = 8_192
_USHORT: Final = Struct(">H")
_ULONG: Final = Struct(">Q")


def frame(data: bytes | memoryview) -> bytes:
    """One binary frame of a client."""
    size = len(data)
    if size < 126:
        head = bytes((_FIN | _BINARY, _MASKED | size))
    elif size <= 0xFFFF:
        head = bytes((_FIN | _BINARY, _MASKED | 126)) + _USHORT.pack(size)
    else:
        head = bytes((_FIN | _BINARY, _MASKED | 127)) + _ULONG.pack(size)
    return b"".join((head, _NO_MASK, data))


class Unframer:
    """Frames of a server in, their payload out."""

    def __init__(self) -> None:
        self.closed = False
        """Its close frame has come; nothing behind it is read."""
        self._held = b""
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Raises Refused for a frame that a broker has no reason to send."""
        data = self._held + data
        found: list[bytes] = []
        at, size = 0, len(data)
        while at < size and not self.closed:
            if not self._left:
                begin = self._head(data, at)
                if begin is None or self.closed:
                    break
                at = begin
            piece = data[at : at + self._left]
            found.append(piece)
            self._left -= len(piece)
            at += len(piece)
        self._held = data[at:]
        return b"".join(found)

    def _head(self, data: bytes, at: int) -> int | None:
        """Where the payload of the frame at `at` begins; None while its head is not whole."""
        if len(data) < at + 2:
            return None
        first, size = data[at], data[at + 1]
        at += 2
        for marker, length in ((126, _USHORT), (127, _ULONG)):
            if size == marker:
                if len(data) < at + length.size:
                    return None
                (self._left,) = length.unpack_from(data, at)
                at += length.size
        if size < 126:
            self._left = size
        if first == _FIN | _CLOSE:
            self.closed = True
        elif first != _FIN | _BINARY:
            raise Refused(f"a WebSocket frame that begins with 0x{first:02x}")
        return at


class WebSocket:
    """What the generator uses of a socket, on one that blocks until `setblocking`."""

    def __init__(self, sock: socket.socket, host: str) -> None:
        """Opens the WebSocket; raises Refused when the other side has none."""
        self._sock = sock
        self._frames = Unframer()
        self._rest = b""
        self._sending = b""
        key = b64encode(urandom(16)).decode()
        sock.sendall(
            f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = sock.recv(4096)
            answer += more
            if not more or len(answer) > _ANSWER_BYTES_MAX:
                raise Refused("no whole answer to the handshake of a WebSocket")
        head, _, rest = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Refused(f"no WebSocket: {head[:80]!r}")
        self._rest = self._frames.feed(rest)

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, wanted: bool) -> None:
        self._sock.setblocking(wanted)

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(frame(data))

    def send(self, data: bytes | memoryview) -> int:
        """All of the data or nothing of it: after BlockingIOError the same has to be given again, since a part of its frame may be out."""
        if not self._sending:
            self._sending = frame(data)
        while self._sending:
            self._sending = self._sending[self._sock.send(self._sending) :]
        return len(data)

    def recv(self, size: int) -> bytes:
        """At most `size` bytes of payload; none: it is over."""
        while not self._rest and not self._frames.closed:
            data = self._sock.recv(size)
            if not data:
                break
            self._rest = self._frames.feed(data)
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def recv_into(self, view: memoryview) -> int:
        found = self.recv(len(view))
        view[: len(found)] = found
        return len(found)

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()
