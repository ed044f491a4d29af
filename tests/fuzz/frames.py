"""MQTT's bytes in WebSocket frames as a client sends them, and out of those that a server sends.

Knows nothing of gateway.transport, which is what is tried.
"""

from __future__ import annotations

import struct
from random import Random

BINARY, CONTINUATION, PING = 2, 0, 9
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def frame(payload: bytes, opcode: int = BINARY, *, last: bool = True, mask: bytes = b"\x37\xfa\x21\x3d") -> bytes:
    head = bytes((opcode | (0x80 if last else 0),))
    if len(payload) < 126:
        head += bytes((0x80 | len(payload),))
    elif len(payload) < 1 << 16:
        head += b"\xfe" + struct.pack(">H", len(payload))
    else:
        head += b"\xff" + struct.pack(">Q", len(payload))
    return head + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    over = mask * (size // 4) + mask[: size % 4]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(over, "big")).to_bytes(size, "big")


def framed(data: bytes, rng: Random) -> bytes:
    """In one frame, in several, or in fragments of one message, with pings between."""
    places = sorted({rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 3)))})
    parts = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    fragments = rng.random() < 0.3
    out = b""
    for index, part in enumerate(parts):
        opcode = CONTINUATION if fragments and index else BINARY
        out += frame(part, opcode, last=not fragments or index == len(parts) - 1, mask=rng.randbytes(4))
        if rng.random() < 0.2:
            out += frame(b"ping", PING)
    return out


class Answers:
    """Frames of a server: payload out of the binary ones, the others passed over."""

    def __init__(self) -> None:
        self._held = b""
        self._shaken = False

    def feed(self, data: bytes) -> bytes:
        """Raises ValueError for what is no answer of a WebSocket."""
        self._held += data
        if not self._shaken:
            head, blank, rest = self._held.partition(b"\r\n\r\n")
            if not blank:
                return b""
            if not head.startswith(b"HTTP/1.1 101 "):
                raise ValueError(f"the handshake was answered with {head[:60]!r}")
            self._shaken, self._held = True, rest
        out = b""
        while (size := self._frame_size()) is not None:
            start, end = size
            if self._held[0] & 15 == BINARY:
                out += self._held[start:end]
            self._held = self._held[end:]
        return out

    def _frame_size(self) -> tuple[int, int] | None:
        """Where the payload of the first frame begins and ends; None while it is not whole."""
        held = self._held
        if len(held) < 2:
            return None
        length, start = held[1] & 0x7F, 2
        if length >= 126:
            start = 4 if length == 126 else 10
            if len(held) < start:
                return None
            length = int.from_bytes(held[2:start], "big")
        return (start, start + length) if len(held) >= start + length else None
