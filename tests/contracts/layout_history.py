"""A store under one layout and one engine, driven through a random history and compared with a plain list of messages.

Records, syncs, rolls, drops, idle work and reads at any point; kills, after which everything written is there; power cuts, after which
a prefix of the writes is there that has all that was synced. A restart may give positions again that a power cut took.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from shards.engine import HOME_FAMILY, Engine, Op
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine
from shards.layouts.record_batch import RecordBatch
from shards.messages import encode_message
from shards.store import Store, StoreOptions, Stream, TopicKey
from tests.contracts.layouts import SMALL
from tests.shards.topic_model import any_filter, any_topic, matches

MANY = 1 << 40
_POSITION_ROW = b"mposition"
THRESHOLDS: tuple[tuple[int | None, ...], ...] = ((100, 10), (2, 1), (0,), (1, 0), (3, None), (None,))


class Disk:
    """An engine that can crash: in memory by undoing writes, on disk by going on from a copy: of now, or of the last sync."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._opened = 0
        self.engine: Engine = MemoryEngine() if directory is None else RocksEngine(str(directory / "0"))
        self.sync()

    def sync(self) -> None:
        self.engine.sync()
        if self._directory is not None:
            # Not a plain copy: RocksDB deletes files meanwhile.
            shutil.rmtree(self._directory / "synced", ignore_errors=True)
            self.engine.checkpoint(str(self._directory / "synced"))

    def crash(self, power: bool, rng: random.Random) -> None:
        engine = self.engine
        if isinstance(engine, MemoryEngine):
            self.engine = engine.crash(power, rng.choice((0, 0, rng.randint(0, engine.unsynced_writes))))
            return
        assert self._directory is not None
        self._opened += 1
        path = self._directory / str(self._opened)
        if power:
            shutil.copytree(self._directory / "synced", path, ignore=shutil.ignore_patterns("LOCK"))
        else:
            engine.checkpoint(str(path))
        engine.close()
        self.engine = RocksEngine(str(path))


KEYS = ((64, 20, 4), (8, 9, 1), (16, 7, 1), (8, 12, 2), (24, 64, 4), (8, 1, 1))
"""bits_per_topic_level, epoch_bits, topic_index_bytes: also such that epochs are short and much is equal."""
_LONG_PAUSE = 1 << 21


class Follower:
    """Reads a filter as it comes in, up to the cut-off each time, and remembers what it was given."""

    def __init__(self, topic_filter: bytes) -> None:
        self.filter = topic_filter
        self.place = 0
        self.found: list[tuple[int, bytes]] = []


