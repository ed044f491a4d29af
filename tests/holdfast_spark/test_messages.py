"""Rows become messages as the broker itself would lay them out, in blocks that depend on nothing but the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_spark.messages import BLOCK_BYTES, BLOCK_ROWS, BadMessage, Outgoing, Rules, blocks, check_input, property_block
from holdfast_spark.protocol import APPEND_BYTES_MAX, APPEND_ROWS_MAX, decode_messages, encode_messages
from holdfast_spark.schema import PAIR, TYPES
from mqtt.body import make_body
from mqtt.packets import Properties

RULES = Rules(b"spark-q")
ARROW = {
    "topic": pa.string(),
    "payload": pa.binary(),
    "client_id": pa.string(),
    "qos": pa.int32(),
    "retain": pa.bool_(),
    "expiry_ms": pa.int64(),
    "content_type": pa.string(),
    "response_topic": pa.string(),
    "correlation_data": pa.binary(),
    "payload_format": pa.int8(),
    "user_properties": pa.list_(PAIR),
}


def batch(**columns: Sequence[Any]) -> pa.RecordBatch:
    rows = max(len(values) for values in columns.values())
    whole = {"topic": ["t"] * rows, "payload": [b""] * rows} | columns
    return pa.record_batch([pa.array(values, ARROW[name]) for name, values in whole.items()], names=list(whole))


def made(*batches: pa.RecordBatch, rules: Rules = RULES) -> list[Outgoing]:
    where = {name: index for index, name in enumerate(batches[0].schema.names)}
    return list(blocks(batches, where, rules))


def rows_of(found: Sequence[Outgoing]) -> list[tuple[int, bytes, bytes, bytes]]:
    return [row for each in found for row in zip(each.flags, each.clients, each.topics, each.bodies, strict=True)]


# ---------------------------------------------------------------------------------------------- bodies

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
properties = st.builds(
    Properties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    message_expiry_interval=st.none() | st.integers(0, 2**32 - 1),
    content_type=st.none() | texts,
    response_topic=st.none() | st.text("abc/ä", min_size=1, max_size=20),
    correlation_data=st.none() | st.binary(max_size=200),
    user_properties=st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
)


@pytest.mark.slow
@given(st.lists(st.tuples(properties, st.binary(max_size=100)), min_size=1, max_size=5))
def test_a_body_is_the_one_that_the_broker_makes(wanted: list[tuple[Properties, bytes]]) -> None:
    """Byte for byte, through Arrow columns with and without values; the broker's own encoder is the judge."""
    of = [each for each, _ in wanted]
    found = made(
        batch(
            payload=[payload for _, payload in wanted],
            payload_format=[each.payload_format_indicator for each in of],
            expiry_ms=[None if (seconds := each.message_expiry_interval) is None else 1000 * seconds for each in of],
            content_type=[each.content_type for each in of],
            response_topic=[each.response_topic for each in of],
            correlation_data=[each.correlation_data for each in of],
            user_properties=[[{"key": key, "value": value} for key, value in each.user_properties] or None for each in of],
        )
    )

    assert [body for _, _, _, body in rows_of(found)] == [make_body(each, payload) for each, payload in wanted]


def test_a_map_of_user_properties_is_taken_too() -> None:
    """What somebody writes as a map in SQL; its order is the one that Spark gives."""
    column = pa.array([[("a", "1"), ("b", "2")], None], pa.map_(pa.string(), pa.string()))
    found = made(pa.record_batch([["t", "t"], [b"p", b"q"], column], names=["topic", "payload", "user_properties"]))

    assert [body for *_, body in rows_of(found)] == [make_body(Properties(user_properties=(("a", "1"), ("b", "2"))), b"p"), b"\0q"]


def test_an_expiry_is_rounded_up_to_seconds() -> None:
    """One millisecond is not nothing: a message that expires at once was never delivered to anybody."""
    assert [property_block({"expiry_ms": ms}) for ms in (0, 1, 1000, 1001)] == [
        make_body(Properties(message_expiry_interval=seconds), b"") for seconds in (0, 1, 1, 2)
    ]


def test_what_is_missing_has_a_default() -> None:
    """QoS 1, not retained, the query's client; text as payload is its UTF-8; null is an empty payload."""
    found = made(pa.record_batch([["a", "b"], ["ä", None]], names=["topic", "payload"]))

    assert rows_of(found) == [(0b0010, b"spark-q", b"a", b"\0" + "ä".encode()), (0b0010, b"spark-q", b"b", b"\0")]


