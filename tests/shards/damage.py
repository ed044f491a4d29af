"""A store of three generations on RocksDB, some sealed and one current, and the ways in which its files can be broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shards.engine import HOME_FAMILY, Op
from shards.engine_rocks import RocksEngine
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import Store
from tests.contracts.disks import copy_of_living

PER_GENERATION = 40
CURRENT = 3


@dataclass(frozen=True, slots=True)
class Made:
    """A store that was closed. closed: everything in data files. crashed: the current generation is in the log only.
    wanted: the messages of each generation. tables: the data files of each family, of the closed one."""

    closed: Path
    crashed: Path
    wanted: dict[int, list[tuple[int, bytes]]]
    tables: dict[int, list[str]]


def make(root: Path, layout: str, twice: bool = False) -> Made:
    """twice: the family of the first generation was there before, and was dropped."""
    path = root / "made"
    engine = RocksEngine(str(path))
    if twice:
        engine.create_family(1)
        engine.drop_family(1)
    store = Store.open(engine, StoreOptions(layout, (100, 2)))
    wanted: dict[int, list[tuple[int, bytes]]] = {1: [], 2: [], 3: []}
    position = 0
    for generation in wanted:
        for number in range(PER_GENERATION):
            position += 1
            topic = b"a/%d/t" % (number % 7)
            value = encode_message(1, 0, b"p", topic, b"\x00" + os.urandom(150))
            ops: list[Op] = []
            store.append(ops, store.key_of(topic), position, value)
            store.flush(ops)
            session = (HOME_FAMILY, b"x%05d" % position, b"row of a session" * 3)
            engine.write([*store.take_growth(), *ops, session])
            wanted[generation].append((position, value))
        if generation < CURRENT:
            position += 1
            engine.write(store.roll(position, 1, 1))
            for family in engine.families():
                engine._rdicts[family].flush(True)
    engine.sync()
    crashed = root / "crashed"
    copy_of_living(path, crashed)
    engine.close()
    engine = RocksEngine(str(path))
    tables = {family: list(engine.tables(family)) for family in engine.families()}
    engine.close()
    return Made(path, crashed, wanted, tables)


def read_all(store: Store, generation: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for at, stream in store.streams(b"#", -1):
        if at == generation:
            found += store.read(generation, stream, -1, 1 << 40, 1 << 20, 1 << 30, 1 << 30).messages
    return sorted(found)


# ---- ways to break a file

Hurt = Callable[[Path], None]


def missing(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    os.truncate(file, 0)


def short(file: Path) -> None:
    os.truncate(file, file.stat().st_size * 2 // 3)


def flipped(at: Callable[[int], int]) -> Hurt:
    """One byte, at a place that depends on the size."""

    def flip(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[at(len(data))] ^= 0x55
        file.write_bytes(data)

    return flip


footer = flipped(lambda size: size - 20)
in_a_value = flipped(lambda size: min(300, size // 4))
in_the_middle = flipped(lambda size: size // 2)
last_byte = flipped(lambda size: size - 1)


def log_of(store: Path) -> Path:
    (found,) = (file for file in store.glob("*.log") if file.stat().st_size)
    return found
