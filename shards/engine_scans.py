"""Scans of RocksDB: the entries of one family between two keys, by the kind of iterator that is cheapest for so many.

Always holds: an iterator's ReadOptions live as long as the iterator (without them rocksdict ends a scan early and says nothing), and a
scan that ends before its bounds has asked whether it stopped because of an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from typing import TypeAlias, cast

from rocksdict import Rdict, RdictIter, ReadOptions

from shards.engine import Apart, Entries
from shards.engine_kept import Standing

Keep: TypeAlias = Callable[[bytes, Iterator[tuple[bytes, bytes]], ReadOptions], None]
"""shards.engine_kept.KeptReads.keep, of a family and an upper bound."""
_AT_ONCE = 64
_AT_ONCE_BYTES = 256 << 10
"""Between two looks at the bounds: so many entries at most, and fewer where those before were larger than that on average."""
_STEPS = 8
"""So many entries come one by one. For more there is another kind of iterator: a fifth cheaper for each, and 6 us to make."""
MANY = 256
"""Who asks for so many has most often seen that there are, so the other kind comes at once: each kind has to look for the first entry."""


def few(rdict: Rdict, start: bytes, end: bytes, limit: int, left: int) -> Apart:
    """The first ones by an iterator that costs little to make; more are a fifth cheaper by the other kind."""
    keys: list[bytes] = []
    values: list[bytes] = []
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    iterator: RdictIter = rdict.iter(options)
    iterator.seek(start)
    rest = _step(iterator, keys, values, min(limit, _STEPS), left)
    if len(keys) < min(limit, _STEPS) and rest > 0:
        iterator.status()
    elif len(keys) < limit and rest > 0:
        # Both kinds see the same: whoever shares an engine among threads lets nobody write, or catch up, during a read.
        rest = _run(_items(rdict, behind(keys, start), options), keys, values, limit, rest)
        rest = _look_on(iterator, keys, values, start, limit, rest)
    return keys, values, left - rest


def many(rdict: Rdict, start: bytes, end: bytes, limit: int, left: int, standing: Standing | None, keep: Keep | None) -> Apart:
    """As `few`, by the other kind at once.  standing: what may be gone on with.  keep: takes what the next may go on with."""
    keys: list[bytes] = []
    values: list[bytes] = []
    entries, options = (standing.entries, standing.options) if standing is not None else _begun(rdict, start, end)
    rest = _run(entries, keys, values, limit, left)
    if standing is not None and keys and keys[0] < start:
        # Whoever asks has moved over some.
        return many(rdict, start, end, limit, left, None, keep)
    if len(keys) == limit and rest > 0:
        if keep is not None:
            keep(keys[-1], entries, options)
    else:
        rest = _look_on(rdict.iter(options), keys, values, start, limit, rest)
    return keys, values, left - rest


def _begun(rdict: Rdict, start: bytes, end: bytes) -> tuple[Iterator[tuple[bytes, bytes]], ReadOptions]:
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    # Nobody reads the same blocks again soon, and putting them into the cache costs as much as taking them apart.
    options.fill_cache(False)  # type: ignore[call-arg]  # its stub forgets the argument
    return _items(rdict, start, options), options


def _items(rdict: Rdict, start: bytes, options: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
    return cast("Iterator[tuple[bytes, bytes]]", rdict.items(from_key=start, read_opt=options))


def _look_on(iterator: RdictIter, keys: list[bytes], values: list[bytes], start: bytes, limit: int, left: int) -> int:
    """Iterators of the other kind end at a damaged block as they do at the last key, and say nothing: so this one is asked for more, where
    more is wanted. Returns what is left of the bytes."""
    if len(keys) < limit and left > 0:
        iterator.seek(behind(keys, start))
        left = _step(iterator, keys, values, limit - len(keys), left)
        if len(keys) < limit and left > 0:
            iterator.status()
    return left


def _step(iterator: RdictIter, keys: list[bytes], values: list[bytes], count: int, left: int) -> int:
    """Add so many entries, one by one, and none after that with which they have `left` bytes. Returns what is left of these."""
    # Bound methods and a plain loop: this is a read path of stored messages.
    valid, key, value, following, take_key, take = iterator.valid, iterator.key, iterator.value, iterator.next, keys.append, values.append
    while count and valid():
        data = value()
        take_key(key())
        take(data)
        count -= 1
        left -= len(data)
        if not count or left <= 0:
            break
        following()
    return left


def _run(entries: Iterator[tuple[bytes, bytes]], keys: list[bytes], values: list[bytes], limit: int, left: int) -> int:
    """Add entries until there are `limit`, as `_step` does, with one call for each instead of four."""
    at_once = _at_once(len(values), sum(map(len, values)))
    for some_keys, some_values, lengths in parts(entries, limit - len(keys), left, at_once):
        keys += some_keys
        values += some_values
        left -= sum(lengths)
    return left


def parts(entries: Iterator[tuple[bytes, bytes]], limit: int, left: int, at_once: int) -> Iterator[Entries]:
    """Up to `limit` of them, and none after that with which they have `left` bytes, so many at first."""
    while several := list(islice(entries, min(at_once, limit))):
        keys, values = map(list, zip(*several, strict=True))
        lengths = list(map(len, values))
        size = sum(lengths)
        if size >= left:
            yield _until(keys, values, lengths, left)
            return
        yield keys, values, lengths
        left, limit, at_once = left - size, limit - len(keys), _at_once(len(keys), size)


def behind(keys: list[bytes], start: bytes) -> bytes:
    """Where what comes after these begins; with none yet, at the start."""
    return keys[-1] + b"\x00" if keys else start


def _at_once(entries: int, size: int) -> int:
    """How many to take before the bounds are looked at again, after so many that have this size."""
    return min(_AT_ONCE, 1 + _AT_ONCE_BYTES * entries // max(1, size))


def _until(keys: list[bytes], values: list[bytes], lengths: list[int], left: int) -> Entries:
    """Up to the value with which they reach so many bytes."""
    count = 1 + next(number for number, size in enumerate(accumulate(lengths)) if size >= left)
    return keys[:count], values[:count], lengths[:count]
