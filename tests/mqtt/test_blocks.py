"""Messages whose properties are known come in runs, and are what they would be on their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.blocks import BLOCK_BYTES_MAX, BLOCKS_MAX, PropertyBlocks, UnreadBlocks
from mqtt.body import make_body
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode, encode_all
from mqtt.packets import Item, Properties, Publish, PublishRun
from tests.mqtt.generated import items

JSON = Properties(content_type="application/json", message_expiry_interval=60, user_properties=(("site", "north"), ("unit", "celsius")))


def everything(_properties: Properties) -> bool:
    return True


def message(payload: bytes, properties: Properties = JSON, packet_id: int = 1, topic: bytes = b"t") -> Publish:
    return Publish(2, packet_id, topic, payload, properties, make_body(properties, payload))


def taken_apart(packets: list[Item]) -> list[object]:
    """Runs as their messages; each message as what is stored of it."""
    out: list[object] = []
    for packet in packets:
        if isinstance(packet, PublishRun):
            out += zip(packet.flags, packet.packet_ids, packet.topics, packet.bodies, strict=True)
        elif isinstance(packet, Publish) and packet.properties.topic_alias is None:
            out.append((packet.flags, packet.packet_id, packet.topic, packet.body))
        else:
            out.append(packet)
    return out


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_run_has_what_messages_on_their_own_have(data: st.DataObject) -> None:
    """Any stream, twice, so that its blocks are known; cut anywhere."""
    wire = encode_all(5, data.draw(st.lists(items(5, "server"), min_size=1, max_size=6))) * 2
    cut = data.draw(st.integers(0, len(wire)))
    plain, joining = Decoder(5, 1 << 20), Decoder(5, 1 << 20, blocks=PropertyBlocks(everything))
    expected = plain.feed(wire[:cut]) + plain.feed(wire[cut:])
    assert taken_apart(joining.feed(wire[:cut]) + joining.feed(wire[cut:])) == taken_apart(expected)


def test_what_was_read_before_is_one_of_a_run() -> None:
    """Also between messages without properties; what is not known comes on its own, once."""
    decoder = Decoder(5, 1 << 20, blocks=PropertyBlocks(everything))
    assert decoder.feed(encode(5, message(b"1"))) == [message(b"1")]
    bare = PublishRun([2], [2], [b"t"], [b"\0bare"])
    wire = encode_all(5, [message(b"2"), bare, message(b"3", packet_id=3)])
    (run,) = decoder.feed(wire)
    assert run == PublishRun([2] * 3, [1, 2, 3], [b"t"] * 3, [make_body(JSON, b"2"), b"\0bare", make_body(JSON, b"3")])
    other = message(b"4", replace(JSON, content_type="text"))
    assert decoder.feed(encode(5, other)) == [other]


@pytest.mark.parametrize("properties", [
    Properties(topic_alias=3, content_type="text"),
    replace(JSON, content_type="x" * BLOCK_BYTES_MAX),
    replace(JSON, user_properties=(("persist", "true"),)),
])  # fmt: skip
def test_what_concerns_one_message_alone_never_joins(properties: Properties) -> None:
    """A topic alias; what its owner wants to see; and a long block is not remembered."""
    decoder = Decoder(5, 1 << 20, blocks=PropertyBlocks(lambda found: ("persist", "true") not in found.user_properties))
    for _ in range(3):
        (packet,) = decoder.feed(encode(5, message(b"1", properties)))
        assert isinstance(packet, Publish)


def test_a_subscription_identifier_is_refused_however_often_it_comes() -> None:
    """Of a client [MQTT-3.3.4-6]; to one that is a client itself such a message comes on its own."""
    found = Properties(subscription_identifiers=(7,))
    blocks = PropertyBlocks(everything)
    for _ in range(2):
        (packet,) = Decoder(5, 1 << 20, "client", blocks=blocks).feed(encode(5, message(b"1", found)))
        assert isinstance(packet, Publish)
        with pytest.raises(DecodeError, match="subscription identifier"):
            Decoder(5, 1 << 20, blocks=blocks).feed(encode(5, message(b"1", found)))


def test_the_bound_of_user_properties_holds_for_who_shares_the_memory() -> None:
    """A block that one connection may send is one too many for another."""
    blocks = PropertyBlocks(everything)
    wire = encode(5, message(b"1"))
    for _ in range(2):
        Decoder(5, 1 << 20, user_properties_max=2, blocks=blocks).feed(wire)
        with pytest.raises(DecodeError, match="user properties"):
            Decoder(5, 1 << 20, user_properties_max=1, blocks=blocks).feed(wire)


def test_a_known_block_that_reaches_over_the_end_of_its_packet_is_malformed() -> None:
    """What follows in the stream is not part of it."""
    blocks = PropertyBlocks(everything)
    decoder = Decoder(5, 1 << 20, blocks=blocks)
    decoder.feed(encode(5, message(b"")))
    block = make_body(JSON, b"")
    cut = b"\x32" + bytes((5 + len(block) - 4,)) + b"\x00\x01t\x00\x01" + block[:-4]
    with pytest.raises(DecodeError):
        decoder.feed(cut + block[-4:] * 4)


def test_the_memory_is_bounded() -> None:
    """Emptied when it is full."""
    blocks = PropertyBlocks(everything)
    for number in range(BLOCKS_MAX + 10):
        blocks.note(message(b"", Properties(correlation_data=b"%d" % number)))
    assert len(blocks.known) == 10


def test_who_reads_blocks_itself_gets_them_in_runs_whatever_is_in_them() -> None:
    """Not where one byte cannot say how long one is."""
    plain = replace(JSON, user_properties=(("n", "1"),))
    long = replace(JSON, user_properties=(("n", "1" * 200),))
    decoder = Decoder(5, 1 << 20, "client", blocks=UnreadBlocks())
    wire = encode_all(5, [message(b"1"), message(b"2", plain, packet_id=2), message(b"3", long, packet_id=3), message(b"4", packet_id=4)])
    run, single, last = decoder.feed(wire)
    assert isinstance(run, PublishRun) and run.bodies == [message(b"1").body, message(b"2", plain).body]
    assert single == message(b"3", long, packet_id=3) and isinstance(last, PublishRun)
    reaching = bytearray(encode(5, message(b"", packet_id=1)))
    reaching[7] += 1
    with pytest.raises(DecodeError, match="property length"):
        Decoder(5, 1 << 20, "client", blocks=UnreadBlocks()).feed(bytes(reaching))
