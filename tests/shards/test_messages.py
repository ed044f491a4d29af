"""The stored form of a message (shards/messages.py)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import messages
from shards.messages import (
    HAS_EXPIRY,
    HAS_PROPERTIES,
    QOS_MASK,
    RETAIN,
    UnknownMessageFormat,
    check_message,
    encode_message,
    header,
    headers,
    published_at_of,
    topic_of,
)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 0xFFFF), st.integers(0, 2**64 - 1), st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=50))
def test_every_part_comes_back_as_it_went_in(flags: int, published_at_ms: int, publisher: bytes, topic: bytes, body: bytes) -> None:
    # Property: header and the accessors agree, for publishers and topics of any length, empty ones too.
    value = encode_message(flags, published_at_ms, publisher, topic, body)
    check_message(value)
    assert header(value) == (flags, published_at_ms, publisher, topic, body)
    assert published_at_of(value) == published_at_ms
    assert topic_of(value) == topic


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 0xFF), st.integers(0, 2**64 - 1), st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
    ),
    st.sampled_from((0, 0x0100)),
)
def test_many_come_back_as_each_does(rows: list[tuple[int, int, bytes, bytes, bytes]], mark: int) -> None:
    """`headers` says of each what `header` says, with the mark in its flags."""
    found, publishers = headers([encode_message(*row) for row in rows], mark)
    each = [header(encode_message(*row)) for row in rows]
    assert found == [(topic, body, published_at_ms, flags | mark) for flags, published_at_ms, _, topic, body in each]
    assert publishers == [publisher for _, _, publisher, _, _ in each]


def test_the_longest_publisher_and_topic_fit() -> None:
    # Property: MQTT strings of 65535 bytes are stored whole; longer ones are refused, never cut.
    value = encode_message(2, 1, b"p" * 65535, b"t" * 65535, b"\0x")
    assert header(value) == (2, 1, b"p" * 65535, b"t" * 65535, b"\0x")
    with pytest.raises(Exception, match="format"):
        encode_message(2, 1, b"p" * 65536, b"t", b"")


def test_the_bytes_are_those_of_the_format_page() -> None:
    # Property: golden bytes of version 1: little-endian, 16 bytes of header, then publisher, topic, body.
    value = encode_message(1 | RETAIN | HAS_PROPERTIES, 0x0102030405060708, b"c1", b"a/b", b"\x02\x01\x01hi")
    assert value.hex() == "0100" + "1500" + "0807060504030201" + "0200" + "0300" + b"c1a/b".hex() + "020101" + b"hi".hex()


def test_flags_do_not_overlap() -> None:
    # Property: one test per flag says one thing.
    flags = [QOS_MASK, RETAIN, HAS_PROPERTIES, HAS_EXPIRY]
    assert sum(flags) == flags[0] | flags[1] | flags[2] | flags[3]
    assert messages.PER_DELIVERY & HAS_EXPIRY


@pytest.mark.parametrize("damage", [b"\x02", b"\x00", b"\xff"])
def test_a_version_that_is_not_ours_is_refused_by_every_accessor(damage: bytes) -> None:
    # Property: a newer format is never read as if it were ours.
    value = damage + encode_message(1, 1, b"p", b"t", b"\0")[1:]
    for read in (header, topic_of, published_at_of, check_message):
        with pytest.raises(UnknownMessageFormat, match="version"):
            read(value)
    with pytest.raises(UnknownMessageFormat, match="version"):
        headers([encode_message(1, 1, b"p", b"t", b"\0"), value])


def test_values_from_outside_are_checked_for_length() -> None:
    # Property: check_message accepts exactly the values that hold what their header announces.
    value = encode_message(1, 1, b"publisher", b"topic", b"")
    check_message(value)
    for cut in range(len(value)):
        with pytest.raises(UnknownMessageFormat):
            check_message(value[:cut])
