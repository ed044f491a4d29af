"""Raw blocks to Arrow, compared with rows made plainly from the same messages."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast_spark.blocks import STEPS_KEPT, Decoder, Wanted
from holdfast_spark.options import OptionError, read_options
from holdfast_spark.properties import DamagedValue
from holdfast_spark.protocol import Block, decode_block
from holdfast_spark.reading import reading_of
from holdfast_spark.schema import TYPES, UnknownColumn, arrow_schema, check_columns, check_types
from tests.holdfast_spark.plain import Message, block_of, spark_schema

TEN = ("topic", "payload", "client_id", "qos", "retain", "ts", "shard", "generation", "stream", "offset")

# Anything that MQTT allows in a string: no NUL, no surrogates; private, unassigned and outside the basic plane included.
text = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
properties = st.lists(
    st.one_of(
        st.tuples(st.just(0x01), st.integers(0, 1)),
        st.tuples(st.just(0x02), st.integers(0, 2**32 - 1)),
        st.tuples(st.sampled_from((0x03, 0x08)), text),
        st.tuples(st.just(0x09), st.binary(max_size=200)),
        st.tuples(st.just(0x0B), st.integers(1, 2**28 - 1)),
        st.tuples(st.just(0x26), st.tuples(text, text)),
    ),
    max_size=5,
    unique_by=lambda each: (each[0], id(each)) if each[0] in (0x0B, 0x26) else each[0],
)
messages = st.lists(
    st.builds(
        Message,
        stream=st.sampled_from((0, 5, 2**63, 2**64 - 1)),
        position=st.integers(0, 2**63 - 1),
        topic=text.filter(bool),
        client=text,
        payload=st.binary(max_size=60),
        qos=st.integers(0, 2),
        retain=st.booleans(),
        at_ms=st.integers(0, 4_000_000_000_000),
        properties=st.one_of(st.just(()), properties.map(tuple)),
    ),
    max_size=25,
)


def decoded(stored: Sequence[Message], columns: Sequence[str] = tuple(TYPES), **wanted: Any) -> pa.RecordBatch:
    batch = Decoder(Wanted(arrow_schema(columns), 3, 7, 2, **wanted)).batch(decode_block(memoryview(block_of(stored))))
    batch.validate(full=True)
    return batch


def plain_rows(stored: Sequence[Message], columns: Sequence[str] = tuple(TYPES), wall_offset_ms: int = 0) -> list[dict[str, Any]]:
    rows = [each.row(3, 7, 2, wall_offset_ms) for each in stored]
    return [{name: row[name] for name in columns} for row in rows]


@pytest.mark.slow
@given(messages)
def test_blocks_decode_as_a_plain_decoder_has_them(stored: list[Message]) -> None:
    """Every column of every row, whatever topics, properties and payloads are."""
    assert decoded(stored).to_pylist() == plain_rows(stored)


@pytest.mark.slow
@given(messages, st.lists(st.sampled_from(tuple(TYPES)), min_size=1, unique=True))
def test_columns_are_those_that_were_asked_for(stored: list[Message], columns: list[str]) -> None:
    """In the order asked for, and each the same as when all are asked for."""
    assert decoded(stored, columns).to_pylist() == plain_rows(stored, columns)


def test_payloads_from_nothing_to_a_mebibyte() -> None:
    """Among each other, with and without properties whose length takes two and three bytes."""
    stored = [
        Message(1, at, "t", "c", payload, properties=props)
        for at, (payload, props) in enumerate(
            [
                (b"", ()),
                (bytes(1 << 20), ()),
                (b"", ((0x26, ("k", "v")), (0x26, ("k", "v")), (0x26, ("", "")))),
                (b"x", ((0x09, bytes(200)),)),
                (bytes(range(256)) * 4096, ((0x09, bytes(40_000)), (0x02, 60))),
            ]
        )
    ]
    assert decoded(stored).to_pylist() == plain_rows(stored)


def test_more_rows_than_a_block_has_are_decoded_too() -> None:
    """The bound is the reader's; nothing here is cut at it."""
    stored = [Message(1, at, f"t/{at}", "c", b"%d" % at) for at in range(9000)]
    assert decoded(stored, ("topic", "payload", "offset")).to_pylist() == plain_rows(stored, ("topic", "payload", "offset"))


def test_times_are_of_the_wall_clock_of_then() -> None:
    """Each row has the offset of the last step at or below its position; before the first step there was none."""
    stored = [Message(1, position, "t", "c", b"") for position in (5, 9, 10, 11, 20, 21)]
    found = decoded(stored, ("ts",), wall=((10, 5000), (20, -7000)))
    offsets = (0, 0, 5000, 5000, -7000, -7000)
    assert found.to_pylist() == [plain_rows([each], ("ts",), offset)[0] for each, offset in zip(stored, offsets, strict=True)]


def test_times_before_forgotten_steps_have_the_oldest_offset_that_is_known() -> None:
    """As the shard shows them."""
    wall = tuple((100 + at, 1000 + at) for at in range(STEPS_KEPT))
    stored = [Message(1, 5, "t", "c", b"")]
    assert decoded(stored, ("ts",), wall=wall).to_pylist() == plain_rows(stored, ("ts",), 1000)


def test_rows_outside_of_the_time_range_are_left_out() -> None:
    """The first moment is in, the last is not; compared with the wall clock of then."""
    stored = [Message(1, at, "t", "c", b"", at_ms=1000 + at) for at in range(10)]
    found = decoded(stored, ("offset",), wall=((0, 100),), ts_from_ms=1103, ts_before_ms=1106)
    assert found.column("offset").to_pylist() == [3, 4, 5]


