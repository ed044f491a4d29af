"""Bytes that a peer must not send: refused with the right reason, never with another exception."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

import pytest

from mqtt.control import AUTH_REASONS, CONNACK_REASONS, DISCONNECT_REASONS, SUBACK_REASONS, UNSUBACK_REASONS
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode, encode_all
from mqtt.framing import Role
from mqtt.packets import (
    AckKind,
    AckRun,
    Connect,
    Item,
    Pingreq,
    Properties,
    Publish,
    PublishRun,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from mqtt.reason import ReasonCode
from mqtt.wire import string, varint

R = ReasonCode
MALFORMED, VIOLATION = R.MALFORMED_PACKET, R.PROTOCOL_ERROR


def framed(first: int, *content: bytes) -> bytes:
    return bytes((first,)) + varint(len(b"".join(content))) + b"".join(content)


def refused(wire: bytes, version: int | None = 5, role: Role = "server", packet_bytes_max: int = 1 << 20) -> DecodeError:
    """The error of these bytes, the same fed whole and byte by byte."""
    with pytest.raises(DecodeError) as whole:
        Decoder(version, packet_bytes_max, role).feed(wire)
    single = Decoder(version, packet_bytes_max, role)
    with pytest.raises(DecodeError) as piecewise:
        deque((single.feed(bytes((byte,))) for byte in wire), maxlen=0)
    assert piecewise.value.reason is whole.value.reason
    assert piecewise.value.detail == whole.value.detail
    return whole.value


# Bytes of topics that are not UTF-8, or UTF-8 that MQTT forbids.
BAD_UTF8 = [b"\xff", b"a\xc3", b"\xc0\x80", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\0", b"a\0b"]

PROPERTY_BLOCKS = {
    # block (without its length): what it is refused with, in a PUBLISH from a client
    "unknown property": (b"\x7f\x01", MALFORMED),
    "property 0": (b"\x00", MALFORMED),
    "identifier of two bytes": (b"\x81\x00\x01", MALFORMED),
    "a CONNECT property": (b"\x21\x00\x05", MALFORMED),
    "a will property": (b"\x18\x00\x00\x00\x05", MALFORMED),
    "expiry twice": (b"\x02\x00\x00\x00\x05\x02\x00\x00\x00\x05", VIOLATION),
    "content type twice": (b"\x03\x00\x01a\x03\x00\x01a", VIOLATION),
    "alias twice": (b"\x23\x00\x01\x23\x00\x01", VIOLATION),
    "alias 0": (b"\x23\x00\x00", R.TOPIC_ALIAS_INVALID),
    "payload format 2": (b"\x01\x02", VIOLATION),
    "subscription identifier from a client": (b"\x0b\x01", VIOLATION),
    "subscription identifier 0": (b"\x0b\x00", VIOLATION),
    "overlong subscription identifier": (b"\x0b\x81\x00", MALFORMED),
    "subscription identifier of five bytes": (b"\x0b\xff\xff\xff\xff\x01", MALFORMED),
    "response topic with a wildcard": (b"\x08\x00\x03a/#", VIOLATION),
    "empty response topic": (b"\x08\x00\x00", VIOLATION),
    "surrogate in a user property": (b"\x26\x00\x03\xed\xa0\x80\x00\x01v", MALFORMED),
    "U+0000 in a user property": (b"\x26\x00\x01k\x00\x01\0", MALFORMED),
    "expiry cut off": (b"\x02\x00\x00\x05", MALFORMED),
    "string cut off": (b"\x03\x00\x05abcd", MALFORMED),
    "string length cut off": (b"\x03\x00", MALFORMED),
    "binary cut off": (b"\x09\x00\x05abcd", MALFORMED),
    "user property without value": (b"\x26\x00\x01k", MALFORMED),
    "property without value": (b"\x01", MALFORMED),
}


@pytest.mark.parametrize("name", PROPERTY_BLOCKS)
def test_property_blocks_of_publish(name: str) -> None:
    """Each way to spoil a property block has its reason; the block's end is not read over."""
    block, reason = PROPERTY_BLOCKS[name]
    wire = framed(0x30, b"\0\x01t", varint(len(block)), block, b"payload that could be mistaken for properties")
    assert refused(wire).reason is reason


