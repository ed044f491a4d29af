"""Bulk reads of what is damaged: the end of what can be read is never taken for the end of what there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from shards.bulk import position_list, positions_in
from shards.engine import Op, StoreDamaged
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine
from shards.layouts.port import Layout, LayoutOptions, Stream
from shards.layouts.record_batch.values import encode_batch
from shards.layouts.registry import open_layout
from shards.messages import encode_message

MANY = 1 << 30
FAMILY = 1


def filled(engine: MemoryEngine | RocksEngine, layout_name: str, topic: bytes, options: LayoutOptions, count: int) -> Layout:
    engine.create_family(FAMILY)
    layout = open_layout(layout_name, engine, FAMILY, options)
    for position in range(1, count + 1):
        ops: list[Op] = []
        layout.put(ops, layout.key_of(topic), position, encode_message(1, 0, b"p", topic, os.urandom(300)))
        layout.flush(ops)
        engine.write(layout.take_growth() + ops)
    return layout


def rows(layout: Layout, stream: Stream, upto: int) -> int:
    """How many there are, read to the end."""
    place, found, done = -1, 0, False
    while not done:
        columns = layout.bulk(stream, place, upto, 20, MANY)
        place, done = columns.place, columns.done
        found += columns.rows
    return found


@pytest.mark.parametrize("layout_name", ["pagestream", "skipstream", "record_batch", "wildcard_optimized"])
def test_a_damaged_block_is_no_end(tmp_path: Path, layout_name: str) -> None:
    # Property: a flipped byte in the middle of a data file is told, though an iterator of rocksdict that meets it just stops.
    path = tmp_path / "store"
    engine = RocksEngine(str(path))
    filled(engine, layout_name, b"a/b", LayoutOptions(), 300)
    engine.release_log()
    (table,) = engine.tables(FAMILY)
    engine.close()
    file = path / table
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)
    engine = RocksEngine(str(path))
    try:
        layout = open_layout(layout_name, engine, FAMILY, LayoutOptions())
        (stream,) = layout.streams(b"a/b")
        with pytest.raises(StoreDamaged):
            rows(layout, stream, 300)
    finally:
        engine.close()


def _flip(value: bytes) -> bytes:
    return value[:-1] + bytes((value[-1] ^ 1,))


BROKEN: list[tuple[str, bytes, Callable[[bytes, bytes], tuple[bytes, bytes]], str]] = [
    ("a value", b"+", lambda key, value: (key, _flip(value)), "position 7: the value"),
    ("a checksum", b"+", lambda key, value: (key, value[:1] + _flip(value[1:5]) + value[5:]), "position 7: the value"),
    ("a kind", b"+", lambda key, value: (key, b"\x7f" + value[1:]), "kind 0x7f"),
    ("an empty value", b"+", lambda key, value: (key, b""), "position 7: the value of 0 bytes"),
    ("a longer key", b"+", lambda key, value: (key + b"\x00", value), "17 bytes long"),
    ("a value", b"", lambda key, value: (key, _flip(value)), "position 7: the value"),
    ("a kind", b"", lambda key, value: (key[:16] + b"\x7f" + key[17:], value), "kind 0x7f"),
    ("a checksum", b"", lambda key, value: (_flip(key), value), "position 7: the value"),
    ("a longer key", b"", lambda key, value: (key + b"\x00", value), "position 7: the value"),
]


@pytest.mark.parametrize(("what", "level", "broken", "said"), BROKEN)
def test_checksums_are_checked_in_columns(
    what: str, level: bytes, broken: Callable[[bytes, bytes], tuple[bytes, bytes]], said: str
) -> None:
    # Property: of single messages, with varying levels and without, each byte that is not as it was written raises, and it says where.
    engine = MemoryEngine()
    layout = filled(engine, "record_batch", b"a/b", LayoutOptions((0,) if level else (None,)), 9)
    (stream,) = layout.streams(b"#")
    assert rows(layout, stream, 9) == 9, what
    found = engine.scan(FAMILY, stream.static, stream.static + b"\xff" * 9, 100)
    key, value = next((key, value) for key, value in found if key[8:16] == (7).to_bytes(8, "big"))
    engine.write([(FAMILY, key, None), (FAMILY, *broken(key, value))])
    with pytest.raises(StoreDamaged, match=said):
        rows(layout, stream, 9)


def test_the_checksum_of_a_batch_is_checked_in_columns() -> None:
    # Property: each flipped byte of a batch raises; none is told as a message.
    engine = MemoryEngine()
    layout = filled(engine, "record_batch", b"a/b", LayoutOptions((None,)), 1)
    (stream,) = layout.streams(b"a/b")
    positions = range(10, 40)
    stored = [encode_message(1, 0, b"p", b"a/b", b"x" * position) for position in positions]
    key, value = encode_batch(stream.static, positions, stored)
    engine.write([(FAMILY, key, value)])
    assert layout.bulk(stream, 1, 99, MANY, MANY).values == stored
    for at in range(len(value)):
        engine.write([(FAMILY, key, value[:at] + bytes((value[at] ^ 4,)) + value[at + 1 :])])
        with pytest.raises(StoreDamaged):
            layout.bulk(stream, 1, 99, MANY, MANY)


@pytest.mark.parametrize("positions", [positions_in, position_list])
@pytest.mark.parametrize("count", [1, 23, 24, 100])
def test_a_key_of_another_length_is_damage(positions: Callable[..., Iterable[int]], count: int) -> None:
    # Property: positions are cut out of joined keys only when all are equally long, however many there are.
    wanted = [number << 55 | 5 for number in range(count)]
    keys = [b"ab" + position.to_bytes(8, "big") for position in wanted]
    assert list(positions(keys, 10, 2)) == wanted and list(positions([], 10, 2)) == []
    with pytest.raises(StoreDamaged, match="9 bytes long"):
        positions([*keys, b"b" * 9], 10, 2)
