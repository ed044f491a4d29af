"""Payloads in CBOR and MessagePack: whatever they are, values of the schema or one sentence."""

from __future__ import annotations

import random
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from holdfast_spark.inference import inferred
from holdfast_spark.payloads import ERROR_FIELD, RULE_FIELD, Plan, Unreadable, coerced, json_text, levels_of, load, matches, regex_of
from mqtt.topics import matches as mqtt_matches

PACK = {"cbor": cbor2.dumps, "msgpack": msgpack.packb}
BOTH = pytest.mark.parametrize("format", ["cbor", "msgpack"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
TYPES = [
    t.LongType(), t.ByteType(), t.DoubleType(), t.BooleanType(), t.StringType(), t.BinaryType(), t.DecimalType(10, 2), t.TimestampType(),
    t.DateType(), t.ArrayType(t.LongType()), t.MapType(t.StringType(), t.StringType()), t.StructType([t.StructField("a", t.LongType())]),
    t.DecimalType(38, 0), t.DecimalType(38, 20), t.DecimalType(1, 1), t.FloatType(), t.ArrayType(t.TimestampType()),
]  # fmt: skip


def read(format: str, of: Any, payload: bytes) -> Any:
    return coerced(of)(load(format, payload))


def why(format: str, of: Any, payload: bytes) -> str:
    with pytest.raises(Unreadable) as caught:
        read(format, of, payload)
    return str(caught.value)


@BOTH
@pytest.mark.parametrize(
    ("of", "value", "wanted"),
    [
        (t.LongType(), -(1 << 63), -(1 << 63)),
        (t.ByteType(), 127, 127),
        (t.DoubleType(), 3, 3.0),
        (t.DoubleType(), 0.25, 0.25),
        (t.BooleanType(), False, False),
        (t.StringType(), "ü", "ü"),
        (t.StringType(), {"a": [1, b"x"]}, '{"a":[1,"eA=="]}'),
        (t.BinaryType(), b"\x00", b"\x00"),
        (t.DecimalType(6, 2), 12.345, Decimal("12.34")),
        (t.DecimalType(38, 18), 1 << 63, Decimal(f"{1 << 63}." + "0" * 18)),
        (t.FloatType(), float("inf"), float("inf")),
        (t.TimestampType(), "2026-01-31T12:00:00+01:00", datetime.fromisoformat("2026-01-31T11:00:00+00:00")),
        (t.DateType(), "2026-01-31", date(2026, 1, 31)),
        (t.ArrayType(t.LongType()), [1, None], [1, None]),
        (t.MapType(t.StringType(), t.LongType()), {"a": 1}, [("a", 1)]),
        (t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())]), {"a": 1, "c": 2}, {"a": 1, "b": None}),
        (t.LongType(), None, None),
    ],
)
def test_what_fits_the_schema_is_read(format: str, of: Any, value: Any, wanted: Any) -> None:
    """Each type of a schema has what it is read from; a field that is missing is null, one that nobody asked for is passed over."""
    assert read(format, of, PACK[format](value)) == wanted


def test_times_have_words_of_their_own() -> None:
    """MessagePack's timestamp and CBOR's tag for one are the same moment."""
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert read("cbor", t.TimestampType(), cbor2.dumps(moment)) == moment
    assert read("msgpack", t.TimestampType(), msgpack.packb(moment, datetime=True)) == moment