PUBLISHES = {
    # version-independent: the bytes, and their reason
    "QoS 3": (framed(0x36, b"\0\x01t\0\x01\0"), MALFORMED),
    "QoS 3 with DUP": (framed(0x3E, b"\0\x01t\0\x01\0"), MALFORMED),
    "DUP with QoS 0": (framed(0x38, b"\0\x01t\0"), MALFORMED),
    "packet id 0": (framed(0x32, b"\0\x01t\0\0\0"), VIOLATION),
    "packet id cut off": (framed(0x32, b"\0\x01t\0"), MALFORMED),
    "topic longer than the packet": (framed(0x30, b"\0\x09t\0"), MALFORMED),
    "topic length cut off": (framed(0x30, b"\0"), MALFORMED),
    "no byte at all": (framed(0x30), MALFORMED),
    "plus in the topic": (framed(0x30, b"\0\x03a/+\0"), R.TOPIC_NAME_INVALID),
    "number sign in the topic": (framed(0x30, b"\0\x01#\0"), R.TOPIC_NAME_INVALID),
    "too many levels": (framed(0x30, b"\0\xc8" + b"/" * 200 + b"\0"), R.TOPIC_NAME_INVALID),
    "remaining length of five bytes": (b"\x30\x80\x80\x80\x80\x01", MALFORMED),
}


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("name", PUBLISHES)
def test_publishes(version: int, name: str) -> None:
    """What no version allows in a PUBLISH."""
    wire, reason = PUBLISHES[name]
    assert refused(wire, version).reason is reason
    assert refused(wire, version, "client").reason is reason


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("raw", BAD_UTF8)
def test_bad_utf8_wherever_text_stands(version: int, raw: bytes) -> None:
    """Topic, filter, client id, user name, will topic: ill-formed UTF-8 and U+0000 are malformed everywhere."""
    text = len(raw).to_bytes(2, "big") + raw
    block = b"\0" if version == 5 else b""
    head = {3: b"\0\x06MQIsdp\x03", 4: b"\0\x04MQTT\x04", 5: b"\0\x04MQTT\x05"}[version]
    wires = [
        (framed(0x30, text, block, b"x"), version),
        (framed(0x82, b"\0\x01", block, text, b"\0"), version),
        (framed(0xA2, b"\0\x01", block, text), version),
        (framed(0x10, head, b"\x02\0\0", block, text), None),
        (framed(0x10, head, b"\x82\0\0", block, b"\0\x01c", text), None),
        (framed(0x10, head, b"\x06\0\0", block, b"\0\x01c", block, text, b"\0\0"), None),
    ]
    for wire, told in wires:
        assert refused(wire, told).reason is MALFORMED


def test_empty_topics() -> None:
    """An empty topic needs an alias in MQTT 5 and is never valid before."""
    assert refused(framed(0x30, b"\0\0\0x"), 5).reason is VIOLATION
    assert refused(framed(0x30, b"\0\0\0x"), 4).reason is R.TOPIC_NAME_INVALID
    (found,) = Decoder(5, 100).feed(framed(0x30, b"\0\0\x03\x23\0\x01x"))
    assert isinstance(found, Publish)
    assert (found.topic, found.properties.topic_alias, found.body) == (b"", 1, b"\0x")


@pytest.mark.parametrize("behind", [b"", b"\0", b"\0\0\0\0", b"\x30\x04\0\x01t\0"])
def test_a_publish_does_not_borrow_from_the_packet_behind_it(behind: bytes) -> None:
    """A property length or an identifier that is missing is not found in the bytes that follow."""
    for wire in (framed(0x30, b"\0\x01t"), framed(0x32, b"\0\x01t\0\x01"), framed(0x32, b"\0\x01t"), framed(0x32, b"\0\x01t\0")):
        with pytest.raises(DecodeError) as caught:
            Decoder(5, 100).feed(wire + behind)
        assert (caught.value.reason, caught.value.items) == (MALFORMED, [])


