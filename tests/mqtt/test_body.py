"""The stored form of a message and what is cut out of it and put into it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.body import (
    common_block,
    make_body,
    message_expiry,
    properties_of,
    strip_properties,
    with_message_expiry,
    with_subscription_ids,
    without_property,
)
from mqtt.decode import Decoder
from mqtt.encode import publish
from mqtt.packets import NO_PROPERTIES, Properties, Publish
from mqtt.properties import Place
from mqtt.reason import ProtocolError, ReasonCode
from tests.mqtt.generated import payloads, properties

stored = properties(Place.PUBLISH, without=("topic_alias", "subscription_identifiers"))
_SOME = (Properties(payload_format_indicator=1), Properties(message_expiry_interval=1), Properties(content_type="x" * 125))
quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(st.lists(st.tuples(st.sampled_from([NO_PROPERTIES, *_SOME]), payloads), min_size=1, max_size=4))
def test_what_bodies_begin_with_is_the_properties_of_each(several: list[tuple[Properties, bytes]]) -> None:
    """Or nothing, where these differ or are long."""
    bodies = [make_body(found, payload) for found, payload in several]
    block = common_block(bodies)
    same = len({found for found, _ in several}) == 1
    assert bool(block) == (same and several[0][0] != _SOME[-1])
    if block:
        assert bodies == [block + payload for _, payload in several]


@pytest.mark.slow
@quick
@given(stored, payloads, st.integers(0, 0xFFFF_FFFF), st.lists(st.sampled_from([1, 127, 128, 268_435_455]), max_size=40))
def test_surgery_says_what_the_properties_say(found: Properties, payload: bytes, seconds: int, ids: list[int]) -> None:
    """Each cut on the bytes gives what the same change of the properties would give."""
    body = make_body(found, payload)
    assert strip_properties(body) == payload
    assert properties_of(body) == found
    assert message_expiry(body) == found.message_expiry_interval

    later = with_message_expiry(body, seconds)
    assert properties_of(later) == replace(found, message_expiry_interval=seconds)
    assert strip_properties(later) == payload

    marked = with_subscription_ids(later, ids)
    assert properties_of(marked) == replace(found, message_expiry_interval=seconds, subscription_identifiers=tuple(ids))
    assert strip_properties(marked) == payload
    assert without_property(marked, 0x0B) == later


@pytest.mark.slow
@quick
@given(properties(Place.PUBLISH), payloads)
def test_a_stored_body_holds_neither_alias_nor_subscription_identifiers(found: Properties, payload: bytes) -> None:
    """What belongs to one hop is not stored; the rest of the properties and the payload are."""
    body = make_body(found, payload)
    kept = replace(found, topic_alias=None, subscription_identifiers=())
    assert properties_of(body) == kept
    (item,) = Decoder(5, 1 << 20, "client").feed(publish(5, 0, 0, b"t", body))
    if kept == NO_PROPERTIES:
        assert body == b"\0" + payload
    else:
        assert isinstance(item, Publish)
        assert item.body == body


def test_bodies_without_properties() -> None:
    """The common body begins with a zero byte, and each function answers it."""
    body = b"\0payload"
    assert make_body(NO_PROPERTIES, b"payload") == body
    assert strip_properties(body) == b"payload"
    assert properties_of(body) is NO_PROPERTIES
    assert message_expiry(body) is None
    assert with_subscription_ids(body, []) is body
    assert with_subscription_ids(body, [1, 300]) == b"\x05\x0b\x01\x0b\xac\x02payload"
    assert with_message_expiry(body, 7) == b"\x05\x02\x00\x00\x00\x07payload"


def test_expiry_is_rewritten_where_it_stands() -> None:
    """The other properties keep their bytes and their order."""
    body = b"\x0b\x01\x01\x02\x00\x00\x00\x3c\x03\x00\x01tpayload"
    assert message_expiry(body) == 60
    assert with_message_expiry(body, 5) == b"\x0b\x01\x01\x02\x00\x00\x00\x05\x03\x00\x01tpayload"


def test_the_length_of_the_properties_grows_over_a_byte() -> None:
    """A block that grows from 127 to more bytes gets a longer length."""
    body = make_body(Properties(content_type="x" * 124), b"p")
    assert body[0] == 127
    grown = with_subscription_ids(body, [1])
    assert grown[:2] == b"\x81\x01"
    assert strip_properties(grown) == b"p"
    assert without_property(grown, 0x0B) == body


def test_a_will_leaves_its_delay_behind() -> None:
    """The message of a will is stored without the will's own property."""
    assert make_body(Properties(will_delay_interval=9, content_type="t"), b"gone") == b"\x04\x03\x00\x01tgone"


def test_a_broken_stored_body_is_an_error_with_a_reason() -> None:
    """A body from a damaged disk does not raise IndexError in the middle of a fan-out."""
    for body in (b"\x05\x02\x00", b"\x02\x7f\x01x", b"\x80", b"\x03\x03\x00\x05xxxxx", b"\x03\x02\x00\x00\x00\x00", b"\x01\x0bx"):
        with pytest.raises(ProtocolError) as caught:
            with_message_expiry(body, 1)
        assert caught.value.reason is ReasonCode.MALFORMED_PACKET