def test_nulls_mean_the_default_row_by_row() -> None:
    """A column that is there says nothing for the rows where it is null."""
    found = made(
        batch(qos=[None, 0, 2, 1], retain=[None, False, True, None], client_id=["c", None, "d", None]), rules=Rules(b"q", b"x/", True)
    )

    assert [(flags, client, topic) for flags, client, topic, _ in rows_of(found)] == [
        (0b0010, b"c", b"x/t"),
        (0b0000, b"q", b"x/t"),
        (0b0101, b"d", b"x/t"),
        (0b0010, b"q", b"x/t"),
    ]


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"topic": [None]}, "has no topic"),
        ({"topic": [""]}, "topic of 0 bytes"),
        ({"topic": ["a" * 65_536]}, "topic of 65536 bytes"),
        ({"topic": ["plant/+/temp"]}, r"'plant/\+/temp' has a wildcard"),
        ({"topic": ["plant/#"]}, "wildcard"),
        ({"topic": ["a\0b"]}, "NUL"),
        ({"topic": ["$SYS/broker"]}, r"begins with \$"),
        ({"topic": ["$share/g/t"]}, r"begins with \$"),
        ({"qos": [3]}, "for 't' has qos 3"),
        ({"qos": [-1]}, "qos -1"),
        ({"retain": [True]}, "allowRetain=true"),
        ({"client_id": [""]}, "client_id '' is none"),
        ({"client_id": ["a\0"]}, "client_id"),
        ({"payload_format": [2]}, "payload_format is 2"),
        ({"expiry_ms": [-1000]}, "expiry_ms is -1000"),
        ({"expiry_ms": [2**32 * 1000]}, "expiry_ms is"),
        ({"content_type": ["a\0"]}, "content_type has a NUL"),
        ({"content_type": ["a" * 65_536]}, "content_type has 65536 bytes"),
        ({"response_topic": ["a/#"]}, "response_topic 'a/#'"),
        ({"response_topic": [""]}, "response_topic"),
        ({"user_properties": [[{"key": "a", "value": None}]]}, "no key or no value"),
        ({"user_properties": [[{"key": "a\0", "value": ""}]]}, "key of a user property has a NUL"),
    ],
)
def test_what_cannot_be_a_message_is_one_sentence(columns: dict[str, list[Any]], sentence: str) -> None:
    """Before anything is sent, and the first good row does not go ahead of the bad one."""
    good = {name: [values[0]] for name, values in columns.items()} | {name: [*_good(name), *values] for name, values in columns.items()}

    found = batch(**good)
    with pytest.raises(BadMessage, match=sentence):
        next(blocks([found], {name: index for index, name in enumerate(found.schema.names)}, RULES))


def _good(name: str) -> list[Any]:
    return ["t"] if name == "topic" else [None]


def test_a_prefix_does_not_hide_what_may_not_be() -> None:
    """Wildcards stay forbidden behind it; a $ behind it is an ordinary letter."""
    assert made(batch(topic=["$x"]), rules=Rules(b"q", b"replay/"))[0].topics == [b"replay/$x"]
    with pytest.raises(BadMessage, match="wildcard"):
        made(batch(topic=["a/#"]), rules=Rules(b"q", b"replay/"))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([("topic", "string")], "no column payload"),
        ([("payload", "binary")], "no column topic"),
        ([("topic", "int"), ("payload", "binary")], "column topic has type int; wanted is string"),
        ([("topic", "string"), ("payload", "struct<a:int>")], "column payload has type struct<a:int>; wanted is binary or string"),
        ([("topic", "string"), ("payload", "binary"), ("quality", "int")], "column quality is not one"),
        ([("topic", "string"), ("payload", "binary"), ("Topic", "string")], "column topic is there twice"),
    ],
)
def test_columns_that_are_none_are_told_before_anything_runs(found: list[tuple[str, str]], sentence: str) -> None:
    """On the driver, when the query is planned."""
    with pytest.raises(BadMessage, match=sentence):
        check_input(found)


def test_what_the_source_gives_can_be_written() -> None:
    """Columns that say where a message was stored are passed over."""
    where = check_input(list(TYPES.items()))

    assert set(where) == set(ARROW)
    assert all(list(TYPES)[index] == name for name, index in where.items())


def test_texts_may_be_bounded_and_names_have_any_capitals() -> None:
    """Spark itself does not tell capitals apart."""
    assert check_input([("Payload", "binary"), ("TOPIC", "varchar(100)")]) == {"payload": 0, "topic": 1}


# ---------------------------------------------------------------------------------------------- blocks


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.integers(0, 2500), min_size=1, max_size=6), st.integers(1, 700), st.randoms(use_true_random=False))
def test_blocks_do_not_depend_on_how_the_rows_came(sizes: list[int], per_batch: int, random: Any) -> None:
    """The same rows in other Arrow batches make the same blocks: a task that is tried again sends what it had sent."""
    payloads = [bytes([index % 251]) * (1500 if index % 7 == 0 else 3) for index in range(sum(sizes))]
    one_way, at = [], 0
    for size in sizes:
        one_way.append(payloads[at : at + size])
        at += size
    other = [payloads[at : at + per_batch] for at in range(0, len(payloads), per_batch)]

    first, second = (made(*(batch(payload=each) for each in ways)) if payloads else [] for ways in (one_way, other))

    assert first == second
    assert [body[1:] for *_, body in rows_of(first)] == payloads


def test_a_block_is_bounded_in_rows_and_bytes_and_fits_a_frame() -> None:
    """One message is never too large; everything else stays below what a frame may have."""
    assert BLOCK_ROWS <= APPEND_ROWS_MAX and BLOCK_BYTES <= APPEND_BYTES_MAX
    large = b"x" * (BLOCK_BYTES // 2)

    found = made(batch(payload=[b""] * (BLOCK_ROWS + 1) + [large, large, large * 3, b"", b""]))

    assert [len(each.flags) for each in found] == [BLOCK_ROWS, 2, 1, 1, 2]
    for each in found:
        head, rest = encode_messages(bytes(each.flags), each.clients, each.topics, each.bodies)
        back = decode_messages(memoryview(head + rest))
        assert (back.clients, back.topics, back.bodies) == (each.clients, each.topics, each.bodies)


def test_nothing_makes_no_block() -> None:
    """A partition without rows sends nothing and leaves no writer behind."""
    assert made(batch(payload=[])) == []
