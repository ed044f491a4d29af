"""Makes a store that looks as if it had run for long: many sealed generations, the streams spread over them, some of them large.

One generation was made every fifteen seconds of the store's age, so a shard that opens it with a retention period of as much drops one and
begins one every fifteen seconds. Written straight to the engine, as no load could fill it in the time of a test.
"""

from __future__ import annotations

import random
from pathlib import Path

from actors.clocks import read_clocks
from shards.clock import AgeMark
from shards.engine import HOME_FAMILY, Op
from shards.engine_rocks import RocksEngine
from shards.housekeeping import AGE_ROW, POSITION_ROW
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.rows import pack_row
from shards.store import Store

WORDS = 10
"""Different last levels of the literal topics; with at most 100 first levels none of them becomes a varying level."""
LARGE_BYTES = 128 << 20
LENGTH_S = 15
"""Long enough for the shard to see a while ahead that it will want another family, as it does with generations of a day."""
ROLL_IN_S, DROP_IN_S = 5, 3
"""After the opening the first generation is dropped, then the first roll is due; so neither is measured with the other."""
_LARGE_BODY = 64 << 10


def literal_topic(number: int) -> bytes:
    return b"line%d/%d" % (number // WORDS, number % WORDS)


def retention_s(generations: int) -> int:
    """The retention period with which so many stay."""
    return (generations - 1) * LENGTH_S - ROLL_IN_S + DROP_IN_S


def make_aged(path: Path, layout: str, generations: int, streams: int, large: int) -> None:
    """streams: of each generation, at most 1,000. large: so many of the oldest ones hold LARGE_BYTES besides."""
    assert streams <= 100 * WORDS
    path.mkdir(parents=True)
    engine = RocksEngine(str(path))
    rng = random.Random(5)
    store = Store.open(engine, StoreOptions(layout))
    position = 0
    for generation in range(generations):
        ops: list[Op] = []
        for number in range(streams):
            position += 1
            topic = literal_topic(number)
            store.append(ops, store.key_of(topic), position, encode_message(1, 0, b"aged", topic, b"\0" + rng.randbytes(100)))
        store.flush(ops)
        engine.write([*store.take_growth(), *ops])
        if generation < large:
            for _ in range(LARGE_BYTES // _LARGE_BODY):
                position += 1
                ops = []
                body = b"\0" + rng.randbytes(_LARGE_BODY)
                store.append(ops, store.key_of(literal_topic(0)), position, encode_message(1, 0, b"aged", literal_topic(0), body))
                store.flush(ops)
                engine.write(ops)
        if generation + 1 < generations:
            position += 1
            engine.write(store.roll(position, (generation + 1) * LENGTH_S * 1000, 0))
            while store.idle_work(position):
                pass
    now = read_clocks()
    mark = AgeMark((generations * LENGTH_S - ROLL_IN_S) * 1000, now, False)
    engine.write([(HOME_FAMILY, AGE_ROW, mark.encode()), (HOME_FAMILY, POSITION_ROW, pack_row((position + 1,)))])
    engine.sync()
    engine.close()
