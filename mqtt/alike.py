"""PUBLISH packets in a row that differ in topic, packet identifier and payload only: they are taken apart all at once.

A client that sends much at once mostly sends one kind of message. Where each of its packets has the size of the one before, and the bytes
between what differs are the same, no length has to be read again: for each of them this costs a third of reading one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

LEAST: Final = 8
"""For fewer it does not pay."""
MOST: Final = 256
"""At once: what breaks the row is looked for in all of them."""
_SHAPES_REMEMBERED: Final = 256


class Alike(NamedTuple):
    """Columns. packet_ids: zeros where packets have none.  rests: what follows the identifier, properties too."""

    topics: Sequence[bytes]
    packet_ids: Sequence[int]
    rests: Sequence[bytes]


def alike(data: bytes, begin: int, topic: int, topic_end: int, rest: int, same_end: int, end: int) -> Alike | None:
    """The whole packets from `end` on that are as the one from begin to end.

    topic, topic_end: where its topic begins and ends.  rest: where what follows its identifier, or its topic, begins.  same_end: up
    to where they have that in common.  None: they are fewer than LEAST.  What is found ends before an identifier of zero.
    """
    size = end - begin
    count = min(MOST, (len(data) - end) // size)
    for at in (*range(begin, topic), *range(rest, same_end)):
        column = data[at + size : at + size + count * size : size]
        count -= len(column.lstrip(data[at : at + 1]))
        if count < LEAST:
            return None
    rows = _taken_apart(topic - begin, topic_end - topic, rest - topic_end, end - rest)(memoryview(data)[end : end + count * size])
    if rest == topic_end:
        topics, rests = zip(*rows, strict=True)
        return Alike(topics, [0] * count, rests)
    topics, packet_ids, rests = zip(*rows, strict=True)
    if 0 in packet_ids:
        count = packet_ids.index(0)
    return Alike(topics[:count], packet_ids[:count], rests[:count])


@lru_cache(_SHAPES_REMEMBERED)
def _taken_apart(head_bytes: int, topic_bytes: int, id_bytes: int, rest_bytes: int) -> Callable[[memoryview], Iterator[tuple[Any, ...]]]:
    """One packet after the other, as (topic, identifier if there is one, rest)."""
    return Struct(f">{head_bytes}x{topic_bytes}s{'H' if id_bytes else ''}{rest_bytes}s").iter_unpack