CONNECTS = {
    "reserved flag": (framed(0x10, b"\0\x04MQTT\x05\x03\0\0\0\0\x01c"), MALFORMED, 5),
    "will QoS without will": (framed(0x10, b"\0\x04MQTT\x05\x0a\0\0\0\0\x01c"), MALFORMED, 5),
    "will retain without will": (framed(0x10, b"\0\x04MQTT\x05\x22\0\0\0\0\x01c"), MALFORMED, 5),
    "will QoS 3": (framed(0x10, b"\0\x04MQTT\x05\x1e\0\0\0\0\x01c\0\0\x01w\0\0"), MALFORMED, 5),
    "3.1.1 password without user": (framed(0x10, b"\0\x04MQTT\x04\x42\0\0\0\x01c\0\x01p"), MALFORMED, 4),
    "3.1.1 empty id, kept session": (framed(0x10, b"\0\x04MQTT\x04\x00\0\0\0\0"), R.CLIENT_IDENTIFIER_NOT_VALID, 4),
    "3.1 empty id": (framed(0x10, b"\0\x06MQIsdp\x03\x02\0\0\0\0"), R.CLIENT_IDENTIFIER_NOT_VALID, 3),
    "bytes behind the end": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\0\0\x01cX"), MALFORMED, 5),
    "user name missing": (framed(0x10, b"\0\x04MQTT\x05\x82\0\0\0\0\x01c"), MALFORMED, 5),
    "will with a wildcard": (framed(0x10, b"\0\x04MQTT\x05\x06\0\0\0\0\x01c\0\0\x01#\0\0"), R.TOPIC_NAME_INVALID, 5),
    "will with an empty topic": (framed(0x10, b"\0\x04MQTT\x05\x06\0\0\0\0\x01c\0\0\0\0\0"), R.TOPIC_NAME_INVALID, 5),
    "receive maximum 0": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\x03\x21\0\0\0\x01c"), VIOLATION, 5),
    "packet size 0": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\x05\x27\0\0\0\0\0\x01c"), VIOLATION, 5),
    "problem information 2": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\x02\x17\x02\0\x01c"), VIOLATION, 5),
    "data without a method": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\x04\x16\0\x01d\0\x01c"), VIOLATION, 5),
    "expiry twice": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\x0a" + b"\x11\0\0\0\1" * 2 + b"\0\x01c"), VIOLATION, 5),
    "will delay outside the will": (framed(0x10, b"\0\x04MQTT\x05\x02\0\0\x05\x18\0\0\0\1\0\x01c"), MALFORMED, 5),
    "subscription id in a will": (
        framed(0x10, b"\0\x04MQTT\x05\x06\0\0\0\0\x01c\x02\x0b\x01\0\x01w\0\0"),
        MALFORMED,
        5,
    ),
    "fixed header flags": (framed(0x11, b"\0\x04MQTT\x05\x02\0\0\0\0\x01c"), MALFORMED, None),
    "nothing in it": (framed(0x10), MALFORMED, None),
    "name cut off": (framed(0x10, b"\0\x04MQ"), MALFORMED, None),
    "long remaining length in MQTT 5": (b"\x10\x8e\0" + b"\0\x04MQTT\x05\x02\0\0\0\0\x01c", MALFORMED, 5),
    "version 6": (framed(0x10, b"\0\x04MQTT\x06\x02\0\0\0\0\x01c"), R.UNSUPPORTED_PROTOCOL_VERSION, 5),
    "version 3 by the new name": (framed(0x10, b"\0\x04MQTT\x03\x02\0\0\0\x01c"), R.UNSUPPORTED_PROTOCOL_VERSION, 4),
    "a bridge of mosquitto": (framed(0x10, b"\0\x04MQTT\x84\x02\0\0\0\x01c"), R.UNSUPPORTED_PROTOCOL_VERSION, 4),
    "not MQTT": (framed(0x10, b"\0\x04AMQP\x05\x02\0\0\0\0\x01c"), R.UNSUPPORTED_PROTOCOL_VERSION, None),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", VIOLATION, None),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", MALFORMED, None),
}


@pytest.mark.parametrize("name", CONNECTS)
def test_connects(name: str) -> None:
    """A refused CONNECT has its reason, and the decoder says in which version to answer, if any."""
    wire, reason, answer_in = CONNECTS[name]
    assert refused(wire, None).reason is reason
    decoder = Decoder(None, 1 << 20)
    with pytest.raises(DecodeError):
        decoder.feed(wire)
    assert decoder.version == answer_in


def test_before_mqtt_5_a_length_may_be_longer_than_it_needs() -> None:
    """Small 3.1.1 devices write all lengths in two bytes; MQTT 5 forbids what these do."""
    publish = b"\x30\x84\x00\x00\x01tx"
    assert Decoder(4, 100).feed(publish * 2) == [PublishRun([0, 0], [0, 0], [b"t"] * 2, [b"\0x"] * 2)]
    assert Decoder(None, 100).feed(b"\x10\x8d\0" + b"\0\x04MQTT\x04\x02\0\0\0\x01c") == [Connect(4, "c")]
    assert refused(b"\x30\x85\x00\x00\x01t\0x", 5).reason is MALFORMED
    assert refused(b"\xc0\x80\x00", 5).reason is MALFORMED


