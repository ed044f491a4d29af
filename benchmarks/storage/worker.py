"""A process with one store in one layout, which does what its standard input says and answers with figures.

``python -m benchmarks.storage.worker LAYOUT SHAPE DIRECTORY [--gc]``; a command is a line of words, an answer a line of JSON.

    write MESSAGES COMMIT SYNC    records of COMMIT messages; SYNC 1: each is synced
    read FILTER COUNT LIMIT       everything that matches, COUNT at a time, at most LIMIT messages
    ones SAMPLES                  so many filters for one device each; FIRST message, then all
    raw LIMIT                     all values of the store as they are, checked and not cut into messages
    fold                          seal, and idle work to its end
    reopen                        close and open
    cold SAMPLES                  reopen without the file cache, so many filters for one device each, by the clock

Messages are made before they are timed, as the gateway makes them; the topic cache of a shard is warm, as it is in a broker.
The store is used as the shard uses it: store.append, store.flush, engine.write, idle work after each record. gc is as in the broker:
what is there is frozen, full collections are rare. With --gc it is Python's default.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.storage.counting import CountingEngine
from benchmarks.storage.measured import Folded, Opened, Read, Write
from benchmarks.storage.shapes import SHAPES, bodies
from shards.engine import Op
from shards.engine_rocks import RocksEngine, RocksOptions
from shards.layouts.batched.plain import Plain
from shards.layouts.record_batch.values import BATCH, KEY_BYTES, KIND_AT, check_single, open_batch
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import Store, Stream, TopicKey

BLOCK_CACHE_BYTES = 256 << 20
"""More than a store here takes, so that layouts are compared and not the machine's file reads; those are what `cold` is for."""

Answer = Write | Read | Folded | Opened
_ALL = 1 << 40
_BYTES = 1 << 20
_CHUNK = 5000


