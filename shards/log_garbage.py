"""What may lie behind the last record of a log of RocksDB, and keep RocksDB 9.8 from ever opening the store.

Changes a single byte of it, before the store is opened, and says so. shards.log_files has how a log is made.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from shards.log_files import BLOCK_BYTES, HEADER_BYTES

_KIND_AT = 6
_RECYCLED_KINDS = frozenset((5, 6, 7, 8, 11))
_UNKNOWN_KIND = b"\x7f"


def damage(path: str) -> tuple[str, ...]:
    """As `disarm`, changing nothing: sentences about log ends that only the owner may open."""
    return tuple(_sentence(file, at) for file, at in _garbage(path))


def disarm(path: str) -> tuple[str, ...]:
    """Make logs readable that RocksDB 9.8 would read for ever.

    Records of the kinds for recycled log files, which we never use, send its reader into an endless loop when their log
    number is wrong (RocksDB issue 13333), in every recovery mode, in the write-ahead log and in the manifest. A power cut
    or a full disk can leave such bytes behind the last record. Giving the first of them an unknown kind makes it ordinary
    damage, at which recovery stops.
    """
    found: list[str] = []
    for file, at in _garbage(path):
        with open(file, "r+b") as damaged:
            damaged.seek(at + _KIND_AT)
            damaged.write(_UNKNOWN_KIND)
        found.append(_sentence(file, at))
    return tuple(found)


def _garbage(path: str) -> Iterator[tuple[str, int]]:
    """(file, offset) of the first record in each log that is none of ours."""
    names = os.listdir(path) if os.path.isdir(path) else []
    for name in sorted(names):
        if name.endswith(".log") or name.startswith("MANIFEST-"):
            file = os.path.join(path, name)
            at = _first_in(file)
            if at is not None:
                yield file, at


def _first_in(file: str) -> int | None:
    """Where the first record of a file is that is none of ours. One that is gone has none: whoever has the store open deletes old ones."""
    try:
        with open(file, "rb") as log:
            if os.fstat(log.fileno()).st_size == 0:
                return None
            with mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _recycled_record(data)
    except FileNotFoundError:
        return None


def _sentence(file: str, at: int) -> str:
    return f"{file}: no record of ours at byte {at}; recovery ends there"


def _recycled_record(data: mmap.mmap) -> int | None:
    """Where the first record of a kind for recycled files is. Steps over record headers as RocksDB does, without checksums:
    where it would stop before, changing a byte behind that changes nothing."""
    at, end = 0, len(data)
    while at + HEADER_BYTES <= end:
        room = BLOCK_BYTES - at % BLOCK_BYTES
        if room < HEADER_BYTES:
            at += room
            continue
        kind = data[at + _KIND_AT]
        if kind in _RECYCLED_KINDS:
            return at
        length = data[at + 4] | data[at + 5] << 8
        # Zeros, and lengths beyond the block, make the reader go on with the next block.
        at += room if (kind == 0 and length == 0) or HEADER_BYTES + length > room else HEADER_BYTES + length
    return None