class Layouts:
    """One history. ``watermark``: everything up to here is synced, so it may be read and is never lost."""

    def __init__(self, seed: int, layouts: tuple[str, ...], directory: Path | None) -> None:
        self.rng = random.Random(seed)
        self.layouts = layouts
        self.disk = Disk(directory)
        self.thresholds = self.rng.choice(THRESHOLDS)
        self.topics = [any_topic(self.rng) for _ in range(self.rng.choice((3, 10, 40)))]
        self.messages: list[tuple[int, bytes, bytes]] = []
        self.remembered: list[tuple[int, bytes, bytes, int, int, list[tuple[int, bytes]]]] = []
        self.last = 0
        self.watermark = 0
        self.serial = 0
        self.waiting: list[tuple[int, int]] = []
        self.keys: dict[bytes, TopicKey] = {}
        self.followers = [Follower(b"#"), Follower(b"+/#"), Follower(self.topics[0])]
        # With a source of its own: what else happens does not depend on it.
        self.key_rng = random.Random(f"keys {seed}")
        self._open()

    # ---- what may happen

    def step(self) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.40:
            self.publish()
        elif what < 0.55:
            self.sync()
        elif what < 0.75:
            for _ in range(rng.choice((1, 3, 20))):
                self.store.idle_work(self.watermark)
        elif what < 0.80:
            self.roll()
        elif what < 0.83:
            self.drop()
        elif what < 0.88:
            self.crash(power=rng.random() < 0.6)
        else:
            self.read()
        if self.key_rng.random() < 0.05:
            self.pause()
        self.follow()
        self.store.check()

    def pause(self) -> None:
        """Nobody publishes for longer than an epoch: an empty record, if the layout wants one, lets followers have all there is."""
        if self.store.wants_tick(self.last, self.last + _LONG_PAUSE):
            self.last += _LONG_PAUSE
            self._write([])
            self.sync()
        if self.watermark == self.last and self.messages:
            assert self.store.cutoff(b"#", self.watermark) >= self.messages[-1][0]
            assert not self.store.wants_tick(self.last, self.last + _LONG_PAUSE), "once is enough"

    def publish(self) -> None:
        rng = self.rng
        ops: list[Op] = []
        pool = self.topics if rng.random() < 0.6 else self.topics[: rng.choice((1, 2))]
        size = rng.choice((0, 20, 20, 20, 9000))
        for _ in range(rng.choice((1, 2, 5, 20, 60, 150))):
            self.last += rng.choice((1, 1, 1, 3, 500))
            topic = rng.choice(pool) if rng.random() < 0.9 else any_topic(rng)
            key = self.keys.get(topic)
            if key is None:
                key = self.keys[topic] = self.store.key_of(topic)
            self.serial += 1
            value = encode_message(1, self.serial, b"c" * rng.choice((3, 300)), topic, bytes(rng.randint(0, size)))
            self.store.append(ops, key, self.last, value)
            self.messages.append((self.last, topic, value))
        self.store.flush(ops)
        self._write(self.store.take_growth() + ops)

    def sync(self) -> None:
        self.disk.sync()
        self.watermark = self.last
        while self.waiting and self.waiting[0][0] <= self.watermark:
            self.store.erase(self.waiting.pop(0)[1])
            # Dropping a family is durable at once, so it is on the copy, too.
            self.disk.sync()

    def roll(self) -> None:
        self.options = self._options()
        self.last += 1
        self._write(self.store.roll(self.last, 0, 0))
        self.disk.sync()
        self.watermark = self.last
        self.keys = {}

    def drop(self) -> None:
        oldest = self.store.generations()[0]
        if oldest.until is None:
            return
        self.last += 1
        self._write(self.store.drop(oldest.id))
        self.waiting.append((self.last, oldest.id))
        until = oldest.until
        self.messages = [message for message in self.messages if message[0] >= until]
        self.remembered = [asked for asked in self.remembered if asked[0] != oldest.id]
        self.sync()

    def crash(self, power: bool) -> None:
        self.disk.crash(power, self.rng)
        self._open()
        row = self.disk.engine.get(HOME_FAMILY, _POSITION_ROW)
        self.last = int.from_bytes(row, "big") if row else 0
        assert self.last >= self.watermark, "what was synced is there"
        self.messages = [message for message in self.messages if message[0] <= self.last]
        self.disk.sync()
        self.watermark = self.last

    # ---- what must hold

    def read(self) -> None:
        rng = self.rng
        topic_filter = any_filter(rng) if rng.random() < 0.5 else rng.choice((b"#", b"+/#", rng.choice(self.topics)))
        after = rng.choice((0, rng.randint(0, self.watermark), max(0, self.watermark - rng.randint(0, 2000))))
        upto = rng.choice((self.watermark, rng.randint(after, max(after, self.watermark))))
        found: list[tuple[int, bytes]] = []
        streams = self.store.streams(topic_filter, after)
        references = [(generation, stream.static) for generation, stream in streams]
        assert references == sorted(set(references))
        for generation, stream in streams:
            assert self.store.stream_of(generation, stream.static, topic_filter) == stream
            messages = self._in_pieces(generation, stream, after, upto)
            found += messages
            if messages and rng.random() < 0.2:
                self.remembered.append((generation, stream.static, topic_filter, after, upto, messages))
        expected = self.expected(topic_filter, after, upto)
        assert sorted(found) == expected, _difference(topic_filter, sorted(found), expected)
        assert self.store.read_range(topic_filter, references, after, upto) == expected
        for old, static, wanted, begin, end, messages in self.remembered[-20:]:
            stream = self.store.stream_of(old, static, wanted)
            count = rng.choice((1, 3, max(1, len(messages))))
            again = self.store.read(old, stream, begin, end, count, MANY, MANY) if begin < end else None
            assert again is None or again.messages == messages[:count], "the same arguments, the same messages"

    def follow(self) -> None:
        """Followers go on to the cut-off."""
        for follower in self.followers:
            horizon = self.store.cutoff(follower.filter, self.watermark)
            if horizon > follower.place:
                for generation, stream in self.store.streams(follower.filter, follower.place):
                    follower.found += self._in_pieces(generation, stream, follower.place, horizon, self.key_rng)
                follower.place = horizon

    def followed(self) -> None:
        """Of all that is kept followers were given each message once, whatever came into an epoch later."""
        oldest = self.store.generations()[0].since
        for follower in self.followers:
            found = sorted(message for message in follower.found if message[0] >= oldest)
            expected = self.expected(follower.filter, 0, follower.place)
            assert found == expected, _difference(follower.filter, found, expected)

    def finish(self) -> None:
        """Everything is sealed, worked on until there is nothing more to do, and read."""
        self.sync()
        self.pause()
        self.follow()
        self.roll()
        self.follow()
        self.followed()
        slices = 0
        while self.store.idle_work(self.watermark):
            slices += 1
            assert slices < 20_000, "idle work comes to an end"
        self._all_folded()
        for _ in range(3):
            self.read()
        self.crash(power=True)
        for topic_filter in (b"#", b"+/#", b"$s/#"):
            streams = self.store.streams(topic_filter, 0)
            found = [each for generation, stream in streams for each in self._in_pieces(generation, stream, 0, self.watermark)]
            assert sorted(found) == self.expected(topic_filter, 0, self.watermark)

    def expected(self, topic_filter: bytes, after: int, upto: int) -> list[tuple[int, bytes]]:
        return [(position, value) for position, topic, value in self.messages if after < position <= upto and matches(topic_filter, topic)]

    # ---- within

    def _all_folded(self) -> None:
        """Of sealed generations that are open each stream has one segment and nothing beside it, or few messages and none."""
        for layout in self.store._generations._open.values():
            if isinstance(layout, RecordBatch) and layout._index._sealed:
                for index in layout._index._streams.values():
                    assert len(index.segments) <= 1 and not index.state.garbage
                    assert index.uncovered == 0 or (index.uncovered < SMALL.small_stream and not index.segments)

    def _options(self) -> StoreOptions:
        return StoreOptions(self.rng.choice(self.layouts), self.thresholds, *self.key_rng.choice(KEYS))

    def _open(self) -> None:
        self.options = self._options()
        self.store = Store.open(self.disk.engine, self.options)
        self.keys = {}
        self.waiting = []

    def _write(self, ops: list[Op]) -> None:
        self.disk.engine.write([*ops, (HOME_FAMILY, _POSITION_ROW, self.last.to_bytes(8, "big"))])

    def _in_pieces(
        self, generation: int, stream: Stream, after: int, upto: int, rng: random.Random | None = None
    ) -> list[tuple[int, bytes]]:
        rng = rng or self.rng
        found: list[tuple[int, bytes]] = []
        place, done = after, False
        count, size, keys = rng.choice((1, 5, 100, MANY)), rng.choice((100, 20_000, MANY)), rng.choice((2, 30, MANY))
        while not done:
            read = self.store.read(generation, stream, place, upto, count, size, keys)
            assert len(read.messages) <= count
            assert len(read.messages) <= 1 or sum(len(value) for _, value in read.messages) <= size
            assert read.done or read.place > place
            found += read.messages
            place, done = read.place, read.done
            assert not found or found[-1][0] <= place
        assert [position for position, _ in found] == sorted({position for position, _ in found})
        return found


def _difference(topic_filter: bytes, found: list[tuple[int, bytes]], expected: list[tuple[int, bytes]]) -> str:
    positions, wanted = [position for position, _ in found], [position for position, _ in expected]
    missing, more = sorted(set(wanted) - set(positions)), sorted(set(positions) - set(wanted))
    return f"{topic_filter!r}: missing {missing[:5]} of {len(wanted)}, too many {more[:5]} of {len(positions)}"
