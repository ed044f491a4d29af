"""Who owns a store, for the tests of those who read beside it: it writes, rolls, drops, folds, flushes and compacts by a seed.

What a position holds follows from the position alone, so nobody has to be told what was written: `message_at`. Only positions at which
there was something else, a roll or a drop, hold nothing; the owner names them with its cut.

As a program it is an owner in another process, which can be killed: it writes on and on, and gives a cut for every line it is sent.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from shards.classes import ClassMap, RetentionClass
from shards.engine import HOME_FAMILY, Op
from shards.engine_rocks import RocksEngine, RocksOptions
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.rows import META, pack_row, unpack_row
from shards.store import Store, TopicKey

CLASSES = ClassMap((RetentionClass("short", b"site/#", 1),))
_NOTHING = b"\xfe"
"""Of the home rows that name positions without a message."""
_KEPT = 5
_PAUSE_S = 0.03
"""Between two steps: each of them may change the files, which an owner does every second at most."""


@cache
def topic_at(position: int) -> bytes:
    """Some topics are many, some busy, and new ones come all the time."""
    number = crc32(b"%d" % position)
    match number % 7:
        case 0 | 1:
            return b"busy"
        case 2:
            return b"site/%d" % (number >> 8 & 7)
        case 3:
            return b"new/%d/x" % (position // 40)
        case _:
            return b"plant/%d/line/%d/temp" % (number >> 8 & 1, (number >> 10) % 60)


@cache
def class_at(position: int) -> str:
    return CLASSES.class_of(topic_at(position))


@cache
def message_at(position: int) -> bytes:
    number = crc32(b"%d" % position)
    return encode_message(1, position, b"p%d" % (number & 3), topic_at(position), b"\x00" + b"%d" % number * (number >> 4 & 15))


@dataclass(frozen=True, slots=True)
class Cut:
    """live: (generation, class, since, until) of those that were not dropped. nothing: positions without a message."""

    watermark: int
    sequence: int
    written: list[tuple[int, int]]
    live: list[tuple[int, str, int, int | None]]
    nothing: frozenset[int]

    def generation_of(self, position: int) -> int | None:
        """Where its message is; None: it was dropped, or there is none."""
        if position in self.nothing or not 1 <= position <= self.watermark:
            return None
        klass = class_at(position)
        for generation, of, since, until in self.live:
            if of == klass and since <= position and (until is None or position < until):
                return generation
        return None

    def messages(self, after: int, upto: int) -> dict[int, dict[int, bytes]]:
        """generation -> position -> message."""
        found: dict[int, dict[int, bytes]] = {row[0]: {} for row in self.live}
        for position in range(max(after + 1, 1), min(upto, self.watermark) + 1):
            generation = self.generation_of(position)
            if generation is not None:
                found[generation][position] = message_at(position)
        return found


class Primary:
    def __init__(self, path: Path, layout: str, seed: int) -> None:
        options = RocksOptions(write_buffer_bytes=64 << 10, wal_bytes_max=256 << 10)
        self.engine = RocksEngine(str(path), options)
        self.store = Store.open(self.engine, StoreOptions(layout, (100, 3), classes=CLASSES))
        self.rng = random.Random(f"{seed}")
        self.keys: dict[bytes, TopicKey] = {}
        self.waiting: list[int] = []
        row = self.engine.get(HOME_FAMILY, META + b"position")
        self.last = int(unpack_row(row)[0]) if row else 0
        self.nothing = {int.from_bytes(key[1:], "big") for key, _ in self.engine.scan(HOME_FAMILY, _NOTHING, b"\xff", 1 << 30)}

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.55:
            self.publish(self.rng.choice((1, 5, 40, 120)))
        elif what < 0.70:
            self.idle()
        elif what < 0.78:
            self.roll(self.rng.choice((None, "default", "short")))
        elif what < 0.84:
            self.drop()
        elif what < 0.90:
            self.engine.release_log()
        elif what < 0.92:
            self.store.create_next(self.rng.random() < 0.5)
        elif what < 0.94:
            for family in self.engine.families():
                self.engine.compact(family)
        else:
            self.sync()

    def publish(self, count: int) -> None:
        ops: list[Op] = []
        for _ in range(count):
            self.last += 1
            topic = topic_at(self.last)
            key = self.keys.get(topic)
            if key is None:
                key = self.keys[topic] = self.store.key_of(topic)
            self.store.append(ops, key, self.last, message_at(self.last))
        self.store.flush(ops)
        self._write(ops)

    def idle(self) -> None:
        for _ in range(30):
            if not self.store.idle_work(self.last):
                return

    def roll(self, klass: str | None = None) -> None:
        if self.rng.random() < 0.3:
            self.store.create_next(klass is None)
        self.last += 1
        ops = self.store.roll(self.last, 0, 0, klass)
        self.keys = {}
        self._write([*ops, self._nothing()])

    def drop(self, keeps: int = _KEPT) -> None:
        sealed = [info.id for info in self.store.generations() if info.until is not None]
        if len(sealed) > keeps:
            self.last += 1
            generation = self.rng.choice(sealed[:3])
            self._write([*self.store.drop(generation, reason="read" if generation % 3 == 0 else "period"), self._nothing()])
            self.waiting.append(generation)

    def sync(self) -> None:
        """What was dropped is erased behind it: the row goes first."""
        self.engine.sync()
        while self.waiting:
            self.store.erase(self.waiting.pop())

    def cut(self) -> Cut:
        live = [(int(info.id), info.klass, info.since, info.until) for info in self.store.generations()]
        return Cut(self.last, self.engine.latest_sequence(), self.store.edges(), live, frozenset(self.nothing))

    def close(self) -> None:
        self.engine.close()

    def _nothing(self) -> Op:
        self.nothing.add(self.last)
        return HOME_FAMILY, _NOTHING + self.last.to_bytes(8, "big"), b""

    def _write(self, ops: list[Op]) -> None:
        position = (HOME_FAMILY, META + b"position", pack_row((self.last,)))
        self.engine.write([*self.store.take_growth(), *ops, position])


class Elsewhere:
    """A Primary in a process of its own."""

    def __init__(self, path: Path, layout: str, seed: int) -> None:
        command = [sys.executable, "-m", "tests.shards.primary", str(path), layout, str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def cut(self) -> Cut:
        """The owner writes on after it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("cut\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return Cut(
            told["watermark"],
            told["sequence"],
            [(generation, edges) for generation, edges in told["written"]],
            [(generation, klass, since, until) for generation, klass, since, until in told["live"]],
            frozenset(told["nothing"]),
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def main(path: str, layout: str, seed: str) -> None:
    primary = Primary(Path(path), layout, int(seed))
    while True:
        primary.publish(100)
        primary.step()
        while select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            if not sys.stdin.readline():
                return
            cut = primary.cut()
            told = {"watermark": cut.watermark, "sequence": cut.sequence, "written": cut.written, "live": cut.live}
            print(json.dumps({**told, "nothing": sorted(cut.nothing)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