@BOTH
@pytest.mark.parametrize(
    ("of", "value", "wanted"),
    [
        (t.LongType(), 1 << 63, "an integer is where a bigint that holds it is wanted"),
        (t.ByteType(), 128, "an integer is where a tinyint that holds it is wanted"),
        (t.LongType(), 1.0, "a number is where bigint is wanted"),
        (t.LongType(), True, "a boolean is where bigint is wanted"),
        (t.LongType(), "7", "a text is where bigint is wanted"),
        (t.BooleanType(), 1, "an integer is where a boolean is wanted"),
        (t.BinaryType(), "x", "a text is where bytes is wanted"),
        (t.DecimalType(4, 2), 100, "a number is where a decimal(4,2) that holds it is wanted"),
        (t.DecimalType(4, 2), 99.999, "a number is where a decimal(4,2) that holds it is wanted"),
        (t.FloatType(), 1e300, "a number is where a float that holds it is wanted"),
        (t.TimestampType(), "9999-12-31T23:59:59-01:00", "a time is where one of the years 1 to 9999 is wanted"),
        (t.TimestampType(), "0001-01-01T00:00:00+01:00", "a time is where one of the years 1 to 9999 is wanted"),
        (t.TimestampType(), "yesterday", "a text is where a time is wanted"),
        (t.StructType([t.StructField("a", t.LongType())]), {"a": "secret"}, "a: a text is where bigint is wanted"),
        (t.StructType([t.StructField("a", t.LongType())]), [1], "a list is where a map is wanted"),
    ],
)
def test_nothing_is_guessed(format: str, of: Any, value: Any, wanted: str) -> None:
    """A value of another type is an error that names the field and the type, and never the value: sentences get into logs."""
    said = why(format, of, PACK[format](value))
    assert wanted in said
    assert "secret" not in said and "yesterday" not in said


@BOTH
def test_a_payload_that_is_cut_or_goes_on_is_unreadable(format: str) -> None:
    """At every length but its own."""
    whole = PACK[format]({"a": 1, "b": ["text", 2.5, b"bytes"], "c": {"d": 1 << 40}})
    assert load(format, whole)["a"] == 1
    for cut in range(len(whole)):
        with pytest.raises(Unreadable):
            load(format, whole[:cut])
    with pytest.raises(Unreadable):
        load(format, whole + b"\xff")
    for more in (b"\x00", whole, b"\xf6", b"\x47holdfas"):
        with pytest.raises(Unreadable, match="follows"):
            load(format, whole + more)


@BOTH
@settings(max_examples=40)
@given(data=st.binary(max_size=64))
def test_noise_is_a_value_or_one_sentence(format: str, data: bytes) -> None:
    """For every type of a schema, and as JSON; nothing else is raised, and nothing else comes out than the type takes."""
    for of in TYPES:
        try:
            value = read(format, of, data)
        except Unreadable:
            continue
        pa.array([value], type=_arrow(of))
    try:
        json_text(load(format, data))
    except Unreadable:
        pass


@BOTH
@settings(max_examples=40)
@given(value=VALUES, seed=st.integers(0, 1 << 32))
def test_a_payload_with_a_changed_byte_is_a_value_or_one_sentence(format: str, value: Any, seed: int) -> None:
    """Which noise alone hardly ever comes near."""
    whole = bytearray(PACK[format](value))
    rng = random.Random(seed)
    whole[rng.randrange(len(whole))] = rng.randrange(256)
    for of in TYPES:
        try:
            pa.array([read(format, of, bytes(whole))], type=_arrow(of))
        except Unreadable:
            pass


def _arrow(of: Any) -> Any:
    return to_arrow_type(of, timezone="UTC")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\x81" * 100_000, "depth"),
        (b"\xa1\x01" * 100_000, "depth"),
        (b"\xd8\x1c\x81\xd8\x1d\x00", "nested too deeply"),
        (cbor2.dumps(10**5000), "reasonable length"),
        (b"\x9b\x00\x00\x00\x7f\xff\xff\xff\xff", "ends in the middle"),
        (cbor2.dumps(cbor2.CBORTag(5, [10**9, 1])), "bigfloat"),
    ],
    ids=["lists", "maps", "a list that holds itself", "digits", "a length that nothing follows", "an exponent"],
)
def test_cbor_that_was_made_to_hurt_is_one_sentence(payload: bytes, said: str) -> None:
    """Depth, cycles, lengths and exponents: none of them takes the worker's memory, stack or time."""
    assert said in why("cbor", t.StringType(), payload)