@pytest.mark.parametrize("version", [3, 4, 5])
def test_nothing_before_connect_and_no_second_connect(version: int) -> None:
    """The first packet is a CONNECT and no other one is."""
    connect = encode(version, Connect(version, "c"))
    for first in range(256):
        if first >> 4 != 1:
            assert refused(bytes((first, 0)), None).reason in (MALFORMED, VIOLATION)
    error = refused(connect + connect, None)
    assert error.reason is VIOLATION
    with pytest.raises(DecodeError) as caught:
        Decoder(None, 1000).feed(connect + connect)
    assert caught.value.items == [Connect(version, "c")]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_first_bytes_that_may_come(version: int) -> None:
    """By version and role, exactly these first bytes are taken; the rest is refused before its length is known."""
    publishes = {0x30, 0x31, 0x32, 0x33, 0x3A, 0x3B, 0x34, 0x35, 0x3C, 0x3D}
    acks = {0x40, 0x50, 0x62, 0x70}
    allowed = {
        "server": publishes | acks | {0x82, 0xA2, 0xC0, 0xE0},
        "client": publishes | acks | {0x20, 0x90, 0xB0, 0xD0},
    }
    if version == 3:
        allowed["server"] |= {0x6A, 0x8A, 0xAA}
        allowed["client"] |= {0x6A}
    if version == 5:
        allowed["server"] |= {0xF0}
        allowed["client"] |= {0xE0, 0xF0}
    roles: tuple[Role, ...] = ("server", "client")
    for role in roles:
        taken = set()
        for first in range(256):
            with suppress(DecodeError):
                assert Decoder(version, 100, role).feed(bytes((first,))) == []
                taken.add(first)
        assert taken == allowed[role]


@pytest.mark.parametrize("kind", [0x20, 0x90, 0xB0, 0xD0])
def test_packets_that_only_a_server_sends(kind: int) -> None:
    """CONNACK, SUBACK, UNSUBACK and PINGRESP from a client are a protocol error."""
    for version in (3, 4, 5):
        assert refused(bytes((kind, 0)), version).reason is VIOLATION


