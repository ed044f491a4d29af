"""What replicas of one shard send each other, and its bytes.

Links may lose, repeat and reorder them; nothing rests on their order. Every answer carries the epoch it was given in, and one of another
epoch is dropped. Bytes: a msgpack array of version, kind, fields (docs/formats.md, "Messages between replicas").
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import msgpack

from shards.replication.bounds import FILES_MAX
from shards.replication.entry import Entry, Kind

MESSAGE_VERSION = 1


class BadMessage(ValueError):
    """Bytes that are no message of a known version. One sentence; the link is closed."""


@dataclass(frozen=True, slots=True)
class Append:
    """From the leader: these entries follow the one at `before`; everything up to `commit` is committed. Without entries, a heartbeat."""

    epoch: int
    before: int
    before_epoch: int
    entries: tuple[Entry, ...]
    commit: int


@dataclass(frozen=True, slots=True)
class Ack:
    """To the leader: up to here my log is yours, and on my disk."""

    epoch: int
    upto: int


@dataclass(frozen=True, slots=True)
class Nak:
    """To the leader: in the same epoch, I have not the entry you built on; try behind `hint`. In a higher one: you lead no more."""

    epoch: int
    hint: int


@dataclass(frozen=True, slots=True)
class Hello:
    """From a learner to who may lead: send me your log; I hold it up to `last`, and what I hold is of this incarnation."""

    last: int
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class Yield:
    """From the leader to a follower that has everything: take over now."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Offer:
    """From the leader: my log does not go back to where you are. Here is checkpoint `number`, made where (index, index_epoch) was the last
    entry applied. files: (name, bytes)."""

    epoch: int
    number: int
    index: int
    index_epoch: int
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """To the leader: the chunk of this file at this offset. file: its place in the offer."""

    epoch: int
    number: int
    file: int
    offset: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """From the leader: what was pulled, with the CRC-32 of the data."""

    epoch: int
    number: int
    file: int
    offset: int
    data: bytes
    crc: int

    @staticmethod
    def of(pull: Pull, data: bytes) -> Chunk:
        return Chunk(pull.epoch, pull.number, pull.file, pull.offset, data, zlib.crc32(data))

    @property
    def whole(self) -> bool:
        return zlib.crc32(self.data) == self.crc


Message = Append | Ack | Nak | Hello | Yield | Offer | Pull | Chunk

_NUMBERED: dict[int, type[Any]] = {1: Ack, 2: Nak, 3: Hello, 4: Yield, 6: Pull}
"""Those whose fields are all numbers."""
_APPEND, _OFFER, _CHUNK = 0, 5, 7
_KIND_OF: dict[type[Any], int] = {made: kind for kind, made in _NUMBERED.items()}


def pack(message: Message) -> bytes:
    return bytes(msgpack.packb([MESSAGE_VERSION, *_row(message)]))


def unpack(data: bytes) -> Message:
    """Raises BadMessage."""
    try:
        row = msgpack.unpackb(data, raw=False, use_list=True)
        if row[0] != MESSAGE_VERSION:
            raise BadMessage(f"message of version {row[0]!r}; this program reads version {MESSAGE_VERSION}")
        return _of(row[1], row[2:])
    except BadMessage:
        raise
    except Exception as error:  # whatever the bytes are, the answer is one sentence
        raise BadMessage(f"{len(data)} bytes are no message between replicas: {type(error).__name__}") from error


def _row(message: Message) -> list[Any]:
    match message:
        case Append(epoch, before, before_epoch, entries, commit):
            packed = [[entry.index, entry.epoch, int(entry.kind), entry.payload] for entry in entries]
            return [_APPEND, epoch, before, before_epoch, packed, commit]
        case Offer(epoch, number, index, index_epoch, files):
            return [_OFFER, epoch, number, index, index_epoch, [list(file) for file in files]]
        case Chunk(epoch, number, file, offset, data, crc):
            return [_CHUNK, epoch, number, file, offset, data, crc]
        case Ack(epoch, upto):
            return [_KIND_OF[Ack], epoch, upto]
        case Nak(epoch, hint):
            return [_KIND_OF[Nak], epoch, hint]
        case Hello(last, incarnation):
            # As older programs know it, where leadership was never forced.
            return [_KIND_OF[Hello], last] if incarnation == 1 else [_KIND_OF[Hello], last, incarnation]
        case Yield(epoch):
            return [_KIND_OF[Yield], epoch]
        case Pull(epoch, number, file, offset):
            return [_KIND_OF[Pull], epoch, number, file, offset]


def _of(kind: int, fields: list[Any]) -> Message:
    if kind == _APPEND:
        epoch, before, before_epoch, packed, commit = fields
        _numbers(epoch, before, before_epoch, commit)
        return Append(epoch, before, before_epoch, tuple(_entry(one, before + at) for at, one in enumerate(packed, 1)), commit)
    if kind == _OFFER:
        epoch, number, index, index_epoch, files = fields
        _numbers(epoch, number, index, index_epoch, *(size for _, size in files))
        if len(files) > FILES_MAX or any(type(name) is not str or "/" in name or name in ("", ".", "..") for name, _ in files):
            raise BadMessage(f"a checkpoint of {len(files)} files, or with one that has no plain name")
        return Offer(epoch, number, index, index_epoch, tuple((name, size) for name, size in files))
    if kind == _CHUNK:
        epoch, number, file, offset, data, crc = fields
        _numbers(epoch, number, file, offset, crc)
        return Chunk(epoch, number, file, offset, bytes(data), crc)
    if kind not in _NUMBERED:
        raise BadMessage(f"message of kind {kind!r}, which this program does not know")
    _numbers(*fields)
    made: Message = _NUMBERED[kind](*fields)
    return made


def _entry(row: list[Any], wanted: int) -> Entry:
    index, epoch, kind, payload = row
    _numbers(index, epoch)
    if index != wanted or type(payload) is not bytes:
        raise BadMessage(f"entry {index!r} where {wanted} was wanted")
    return Entry(index, epoch, Kind(kind), payload)


def _numbers(*values: Any) -> None:
    if not all(type(value) is int and value >= 0 for value in values):
        raise BadMessage(f"{values!r} are not all numbers")
