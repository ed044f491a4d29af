"""The generator's control packets, against a codec that is not ours."""

from __future__ import annotations

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import wire
from benchmarks.runs import PublishBlock


@given(st.integers(0, 268_435_455))
def test_a_length_is_read_as_it_was_written(length: int) -> None:
    """Variable byte integers survive the round trip, and one that is cut short reads as not there yet."""
    data = wire.encode_length(length)
    assert wire.decode_length(data, 0, len(data)) == (length, len(data))
    assert wire.decode_length(data, 0, len(data) - 1) is None


def test_a_length_of_five_bytes_is_refused() -> None:
    """A stream that lost its place does not read on for ever."""
    with pytest.raises(wire.Refused, match="more than four"):
        wire.decode_length(b"\xff\xff\xff\xff\x01", 0, 5)


def test_connect_of_a_durable_session_keeps_it() -> None:
    """MQTT 5: no clean start and a session expiry; with clean neither."""
    kept, _ = mqtt5.read(memoryview(wire.connect(5, "c1", clean=False, user="u")))
    assert isinstance(kept, mqtt5.ConnectPacket)
    assert (kept.client_id, kept.username, kept.clean_start) == ("c1", "u", False)
    assert kept.session_expiry_interval == wire.EXPIRY_S_LONG
    ended, _ = mqtt5.read(memoryview(wire.connect(5, "c1", clean=True)))
    assert isinstance(ended, mqtt5.ConnectPacket)
    assert (ended.clean_start, ended.session_expiry_interval) == (True, 0)


def test_subscribe_names_its_filter_and_qos() -> None:
    """One filter, one QoS, in MQTT 5."""
    packet, _ = mqtt5.read(memoryview(wire.subscribe(5, 9, "a/#", 2)))
    assert isinstance(packet, mqtt5.SubscribePacket)
    assert [(one.pattern, int(one.max_qos)) for one in packet.topic_filters] == [("a/#", 2)]


def test_a_connack_tells_session_present_and_receive_maximum() -> None:
    """Whatever other properties stand before and behind it."""
    raw = mqtt5.ConnAckPacket(
        session_present=True,
        assigned_client_id="x" * 200,
        receive_max=7,
        topic_alias_max=3,
        user_properties=[("a", "b"), ("c", "d")],
        server_keep_alive=60,
        session_expiry_interval=5,
    ).write()
    found = wire.read_packet(raw + b"\xd0\x00")
    assert found is not None
    packet, behind = found
    assert wire.accepted(5, packet) == wire.Accepted(session_present=True, receive_maximum=7)
    assert behind == b"\xd0\x00"


def test_a_packet_is_read_only_when_it_is_whole() -> None:
    """Every shorter prefix reads as not there yet."""
    raw = b"\x20\x02\x01\x00"
    assert all(wire.read_packet(raw[:length]) is None for length in range(len(raw)))
    found = wire.read_packet(raw)
    assert found is not None
    assert wire.accepted(4, found[0]) == wire.Accepted(session_present=True, receive_maximum=65535)


@pytest.mark.parametrize(("packet", "story"), [(wire.Packet(0x20, b"\0\x87\0"), "0x87"), (wire.Packet(0xE0, b""), "where a CONNACK")])
def test_a_refused_connect_is_raised_with_what_was_found(packet: wire.Packet, story: str) -> None:
    """Also when the answer is no CONNACK at all."""
    with pytest.raises(wire.Refused, match=story):
        wire.accepted(5, packet)


def test_a_suback_for_less_than_asked_is_raised() -> None:
    """A run at a QoS the broker did not grant would measure something else."""
    wire.granted(wire.Packet(0x90, b"\0\x01\x01"), 1)
    for code in (0, 0x80):
        with pytest.raises(wire.Refused, match=f"0x{code:02x}"):
            wire.granted(wire.Packet(0x90, bytes([0, 1, code])), 1)


def test_a_subscribe_may_name_several_filters() -> None:
    """Each with its QoS."""
    packet, _ = mqtt5.read(memoryview(wire.subscribe(5, 9, "a/#", 1, "b/+", "c")))
    assert isinstance(packet, mqtt5.SubscribePacket)
    assert [(one.pattern, int(one.max_qos)) for one in packet.topic_filters] == [("a/#", 1), ("b/+", 1), ("c", 1)]


def test_properties_of_a_publish_are_whole() -> None:
    """A codec that is not ours reads them in front of the payload."""
    block = PublishBlock(5, 1, "run", [0], 16, 1, 4, properties=wire.PROPERTIES)
    packet, _ = mqtt5.read(memoryview(bytes(block.stamp_one(7, 3, 1))))
    assert isinstance(packet, mqtt5.PublishPacket)
    assert (packet.topic, packet.packet_id, len(packet.payload)) == ("run/000000", 3, 16)
    assert (packet.content_type, packet.response_topic, packet.message_expiry_interval) == ("application/json", "answers", 3600)
    assert packet.user_properties == [("site", "north"), ("unit", "celsius")]
