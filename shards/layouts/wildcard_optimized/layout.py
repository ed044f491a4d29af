"""Messages under bit-field keys: stream, epoch, hashes of the varying levels, offset in the epoch (docs/formats.md).

One key per message and no index: a filter on varying levels jumps through an epoch from one key that may match to the next. Streams
without varying levels have no epochs, as their keys are in position order anyway.

The cut-off: an epoch is complete when a later one has begun. Until then each look at it has to go over all of its keys again, as what
comes later may sort before what was there. So whoever follows the head through the store is held at the last complete epoch
(`cutoff`), and collects each epoch once. A read that goes further is right, too, and only dearer: places are positions here, not
keys, so nothing is ever passed over. An idle shard commits an empty record so that its last epoch is completed (`wants_tick`).

Holds: what `cutoff` returns is the end of an epoch, or all that was asked for: in a sealed generation, without end of epochs
(`epoch_bits` 64), when no stream of the filter has a varying level, or when nothing was put behind the last complete epoch.
"""

from __future__ import annotations

from bisect import bisect_left

from shards.bulk import NO_LIMIT, Columns, columns_of, packed_columns, position_list
from shards.engine import Engine, Op, StoreDamaged
from shards.layouts.learned import Learned, has, hash_of, load_structure, scanned
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey, read_of
from shards.layouts.wildcard_optimized.epochs import Asked, Counters, Entry, Epochs
from shards.layouts.wildcard_optimized.keys import POSITION_BITS, VARYING_MAX, KeyMapper
from shards.lts import Leaf, TopicStructure
from shards.messages import topic_of

_FETCH_FIRST = 8
_FETCH_MAX = 128