class Worker:
    def __init__(self, layout: str, shape: str, directory: Path, default_gc: bool) -> None:
        self._options = StoreOptions(layout)
        self._shape = SHAPES[shape]
        self._path = directory
        self._default_gc = default_gc
        self._rng = random.Random(7)
        self._bodies = bodies(self._rng, self._shape.body_bytes)
        self._keys: dict[bytes, TopicKey] = {}
        self._position = 1
        self._count = 0
        self._open()

    def _open(self) -> None:
        self._engine = RocksEngine(str(self._path), RocksOptions(block_cache_bytes=BLOCK_CACHE_BYTES))
        self._store = Store.open(self._engine, self._options)
        self._keys.clear()

    # ---- writing

    def write(self, messages: int, commit: int, sync: bool) -> Write:
        aside = slice_max = 0.0
        store, engine = self._store, self._engine
        began = time.process_time()
        done = 0
        while done < messages:
            prepared_from = time.thread_time()
            records = self._prepare(min(max(_CHUNK, commit), messages - done), commit)
            if self._default_gc:
                gc.unfreeze()
            else:
                gc.freeze()
                gc.set_threshold(20_000, 50, 100)
            aside += time.thread_time() - prepared_from
            for record in records:
                ops: list[Op] = []
                append = store.append
                for key, position, value in record:
                    append(ops, key, position, value)
                store.flush(ops)
                engine.write(ops)
                if sync:
                    engine.sync()
                begin = time.thread_time()
                store.idle_work(self._position)
                spent = time.thread_time() - begin
                slice_max = max(slice_max, spent)
                done += len(record)
        process = time.process_time() - began - aside
        return Write(process / done * 1e6, slice_max * 1000)

    def _prepare(self, messages: int, commit: int) -> list[list[tuple[TopicKey, int, bytes]]]:
        rng, shape, keys, made = self._rng, self._shape, self._keys, self._bodies
        records = []
        for start in range(0, messages, commit):
            record = []
            for _ in range(min(commit, messages - start)):
                topic = shape.topic(rng, self._count)
                self._position += 7
                self._count += 1
                key = keys.get(topic)
                if key is None:
                    key = keys[topic] = self._store.key_of(topic)
                publisher = b"client-%d" % (self._count % 1000)
                record.append((key, self._position, encode_message(1, 1_700_000_000_000 + self._count, publisher, topic, rng.choice(made))))
            records.append(record)
            growth = self._store.take_growth()
            if growth:
                # One write for the trie of a record; in the broker it is in the record, and it is not what is measured here.
                self._engine.write(growth)
        return records

    # ---- reading

    def read(self, topic_filter: bytes, count: int, limit: int) -> Read:
        streams = self._store.streams(topic_filter, 0)
        best = 1e9
        messages = 0
        for _ in range(3):
            begin = time.thread_time()
            messages = self._follow(self._store, streams, count, limit)
            best = min(best, time.thread_time() - begin)
        begin = time.thread_time()
        self._follow(self._store, self._store.streams(topic_filter, 0), 1, 1)
        first = time.thread_time() - begin
        counted = self._counted(lambda store: self._follow(store, streams, count, limit))
        return Read(best / max(messages, 1) * 1e6, first * 1e6, messages, *counted)

    def ones(self, samples: int) -> Read:
        one = self._shape.one
        assert one is not None
        rng = random.Random(11)
        filters = [one(rng.randrange(self._shape.ones)) for _ in range(samples)]
        self._each(self._store, filters[: samples // 4], _ALL)
        times = []
        messages = 0
        for _ in range(2):
            begin = time.thread_time()
            messages = self._each(self._store, filters, _ALL)
            times.append(time.thread_time() - begin)
        begin = time.thread_time()
        self._each(self._store, filters, 1)
        first = time.thread_time() - begin
        counted = self._counted(lambda store: self._each(store, filters, _ALL))
        return Read(min(times) / samples * 1e6, first / samples * 1e6, messages, *counted)

    def raw(self, limit: int) -> Read:
        """What a bulk reader ships: values and positions, checked as the layout can check them."""
        begin = time.thread_time()
        messages = 0
        layout, plain = self._options.layout, Plain()
        for generation, stream in self._store.streams(b"#", 0):
            start, end = stream.static, stream.static + b"\xff" * 10
            while messages < limit:
                found = self._engine.scan(generation, start, end, 256, _BYTES)
                if not found:
                    break
                start = found[-1][0] + b"\x00"
                if layout == "pagestream":
                    of_batches = plain.batches([key for key, _ in found])
                    messages += len(found) + sum(plain.opened(*found[index]).messages_count - 1 for index in of_batches)
                    continue
                if layout != "record_batch":
                    # Index keys of this stream follow its messages and have no value.
                    positions = [int.from_bytes(key[-8:], "big") for key, value in found if value]
                    messages += len(positions)
                    continue
                for key, value in found:
                    if len(key) == KEY_BYTES and key[KIND_AT] == BATCH:
                        messages += open_batch(key, value).messages_count
                    else:
                        messages += 1
                        check_single(key, value)
        spent = time.thread_time() - begin
        return Read(spent / max(messages, 1) * 1e6, 0.0, messages, 0.0, 0.0)

    def _each(self, store: Store, filters: list[bytes], limit: int) -> int:
        return sum(self._follow(store, store.streams(topic_filter, 0), 100, limit) for topic_filter in filters)

    def _follow(self, store: Store, streams: Sequence[tuple[int, Stream]], count: int, limit: int) -> int:
        messages = 0
        upto = self._position
        for generation, stream in streams:
            place, done = 0, False
            while not done and messages < limit:
                read = store.read(generation, stream, place, upto, count, _BYTES, _ALL)
                messages += len(read.values)
                place, done = read.place, read.done
            if messages >= limit:
                break
        return messages

    def _counted(self, streams: Callable[[Store], int]) -> tuple[float, float]:
        """Seeks and entries per message of a reading, on a second view of the store. It reads twice: what of an index is in RAM only,
        the view has to make anew at first; where no read does that, here."""
        counting = CountingEngine(self._engine)
        store = Store.open(counting, self._options)
        for generation in store.generations():
            index = getattr(store._generations.layout(generation.id), "_index", None)
            while index is not None and index._unloaded:
                index.idle_work(self._position)
        streams(store)
        counting.seeks = counting.entries = 0
        messages = max(streams(store), 1)
        return counting.seeks / messages, counting.entries / messages

    # ---- the rest

    def fold(self) -> Folded:
        self._engine.sync()
        self._position += 7
        self._engine.write(self._store.roll(self._position, 0, 0))
        self._keys.clear()
        slice_max = total = 0.0
        more = True
        while more:
            begin = time.thread_time()
            more = self._store.idle_work(self._position)
            spent = time.thread_time() - begin
            total += spent
            slice_max = max(slice_max, spent)
        return Folded(total / max(self._count, 1) * 1e6, slice_max * 1000)

    def reopen(self) -> Opened:
        self._engine.sync()
        self._engine.close()
        begin = time.monotonic()
        self._open()
        spent = time.monotonic() - begin
        return Opened(self._engine.size_bytes() / max(self._count, 1), spent * 1000)

    def cold(self, samples: int) -> Read:
        one = self._shape.one
        assert one is not None
        self._engine.sync()
        self._engine.close()
        for path in self._path.iterdir():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._open()
        rng = random.Random(13)
        filters = [one(rng.randrange(self._shape.ones)) for _ in range(samples)]
        begin = time.monotonic()
        messages = self._each(self._store, filters, _ALL)
        spent = time.monotonic() - begin
        return Read(spent / samples * 1e6, 0.0, messages, 0.0, 0.0)

    def close(self) -> None:
        self._engine.close()

    def answer(self, words: list[str]) -> Answer:
        match words:
            case ["write", messages, commit, sync]:
                return self.write(int(messages), int(commit), sync == "1")
            case ["read", topic_filter, count, limit]:
                return self.read(topic_filter.encode(), int(count), int(limit))
            case ["ones", samples]:
                return self.ones(int(samples))
            case ["raw", limit]:
                return self.raw(int(limit))
            case ["fold"]:
                return self.fold()
            case ["reopen"]:
                return self.reopen()
            case ["cold", samples]:
                return self.cold(int(samples))
            case _:
                raise ValueError(f"command {words} is not known")


def main(arguments: list[str]) -> None:
    layout, shape, directory, *more = arguments
    worker = Worker(layout, shape, Path(directory), "--gc" in more)
    for line in sys.stdin:
        print(json.dumps(asdict(worker.answer(line.split()))), flush=True)
    worker.close()


if __name__ == "__main__":
    main(sys.argv[1:])
