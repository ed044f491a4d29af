"""What the reader and its clients say to each other: frames, kinds, error codes, blocks, messages to append (docs/reader.md).

Both sides use this module: the reader process in ``actors`` and all that runs in Spark. It has only Python's own library, numpy and isal
(the CRC-32 of zlib at a tenth of its cost), knows no verbs and keeps no connection; which request gets which answer is the reader's and
``holdfast_spark.client``'s business.

Holds always: a frame or block is whole, or it is an error. Nothing here returns fewer bytes, rows or messages than were announced.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from struct import Struct
from typing import Any, Final

import numpy as np
from isal.isal_zlib import crc32

VERSION: Final = 1
"""Of the protocol; both sides say it in their hello."""

FRAME_BYTES_MAX: Final = 272 << 20
HELLO_BYTES_MAX: Final = 64 << 10
"""What a reader should take from somebody who has not shown a token yet."""
WAIT_S: Final = 30.0
PACE_BYTES_PER_S: Final = 1 << 20
"""A frame that has begun may take a second more for each of these; without it the largest would need a fast line."""

BLOCK_ROWS_MAX: Final = 8192
BLOCK_BYTES_MAX: Final = 4 << 20
APPEND_ROWS_MAX: Final = 4096
APPEND_BYTES_MAX: Final = 4 << 20

_PARTS_AT_ONCE: Final = 512
"""Of a frame; systems take 1,024."""

_FRAME_HEAD = Struct(">IB")
_BLOCK_HEAD = Struct("<IIII")
_RUN = Struct("<QI")
_APPEND_HEAD = Struct("<II")
_APPEND_ROW = Struct("<BHHI")

Bytes = bytes | bytearray | memoryview


class Kind(IntEnum):
    """What the body of a frame is."""

    JSON = 1
    BLOCK = 2
    MESSAGES = 3


class Code(StrEnum):
    """Why the reader refused something."""

    VERSION = "VERSION"
    TOKEN = "TOKEN"
    FORBIDDEN = "FORBIDDEN"
    REQUEST = "REQUEST"
    BUSY = "BUSY"
    AWAY = "AWAY"
    STORE = "STORE"
    LOST = "LOST"
    DAMAGED = "DAMAGED"
    FULL = "FULL"


class WireError(ConnectionError):
    """The connection, or what came over it, is no longer of use: end it. Asking again on a new one may help."""


class Ended(WireError):
    """The other side closed the connection between two frames."""


class Late(WireError):
    """A frame that was owed did not come in time."""


class Malformed(WireError):
    """What came is not of this protocol, or was changed on the way."""


class Refused(Exception):
    """The reader's answer is an error. ``sentence`` is for people and names what was found and what was wanted."""

    def __init__(self, code: Code | str, sentence: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{sentence} ({code})")
        self.code = str(code)
        self.sentence = sentence
        self.more: dict[str, Any] = dict(more or {})

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str, dict[str, Any]]]:
        # Spark sends exceptions of its workers about; the default would call __init__ with the joined text.
        return type(self), (self.code, self.sentence, self.more)

    def as_json(self) -> dict[str, Any]:
        return {"error": self.code, "sentence": self.sentence, **self.more}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Refused:
        more = {key: value for key, value in answer.items() if key not in ("error", "sentence")}
        return cls(str(answer["error"]), str(answer.get("sentence", "the reader gave no reason")), more)


# ---------------------------------------------------------------------------------------------- frames


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    body: memoryview

    def json(self) -> dict[str, Any]:
        """The object, or an error when this frame is something else."""
        if self.kind != Kind.JSON:
            raise Malformed(f"a frame of kind {self.kind.name} came where JSON was owed")
        try:
            found = json.loads(bytes(self.body).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"a frame that should be JSON is not: {error}") from None
        if not isinstance(found, dict):
            raise Malformed(f"a frame holds a JSON {type(found).__name__}, not an object")
        return found


