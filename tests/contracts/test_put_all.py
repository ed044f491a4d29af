"""Messages that a layout is given all at once lie as those that it is given one by one (shards.layouts.port.Layout.put_all)."""

from __future__ import annotations

import random

import pytest

from shards.engine import Op, index_of
from shards.layouts.port import LayoutOptions
from shards.messages import encode_message
from tests.contracts.engines import MemoryHarness
from tests.contracts.layouts import OPENERS, settle
from tests.contracts.test_layout import FAMILY

_END = b"\xff" * 40
DEVICES = [b"d/%d" % n for n in range(40)]
TOPICS = ([b"a/b"], DEVICES, DEVICES[20:], [b"a/b", b"c"], [b"a/b", b"e/1", b"e/2/x", *DEVICES[:9]])


def rows(layout_name: str, seed: int, at_once: bool) -> list[tuple[int, bytes, bytes]]:
    """What is in the store after some records, and all idle work between."""
    rng = random.Random(seed)
    harness = MemoryHarness()
    engine = harness.engine
    engine.create_family(FAMILY)
    layout = OPENERS[layout_name](engine, FAMILY, LayoutOptions(rng.choice(((2, 1), (100, 10), (0,)))))
    last = 0
    for _ in range(30):
        ops: list[Op] = []
        for _ in range(rng.choice((1, 3))):
            names = rng.choices(rng.choice(TOPICS), k=rng.choice((1, 5, 20, 70)))
            keys = [layout.key_of(name) for name in names]
            positions = range(last + 3, last + 3 + len(names))
            last = positions[-1]
            values = [encode_message(1, 7, b"p", name, b"\0" + rng.randbytes(9)) for name in names]
            if at_once:
                layout.put_all(ops, keys, positions, values)
            else:
                for each in zip(keys, positions, values, strict=True):
                    layout.put(ops, *each)
        layout.flush(ops)
        engine.write(layout.take_growth() + ops)
        settle(layout, last, 200)
    layout.seal()
    settle(layout, last, 1000)
    families = [family for family in (FAMILY, index_of(FAMILY)) if engine.has_family(family)]
    found = [(family, key, value) for family in families for key, value in engine.scan(family, b"", _END, 1 << 30)]
    harness.close()
    return found


@pytest.mark.parametrize("layout", OPENERS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_and_what_idle_work_makes_of_them_are_the_same(layout: str, seed: int) -> None:
    # Property: of one stream or of many, with varying levels and without, few or many.
    assert rows(layout, seed, at_once=True) == rows(layout, seed, at_once=False)