def test_an_exponent_is_never_written_out() -> None:
    """A few bytes stand for a number of a thousand million digits."""
    payload = cbor2.dumps(cbor2.CBORTag(4, [10**9, 1]))
    for of in (t.LongType(), t.DecimalType(38, 0), t.DoubleType()):
        assert "wanted" in why("cbor", of, payload)
    assert read("cbor", t.StringType(), payload) == '"1E+1000000000"'
    assert read("cbor", t.DecimalType(10, 2), cbor2.dumps(cbor2.CBORTag(4, [-(10**9), 1]))) == 0


def test_msgpack_that_was_made_to_hurt_is_one_sentence() -> None:
    """The same of the other format."""
    assert "nested too deeply" in why("msgpack", t.StringType(), b"\x91" * 100_000)
    assert "nested too deeply" in why("msgpack", t.StringType(), b"\x91" * 500 + b"\x01")
    assert why("msgpack", t.StringType(), b"\xdd\xff\xff\xff\xff")
    assert "UTF-8" in why("msgpack", t.StringType(), b"\xa2\xff\xfe")
    assert read("msgpack", t.StringType(), msgpack.packb({1: 2}, strict_types=True)) == '{"1":2}'


def test_undefined_is_a_null() -> None:
    """CBOR has two words for nothing."""
    for of in TYPES:
        assert read("cbor", of, b"\xf7") is None


def test_an_empty_payload_has_a_sentence_of_its_own() -> None:
    """It is what takes a retained message away, so it is met often."""
    for format in ("json", "cbor", "msgpack"):
        for payload in (b"", None):
            with pytest.raises(Unreadable, match="it is empty"):
                load(format, payload)


# ---------------------------------------------------------------------------------------------------- inferring


def test_columns_are_inferred_from_what_a_sample_has() -> None:
    """What is wider wins, an empty value says nothing, what cannot be reconciled is text."""
    values = [{"n": 1, "x": 1, "l": [1], "s": {"a": 1}, "q": None}, {"n": 2.5, "x": "a", "l": [], "s": {"b": "c"}, "big": 1 << 70}]
    assert inferred(values).simpleString() == (
        "struct<big:string,l:array<bigint>,n:double,q:string,s:struct<a:bigint,b:string>,x:string>"
    )  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), min_size=1, max_size=4))
def test_what_was_inferred_from_reads_what_it_was_inferred_from(values: list[dict[str, Any]]) -> None:
    """A sample fits its own schema, but for integers that a column of doubles cannot hold exactly, which it takes as doubles."""
    struct = coerced(inferred(values))
    for value in values:
        struct(value)


# ---------------------------------------------------------------------------------------------------- topics

LEVEL = st.sampled_from(["a", "b", "", "$x", "a.b", "ü", "a\nb", "*", "[", "\\E"])
FILTER = st.lists(LEVEL | st.just("+"), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]]).map("/".join)
)


@given(topic_filter=FILTER, topic=st.lists(LEVEL, min_size=1, max_size=5).map("/".join))
def test_the_three_ways_to_match_agree(topic_filter: str, topic: str) -> None:
    """The broker's, the one on executors, and the expression for the JVM, which is Python's as well but for two words."""
    if not topic_filter or not topic:
        return
    wanted = mqtt_matches(topic_filter.encode(), topic.encode())
    assert matches(levels_of(topic_filter), topic) == wanted
    expression = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), regex_of(topic_filter)).replace(
        "\\z", "\\Z"
    )
    assert bool(re.match(expression, topic)) == wanted


@pytest.mark.parametrize("text", ["", "a/#/b", "a#", "a/b+", "#/a", "$share/g/a", "a\0"])
def test_what_is_no_filter_is_said_to_be_none(text: str) -> None:
    """As at SUBSCRIBE."""
    with pytest.raises(ValueError, match=r"topic filter|share"):
        levels_of(text)


