"""The bit-field keys of wildcard_optimized, against brute force over all keys of a tiny key space."""

from __future__ import annotations

import random

import pytest

from shards.layouts.wildcard_optimized.keys import VARYING_MAX, Interval, KeyMapper

TINY = [
    KeyMapper(0, 1, 3, 3, 5),
    KeyMapper(1, 2, 2, 2, 4),
    KeyMapper(1, 2, 0, 2, 4),
    KeyMapper(1, 2, 4, 2, 4),
    KeyMapper(2, 1, 2, 2, 4),
    KeyMapper(3, 1, 2, 1, 4),
    KeyMapper(2, 2, 2, 1, 3),
]
"""Of 8 bits; among them one whose every position is an epoch, and one with a single epoch."""


def some_intervals(mapper: KeyMapper, rng: random.Random) -> list[Interval | None]:
    sizes = [sum(field.size for field in mapper.fields if field.dimension == dimension) for dimension in range(2 + mapper.levels)]
    found: list[Interval | None] = []
    for size in sizes:
        low, high = sorted((rng.randrange(1 << size), rng.randrange(1 << size)))
        found.append(rng.choice((None, (low, low), (low, high), (low, min(low + 1, (1 << size) - 1)))))
    return found


@pytest.mark.parametrize("mapper", TINY, ids=lambda mapper: f"{mapper.levels}-{mapper.epoch_bits}")
def test_keys_and_vectors_are_each_others_inverse(mapper: KeyMapper) -> None:
    # Property: over all keys: vector and back is the key itself, and the position is the time of the vector.
    for key in range(1 << 8 * mapper.key_bytes):
        vector = mapper.vector(key)
        assert mapper.key(vector) == key
        assert mapper.position(key) == vector[1]
        assert mapper.at(mapper.key((vector[0], 0, *vector[2:])), vector[1]) == key


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mapper", TINY, ids=lambda mapper: f"{mapper.levels}-{mapper.epoch_bits}")
def test_a_ratchet_lands_on_the_next_key_that_passes(mapper: KeyMapper, seed: int) -> None:
    # Property: for every key, the ratchet gives the smallest one from it on whose fields are all within; mask and bounds say the same.
    rng = random.Random(f"{seed} {mapper.levels} {mapper.epoch_bits}")
    intervals = some_intervals(mapper, rng)
    wanted = mapper.filter(intervals)
    following: int | None = None
    for key in range((1 << 8 * mapper.key_bytes) - 1, -1, -1):
        values = [key >> field.shift & (1 << field.size) - 1 for field in mapper.fields]
        if all(low <= value <= high for low, value, high in zip(wanted.lows, values, wanted.highs, strict=True)):
            following = key
            assert key & wanted.mask == wanted.wanted and wanted.first <= key <= wanted.last
        assert mapper.ratchet(wanted, key) == following, (key, intervals)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mapper", TINY, ids=lambda mapper: f"{mapper.levels}-{mapper.epoch_bits}")
def test_a_filter_lets_everything_through_that_was_asked_for(mapper: KeyMapper, seed: int) -> None:
    # Property: no key whose vector is within the intervals is passed over; a key that passes wrongly is wrong in its position only.
    rng = random.Random(f"{seed} {mapper.levels} {mapper.epoch_bits}")
    intervals = some_intervals(mapper, rng)
    wanted = mapper.filter(intervals)
    for key in range(1 << 8 * mapper.key_bytes):
        passes = mapper.ratchet(wanted, key) == key
        outside = [
            dimension
            for dimension, (value, interval) in enumerate(zip(mapper.vector(key), intervals, strict=True))
            if interval is not None and not interval[0] <= value <= interval[1]
        ]
        assert passes if not outside else not passes or outside == [1], (key, intervals)


def test_within_one_epoch_the_bounds_of_positions_are_exact() -> None:
    # Property: an interval of positions inside one epoch bounds the offsets too, so nothing outside is looked at.
    mapper = KeyMapper(2, 3, 2, 4, 6)
    assert mapper.key_bytes == 2
    wanted = mapper.filter([(5, 5), (9, 10), None, (2, 2)])
    passing = [key for key in range(1 << 16) if mapper.ratchet(wanted, key) == key]
    assert sorted({mapper.position(key) for key in passing}) == [9, 10] and len(passing) == 2 * 8


@pytest.mark.parametrize("index_bytes", [4, 6, 8])
@pytest.mark.parametrize("level_bits", [16, 40, 64])
@pytest.mark.parametrize("levels", [0, 1, 2, VARYING_MAX])
def test_keys_of_all_sizes_sort_as_their_fields_say(levels: int, level_bits: int, index_bytes: int) -> None:
    # Property: with real sizes, keys have whole bytes and sort by index, epoch, hashes, offset, in this order.
    rng = random.Random(f"{levels} {level_bits} {index_bytes}")
    for epoch_bits in (1, 10, 20, 21, 63, 64):
        mapper = KeyMapper(levels, level_bits, epoch_bits, 8 * index_bytes)
        assert mapper.key_bytes == index_bytes + 8 + levels * level_bits // 8
        vectors = [
            (
                rng.choice((0, 1, (1 << 8 * index_bytes) - 1)),
                rng.randrange(1 << 64),
                *(rng.randrange(1 << level_bits) for _ in range(levels)),
            )
            for _ in range(30)
        ]
        for vector in vectors:
            assert mapper.vector(mapper.key(vector)) == vector
            assert mapper.at(mapper.key((vector[0], 0, *vector[2:])), vector[1]) == mapper.key(vector)
        by_key = sorted(vectors, key=lambda vector: mapper.key(vector).to_bytes(mapper.key_bytes, "big"))
        offset = (1 << epoch_bits) - 1
        assert by_key == sorted(vectors, key=lambda vector: (vector[0], vector[1] >> epoch_bits, vector[2:], vector[1] & offset))