OTHERS = {
    "SUBSCRIBE without filters": (framed(0x82, b"\0\x01\0"), VIOLATION, 5),
    "3.1.1 SUBSCRIBE without filters": (framed(0x82, b"\0\x01"), VIOLATION, 4),
    "SUBSCRIBE with id 0": (framed(0x82, b"\0\0\0\0\x01a\0"), VIOLATION, 5),
    "SUBSCRIBE with QoS 3": (framed(0x82, b"\0\x01\0\0\x01a\x03"), VIOLATION, 5),
    "3.1.1 SUBSCRIBE with QoS 3": (framed(0x82, b"\0\x01\0\x01a\x03"), MALFORMED, 4),
    "3.1.1 SUBSCRIBE with options": (framed(0x82, b"\0\x01\0\x01a\x04"), MALFORMED, 4),
    "SUBSCRIBE with retain handling 3": (framed(0x82, b"\0\x01\0\0\x01a\x30"), VIOLATION, 5),
    "SUBSCRIBE with reserved options": (framed(0x82, b"\0\x01\0\0\x01a\x40"), MALFORMED, 5),
    "SUBSCRIBE without options": (framed(0x82, b"\0\x01\0\0\x01a"), MALFORMED, 5),
    "no local, shared": (framed(0x82, b"\0\x01\0\0\x0a$share/g/a\x04"), VIOLATION, 5),
    "two subscription identifiers": (framed(0x82, b"\0\x01\x04\x0b\x01\x0b\x02\0\x01a\0"), VIOLATION, 5),
    "subscription identifier 0": (framed(0x82, b"\0\x01\x02\x0b\0\0\x01a\0"), VIOLATION, 5),
    "UNSUBSCRIBE without filters": (framed(0xA2, b"\0\x01\0"), VIOLATION, 5),
    "3.1.1 UNSUBSCRIBE without filters": (framed(0xA2, b"\0\x01"), VIOLATION, 4),
    "UNSUBSCRIBE with id 0": (framed(0xA2, b"\0\0\0\0\x01a"), VIOLATION, 5),
    "PINGREQ with a body": (framed(0xC0, b"x"), MALFORMED, 4),
    "3.1.1 DISCONNECT with a reason": (framed(0xE0, b"\0"), MALFORMED, 4),
    "DISCONNECT with a reason of CONNACK": (framed(0xE0, b"\x84"), VIOLATION, 5),
    "DISCONNECT with bytes behind": (framed(0xE0, b"\0\0x"), MALFORMED, 5),
    "AUTH without a method": (framed(0xF0, b"\x18\0"), VIOLATION, 5),
    "AUTH success from a client": (framed(0xF0, b"\0\x04\x15\0\x01m"), VIOLATION, 5),
    "3.1.1 AUTH": (framed(0xF0), MALFORMED, 4),
    "PUBACK with id 0": (framed(0x40, b"\0\0"), VIOLATION, 5),
    "PUBACK with one byte": (framed(0x40, b"\0"), MALFORMED, 5),
    "3.1.1 PUBACK with a reason": (framed(0x40, b"\0\x01\0"), MALFORMED, 4),
    "PUBACK with a reason of PUBREL": (framed(0x40, b"\0\x01\x92"), VIOLATION, 5),
    "PUBREL with a reason of PUBACK": (framed(0x62, b"\0\x01\x87"), VIOLATION, 5),
    "PUBREC with a foreign property": (framed(0x50, b"\0\x01\0\x02\x01\0"), MALFORMED, 5),
    "PUBCOMP with two reason strings": (framed(0x70, b"\0\x01\0\x08\x1f\0\x01a\x1f\0\x01b"), VIOLATION, 5),
    "PUBACK with bytes behind": (framed(0x40, b"\0\x01\0\0x"), MALFORMED, 5),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_packets_from_a_client(name: str) -> None:
    """Each rule of a control packet that can be broken, with its reason."""
    wire, reason, version = OTHERS[name]
    assert refused(wire, version).reason is reason


FROM_SERVERS = {
    "CONNACK with reserved flags": (framed(0x20, b"\x02\0\0"), MALFORMED, 5),
    "CONNACK, session and error": (framed(0x20, b"\x01\x87\0"), VIOLATION, 5),
    "CONNACK with a reason of PUBACK": (framed(0x20, b"\0\x10\0"), VIOLATION, 5),
    "CONNACK with maximum QoS 2": (framed(0x20, b"\0\0\x02\x24\x02"), VIOLATION, 5),
    "CONNACK with receive maximum 0": (framed(0x20, b"\0\0\x03\x21\0\0"), VIOLATION, 5),
    "3.1.1 CONNACK with code 6": (framed(0x20, b"\0\x06"), MALFORMED, 4),
    "SUBACK without codes": (framed(0x90, b"\0\x01\0"), VIOLATION, 5),
    "SUBACK with code 3": (framed(0x90, b"\0\x01\0\x03"), VIOLATION, 5),
    "3.1.1 SUBACK with a code of MQTT 5": (framed(0x90, b"\0\x01\x87"), VIOLATION, 4),
    "UNSUBACK without codes": (framed(0xB0, b"\0\x01\0"), VIOLATION, 5),
    "3.1.1 UNSUBACK with codes": (framed(0xB0, b"\0\x01\0"), MALFORMED, 4),
    "session expiry in a DISCONNECT": (framed(0xE0, b"\0\x05\x11\0\0\0\x01"), VIOLATION, 5),
    "AUTH: re-authenticate": (framed(0xF0, b"\x19\x04\x15\0\x01m"), VIOLATION, 5),
    "3.1.1 DISCONNECT": (framed(0xE0), VIOLATION, 4),
    "subscription identifier 0": (framed(0x30, b"\0\x01t\x02\x0b\0x"), VIOLATION, 5),
}


@pytest.mark.parametrize("name", FROM_SERVERS)
def test_packets_from_a_server(name: str) -> None:
    """The same for what a client reads."""
    wire, reason, version = FROM_SERVERS[name]
    assert refused(wire, version, "client").reason is reason


def test_reason_codes_are_allowed_where_the_standard_lists_them() -> None:
    """The tables of MQTT 5: 3.2.2.2, 3.4.2.1, 3.6.2.1, 3.9.3, 3.11.3, 3.14.2.1, 3.15.2.1."""
    assert list(SUBACK_REASONS) == [0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2]
    assert list(UNSUBACK_REASONS) == [0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]
    assert list(AUTH_REASONS["server"]) == [0x18, 0x19] and list(AUTH_REASONS["client"]) == [0x00, 0x18]
    assert len(CONNACK_REASONS) == 22 and 0x8B not in CONNACK_REASONS and 0x8A in CONNACK_REASONS
    assert len(DISCONNECT_REASONS) == 29 and not {0x84, 0x85, 0x86, 0x88, 0x91, 0x92} & DISCONNECT_REASONS.keys()


def test_the_size_limit_holds_before_the_packet_is_there() -> None:
    """0x95 comes with the fixed header; a packet of exactly the limit passes."""
    fits = encode(4, PublishRun([0], [0], [b"t"], [b"\0" + bytes(92)]))
    assert len(fits) == 97
    assert len(Decoder(4, 97).feed(fits)) == 1
    assert refused(fits, 4, packet_bytes_max=96).reason is R.PACKET_TOO_LARGE
    assert refused(fits[:2], 4, packet_bytes_max=96).reason is R.PACKET_TOO_LARGE
    decoder = Decoder(5, 1_000)
    with pytest.raises(DecodeError) as caught:
        decoder.feed(b"\x40\x02\x00\x05\x30\xff\xff\xff\x7f")
    assert caught.value.reason is R.PACKET_TOO_LARGE
    assert caught.value.items == [AckRun(AckKind.PUBACK, [5])]
    assert decoder.held_bytes == 0
    assert refused(b"\x10\xff\xff\x03", None, packet_bytes_max=1_000).reason is R.PACKET_TOO_LARGE
    assert refused(b"\x40\x02\x00\x01", 5, packet_bytes_max=3).reason is R.PACKET_TOO_LARGE


def test_the_limit_holds_inside_a_run() -> None:
    """A packet over the limit that is already there ends its run and is refused."""
    small = PublishRun([0], [0], [b"t"], [b"\0x"])
    large = PublishRun([0], [0], [b"t"], [b"\0" + bytes(300)])
    wire = encode(5, small) + encode(5, large) + encode(5, small)
    with pytest.raises(DecodeError) as caught:
        Decoder(5, 200).feed(wire)
    assert caught.value.reason is R.PACKET_TOO_LARGE
    assert caught.value.items == [small]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_what_came_before_the_fault_is_not_lost(version: int) -> None:
    """All packets before the fault are in the error, in order, and a broken decoder takes nothing more."""
    before: list[Item] = [
        PublishRun([2, 0], [1, 0], [b"a", b"b"], [b"\0x", b"\0y"]),
        AckRun(AckKind.PUBREC, [3, 4]),
        Subscribe(9, (Subscription(b"#", 1),)),
        PublishRun([4], [6], [b"c"], [b"\0z"]),
    ]
    for fault in (b"\x32\x06\0\x01t\0\0\0", b"\x50\x02\0\0", b"\x30\x04\0\x02a+", b"\x36\x00"):
        decoder = Decoder(version, 100)
        with pytest.raises(DecodeError) as caught:
            decoder.feed(encode_all(version, before) + fault + encode(version, Pingreq()))
        assert caught.value.items == before
        with pytest.raises(DecodeError) as again:
            decoder.feed(encode(version, Pingreq()))
        assert again.value.items == []
        assert again.value.reason is caught.value.reason


@pytest.mark.parametrize("at", [0, 1, 8, 9, 10, 11, 63, 64, 70, 99])
def test_a_bad_acknowledgement_in_a_long_run(at: int) -> None:
    """An identifier 0, a wrong length or another kind inside a run is found wherever it stands."""
    ids = list(range(1, 101))
    wire = bytearray(encode(4, AckRun(AckKind.PUBACK, ids)))
    before = [AckRun(AckKind.PUBACK, ids[:at])] if at else []
    for spoiled in (b"\x40\x02\0\0", b"\x40\x03\0\x07", b"\x41\x02\0\x07", b"\x40\x01\0\x07"):
        wire[at * 4 : at * 4 + 4] = spoiled
        with pytest.raises(DecodeError) as caught:
            Decoder(4, 100).feed(bytes(wire) + b"\0\0")
        assert caught.value.items == before


def test_every_truncation_of_a_full_connect_is_refused() -> None:
    """A CONNECT cut anywhere, with its length set right, is never taken for a shorter one."""
    everything = Properties(session_expiry_interval=1, receive_maximum=2, user_properties=(("k", "v"),), authentication_method="m")
    will = Will(b"w", b"payload", 1, True, Properties(will_delay_interval=3, content_type="t"))
    wire = encode(5, Connect(5, "c", False, 10, "user", b"password", will, everything))
    content = wire[2:]
    for size in range(len(content)):
        assert refused(framed(0x10, content[:size]), None).reason in (MALFORMED, VIOLATION)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_one_packet_names_no_more_filters_than_it_may(first: int, version: int) -> None:
    """SUBSCRIBE and UNSUBSCRIBE: as many as that are taken, one more refuses the packet before the others in it are looked at."""
    head = b"\0\1" + b"\0" * (version == 5)
    row = string("a") + b"\0" * (first == 0x82)
    (taken,) = Decoder(version, 1 << 20, filters_max=3).feed(framed(first, head, row * 3))
    assert isinstance(taken, Subscribe | Unsubscribe)
    with pytest.raises(DecodeError) as error:
        Decoder(version, 1 << 20, filters_max=3).feed(framed(first, head, row * 3, b"\xff\xff"))
    assert error.value.reason is R.QUOTA_EXCEEDED
    assert refused(framed(first, head, row * 1_025), version).reason is R.QUOTA_EXCEEDED


PAIR = b"\x26\x00\x01a\x00\x01b"
PROPERTIES_OF = {
    "CONNECT": lambda block: framed(0x10, b"\0\x04MQTT\x05\x02\0\0", block, b"\0\x01c"),
    "will": lambda block: framed(0x10, b"\0\x04MQTT\x05\x06\0\0\0\0\x01c", block, b"\0\x01w\0\0"),
    "PUBLISH": lambda block: framed(0x30, b"\0\x01t", block),
    "PUBACK": lambda block: framed(0x40, b"\0\1\0", block),
    "SUBSCRIBE": lambda block: framed(0x82, b"\0\1", block, b"\0\x01a\0"),
    "UNSUBSCRIBE": lambda block: framed(0xA2, b"\0\1", block, b"\0\x01a"),
    "DISCONNECT": lambda block: framed(0xE0, b"\0", block),
}


@pytest.mark.parametrize("kind", PROPERTIES_OF)
def test_one_packet_has_no_more_user_properties_than_it_may(kind: str) -> None:
    """As many as that are taken, one more is refused with 0x97, also when the same block was read before under another bound."""
    version = None if kind in ("CONNECT", "will") else 5
    wires = [PROPERTIES_OF[kind](varint(7 * count) + PAIR * count) for count in (3, 4)]
    for bound, wire, taken in ((3, wires[0], True), (4, wires[1], True), (3, wires[1], False), (0, wires[0], False)):
        decoder = Decoder(version, 1 << 20, user_properties_max=bound)
        if taken:
            assert len(decoder.feed(wire)) == 1
            continue
        with pytest.raises(DecodeError) as error:
            decoder.feed(wire)
        assert error.value.reason is R.QUOTA_EXCEEDED
        assert str(bound) in error.value.detail


def test_user_properties_of_one_packet_have_so_many_bytes() -> None:
    """64 KiB, whatever their number."""
    long = b"\x26\x00\x01a\xff\xff" + b"v" * 65_535
    assert refused(framed(0x30, b"\0\x01t", varint(len(long)), long)).reason is R.QUOTA_EXCEEDED
    short = b"\x26\x00\x01a\xf0\x00" + b"v" * 0xF000
    assert len(Decoder(5, 1 << 20).feed(framed(0x30, b"\0\x01t", varint(len(short)), short))) == 1


def test_many_user_properties_cost_by_their_number() -> None:
    """Sixteen times as many take about sixteen times as long, where nothing bounds them: nobody holds a gateway with one packet."""

    def cost_of_one(count: int) -> float:
        block = b"\x26\x00\x01a\x00\x01b" * count
        wire = framed(0x30, string("t"), varint(len(block)), block)
        began = time.process_time()
        (publish,) = Decoder(5, 1 << 20, "client").feed(wire)
        assert isinstance(publish, Publish)
        return (time.process_time() - began) / count

    assert min(cost_of_one(32_000) for _ in range(3)) < 4 * min(cost_of_one(2_000) for _ in range(3))
