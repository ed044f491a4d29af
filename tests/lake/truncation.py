"""Where an answer of the reader can be cut: one place of each class, worked out from the bytes of a whole answer.

The raw answer is taken by a client of its own, which knows frames and nothing else (docs/reader.md, "Frames"), so that what decides here is
the page and not the code that is tested.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.lake.proxy import Address

JSON, BLOCK = 1, 2
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of bytes of an answer, and what lies there."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Place:
    """So many bytes arrive, and then nothing."""

    name: str
    after: int


def _frame(value: dict[str, Any]) -> bytes:
    body = json.dumps(value).encode()
    return struct.pack(">IB", 1 + len(body), JSON) + body


class RawClient:
    """One connection: a hello, and then the bytes of answers."""

    def __init__(self, address: Address, token: str) -> None:
        self._socket = socket.create_connection(address, WAIT_S)
        self._socket.settimeout(WAIT_S)
        self._socket.sendall(_frame({"hello": 1, "token": token, "who": "truncation"}))
        self.hello = self._read_frame()

    def close(self) -> None:
        self._socket.close()

    def ask(self, verb: str, request: dict[str, Any]) -> bytes:
        """All bytes of an answer that is one frame."""
        self._socket.sendall(_frame({"verb": verb, **request}))
        return self._read_frame()

    def scan(self, request: dict[str, Any]) -> bytes:
        """All bytes of the answer to a SCAN, its trailer included."""
        self._socket.sendall(_frame({"verb": "SCAN", **request}))
        found = b""
        while True:
            frame = self._read_frame()
            found += frame
            if frame[4] == JSON:
                return found

    def _read_frame(self) -> bytes:
        head = self._read(4)
        return head + self._read(int.from_bytes(head, "big"))

    def _read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            data = self._socket.recv(count - len(found))
            if not data:
                raise EOFError(f"the reader ended the connection {count - len(found)} bytes early")
            found += data
        return bytes(found)


def parts(answer: bytes) -> Iterator[Part]:
    """What lies where: frames one after the other, blocks as their head says."""
    at = frame = 0
    while at < len(answer):
        length, kind = struct.unpack_from(">IB", answer, at)
        name, body, end = f"frame {frame}", at + 5, at + 4 + length
        yield Part(f"{name}: length", at, at + 4)
        yield Part(f"{name}: kind", at + 4, at + 5)
        if kind == BLOCK:
            rows, runs, value_bytes, _ = struct.unpack_from("<IIII", answer, body)
            for what, size in (("head", 16), ("runs", 12 * runs), ("positions", 8 * rows), ("lengths", 4 * rows), ("values", value_bytes)):
                yield Part(f"{name}: {what}", body, body + size)
                body += size
            if body != end:
                raise ValueError(f"{name} ends at {end}, its block at {body}")
        else:
            yield Part(f"{name}: trailer", body, end)
        at, frame = end, frame + 1


def places(answer: bytes) -> list[Place]:
    """Before the first byte of each part, within it, and before its last byte; of the first frame, one in the middle, and the last two."""
    found = list(parts(answer))
    frames = sorted({int(part.name.split(":")[0].split()[1]) for part in found})
    wanted = {frames[0], frames[len(frames) // 2], *frames[-2:]}
    chosen: dict[int, str] = {}
    for part in found:
        if int(part.name.split(":")[0].split()[1]) in wanted:
            for after in (part.start, (part.start + part.stop) // 2, part.stop - 1):
                if part.start <= after < len(answer):
                    chosen.setdefault(after, f"{part.name} at {after - part.start} of {part.stop - part.start}")
    return [Place(name, after) for after, name in sorted(chosen.items())]
