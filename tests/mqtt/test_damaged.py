"""Valid streams with damage in them: a reason code or valid packets, nothing else, however they are cut.

Damage is made by a seeded generator on a fixed set of full packets, which is a hundred times faster than
drawing each case with Hypothesis; a failing case names its seed.
"""

from __future__ import annotations

import gc
import random
import weakref
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.blocks import PropertyBlocks
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode, encode_all
from mqtt.framing import Role
from mqtt.packets import (
    Ack,
    AckKind,
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.reason import ReasonCode
from mqtt.wire import varint
from tests.mqtt.generated import items

R = ReasonCode
MESSAGE = Properties(
    payload_format_indicator=1,
    message_expiry_interval=60,
    content_type="text/plain",
    response_topic="r/é",
    correlation_data=b"\0\xff",
    topic_alias=3,
    user_properties=(("k", "v"), ("k", "w")),
)
SAID = Properties(reason_string="because", user_properties=(("k", "v"),))
PUBLISHED = PublishRun([0, 3, 4, 10], [0, 1, 2, 3], [b"a/b", "é".encode(), b"$SYS/x", b"a"], [b"\0x", b"\0", b"\0\0", b"\0yy"])
ACKED = [AckRun(kind, [1, 258, 65_535]) for kind in AckKind]
SUBSCRIBE_3 = Subscribe(7, (Subscription(b"a/+", 1), Subscription(b"#", 2)))
UNSUBSCRIBE = Unsubscribe(8, (b"a/+", b"b"))
WILL = Will(b"w/t", b"gone", 2, True)

FROM_CLIENTS: dict[int, list[Item]] = {
    3: [PUBLISHED, *ACKED, SUBSCRIBE_3, UNSUBSCRIBE, Pingreq(), Disconnect()],
    4: [PUBLISHED, *ACKED, SUBSCRIBE_3, UNSUBSCRIBE, Pingreq(), Disconnect()],
    5: [
        PUBLISHED,
        *ACKED,
        Publish(2, 5, b"", b"payload", MESSAGE),
        Ack(AckKind.PUBREC, 5, R.QUOTA_EXCEEDED, SAID),
        Subscribe(7, (Subscription(b"$share/g/a", 1), Subscription(b"#", 2, True, True, 2)), Properties(subscription_identifiers=(300,))),
        UNSUBSCRIBE,
        Pingreq(),
        Disconnect(R.DISCONNECT_WITH_WILL_MESSAGE, Properties(session_expiry_interval=9, reason_string="bye")),
        Auth(R.CONTINUE_AUTHENTICATION, Properties(authentication_method="m", authentication_data=b"d")),
    ],
}
FROM_SERVERS: dict[int, list[Item]] = {
    4: [Connack(True), PUBLISHED, *ACKED, Suback(7, (R.GRANTED_QOS_1, R.UNSPECIFIED_ERROR)), Unsuback(8), Pingresp()],
    5: [
        Connack(False, R.SUCCESS, Properties(assigned_client_identifier="c", receive_maximum=9, maximum_qos=1, server_keep_alive=5)),
        PUBLISHED,
        *ACKED,
        Publish(2, 5, b"a", b"payload", Properties(subscription_identifiers=(1, 300), message_expiry_interval=5)),
        Suback(7, (R.GRANTED_QOS_1, R.NOT_AUTHORIZED), SAID),
        Unsuback(8, (R.SUCCESS, R.NO_SUBSCRIPTION_EXISTED), SAID),
        Disconnect(R.SERVER_MOVED, Properties(server_reference="other")),
        Auth(R.SUCCESS, Properties(authentication_method="m")),
    ],
}
CONNECTS = [
    Connect(3, "c", False, 60, "user", b"pass", WILL),
    Connect(4, "c", True, 60, "user", b"pass", WILL),
    Connect(5, "c", True, 60, "user", b"pass", Will(b"w", b"p", 1, False, Properties(will_delay_interval=1, content_type="t"))),
    Connect(5, "", False, 0, None, b"pass", None, Properties(session_expiry_interval=1, receive_maximum=2, authentication_method="m")),
]


@dataclass(frozen=True)
class Stream:
    version: int | None
    role: Role
    packets: tuple[bytes, ...]


STREAMS = (
    *[Stream(version, "server", tuple([encode(version, one) for one in packets])) for version, packets in FROM_CLIENTS.items()],
    *[Stream(version, "client", tuple([encode(version, one) for one in packets])) for version, packets in FROM_SERVERS.items()],
    *[Stream(None, "server", (encode(one.version, one), encode_all(one.version, FROM_CLIENTS[one.version]))) for one in CONNECTS],
)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{stream.role}-{stream.version}")
def test_the_streams_are_valid_before_they_are_damaged(stream: Stream) -> None:
    """Otherwise the damage would test nothing."""
    found, reason = outcome(stream.version, stream.role, [b"".join(stream.packets)])
    assert reason is None
    assert len(found) >= len(stream.packets)


def damage(packet: bytes, chance: random.Random) -> bytes:
    """The packet with a few bytes changed, removed, added or doubled; often with its length set right again."""
    wire = bytearray(packet)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(wire)) if wire else 0
        match chance.randrange(5):
            case 0 if wire:
                wire[at] ^= 1 << chance.randrange(8)
            case 1 if wire:
                wire[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 2:
                del wire[at : at + chance.randrange(1, 4)]
            case 3:
                wire[at:at] = chance.randbytes(chance.randrange(1, 4))
            case _:
                wire[at:at] = wire[at : at + chance.randrange(1, 12)]
    if 2 <= len(wire) < 129 and chance.random() < 0.6:
        wire[1] = len(wire) - 2
    return bytes(wire)


def outcome(version: int | None, role: Role, pieces: list[bytes]) -> tuple[list[object], ReasonCode | None]:
    """What came out, runs taken apart, and the reason of the error if there was one."""
    decoder = Decoder(version, 100_000, role)
    found: list[Item] = []
    reason = None
    try:
        for piece in pieces:
            found += decoder.feed(piece)
    except DecodeError as error:
        found += error.items
        reason = ReasonCode(error.reason)
    assert reason is None or reason >= 0x80
    return apart(found), reason


def apart(found: list[Item]) -> list[object]:
    out: list[object] = []
    for item in found:
        match item:
            case PublishRun():
                rows = list(zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True))
                for flags, number, topic, body in rows:
                    assert topic.decode() and not set(topic) & set(b"\0+#")
                    assert body[:1] == b"\0"
                    assert 0 <= flags < 14 and flags not in (6, 7, 8, 9) and 0 <= number < 65_536 and bool(number) == bool(flags & 6)
                out += rows
            case AckRun():
                assert all(0 < number < 65_536 for number in item.packet_ids)
                out += [(item.kind, number) for number in item.packet_ids]
            case _:
                out.append(item)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{stream.role}-{stream.version}")
