"""Makes the golden store of a layout: ``python -m tests.golden.make LAYOUT [NAME]``.

NAME.zip is the directory of a RocksDB store as a killed process leaves it, with files and a log; NAME.txt has a line per message: its
position, its topic and a digest of its stored form. A golden store is made once, by the commit that ships the layout, and never again:
a change that cannot read it is a new layout with a new name. So this refuses to write over one.

A NAME that ends in -apart has a family of its own for each index. One that ends in -classes is a store with retention classes: the map
changes at its last roll, and one generation is dropped.
"""

from __future__ import annotations

import random
import sys
import tempfile
import zipfile
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from shards.classes import NO_CLASSES, ClassMap, RetentionClass
from shards.engine import Op
from shards.engine_rocks import RocksEngine
from shards.layouts.registry import LAYOUTS
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import Store
from tests.contracts.campaign import SMALL_BOUNDS

HERE = Path(__file__).parent
# What RocksDB writes for people, and what another machine would not have: not needed to open.
_LEFT_OUT = ("LOG", "LOCK", "OPTIONS")


def digest(value: bytes) -> str:
    return blake2b(value, digest_size=8).hexdigest()


def topics(rng: random.Random) -> list[bytes]:
    """Some streams of their own, some that vary in one and in two levels, one that is busy, and odd ones."""
    choice = rng.random()
    if choice < 0.25:
        return [b"hot/stream"] * 40
    if choice < 0.6:
        return [b"device/%d/%s" % (rng.randrange(30), rng.choice((b"t", b"h"))) for _ in range(25)]
    if choice < 0.85:
        return [b"fleet/%d/sensor/%d" % (rng.randrange(12), rng.randrange(12)) for _ in range(25)]
    return [
        rng.choice((b"a//b", b"$special/x", "größe/é".encode(), b"/", b"a" * 300, b"one-off/%d" % rng.randrange(10**6))) for _ in range(8)
    ]


FIRST = ClassMap((RetentionClass("odd", b"+/+/t", 90_000), RetentionClass("fleet", b"fleet/#", 1 << 62)))
THEN = ClassMap((RetentionClass("hot", b"hot/#", 1_000), RetentionClass("odd", b"device/3/#", 80_000)))
DROPPED = 5
"""The generation of class odd between the rolls."""


def fill(store: Store, engine: RocksEngine, layout: str, classes: bool) -> list[tuple[int, bytes, bytes]]:
    rng = random.Random(20)
    found: list[tuple[int, bytes, bytes]] = []
    gone: set[int] = set()
    position = 1000
    for number in range(75):
        ops: list[Op] = []
        for topic in topics(rng):
            position += rng.choice((1, 1, 7, 100_000))
            publisher = b"c" * (300 if rng.random() < 0.02 else rng.randint(1, 20))
            value = encode_message(
                rng.randrange(3), 1_700_000_000_000 + position, publisher, topic, b"\0" + rng.randbytes(rng.randint(0, 40))
            )
            key = store.key_of(topic)
            store.append(ops, key, position, value)
            found.append((position, topic, value))
            if classes and key.generation == DROPPED:
                gone.add(position)
        store.flush(ops)
        engine.write(store.take_growth() + ops)
        for _ in range(rng.choice((0, 2, 30))):
            store.idle_work(position)
        if number in (30, 55):
            position += 1
            if classes and number == 55:
                store.change(StoreOptions(layout, (20, 5), classes=THEN))
            engine.write(store.roll(position, number, number))
            # The first generation is folded to the end, the second is left in the midst of it.
            while number == 30 and store.idle_work(position):
                pass
    if classes:
        engine.write(store.drop(DROPPED, 1_800_000_000_000, "by hand"))
    engine.sync()
    if classes:
        store.erase(DROPPED)
    return [message for message in found if message[0] not in gone]


def make(layout: str, name: str) -> None:
    archive = HERE / f"{name}.zip"
    if archive.exists():
        raise SystemExit(f"{archive.name} is there: a golden store is never made again")
    # Bounds so small that a store of some kilobytes has segments, unfinished folds and garbage.
    LAYOUTS.update(SMALL_BOUNDS)
    classes = name.endswith("-classes")
    options = StoreOptions(layout, (20, 5), classes=FIRST if classes else NO_CLASSES)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        engine = RocksEngine(str(path))
        messages = fill(Store.open(engine, options), engine, layout, classes)
        engine.close()
        # Opened and left once more, so that there are files as well as a log.
        engine = RocksEngine(str(path))
        store = Store.open(engine, replace(options, classes=THEN) if classes else options)
        last = messages[-1][0] + 1
        ops: list[Op] = []
        value = encode_message(1, 1_700_000_000_000, b"last", b"device/3/t", b"\0last")
        store.append(ops, store.key_of(b"device/3/t"), last, value)
        store.flush(ops)
        engine.write(store.take_growth() + ops)
        engine.sync()
        messages.append((last, b"device/3/t", value))
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in sorted(path.iterdir()):
                if not file.name.startswith(_LEFT_OUT):
                    packed.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED)
        engine.close()
    lines = [f"{position} {topic.decode()!r} {digest(value)}" for position, topic, value in messages]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(f"{archive.name}: {len(messages)} messages, {archive.stat().st_size} bytes")


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else sys.argv[1])
