"""The digest of stored messages: one number that says whether two sets of rows are the same, however they are cut, ordered or packed.

Each row has a hash of 64 bits; the digest of rows is the sum of their hashes modulo 2^64. So the digest of a generation is the sum of those
of its parts, and it stays the same when rows are split by hour or written anew. What is made from the message itself is in it; `ts` and
`message_id` are not, as they follow from the shard's clock and the store's name, which are not the message's.

A hash takes every value times an odd number of its own, modulo 2^64, and mixes the sum in a way that loses nothing. Hence:

1. a row in which one byte, one number, one null or one length is another has another hash, always;
2. rows that exchanged values have another digest, but for a chance of 2^-64.

It is no signature: whoever wants to can make rows that fit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

VERSION: Final = 1
"""Of the function. A change of any hash is a new version: digests are kept for as long as archives are."""

MODULUS: Final = 1 << 64

U64s = npt.NDArray[np.uint64]
I64s = npt.NDArray[np.int64]

_ROWS_AT_ONCE: Final = 8192
"""What is worked on at a time stays in the processor's cache."""
_WORDS_AT_ONCE: Final = 16384
"""What is made of the words themselves is as large again, and each of its passes shall meet it there too."""
_SHORT_BYTES: Final = 512
"""Longer values go in by their CRC-32: one call for each is then cheaper than word by word."""

_BYTES_COLUMNS: Final = ("topic", "payload", "client_id", "content_type", "response_topic", "correlation_data")
_NUMBER_COLUMNS: Final = ("offset", "shard", "generation", "stream", "qos", "retain", "expiry_ms", "payload_format")
_PAIRS_COLUMN: Final = "user_properties"

_MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_S32: Final = np.uint64(32)
_S33: Final = np.uint64(33)


def _weights(seed: int, count: int) -> U64s:
    """Odd numbers without a pattern (splitmix64)."""
    found = np.empty(count, np.uint64)
    state = seed * 0x9E3779B97F4A7C15 % MODULUS
    for at in range(count):
        state = (state + 0x9E3779B97F4A7C15) % MODULUS
        word = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % MODULUS
        found[at] = (word ^ (word >> 31)) | 1
    return found


# For each column: by place of the word in the value, then for a length, a CRC, a null.
_WORDS_MAX: Final = _SHORT_BYTES // 8
_LENGTH, _CRC, _NULL, _VALUE = _WORDS_MAX, _WORDS_MAX + 1, _WORDS_MAX + 2, _WORDS_MAX + 3
_WEIGHTS: Final = {
    name: _weights(seed + 1, _WORDS_MAX + 4) for seed, name in enumerate((*_BYTES_COLUMNS, *_NUMBER_COLUMNS, _PAIRS_COLUMN, "key", "value"))
}
_PLACES_AT_ONCE: Final = 64
_PLACES: Final = _weights(1000, _PLACES_AT_ONCE)
_MASKS: Final = np.array([0xFFFFFFFFFFFFFFFF, *((1 << 8 * n) - 1 for n in range(1, 8))], np.uint64)
"""By the length modulo 8: which bytes of the last word are the value's."""


def row_hashes(rows: pa.RecordBatch) -> U64s:
    """One hash a row. ``rows`` have the columns of the source; those that it does not have count as they do when all are null."""
    found = np.empty(rows.num_rows, np.uint64)
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        part = rows.slice(first, _ROWS_AT_ONCE)
        found[first : first + part.num_rows] = _hashes(part)
    return found


def digest(rows: pa.RecordBatch) -> int:
    return total(row_hashes(rows))


def total(hashes: U64s) -> int:
    """The digest of the rows with these hashes."""
    return int(np.add.reduce(hashes, dtype=np.uint64)) if len(hashes) else 0


def sums(hashes: U64s, firsts: I64s) -> list[int]:
    """The digests of the parts that begin at ``firsts``; none of them is empty."""
    return [int(found) for found in np.add.reduceat(hashes, firsts)] if len(firsts) else []


def _hashes(rows: pa.RecordBatch) -> U64s:
    found = np.zeros(rows.num_rows, np.uint64)
    names = set(rows.schema.names)
    for name in _NUMBER_COLUMNS:
        if name in names:
            _add_numbers(found, rows.column(name), _WEIGHTS[name])
    for name in _BYTES_COLUMNS:
        if name in names:
            _add_bytes(found, rows.column(name), _WEIGHTS[name])
    if _PAIRS_COLUMN in names:
        _add_pairs(found, rows.column(_PAIRS_COLUMN))
    return _mixed(found)


def _mixed(found: U64s) -> U64s:
    """Each step can be undone, so different sums stay different."""
    found ^= found >> _S33
    found *= _MIX_1
    found ^= found >> _S33
    found *= _MIX_2
    found ^= found >> _S33
    return found


def _add_nulls(found: U64s, column: Any, weights: U64s) -> bool:
    """True: there is nothing but nulls. Most columns of most messages are like this, and cost nothing."""
    if column.null_count == 0:
        return False
    if column.null_count == len(column):
        found += weights[_NULL]
        return True
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    found += np.where(nulls, weights[_NULL], np.uint64(0))
    return False


