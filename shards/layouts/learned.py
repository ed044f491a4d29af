"""What the layouts share: the learned topic structure with its rows in a family, the hash of a level, what a filter asks, and what a scan
of a whole stream found.

    0[8] | edge kind | parent state[8] | level's bytes      -> child state[8]    the learned topic structure

No static key begins with seven zero bytes (lts.RESERVED_PREFIX), so these rows, the time marks of the store and rows of a
layout's own lie apart from all messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from shards.engine import Engine, Op
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey
from shards.lts import STATE_BYTES, TopicStructure
from shards.messages import topic_of

_TRIE_PREFIX = bytes(STATE_BYTES)
_TRIE_END = bytes(STATE_BYTES - 1) + b"\x01"
_LOAD_CHUNK = 4096


def hash_of(level: bytes) -> bytes:
    """The eight bytes by which a varying level is indexed."""
    return blake2b(level, digest_size=8).digest()


def level_hashes(message: bytes, depths: Sequence[int]) -> list[bytes]:
    """Of the varying levels of a stored message, which are at these depths of its topic. One that lies in a stream of others may have fewer
    levels."""
    levels = topic_of(message).split(b"/")
    return [hash_of(levels[depth]) if depth < len(levels) else hash_of(b"") for depth in depths]


def load_structure(engine: Engine, family: int, options: LayoutOptions, varying_max: int | None = None) -> TopicStructure:
    """What the family's rows say; an empty family gives an empty structure. varying_max as in TopicStructure."""
    rows: list[tuple[bytes, bytes]] = []
    start = _TRIE_PREFIX
    while chunk := engine.scan(family, start, _TRIE_END, _LOAD_CHUNK):
        rows.extend((key[STATE_BYTES:], child) for key, child in chunk)
        start = chunk[-1][0] + b"\x00"
    return TopicStructure.restore(rows, options.thresholds, varying_max)


class Learned(ABC):
    """A layout as far as the topic structure answers for it (layouts.port.Layout); to be derived from. The head is read as cheaply as the
    rest, unless it says otherwise."""

    def __init__(self, family: int, structure: TopicStructure) -> None:
        self._family = family
        self._structure = structure

    @property
    def structure(self) -> TopicStructure:
        return self._structure

    def take_growth(self) -> list[Op]:
        rows = self._structure.take_growth()
        return [(self._family, _TRIE_PREFIX + key, child) for key, child in rows] if rows else []

    @abstractmethod
    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None: ...

    def put_all(self, ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
        put = self.put
        for key, position, value in zip(keys, positions, values, strict=True):
            put(ops, key, position, value)

    def streams(self, topic_filter: bytes) -> list[Stream]:
        return [stream_for(leaf.static, leaf.levels, wanted) for leaf, wanted in self._structure.match(topic_filter)]

    def stream_of(self, static: bytes, topic_filter: bytes) -> Stream:
        wanted = self._structure.compress(static, topic_filter)
        return stream_for(static, self._structure.leaf(static).levels, wanted)

    def cutoff(self, topic_filter: bytes, upto: int) -> int:
        return upto

    def wants_tick(self, last: int, now: int) -> bool:
        return False

    def faults(self, upto: int) -> Iterator[str]:
        return iter(())

    def mended(self, upto: int) -> Iterator[list[Op]]:
        return iter(())


def stream_for(static: bytes, levels: Sequence[bytes | None], wanted: Sequence[bytes | None]) -> Stream:
    if not any(value is not None for value in wanted):
        return Stream(static)
    depths = [depth for depth, level in enumerate(levels) if level is None]
    asked = [(number, value) for number, value in enumerate(wanted) if value is not None]
    return Stream(
        static,
        tuple((number + 1, hash_of(value)) for number, value in asked),
        tuple((depths[number], value) for number, value in asked),
    )


def has(topic: bytes, literals: tuple[tuple[int, bytes], ...]) -> bool:
    """Whether the topic really has these levels: two values may share a hash."""
    levels = topic.split(b"/")
    return all(levels[depth] == value for depth, value in literals)


def scanned(positions: list[int], values: list[bytes], total: int, upto: int, limit: int, bytes_max: int) -> Read:
    """What one scan up to `upto` gave, of at most `limit` messages whose values, `total` bytes, were not to pass `bytes_max`."""
    if len(values) < limit and total < bytes_max:
        return Read(positions, values, upto, True)
    if total > bytes_max and len(values) > 1:
        # The engine stops with the value that passes the bound; only a first one may pass it.
        del positions[-1], values[-1]
    place = positions[-1]
    return Read(positions, values, place, place == upto)