# ---------------------------------------------------------------------------------------------------- batches


def test_a_batch_keeps_its_rows_and_the_first_rule_has_the_topic() -> None:
    """All columns come out as they came in; what is unreadable has nulls in all of its columns, and a reason."""
    of = t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())])
    plan = Plan(
        ((("x", "+"), "cbor", of), (("x", "#"), "json", of), (("v",), "msgpack", None)),
        (("p_a", pa.int64()), ("p_b", pa.string()), ("text", pa.string())), "p_", "text",
    )  # fmt: skip
    rows = [
        ("x/1", cbor2.dumps({"a": 1, "b": "q"})), ("x/2", cbor2.dumps({"a": "no", "b": "kept back"})), ("x", b"{}"), ("y", b"zz"),
        ("v", msgpack.packb([1, b"x"])), ("x/1", None), (None, b""),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"topic": [row[0] for row in rows], "payload": pa.array([row[1] for row in rows], pa.binary())})
    (made,) = plan.batches(iter([batch]))
    assert made.select(["topic", "payload"]) == batch
    assert made.column(RULE_FIELD).to_pylist() == [0, 0, 1, -1, 2, 0, -1]
    assert made.column("p_a").to_pylist() == [1, None, None, None, None, None, None]
    assert made.column("p_b").to_pylist() == ["q", None, None, None, None, None, None]
    assert made.column("text").to_pylist() == [None, None, None, None, '[1,"eA=="]', None, None]
    errors = made.column(ERROR_FIELD).to_pylist()
    assert errors == [None, "a: a text is where bigint is wanted", None, None, None, "it is empty", None]


@pytest.mark.parametrize(
    ("format", "payload"),
    [("cbor", b"\xf7"), ("cbor", b"\xf6"), ("msgpack", b"\xc0"), ("cbor", b"\x80"), ("msgpack", b"\x07")],
    ids=["undefined", "null", "null of msgpack", "a list", "a number"],
)
def test_a_payload_that_is_no_map_has_no_columns(format: str, payload: bytes) -> None:
    """One byte of anybody's is a row of nulls with a reason, and never the end of the query."""
    plan = Plan(((("#",), format, t.StructType([t.StructField("a", t.LongType())])),), (("a", pa.int64()),), "", "text")
    batch = pa.RecordBatch.from_pydict({"topic": ["x"], "payload": pa.array([payload], pa.binary())})
    (made,) = plan.batches(iter([batch]))
    assert made.column("a").to_pylist() == [None]
    assert made.column(ERROR_FIELD).to_pylist()[0].endswith(" is where a map is wanted")
    assert "Type" not in made.column(ERROR_FIELD).to_pylist()[0]


@BOTH
@settings(max_examples=60)
@given(value=st.integers(-(10**39), 10**39) | st.floats(allow_nan=False) | st.decimals(allow_nan=False, allow_infinity=False))
def test_a_number_fits_a_decimal_or_is_said_not_to(format: str, value: Any) -> None:
    """However many digits it has, and also when rounding makes it one longer: Arrow takes what comes out."""
    if format == "msgpack" and not (isinstance(value, float) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 64)):
        return
    payload = PACK[format](value)
    for of in (t.DecimalType(38, 0), t.DecimalType(38, 38), t.DecimalType(38, 19), t.DecimalType(3, 1)):
        try:
            found = read(format, of, payload)
        except Unreadable:
            assert abs(Decimal(repr(value)) if isinstance(value, float) else Decimal(value)) >= Decimal(10) ** (of.precision - of.scale) / 2
            continue
        pa.array([found], type=_arrow(of))
        assert abs(found - (Decimal(repr(value)) if isinstance(value, float) else Decimal(value))) <= Decimal(1).scaleb(-of.scale)
