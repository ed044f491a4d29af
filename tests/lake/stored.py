"""All messages of the stores of a broker that has ended, read straight from RocksDB: what the lake is compared with.

Deliberately the slow way of `Store.read`, stream by stream and message by message, and none of what the pipeline uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shards.engine_rocks import RocksEngine
from shards.messages import header
from shards.options import StoreOptions
from shards.store import Store

COUNT, BYTES = 5000, 4 << 20
ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Row:
    """One stored message; with its shard and offset it is the only one."""

    shard: int
    offset: int
    client: str
    topic: str
    qos: int
    retain: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class Scanned:
    """Rows in the order of (shard, offset); for each shard how many generations hold some of them; and how many generations are gone."""

    rows: list[Row]
    generations: dict[int, int]
    dropped: int


def stores_of(data_dir: Path) -> dict[int, Path]:
    return {int(path.name): path for path in sorted((data_dir / "shards").iterdir()) if path.name.isdigit()}


def scan_stores(data_dir: Path) -> Scanned:
    rows: list[Row] = []
    generations: dict[int, int] = {}
    dropped = 0
    for shard, path in stores_of(data_dir).items():
        engine = RocksEngine(str(path))
        try:
            store = Store.open(engine, StoreOptions())
            found = list(_rows_of(shard, store))
            rows += sorted((row for _, row in found), key=lambda row: row.offset)
            generations[shard] = len({generation for generation, _ in found})
            dropped += len(store.dropped_between(0, ALL))
        finally:
            engine.close()
    return Scanned(rows, generations, dropped)


def _rows_of(shard: int, store: Store) -> Iterator[tuple[int, Row]]:
    """Each with its generation."""
    # `#` matches no topic that begins with $; nobody here publishes to one.
    for generation, stream in store.streams(b"#", 0):
        place, done = 0, False
        while not done:
            read = store.read(generation, stream, place, ALL, COUNT, BYTES, ALL)
            for position, value in read.messages:
                yield generation, row_of(shard, position, value)
            place, done = read.place, read.done


def row_of(shard: int, offset: int, value: bytes) -> Row:
    flags, _, client, topic, body = header(value)
    return Row(shard, offset, client.decode(), topic.decode(), flags & 3, bool(flags & 4), payload_of_body(body))


def payload_of_body(body: bytes) -> bytes:
    """What follows the property list."""
    size = shift = 0
    for at, byte in enumerate(body):
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return body[at + 1 + size :]
    raise ValueError(f"a body of {len(body)} bytes ends within the length of its properties")
