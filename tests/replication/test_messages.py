"""What replicas send each other, as bytes."""

from __future__ import annotations

import random

import pytest

from shards.replication.entry import Entry, Kind
from shards.replication.messages import (
    MESSAGE_VERSION,
    Ack,
    Append,
    BadMessage,
    Chunk,
    Hello,
    Message,
    Nak,
    Offer,
    Pull,
    Yield,
    pack,
    unpack,
)

ALL: tuple[Message, ...] = (
    Append(7, 3, 6, (Entry(4, 7, Kind.NOOP), Entry(5, 7, Kind.RECORD, b"ops")), 2),
    Append(7, 5, 7, (), 5),
    Ack(7, 5),
    Nak(8, 0),
    Hello(12),
    Hello(12, 2),
    Yield(7),
    Offer(7, 1, 40, 6, (("000012.sst", 900), ("MANIFEST-1", 7))),
    Pull(7, 1, 0, 512),
    Chunk.of(Pull(7, 1, 0, 512), b"bytes"),
)


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent(message: Message) -> None:
    """Field by field, the entries with their kinds."""
    assert unpack(pack(message)) == message


def test_an_acknowledgement_has_the_bytes_that_the_page_says() -> None:
    """docs/formats.md, "Messages between replicas": a change of these is a new version."""
    assert pack(Ack(7, 5)) == bytes((0x94, MESSAGE_VERSION, 1, 7, 5))
    assert pack(Hello(12)) == bytes((0x93, MESSAGE_VERSION, 3, 12)), "as programs know it that cannot force leadership"
    assert pack(ALL[1]) == bytes((0x97, MESSAGE_VERSION, 0, 7, 5, 7, 0x90, 5))


def test_cut_or_changed_bytes_are_one_sentence_or_a_message() -> None:
    """A peer may send anything; nothing else is raised."""
    rng = random.Random(3)
    for _ in range(6000):
        data = bytearray(pack(rng.choice(ALL)))
        del data[rng.randint(0, len(data)) :]
        for _ in range(rng.randint(0, 3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            unpack(bytes(data))
        except BadMessage:
            pass


@pytest.mark.parametrize(
    "message",
    [
        Offer(1, 1, 1, 1, (("../etc", 1),)),
        Offer(1, 1, 1, 1, (("..", 1),)),
        Append(1, 3, 1, (Entry(5, 1, Kind.NOOP),), 0),
        Ack(1, -1),
    ],
)
def test_what_would_do_harm_is_refused(message: Message) -> None:
    """A file outside of the directory, a gap, a number below nothing."""
    with pytest.raises(BadMessage):
        unpack(pack(message))


def test_a_chunk_that_was_changed_on_its_way_is_not_whole() -> None:
    """It is pulled again."""
    chunk = Chunk.of(Pull(7, 1, 0, 0), b"bytes")
    assert chunk.whole and not Chunk(7, 1, 0, 0, b"bytez", chunk.crc).whole