class WildcardOptimized(Learned):
    """One generation in this layout."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure, options: LayoutOptions, new: bool) -> None:
        super().__init__(family, structure)
        self._engine = engine
        self._hash_bytes = options.bits_per_topic_level // 8
        self._index_bytes = options.topic_index_bytes
        self._epoch_bits = options.epoch_bits
        self._mappers = [
            KeyMapper(levels, options.bits_per_topic_level, options.epoch_bits, 8 * options.topic_index_bytes)
            for levels in range(VARYING_MAX + 1)
        ]
        self._first: dict[int, bytes] = {}
        self._shared: set[int] = set()
        self._varies = False
        """Whether there is a stream with varying levels."""
        for leaf in structure.leaves():
            self._note(leaf)
        self._epochs = Epochs(engine, family)
        self._sealed = False
        self._newest: int | None = -1 if new else None
        """The newest message; None when that is not known."""

    @classmethod
    def open(cls, engine: Engine, family: int, options: LayoutOptions) -> WildcardOptimized:
        """Load the learned structure; an empty family gives an empty one."""
        structure = load_structure(engine, family, options, VARYING_MAX)
        return cls(engine, family, structure, options, len(structure) == 0)

    def seen_again(self) -> WildcardOptimized:
        """What is remembered are pages of what is committed: nothing is ever added to those."""
        return self

    def inherit_into(self, family: int, options: LayoutOptions) -> WildcardOptimized:
        return WildcardOptimized(self._engine, family, self._structure.inherit(options.thresholds), options, True)

    @property
    def counters(self) -> Counters:
        return self._epochs.counters

    @property
    def moves(self) -> dict[str, int]:
        counters = self._epochs.counters
        return {"seek": counters.seek, "next": counters.next, "collision": counters.collision}

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        leaf, varying = self._structure.learn(topic)
        width = self._hash_bytes
        hashes = [hash_of(value)[:width] for value in varying]
        numbers = [int.from_bytes(hashed, "big") for hashed in hashes]
        base = self._mappers[len(varying)].key((self._note(leaf), 0, *numbers))
        return TopicKey(self._family, leaf.static, b"".join(hashes), number=base)

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        mapper = self._mappers[len(key.data) // self._hash_bytes]
        ops.append((self._family, mapper.at(key.number, position).to_bytes(mapper.key_bytes, "big"), value))
        self._newest = position

    def flush(self, ops: list[Op]) -> None:
        """Nothing is held back."""

    def take_back(self, position: int) -> None:
        """Nothing is kept of it."""

    def seal(self) -> None:
        self._sealed = True

    def idle_work(self, upto: int) -> bool:
        """Nothing is derived from the messages."""
        return False

    # ---- the cut-off

    def cutoff(self, topic_filter: bytes, upto: int) -> int:
        if not self._varies or self._sealed or self._epoch_bits == POSITION_BITS:
            return upto
        complete = self._complete(upto)
        if self._newest is not None and self._newest <= complete:
            # Nothing waits here, and no tick is wanted: so nobody else may be made to wait, as there may be other classes.
            return upto
        if complete == upto or not any(None in leaf.levels for leaf, _ in self._structure.match(topic_filter)):
            return upto
        return complete

    def wants_tick(self, last: int, now: int) -> bool:
        if not self._varies or self._sealed or self._epoch_bits == POSITION_BITS:
            return False
        if self._newest is None:
            self._newest = last
        return self._complete(last) < self._newest <= self._complete(now)

    def _complete(self, upto: int) -> int:
        """The last position of the last epoch of which nothing can come any more when everything up to `upto` is committed."""
        return ((upto + 1) >> self._epoch_bits << self._epoch_bits) - 1

    # ---- reading

    def read(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        assert count_max > 0 and bytes_max > 0 and examine_max > 0, (count_max, bytes_max, examine_max)
        if after >= upto:
            return Read([], [], after, True)
        index = self._index(stream.static)
        mapper = self._mappers[self._structure.leaf(stream.static).levels.count(None)]
        if mapper.levels == 0 and index not in self._shared:
            return self._scan(mapper, index, after, upto, min(count_max, examine_max), bytes_max)
        levels: list[int | None] = [None] * mapper.levels
        for level, hashed in stream.constraints:
            levels[level - 1] = int.from_bytes(hashed[: self._hash_bytes], "big")
        asked = Asked(stream.static, index, tuple(levels))
        return self._by_epochs(mapper, asked, stream, after, upto, count_max, bytes_max, examine_max)

    def bulk(self, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        assert rows_max > 0 and bytes_max > 0, (rows_max, bytes_max)
        index = self._index(stream.static)
        mapper = self._mappers[self._structure.leaf(stream.static).levels.count(None)]
        if after >= upto or mapper.levels or index in self._shared:
            return columns_of(self.read(stream, after, upto, rows_max, bytes_max, NO_LIMIT))
        found = self._engine.columns(self._family, *self._bounds(mapper, index, after, upto), rows_max, bytes_max)
        return packed_columns(found, mapper.key_bytes, mapper.key_bytes - 8, upto, rows_max, bytes_max)

    def _scan(self, mapper: KeyMapper, index: int, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        """A stream without varying levels, alone under its topic index."""
        keys, values, size = self._engine.keys_and_values(self._family, *self._bounds(mapper, index, after, upto), limit, bytes_max)
        return scanned(position_list(keys, mapper.key_bytes, mapper.key_bytes - 8), values, size, upto, limit, bytes_max)

    def _bounds(self, mapper: KeyMapper, index: int, after: int, upto: int) -> tuple[bytes, bytes]:
        base, size = mapper.key((index, 0)), mapper.key_bytes
        return mapper.at(base, after + 1).to_bytes(size, "big"), mapper.at(base, upto).to_bytes(size, "big") + b"\x00"

    def _by_epochs(
        self, mapper: KeyMapper, asked: Asked, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int
    ) -> Read:
        counters = self._epochs.counters
        begun = counters.seek + counters.next
        fetched = total = 0
        messages: list[tuple[int, bytes]] = []
        place, fetch = after, _FETCH_FIRST
        while place < upto:
            examined = counters.seek + counters.next - begun + fetched
            if examined >= examine_max and place > after:
                return read_of(messages, place, False)
            page = self._epochs.page(mapper, asked, place + 1, upto, max(1, examine_max - examined))
            entries = page.entries
            at, end = bisect_left(entries, (place + 1, b"")), bisect_left(entries, (upto + 1, b""))
            while at < end:
                chunk = entries[at : min(end, at + min(fetch, count_max - len(messages)))]
                at += len(chunk)
                fetched += len(chunk)
                for (position, _), value in zip(chunk, self._values(chunk), strict=True):
                    if not self._belongs(stream, asked.topic_index, value):
                        counters.collision += 1
                        continue
                    if messages and total + len(value) > bytes_max:
                        return read_of(messages, position - 1, False)
                    messages.append((position, value))
                    total += len(value)
                place = chunk[-1][0]
                examined = counters.seek + counters.next - begun + fetched
                if len(messages) >= count_max or total >= bytes_max or examined >= examine_max:
                    return read_of(messages, place, place == upto)
                average = total // len(messages) + 1 if messages else 1
                fetch = max(1, min(2 * fetch, _FETCH_MAX, (bytes_max - total) // average))
            place = min(page.through, upto)
        return read_of(messages, upto, True)

    def _values(self, entries: list[Entry]) -> list[bytes]:
        keys = [key for _, key in entries]
        values: list[bytes] = []
        for key, value in zip(keys, self._engine.get_many(self._family, keys), strict=True):
            if value is None:
                raise StoreDamaged(f"generation {self._family}: the message under {key.hex()} was there and is missing")
            values.append(value)
        return values

    def _belongs(self, stream: Stream, index: int, value: bytes) -> bool:
        """Whether the message is what the key let expect: hashes may be equal, and truncated static keys."""
        topic = topic_of(value)
        if stream.literals and not has(topic, stream.literals):
            return False
        if index not in self._shared:
            return True
        found = self._structure.lookup(topic)
        return found is not None and found[0].static == stream.static

    # ---- within

    def _index(self, static: bytes) -> int:
        """The topic index: the first bytes of the static key; never 0, as such keys would lie among the rows of the structure."""
        return int.from_bytes(static[: self._index_bytes], "big") or 1

    def _note(self, leaf: Leaf) -> int:
        """The topic index of a stream that is known; notes when another one has the same."""
        index = self._index(leaf.static)
        if self._first.setdefault(index, leaf.static) != leaf.static:
            self._shared.add(index)
        if not self._varies:
            self._varies = None in leaf.levels
        return index
