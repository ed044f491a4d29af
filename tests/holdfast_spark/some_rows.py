"""Rows of the source for tests: many shapes of values from a seed, and from Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from holdfast_spark.schema import arrow_schema

HOUR_US = 3_600_000_000
BEGAN_US = 494_444 * HOUR_US
SCHEMA = arrow_schema()

Row = dict[str, Any]


def row(offset: int, **changed: Any) -> Row:
    """One row; what is not given is plain."""
    plain: Row = {
        "topic": "plant/1/temp",
        "payload": b"21.5",
        "client_id": "dev-1",
        "qos": 1,
        "retain": False,
        "ts": BEGAN_US + offset,
        "shard": 0,
        "generation": 1,
        "stream": 77,
        "offset": offset,
        "message_id": offset.to_bytes(16, "big"),
        "expiry_ms": None,
        "content_type": None,
        "response_topic": None,
        "correlation_data": None,
        "payload_format": None,
        "user_properties": None,
    }
    assert changed.keys() <= plain.keys()
    return {**plain, **changed}


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    arrays = [pa.array([each[field.name] for each in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def some_rows(count: int, seed: int, *, hours: int = 1, first: int = 0, shard: int = 0, generation: int = 1) -> list[Row]:
    """Rows as a store may have them: lengths from nothing to long, properties now and then."""
    rng = random.Random(seed)
    found = []
    for at in range(count):
        long = rng.random() < 0.03
        changed: Row = {
            "topic": f"plant/{rng.randrange(5)}/{'x' * rng.randrange(12)}",
            "payload": rng.randbytes(rng.randrange(505, 3000) if long else rng.randrange(180)),
            "client_id": f"dev-{rng.randrange(20)}" if rng.random() < 0.95 else "",
            "qos": rng.randrange(3),
            "retain": rng.random() < 0.2,
            "ts": BEGAN_US + at * hours * HOUR_US // max(1, count) + rng.randrange(1000),
            "shard": shard,
            "generation": generation,
            "stream": rng.randrange(-(1 << 63), 1 << 63),
        }
        if rng.random() < 0.2:
            changed |= {
                "expiry_ms": rng.randrange(1 << 40),
                "content_type": rng.choice(["", "application/json"]),
                "response_topic": "answers/\u00e9\u4e2d",
                "correlation_data": rng.randbytes(rng.randrange(20)),
                "payload_format": rng.randrange(2),
                "user_properties": [(f"k{n}", "v" * n) for n in range(rng.randrange(4))],
            }
        found.append(row(first + at, **changed))
    return found


def rows_strategy() -> st.SearchStrategy[list[Row]]:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=24)
    blob = st.one_of(st.binary(max_size=40), st.binary(min_size=500, max_size=530))
    return st.lists(
        st.builds(
            lambda offset, **changed: row(offset, **changed),
            st.integers(0, (1 << 62) - 1),
            topic=text,
            payload=blob,
            client_id=text,
            qos=st.integers(0, 2),
            retain=st.booleans(),
            ts=st.integers(BEGAN_US, BEGAN_US + 5 * HOUR_US),
            stream=st.integers(-(1 << 63), (1 << 63) - 1),
            expiry_ms=st.none() | st.integers(0, 1 << 44),
            content_type=st.none() | text,
            correlation_data=st.none() | st.binary(max_size=20),
            payload_format=st.none() | st.integers(0, 1),
            user_properties=st.none() | st.lists(st.tuples(text, text), max_size=3),
        ),
        max_size=12,
    )
