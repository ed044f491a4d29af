"""The stored form of a message: what every layout keeps as the value of a data key.

A fixed header, then publisher, topic and body, all as bytes (docs/formats.md, "Stored message"). The body is MQTT 5 form,
``property length varint + properties + payload``, as it came in, so that normal delivery is a join of slices. 3.1.1
publishes are given the empty property list b"\\0" at the gateway.

The flags answer in one test what would otherwise need the properties parsed: whoever builds a value sets them right, and
nothing here looks into the body. Nothing here checks MQTT rules either: that is done before a message is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from struct import Struct

VERSION = 1

QOS_MASK = 0x0003
RETAIN = 0x0004
HAS_PROPERTIES = 0x0010
"""The property list is not empty: a 3.1.1 subscriber needs it stripped."""
HAS_EXPIRY = 0x0020
"""There is a Message Expiry Interval: it is counted down at delivery, and the message may have expired."""

PER_DELIVERY = HAS_EXPIRY
"""Any of these flags has each delivery look whether the properties are to be built anew."""

_HEADER = Struct("<BBHQHH")
HEADER_BYTES = _HEADER.size

_pack = _HEADER.pack
_unpack_from = _HEADER.unpack_from
_unpack_lengths = Struct("<HH").unpack_from
_unpack_time = Struct("<Q").unpack_from

assert HEADER_BYTES == 16, "the slices below count on it"


class UnknownMessageFormat(ValueError):
    """A stored value of a version this program does not know, or one that is too short. It is refused, never guessed at."""


def encode_message(flags: int, published_at_ms: int, publisher: bytes, topic: bytes, body: bytes) -> bytes:
    """The value to store. ``flags`` holds QoS, retain and the HAS_ bits; ``publisher`` is the client id, empty for the broker itself."""
    return b"".join((message_start(flags, published_at_ms, publisher, len(topic)), topic, body))


def encode_messages(flags: int, published_at_ms: int, publisher: bytes, topics: Sequence[bytes], bodies: Sequence[bytes]) -> list[bytes]:
    """The values of several of one publisher, which have all but topic and body in common."""
    if len(topics) == 1:
        return [encode_message(flags, published_at_ms, publisher, topics[0], bodies[0])]
    starts = {size: message_start(flags, published_at_ms, publisher, size) for size in set(map(len, topics))}
    if len(starts) == 1:
        return list(map(b"".join, zip(repeat(*starts.values()), topics, bodies, strict=False)))
    return list(map(b"".join, zip(map(starts.__getitem__, map(len, topics)), topics, bodies, strict=True)))


def message_start(flags: int, published_at_ms: int, publisher: bytes, topic_bytes: int) -> bytes:
    """What such a value begins with: topic, of this length, and body follow. For who has several that begin with the same."""
    return _pack(VERSION, 0, flags, published_at_ms, len(publisher), topic_bytes) + publisher


def header(value: bytes) -> tuple[int, int, bytes, bytes, bytes]:
    """(flags, published_at_ms, publisher, topic, body)."""
    version, _, flags, published_at_ms, publisher_bytes, topic_bytes = _unpack_from(value)
    if version != VERSION:
        raise _refused(value)
    topic_at = 16 + publisher_bytes
    body_at = topic_at + topic_bytes
    return flags, published_at_ms, value[16:topic_at], value[topic_at:body_at], value[body_at:]


def headers(values: Sequence[bytes], mark: int = 0) -> tuple[list[tuple[bytes, bytes, int, int]], list[bytes]]:
    """Of each, as sessions hand them on: (topic, body, published_at_ms, flags with these bits added), and its publisher.

    The same as ``header`` of each, in one loop: it is most of what a session does with a message."""
    messages: list[tuple[bytes, bytes, int, int]] = []
    publishers: list[bytes] = []
    of, add, add_publisher = _unpack_from, messages.append, publishers.append
    for value in values:
        version, _, flags, published_at_ms, publisher_bytes, topic_bytes = of(value)
        if version != VERSION:
            raise _refused(value)
        topic_at = 16 + publisher_bytes
        body_at = topic_at + topic_bytes
        add_publisher(value[16:topic_at])
        add((value[topic_at:body_at], value[body_at:], published_at_ms, flags | mark))
    return messages, publishers


def topic_of(value: bytes) -> bytes:
    publisher_bytes, topic_bytes = _unpack_lengths(value, 12)
    if value[0] != VERSION:
        raise _refused(value)
    topic_at = 16 + publisher_bytes
    return value[topic_at : topic_at + topic_bytes]


def published_at_of(value: bytes) -> int:
    if value[0] != VERSION:
        raise _refused(value)
    return int(_unpack_time(value, 4)[0])


def check_message(value: bytes) -> None:
    """Raise UnknownMessageFormat unless ``value`` has a known version and is at least as long as its own header says.

    For values from outside (a record of another node, an archive); what this process encoded needs no check.
    """
    if len(value) < HEADER_BYTES or value[0] != VERSION or value[1] != 0:
        raise _refused(value)
    publisher_bytes, topic_bytes = _unpack_lengths(value, 12)
    if len(value) < HEADER_BYTES + publisher_bytes + topic_bytes:
        raise _refused(value)


def _refused(value: bytes) -> UnknownMessageFormat:
    return UnknownMessageFormat(f"stored message of {len(value)} bytes begins with {value[:4].hex()}; this program reads version {VERSION}")
