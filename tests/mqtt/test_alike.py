"""Rows of packets that are alike (mqtt/alike.py): what is read of them at once is what is read of them one by one."""

from __future__ import annotations

import random

import pytest

from mqtt.alike import LEAST, MOST
from mqtt.blocks import PropertyBlocks
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import Item, Publish, PublishRun

Read = tuple[list[tuple[object, ...]], object]
"""Message by message, or packet by packet; and what was wrong in the end."""


def decoder(version: int, packet_bytes_max: int = 1 << 20) -> Decoder:
    return Decoder(version, packet_bytes_max, blocks=PropertyBlocks(lambda properties: True))


def taken_apart(items: list[Item]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for item in items:
        if isinstance(item, PublishRun):
            found += zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True)
        elif isinstance(item, Publish):
            found.append((item.flags, item.packet_id, item.topic, item.body))
        else:
            found.append((item,))
    return found


def read(into: Decoder, pieces: list[bytes]) -> Read:
    found: list[tuple[object, ...]] = []
    for piece in pieces:
        try:
            found += taken_apart(into.feed(piece))
        except DecodeError as error:
            return found + taken_apart(error.items), (error.reason, error.detail)
    return found, None


def one_by_one(wire: bytes, lengths: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for length in lengths:
        pieces.append(wire[at : at + length])
        at += length
    return [*pieces, wire[at:]]


def a_row(rng: random.Random, version: int) -> list[bytes]:
    """Packets of one kind, some of which have another size or other flags."""
    flags = rng.choice((0, 2, 2, 3, 4, 10))
    topic_bytes, body_bytes = rng.choice((1, 3, 9)), rng.choice((0, 1, 30, 120, 200, 17_000))
    block = rng.choice((b"\0", b"\0", b"\x02\x01\x01", b"\x05\x02\0\0\0\x09", b"\x07\x26\0\x01k\0\x01v")) if version == 5 else b"\0"
    row = []
    for _ in range(rng.choice((1, LEAST, LEAST + 1, 30))):
        other = rng.random() < 0.03
        topic = bytes(rng.choice(b"ab/") for _ in range(topic_bytes))
        body = block + rng.randbytes(body_bytes + other)
        packet_id = rng.randrange(1, 60_000) if flags & 6 else 0
        row.append(encode(version, PublishRun([flags], [packet_id], [topic], [body])))
    return row


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_stands_in_a_row_is_read_as_if_it_came_alone(version: int, seed: int) -> None:
    # Property: rows of packets, some of whose bytes are changed, give the same messages and the same end in whatever pieces they come.
    rng = random.Random(f"{version} {seed}")
    for _ in range(12):
        packets = [packet for _ in range(rng.randrange(1, 5)) for packet in a_row(rng, version)]
        lengths = list(map(len, packets))
        wire = bytearray(b"".join(packets))
        for _ in range(rng.choice((0, 0, 1, 3))):
            # Where lengths, flags, topics, identifiers and blocks are, more often than in a payload.
            start = sum(lengths[: rng.randrange(len(lengths))])
            wire[min(len(wire) - 1, start + rng.randrange(20))] = rng.choice(
                (0, 1, 2, 0x7F, 0x80, 0xFF, ord("+"), ord("a"), rng.randrange(256))
            )
        data, limit = bytes(wire), rng.choice((1 << 20, 1 << 20, 150))
        wanted = read(decoder(version, limit), one_by_one(data, lengths))
        assert read(decoder(version, limit), [data]) == wanted
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(3))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert read(decoder(version, limit), pieces) == wanted


@pytest.mark.parametrize("flags", [0, 2, 4])
def test_a_long_row_is_one_item(flags: int) -> None:
    """More than are taken apart at once; each identifier, topic and payload is that of its packet."""
    count = 2 * MOST + LEAST + 3
    ids = list(range(1, count + 1)) if flags else [0] * count
    run = PublishRun([flags] * count, ids, [b"t/%03d" % (n % 7) for n in range(count)], [b"\0%05d" % n for n in range(count)])
    assert decoder(4).feed(encode(4, run)) == [run]


def test_a_row_ends_before_an_identifier_of_zero() -> None:
    """What comes before it is read; the packet itself is malformed [MQTT-2.2.1-3]."""
    ids = list(range(1, 40))
    packets = [encode(4, PublishRun([2], [packet_id], [b"t"], [b"\0x"])) for packet_id in ids]
    packets[14] = packets[14].replace(b"\0\x0f", b"\0\0")
    with pytest.raises(DecodeError) as caught:
        decoder(4).feed(b"".join(packets))
    assert [item.packet_ids for item in caught.value.items if isinstance(item, PublishRun)] == [ids[:14]]


def test_a_row_ends_where_properties_do() -> None:
    """Without properties, then with some: of MQTT 5 the byte that says how long they are is one of those that are the same."""
    plain = PublishRun([2] * 20, list(range(1, 21)), [b"t"] * 20, [b"\0" + b"x" * 9] * 20)
    other = PublishRun([2] * 20, list(range(21, 41)), [b"t"] * 20, [b"\x02\x01\x01" + b"x" * 7] * 20)
    wire = encode(5, plain) + encode(5, other)
    found, wrong = read(decoder(5), [wire])
    assert wrong is None and [row[3] for row in found] == plain.bodies + other.bodies