class Wire:
    """Frames over a connected socket (or TLS socket). For one thread; it owns the socket and closes it."""

    def __init__(self, sock: socket.socket, wait_s: float = WAIT_S) -> None:
        self._sock = sock
        self._wait_s = wait_s
        self._head = bytearray(_FRAME_HEAD.size)

    def receive(self, *, begins_within_s: float | None = -1.0, bytes_max: int = FRAME_BYTES_MAX) -> Frame:
        """The next frame. It must begin within ``begins_within_s`` (None: whenever it likes; not given: what is owed) and then go on at
        a pace. Ended: the other side closed before the first byte of it."""
        wait = self._wait_s if begins_within_s is not None and begins_within_s < 0 else begins_within_s
        head = memoryview(self._head)
        got = self._some(head, None if wait is None else time.monotonic() + wait, began=False)
        if got < len(head):
            self._fill(head[got:], time.monotonic() + self._wait_s)
        length, kind = _FRAME_HEAD.unpack(self._head)
        if not 1 <= length <= bytes_max:
            raise Malformed(f"a frame says that it has {length} bytes; 1 to {bytes_max} are possible here")
        if kind not in Kind.__members__.values():
            raise Malformed(f"a frame is of kind {kind}; 1, 2 and 3 are known")
        # Not filled with zeros before it is filled with what comes.
        body = np.empty(length - 1, np.uint8).data
        self._fill(body, time.monotonic() + self._wait_s + length / PACE_BYTES_PER_S)
        return Frame(Kind(kind), body)

    def receive_json(self, *, begins_within_s: float | None = -1.0, bytes_max: int = FRAME_BYTES_MAX) -> dict[str, Any]:
        return self.receive(begins_within_s=begins_within_s, bytes_max=bytes_max).json()

    def send(self, kind: Kind, *parts: Bytes) -> None:
        """One frame, whose body is the parts one after the other."""
        length = 1 + sum(len(part) for part in parts)
        if length > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {length} bytes; {FRAME_BYTES_MAX} is the most")
        deadline = time.monotonic() + self._wait_s + length / PACE_BYTES_PER_S
        head = _FRAME_HEAD.pack(length, kind)
        try:
            if length < 65536 or isinstance(self._sock, ssl.SSLSocket):
                self._sock.settimeout(deadline - time.monotonic())
                self._sock.sendall(b"".join((head, *parts)))
            else:
                self._send_as_they_lie([head, *parts], deadline)
        except TimeoutError:
            raise Late(f"the other side did not take a frame of {length} bytes in time") from None
        except OSError as error:
            raise WireError(f"the connection broke while a frame was sent: {error}") from None

    def _send_as_they_lie(self, parts: list[Bytes], deadline: float) -> None:
        """One after the other, and not joined first: that would be another look at each byte when no cache has it any more."""
        while parts:
            self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            sent = self._sock.sendmsg(parts[:_PARTS_AT_ONCE])
            gone = 0
            while gone < len(parts) and len(parts[gone]) <= sent:
                sent -= len(parts[gone])
                gone += 1
            del parts[:gone]
            if sent:
                parts[0] = memoryview(parts[0])[sent:]

    def send_json(self, value: Mapping[str, Any]) -> None:
        self.send(Kind.JSON, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8"))

    def close(self) -> None:
        try:
            self._sock.close()
        except OSError:
            pass  # it was broken already

    def _fill(self, room: memoryview, deadline: float) -> None:
        while room:
            room = room[self._some(room, deadline, began=True) :]

    def _some(self, room: memoryview, deadline: float | None, *, began: bool) -> int:
        try:
            if deadline is None:
                self._sock.settimeout(None)
            else:
                # Zero would mean "do not block at all".
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            got = self._sock.recv_into(room)
        except TimeoutError:
            raise Late("a frame stopped half way" if began else "no frame came in time") from None
        except OSError as error:
            raise WireError(f"the connection broke: {error}") from None
        if got == 0:
            raise WireError(f"the connection ended inside a frame, {len(room)} bytes early") if began else Ended("the connection ended")
        return got


# ---------------------------------------------------------------------------------------------- blocks


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as stored: views into one frame. Checked: checksum, counts, and that the parts fill the frame exactly."""

    rows: int
    runs: tuple[tuple[int, int], ...]
    """(stream, rows of it), in the order of the rows."""
    positions: memoryview
    """u64 little-endian."""
    lengths: memoryview
    """u32 little-endian."""
    values: memoryview
    crc: int


def encode_block(
    runs: Sequence[tuple[int, int]], positions: Sequence[Bytes], lengths: Sequence[Bytes], values: Sequence[Bytes]
) -> tuple[int, tuple[Bytes, ...]]:
    """(crc, parts of the body to be given to ``Wire.send``). ``runs``: (stream, rows of it); then, each in pieces that may be cut anywhere,
    positions (u64 LE) and lengths (u32 LE) of the values, and the values one after the other."""
    rows = sum(count for _, count in runs)
    sizes = [sum(map(len, part)) for part in (positions, lengths, values)]
    if sizes[:2] != [8 * rows, 4 * rows]:
        raise ValueError(f"{sizes[0]} and {sizes[1]} bytes of positions and lengths, runs {list(runs)[:8]}: they do not fit together")
    table = b"".join([_RUN.pack(stream, count) for stream, count in runs])
    rest = b"".join((table, *positions, *lengths))
    crc = crc32(rest)
    for piece in values:
        crc = crc32(piece, crc)
    return crc, (_BLOCK_HEAD.pack(rows, len(runs), sizes[2], crc) + rest, *values)


def decode_block(body: memoryview) -> Block:
    if len(body) < _BLOCK_HEAD.size:
        raise Malformed(f"a block of {len(body)} bytes has no room for its head")
    rows, run_count, value_bytes, crc = _BLOCK_HEAD.unpack_from(body)
    positions_at = _BLOCK_HEAD.size + _RUN.size * run_count
    lengths_at = positions_at + 8 * rows
    values_at = lengths_at + 4 * rows
    if len(body) != values_at + value_bytes:
        raise Malformed(f"a block has {len(body)} bytes, its head promises {values_at + value_bytes}")
    found = crc32(body[_BLOCK_HEAD.size :])
    if found != crc:
        raise Malformed(f"the checksum of a block is {found:08x}, its head says {crc:08x}")
    runs = tuple(_RUN.iter_unpack(body[_BLOCK_HEAD.size : positions_at]))
    lengths = body[lengths_at:values_at]
    if sum(count for _, count in runs) != rows or int(np.frombuffer(lengths, "<u4").sum(dtype=np.uint64)) != value_bytes:
        raise Malformed(f"a block of {rows} rows: its runs or lengths do not add up")
    return Block(rows, runs, body[positions_at:lengths_at], lengths, body[values_at:], crc)


@dataclass(slots=True)
class Tally:
    """What a SCAN sent so far, counted alike on both sides: the trailer must say the same."""

    rows: int = 0
    bytes: int = 0
    """Of values."""
    blocks: int = 0
    crc: int = field(default=0)
    """crc32 over the checksums of all blocks, each as u32 little-endian."""

    def add(self, rows: int, value_bytes: int, block_crc: int) -> None:
        self.rows += rows
        self.bytes += value_bytes
        self.blocks += 1
        self.crc = crc32(block_crc.to_bytes(4, "little"), self.crc)

    def as_json(self) -> dict[str, int]:
        return {"rows": self.rows, "bytes": self.bytes, "blocks": self.blocks, "crc": self.crc}


# ---------------------------------------------------------------------------------------------- messages to append


@dataclass(frozen=True, slots=True)
class Messages:
    """Columns of equal length. ``bodies``: MQTT 5 form, property length + properties + payload."""

    flags: Bytes
    clients: list[bytes]
    topics: list[bytes]
    bodies: list[bytes]


def encode_messages(flags: Bytes, clients: Sequence[bytes], topics: Sequence[bytes], bodies: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The parts of the body to be given to ``Wire.send``. ``flags``: one byte a message, as in a PUBLISH."""
    rows = len(flags)
    if not rows == len(clients) == len(topics) == len(bodies):
        raise ValueError(
            f"{rows} flags, {len(clients)} clients, {len(topics)} topics, {len(bodies)} bodies: one of each is needed for each message"
        )
    if rows > APPEND_ROWS_MAX:
        raise ValueError(f"{rows} messages in one frame; {APPEND_ROWS_MAX} is the most")
    heads = [_APPEND_ROW.pack(flag, len(c), len(t), len(b)) for flag, c, t, b in zip(flags, clients, topics, bodies, strict=True)]
    rest = b"".join((*heads, *clients, *topics, *bodies))
    if rows > 1 and len(rest) - _APPEND_ROW.size * rows > APPEND_BYTES_MAX:
        raise ValueError(f"messages of {len(rest)} bytes in one frame; {APPEND_BYTES_MAX} is the most for more than one")
    return _APPEND_HEAD.pack(rows, crc32(rest)), rest


def decode_messages(body: memoryview) -> Messages:
    if len(body) < _APPEND_HEAD.size:
        raise Malformed(f"messages of {len(body)} bytes have no room for their head")
    rows, crc = _APPEND_HEAD.unpack_from(body)
    rest = body[_APPEND_HEAD.size :]
    if crc32(rest) != crc:
        raise Malformed(f"the checksum of {rows} messages to append is {crc32(rest):08x}, their head says {crc:08x}")
    heads_bytes = _APPEND_ROW.size * rows
    if rows > APPEND_ROWS_MAX or len(rest) < heads_bytes:
        raise Malformed(f"a frame says that it has {rows} messages to append; {APPEND_ROWS_MAX} is the most, and it has {len(rest)} bytes")
    heads = list(_APPEND_ROW.iter_unpack(rest[:heads_bytes]))
    if heads_bytes + sum(c + t + b for _, c, t, b in heads) != len(rest):
        raise Malformed(f"the lengths of {rows} messages to append do not fill their frame of {len(rest)} bytes")
    at = heads_bytes
    columns: list[list[bytes]] = []
    for which in (1, 2, 3):
        column: list[bytes] = []
        for head in heads:
            column.append(bytes(rest[at : at + head[which]]))
            at += head[which]
        columns.append(column)
    return Messages(bytes(head[0] for head in heads), *columns)
