"""Where a key lives is fixed for ever: load balancers and old stores rely on it."""

from __future__ import annotations

from collections import Counter

import pytest

from shards.slots import SLOTS, SlotTable, slot_of


@pytest.mark.parametrize(
    ("key", "slot"), [("client-1", 239), ("", 228), ("ä", 240), ("$share/g/t", 235), ("a" * 100, 205)], ids=lambda part: str(part)[:12]
)
def test_the_slot_of_a_key_never_changes(key: str, slot: int) -> None:
    """The first byte of its 8-byte blake2b digest: vectors that were computed by hand."""
    assert slot_of(key.encode()) == slot
    assert SlotTable.initial(3).shard_of(key.encode()) == slot % 3


def test_clients_are_spread_over_shards() -> None:
    """No shard gets a tenth more than its part of a hundred thousand clients with names that differ in a number."""
    table = SlotTable.initial(4)
    counts = Counter(table.shard_of(b"client-%d" % n) for n in range(100_000))
    assert len(table.shards) == SLOTS and sorted(counts) == [0, 1, 2, 3]
    assert max(counts.values()) < 27_500 and min(counts.values()) > 22_500
