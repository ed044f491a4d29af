"""Counts what a session lost, got twice, got out of order or got under a wrong topic, from sequence numbers in the payload.

A publisher numbers its messages 0, 1, 2, ...; message j goes to its topic number `topics[j % len(topics)]`. So every (publisher, topic)
has numbers that rise, and what is missing is known exactly. The ledger is told what was acknowledged; it asks no broker anything.

Lost: acknowledged to the publisher, matching the session, never delivered. Duplicated: every delivery of a number after its first.
Out of order: a first delivery with a number below one that the same (publisher, topic) had delivered before; a repeat is a duplicate and
not disorder, because MQTT allows it at QoS 1. Misrouted: delivered under another topic than its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks import runs

Bits = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one session received, small enough to hand to another process; `delivered` has one bit per sequence number."""

    messages: int
    duplicated: int
    out_of_order: int
    misrouted: int
    delivered: Mapping[int, Bits]


class Ledger:
    """Everything one session received, in order of arrival; understood only at the end, so that taking it in costs next to nothing."""

    def __init__(self) -> None:
        self.messages = 0
        self._stamps: list[runs.Bytes] = []
        self._digits: list[runs.Bytes] = []
        self._arrived_ns: list[int] = []

    def add(self, stamps: runs.Bytes, digits: runs.Bytes, arrived_ns: int) -> None:
        """Deliveries that came after all those added before."""
        self.messages += len(stamps)
        self._stamps.append(stamps)
        self._digits.append(digits)
        self._arrived_ns.append(arrived_ns)

    def end_to_end_ns(self) -> NDArray[np.int64]:
        """The time from sending to arrival of every delivery."""
        if not self.messages:
            return np.zeros(0, np.int64)
        arrived = np.repeat(np.array(self._arrived_ns, np.int64), [len(part) for part in self._stamps])
        return arrived - runs.read_stamps(np.concatenate(self._stamps)).sent_ns

    def close(self, topics_of: Mapping[int, Sequence[int]]) -> Seen:
        """The account of the session; `topics_of` names each publisher's topics in the order it rotates them."""
        if not self.messages:
            return Seen(0, 0, 0, 0, {})
        stamps, topics = runs.read_stamps(np.concatenate(self._stamps)), runs.read_topics(np.concatenate(self._digits))
        publishers, sequences = stamps.publishers, stamps.sequences
        duplicated = out_of_order = misrouted = 0
        delivered: dict[int, Bits] = {}
        for publisher in np.unique(publishers).tolist():
            mine = publishers == publisher
            numbers, names = sequences[mine].astype(np.int64), topics[mine]
            if publisher not in topics_of:
                misrouted += len(numbers)
                continue
            rotation = np.asarray(topics_of[publisher], np.int32)
            misrouted += int((rotation[numbers % len(rotation)] != names).sum())
            known, first = np.unique(numbers, return_index=True)
            duplicated += len(numbers) - len(known)
            first.sort()
            out_of_order += disorder(numbers[first], names[first])
            delivered[publisher] = to_bits(known)
        return Seen(self.messages, duplicated, out_of_order, misrouted, delivered)


def disorder(sequences: NDArray[np.int64], topics: NDArray[np.int32]) -> int:
    """How many numbers come after a higher one of the same topic."""
    if len(sequences) < 2:
        return 0
    # Sorted by topic and else left in order, each topic lifted above the one before: one running maximum serves all topics.
    by_topic = np.argsort(topics, kind="stable")
    lifted = topics[by_topic].astype(np.int64) * (int(sequences.max()) + 1) + sequences[by_topic]
    return int((lifted[1:] < np.maximum.accumulate(lifted)[:-1]).sum())


def to_bits(sequences: NDArray[np.int64]) -> Bits:
    """A set of sequence numbers as bits."""
    flags = np.zeros(int(sequences.max()) + 1 if len(sequences) else 0, np.uint8)
    flags[sequences] = 1
    return np.packbits(flags)


def _flags(bits: Bits, count: int) -> NDArray[np.bool_]:
    flags = np.unpackbits(bits)[:count].astype(np.bool_)
    return np.concatenate([flags, np.zeros(count - len(flags), np.bool_)])


def _matching(publisher: int, count: int, topics_of: Mapping[int, Sequence[int]], wanted: frozenset[int] | None) -> NDArray[np.bool_]:
    """Which of a publisher's first `count` numbers are on the `wanted` topics (None: all)."""
    if wanted is None:
        return np.ones(count, np.bool_)
    rotation = topics_of[publisher]
    return np.array([topic in wanted for topic in rotation])[np.arange(count) % len(rotation)]


def due(acknowledged: Mapping[int, Bits], topics_of: Mapping[int, Sequence[int]], wanted: frozenset[int] | None) -> int:
    """How many acknowledged messages a session on the `wanted` topics must get."""
    return sum(
        int((_flags(bits, 8 * len(bits)) & _matching(publisher, 8 * len(bits), topics_of, wanted)).sum())
        for publisher, bits in acknowledged.items()
    )


def lost(acknowledged: Mapping[int, Bits], seen: Seen, topics_of: Mapping[int, Sequence[int]], wanted: frozenset[int] | None) -> int:
    """How many acknowledged messages on the `wanted` topics the session never got."""
    missing = 0
    for publisher, bits in acknowledged.items():
        count = 8 * len(bits)
        got = _flags(seen.delivered.get(publisher, np.zeros(0, np.uint8)), count)
        missing += int((_flags(bits, count) & _matching(publisher, count, topics_of, wanted) & ~got).sum())
    return missing