def test_rows_that_have_expired_are_left_out_when_asked() -> None:
    """Expiry counts from the publish; rows without one never expire."""
    stored = [
        Message(1, 1, "t", "c", b"", at_ms=1000, properties=((0x02, 1),)),
        Message(1, 2, "t", "c", b"", at_ms=1001, properties=((0x02, 1),)),
        Message(1, 3, "t", "c", b"", at_ms=0),
        Message(1, 4, "t", "c", b"", at_ms=0, properties=((0x26, ("a", "b")),)),
    ]
    assert decoded(stored, ("offset",), expired_at_ms=2000).column("offset").to_pylist() == [2, 3, 4]
    assert decoded(stored, ("offset",)).num_rows == 4


def test_the_schema_is_the_one_that_spark_makes() -> None:
    """Spark compares the first batch with its own, field by field; the DDL of all columns is what users see."""
    found = spark_schema()
    assert to_arrow_schema(found, timezone="UTC").equals(arrow_schema())
    assert [each.dataType.simpleString() for each in found.fields] == list(TYPES.values())
    given_ = spark_schema(("topic", "ts"))
    given_["topic"].nullable = False
    assert to_arrow_schema(given_, timezone="UTC").equals(
        reading_of(read_options({"brokers": "h", "token": "t"}, stream=None), given_).schema
    )


def test_a_column_that_may_be_null_cannot_be_said_not_to_be() -> None:
    """Spark would not ask, and take what lies there for a value."""
    given_ = spark_schema(("topic", "content_type"))
    given_["content_type"].nullable = False
    with pytest.raises(OptionError, match="column content_type is NOT NULL in the schema that was given; messages without"):
        reading_of(read_options({"brokers": "h", "token": "t"}, stream=None), given_)


def test_columns_and_types_that_are_not_ours_are_one_sentence() -> None:
    """What was found and what is wanted."""
    with pytest.raises(UnknownColumn, match="column 'user' is not one of topic, payload"):
        check_columns(["topic", "user"])
    with pytest.raises(UnknownColumn, match="each once"):
        check_columns(["topic", "topic"])
    with pytest.raises(UnknownColumn, match="column qos has type int in the schema that was given; here it is tinyint"):
        check_types([("qos", "int")])


def changed(stored: Sequence[Message], at: int, to: int) -> Block:
    """The block with one byte of its values changed, and a checksum that fits."""
    body = bytearray(block_of(stored))
    values = len(body) - sum(len(each.value()) for each in stored)
    body[values + at] = to
    body[12:16] = zlib.crc32(body[16:]).to_bytes(4, "little")
    return decode_block(memoryview(bytes(body)))


@pytest.mark.parametrize(
    ("at", "to", "sentence"),
    [
        (0, 2, "version 2"),
        (1, 1, "version"),
        (13, 1, "shorter than its own head"),
        (15, 1, "shorter than its own head"),
        (18, 0x90, "end behind it"),
    ],
)
def test_a_value_that_does_not_fit_its_head_is_damaged(at: int, to: int, sentence: str) -> None:
    """Never fewer or other rows."""
    stored = [Message(1, 1, "t", "c", b"xy", properties=((0x26, ("a", "b")),))]
    with pytest.raises(DamagedValue, match=sentence):
        Decoder(Wanted(arrow_schema(), 0, 1, 1)).batch(changed(stored, at, to))


def test_a_property_that_nobody_knows_is_damage_and_not_skipped() -> None:
    """Where it ends is not known either."""
    stored = [Message(1, 1, "t", "c", b"xy", properties=((0x26, ("a", "b")),))]
    with pytest.raises(DamagedValue, match="property 0x77"):
        Decoder(Wanted(arrow_schema(), 0, 1, 1)).batch(changed(stored, 19, 0x77))


def test_a_value_shorter_than_its_head_is_damaged() -> None:
    """Found before the bytes of its neighbour are taken for it."""
    values = [bytes(16), Message(1, 1, "t", "c", b"").value()]
    rest = struct.pack("<QI", 1, 2) + bytes(16) + struct.pack("<II", *map(len, values)) + b"".join(values)
    body = struct.pack("<IIII", 2, 1, sum(map(len, values)), zlib.crc32(rest)) + rest
    with pytest.raises(DamagedValue, match="16 bytes"):
        Decoder(Wanted(arrow_schema(), 0, 1, 1)).batch(decode_block(memoryview(body)))


def test_a_batch_does_not_lean_on_its_block() -> None:
    """The frame may be used again for the next block."""
    body = bytearray(block_of([Message(1, at, "topic", "client", b"payload") for at in range(50)]))
    batch = Decoder(Wanted(arrow_schema(), 0, 1, 1)).batch(decode_block(memoryview(body)))
    before = batch.to_pylist()
    body[:] = bytes(len(body))
    assert batch.to_pylist() == before


@pytest.mark.slow
def test_ten_columns_cost_little() -> None:
    """Twice what was measured on the machine that this was made on, so that only a loop over rows is found, not a busy machine."""
    stored = [
        Message(at % 7, at, f"plant/{at % 20}/temp", f"device-{at % 500}", b'{"n":%d,"pad":"%s"}' % (at, b"x" * 110)) for at in range(8192)
    ]
    block = decode_block(memoryview(block_of(stored)))
    decoder = Decoder(Wanted(arrow_schema(TEN), 0, 1, 1, wall=((0, 5),)))
    best = min(_cpu_us(decoder, block) for _ in range(10))
    print(f"{best:.3f} us a row")
    assert best < 0.6


def _cpu_us(decoder: Decoder, block: Block) -> float:
    begun = time.process_time()
    for _ in range(10):
        decoder.batch(block)
    return (time.process_time() - begun) / 10 / block.rows * 1e6