def _add_numbers(found: U64s, column: Any, weights: U64s) -> None:
    if _add_nulls(found, column, weights):
        return
    if column.null_count:
        column = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
    values = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)
    found += (values ^ values >> _S32) * weights[_VALUE]


def _add_bytes(found: U64s, column: Any, weights: U64s) -> None:
    if _add_nulls(found, column, weights):
        return
    starts, ends, data = _values(column)
    if not len(data):
        return
    lengths = ends - starts
    found += lengths.view(np.uint64) * weights[_LENGTH]
    long = lengths > _SHORT_BYTES
    if long.any():
        view = data.data
        places = np.flatnonzero(long)
        edges = zip(starts[places].tolist(), ends[places].tolist(), strict=True)
        found[places] += np.array([crc32(view[start:end]) for start, end in edges], np.uint64) * weights[_CRC]
        lengths = np.where(long, 0, lengths)
    # A word of 8 bytes is taken at once, also where fewer are left: at the end of the buffer that needs room behind it.
    near_end = int(np.searchsorted(ends, len(data) - 8, "right"))
    if near_end:
        _add_words(found[:near_end], starts[:near_end], lengths[:near_end], data, weights)
    if near_end < len(starts):
        base = int(starts[near_end])
        rest = np.concatenate((data[base:], np.zeros(8, np.uint8)))
        _add_words(found[near_end:], starts[near_end:] - base, lengths[near_end:], rest, weights)


def _values(column: Any) -> tuple[I64s, I64s, npt.NDArray[np.uint8]]:
    """Where the values of a string or binary column begin and end, and the bytes they lie in."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if column.null_count:
        # What lies below a null may be anything.
        column = pc.fill_null(column, "" if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) else b"")
    _, edges_buffer, data_buffer = column.buffers()
    kind = np.dtype(np.int64 if wide else np.int32)
    edges: I64s = np.frombuffer(edges_buffer, kind, len(column) + 1, column.offset * kind.itemsize).astype(np.int64, copy=False)
    data: npt.NDArray[np.uint8] = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.empty(0, np.uint8)
    )
    return edges[:-1], edges[1:], data


def _add_words(found: U64s, starts: I64s, lengths: I64s, data: npt.NDArray[np.uint8], weights: U64s) -> None:
    """Rows with equally many words are copied out as one matrix of words. Sorted by that number they lie together."""
    counts = (lengths + 7) >> 3
    if len(counts) and (counts == counts[0]).all():
        # As of clients, and of payloads of one kind.
        if words := int(counts[0]):
            found += _words_of(starts, lengths, words, data, weights)
        return
    order = np.argsort(counts.astype(np.uint8), kind="stable")
    counts = counts[order]
    begins = [*np.flatnonzero(np.diff(counts, prepend=-1)).tolist(), len(order)]
    for first, beyond in pairwise(begins):
        words = int(counts[first])
        if not words:
            continue
        which = order[first:beyond]
        found[which] += _words_of(starts[which], lengths[which], words, data, weights)


def _words_of(starts: I64s, lengths: I64s, words: int, data: npt.NDArray[np.uint8], weights: U64s) -> U64s:
    # Every place in the data is the beginning of so many bytes.
    anywhere: Any = np.ndarray((len(data) - 8 * words + 1,), f"V{8 * words}", data, strides=(1,))
    summed = np.empty(len(starts), np.uint64)
    masks = _MASKS[lengths & 7]
    at_once = max(64, _WORDS_AT_ONCE // words)
    for first in range(0, len(starts), at_once):
        part = slice(first, first + at_once)
        matrix = anywhere[starts[part]].view("<u8").reshape(-1, words)
        matrix[:, -1] &= masks[part]
        # An odd factor leaves the highest bit where it is; folded down first, it counts by its place like all others.
        matrix ^= matrix >> _S32
        np.einsum("ij,j->i", matrix, weights[:words], out=summed[part])
    return summed


def _add_pairs(found: U64s, column: Any) -> None:
    """Lists of keys and values: a pair counts by its place in the list."""
    weights = _WEIGHTS[_PAIRS_COLUMN]
    if _add_nulls(found, column, weights):
        return
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    found += lengths.view(np.uint64) * weights[_LENGTH]
    # Without what lies below nulls, and without what a slice leaves out.
    pairs = column.flatten()
    if not len(pairs):
        return
    each = np.zeros(len(pairs), np.uint64)
    for field, name in enumerate(("key", "value")):
        _add_bytes_in_parts(each, pairs.field(field), _WEIGHTS[name])
    each = _mixed(each)
    has = lengths > 0
    ends = np.cumsum(lengths)
    places = np.arange(len(pairs)) - np.repeat(ends - lengths, lengths)
    if int(lengths.max()) <= _PLACES_AT_ONCE:
        each *= _PLACES[places]
    else:
        # Lists this long are nobody's habit; each further place adds to the factor, which stays odd.
        each *= _PLACES[places % _PLACES_AT_ONCE] + np.uint64(2) * places.astype(np.uint64)
    found[has] += np.add.reduceat(each, (ends - lengths)[has])


def _add_bytes_in_parts(found: U64s, column: Any, weights: U64s) -> None:
    for first in range(0, len(column), _ROWS_AT_ONCE):
        _add_bytes(found[first : first + _ROWS_AT_ONCE], column.slice(first, _ROWS_AT_ONCE), weights)
