"""The digest of rows: the same for the same rows however they lie, another for any other row."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_spark.digest import MODULUS, digest, row_hashes, sums, total
from tests.holdfast_spark.some_rows import SCHEMA, Row, batch_of, row, rows_strategy, some_rows

IN_DIGEST = [name for name in SCHEMA.names if name not in ("ts", "message_id")]


def one(**changed: Any) -> int:
    return digest(batch_of([{**row(5), **changed}]))


def test_the_function_stays_what_it_is() -> None:
    """Digests are kept for as long as archives are: these numbers change only together with the version."""
    assert f"{digest(batch_of([row(5)])):016x}" == "57bffb20bb20a6cb"
    assert f"{digest(batch_of(some_rows(1000, seed=1))):016x}" == "11107088a914f0d2"


@given(rows=rows_strategy(), data=st.data())
@settings(max_examples=60)
def test_order_and_cuts_do_not_matter(rows: list[Row], data: st.DataObject) -> None:
    """Any permutation, cut into any parts, sums up to the same."""
    whole = digest(batch_of(rows))
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    assert (digest(batch_of(shuffled[:cut])) + digest(batch_of(shuffled[cut:]))) % MODULUS == whole


@given(rows=rows_strategy().filter(bool), data=st.data())
@settings(max_examples=60)
def test_a_row_has_its_hash_wherever_it_lies(rows: list[Row], data: st.DataObject) -> None:
    """Alone, among others, in a slice: neighbours and places in buffers do not get in."""
    batch = batch_of(rows)
    hashes = row_hashes(batch)
    at = data.draw(st.integers(0, len(rows) - 1))
    assert row_hashes(batch_of([rows[at]]))[0] == hashes[at]
    assert row_hashes(batch.slice(at, 1))[0] == hashes[at]
    assert (row_hashes(batch.slice(at)) == hashes[at:]).all()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 63, 511, 512, 513, 2000])
def test_each_bit_of_a_value_matters(size: int) -> None:
    """A payload of any length with one bit flipped, one byte more or one less has another hash, whatever lies behind it."""
    rng = random.Random(size)
    value = rng.randbytes(size)
    others = [value + b"\0", value[:-1]] if value else [b"\0"]
    for bit in rng.sample(range(8 * size), min(8 * size, 200)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        others.append(bytes(flipped))
    rows = [row(5, payload=each) for each in (value, *(other for other in others if other != value))]
    hashes = row_hashes(batch_of(rows))
    assert len(set(hashes.tolist())) == len(rows)


@pytest.mark.parametrize("name", IN_DIGEST)
def test_each_column_matters(name: str) -> None:
    """Another value in any column of the message, and null instead of nothing, is another digest."""
    others: dict[str, list[Any]] = {
        "retain": [True],
        "qos": [0, 2],
        "payload_format": [0, 1],
        "user_properties": [
            [],
            [("a", "b")],
            [("b", "a")],
            [("a", "b"), ("a", "b")],
            [("ab", "")],
            [("a", "b"), ("c", "d")],
            [("c", "d"), ("a", "b")],
        ],
    }
    texts = ["", "a", "\0", "plant/1/tenp", "plant/1/temp "]
    kind = SCHEMA.field(name).type
    if name in others:
        values = others[name]
    elif pa.types.is_integer(kind):
        values = [0, 3, 1 << 30, -1]
    else:
        values = [text.encode() for text in texts] if kind == pa.binary() else texts
    values = [value for value in values if value != row(5)[name]]
    digests = {one(), *(one(**{name: value}) for value in values)}
    assert len(digests) == len(values) + 1


def test_the_clock_and_the_name_of_the_store_do_not_matter() -> None:
    """What is not the message's own is left out: a store that is scanned again later has the same digest."""
    assert one() == one(ts=0) == one(message_id=b"x" * 16)


def test_rows_that_exchange_values_are_others() -> None:
    """A plain sum of values would not see that."""
    first, second = row(1, payload=b"a" * 20), row(2, payload=b"b" * 20)
    crossed = [row(1, payload=b"b" * 20), row(2, payload=b"a" * 20)]
    assert digest(batch_of([first, second])) != digest(batch_of(crossed))


def test_long_lists_of_properties_keep_their_order() -> None:
    """More pairs than there are factors at once: exchanging any two is seen."""
    pairs = [(f"k{n}", "v") for n in range(200)]
    crossed = [pairs[64], *pairs[1:64], pairs[0], *pairs[65:]]
    assert one(user_properties=pairs) != one(user_properties=crossed)


def test_sums_of_parts() -> None:
    """sums() gives the total of each part."""
    hashes = row_hashes(batch_of(some_rows(100, seed=3)))
    firsts = np.array([0, 1, 40, 99])
    assert sums(hashes, firsts) == [total(hashes[:1]), total(hashes[1:40]), total(hashes[40:99]), total(hashes[99:])]
    assert total(hashes[:0]) == 0 and sums(hashes[:0], firsts[:0]) == []


def test_what_lies_below_a_null_does_not_matter() -> None:
    """Arrow allows anything in the buffers below a null."""
    base = batch_of([row(1), row(2), row(3)])
    dirty = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 3, 4], np.int32)), pa.py_buffer(b"axyb")]
    )
    clean = pa.array(["a", None, "b"])
    at = base.schema.get_field_index("content_type")
    assert digest(base.set_column(at, "content_type", dirty)) == digest(base.set_column(at, "content_type", clean))