def test_damage_is_refused_or_decoded_and_the_cuts_do_not_matter(stream: Stream) -> None:
    """A reason code or valid packets for each of 1,000 damaged streams; the same fed whole and byte by byte."""
    refused = 0
    for seed in range(1_000):
        chance = random.Random(seed)
        packets = list(stream.packets)
        at = chance.randrange(len(packets))
        packets[at] = damage(packets[at], chance)
        wire = b"".join(packets)
        whole = outcome(stream.version, stream.role, [wire])
        assert outcome(stream.version, stream.role, [wire[index : index + 1] for index in range(len(wire))]) == whole, f"seed {seed}"
        refused += whole[1] is not None
    assert 300 < refused < 1_000, "the damage is either harmless or hopeless"


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([None, 3, 4, 5]),
    st.sampled_from([0x10, 0x20, 0x30, 0x32, 0x40, 0x62, 0x82, 0x90, 0xA2, 0xB0, 0xE0, 0xF0]),
    st.binary(max_size=60),
)
def test_random_bytes_behind_a_plausible_header(version: int | None, first: int, content: bytes) -> None:
    """Random contents of every packet type: a reason code or a valid packet, for both roles."""
    wire = bytes((first,)) + varint(len(content)) + content
    outcome(version, "server", [wire])
    if version is not None:
        outcome(version, "client", [wire])


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 4, 5])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_packets_cut_short_are_refused_or_decoded(version: int, data: st.DataObject) -> None:
    """Every generated packet, cut after every byte and with its length set right: a reason code or a valid packet."""
    role: Role = data.draw(st.sampled_from(["server", "client"]))
    wire = encode(version, data.draw(items(version, role)))
    if len(wire) < 129:
        for size in range(2, len(wire)):
            outcome(version, role, [bytes((wire[0], size - 2)) + wire[2:size]])


class _Blocks(PropertyBlocks):
    """May be referred to weakly."""


@pytest.mark.needs("interpreted")
def test_a_decoder_that_refused_goes_with_its_connection() -> None:
    """Not when garbage is collected: what hostile clients sent would lie there until then."""
    blocks = _Blocks(lambda properties: True)
    watched = weakref.ref(blocks)
    gc.disable()
    try:
        decoder = Decoder(4, 1_000, blocks=blocks)
        with suppress(DecodeError):
            decoder.feed(b"\xff\x00")
        del blocks, decoder
        assert watched() is None
    finally:
        gc.enable()
