"""What is counted as lost, doubled, disordered and misrouted, against counting by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import ledger, runs


def stamps(deliveries: Sequence[tuple[int, int, int]]) -> tuple[runs.Bytes, runs.Bytes]:
    """(publisher, sequence, topic) as the wire has them."""
    raw = b"".join(p.to_bytes(4, "little") + s.to_bytes(4, "little") + (0).to_bytes(8, "little") for p, s, _ in deliveries)
    names = b"".join(f"{topic:06d}".encode() for _, _, topic in deliveries)
    return np.frombuffer(raw, np.uint8).reshape(-1, 16), np.frombuffer(names, np.uint8).reshape(-1, 6)


def seen(deliveries: Sequence[tuple[int, int, int]], topics_of: Mapping[int, Sequence[int]], cuts: int = 1) -> ledger.Seen:
    account = ledger.Ledger()
    for at in range(0, len(deliveries), cuts):
        account.add(*stamps(deliveries[at : at + cuts]), arrived_ns=at)
    return account.close(topics_of)


def acked(sequences: Sequence[int]) -> ledger.Bits:
    return ledger.to_bits(np.array(sequences, np.int64))


def test_a_perfect_delivery_has_nothing_to_tell() -> None:
    """Two publishers, interleaved, all there."""
    found = seen([(0, 0, 5), (1, 0, 5), (1, 1, 5), (0, 1, 5)], {0: [5], 1: [5]})
    assert (found.messages, found.duplicated, found.out_of_order, found.misrouted) == (4, 0, 0, 0)
    assert ledger.lost({0: acked([0, 1]), 1: acked([0, 1])}, found, {0: [5], 1: [5]}, None) == 0


def test_a_repeat_is_a_duplicate_and_no_disorder() -> None:
    """MQTT lets QoS 1 repeat; what comes again late was in order the first time."""
    found = seen([(0, 0, 5), (0, 1, 5), (0, 2, 5), (0, 1, 5), (0, 2, 5), (0, 3, 5)], {0: [5]})
    assert (found.duplicated, found.out_of_order) == (2, 0)


def test_two_swapped_messages_are_one_disorder() -> None:
    """The one that comes after a higher number counts."""
    assert seen([(0, 0, 5), (0, 2, 5), (0, 1, 5), (0, 3, 5)], {0: [5]}).out_of_order == 1


def test_order_is_owed_within_a_topic_only() -> None:
    """Two topics of one publisher may overtake each other; two messages of one topic may not."""
    topics = {0: [5, 6]}
    assert seen([(0, 1, 6), (0, 3, 6), (0, 0, 5), (0, 2, 5)], topics).out_of_order == 0
    assert seen([(0, 1, 6), (0, 0, 5), (0, 4, 5), (0, 2, 5), (0, 3, 6)], topics).out_of_order == 1


def test_what_was_not_acknowledged_is_not_lost() -> None:
    """The publisher was promised nothing about it."""
    found = seen([(0, 0, 5), (0, 3, 5)], {0: [5]})
    assert ledger.lost({0: acked([0, 1, 3])}, found, {0: [5]}, None) == 1


def test_a_publisher_of_whom_nothing_came_lost_everything() -> None:
    """Also when the session got nothing at all."""
    empty = ledger.Ledger().close({0: [5]})
    assert ledger.lost({0: acked([0, 1, 2]), 1: acked([0])}, empty, {0: [5], 1: [5]}, None) == 4


def test_a_session_is_owed_its_own_topics_only() -> None:
    """With a filter on one topic of a rotation only every third message is due."""
    topics = {0: [5, 6, 7]}
    messages = {0: acked(range(10))}
    assert ledger.due(messages, topics, frozenset([6])) == 3
    assert ledger.due(messages, topics, None) == 10
    found = seen([(0, 1, 6), (0, 7, 6)], topics)
    assert ledger.lost(messages, found, topics, frozenset([6])) == 1


def test_a_wrong_topic_is_seen() -> None:
    """A broker that mixes topics up but loses nothing is still caught."""
    found = seen([(0, 0, 5), (0, 1, 5), (9, 0, 5)], {0: [5, 6]})
    assert found.misrouted == 2


def by_hand(deliveries: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    duplicated = disorder = 0
    known: set[tuple[int, int]] = set()
    highest: dict[tuple[int, int], int] = {}
    for publisher, sequence, topic in deliveries:
        if (publisher, sequence) in known:
            duplicated += 1
            continue
        known.add((publisher, sequence))
        disorder += sequence < highest.get((publisher, topic), -1)
        highest[publisher, topic] = max(sequence, highest.get((publisher, topic), -1))
    return duplicated, disorder


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=80), st.integers(1, 4), st.integers(1, 7))
def test_any_stream_is_counted_as_by_hand(stream: list[tuple[int, int]], topic_count: int, cuts: int) -> None:
    """Duplicates, disorder and losses, whatever the batches in which the deliveries came."""
    topics = {publisher: list(range(topic_count)) for publisher in range(3)}
    deliveries = [(publisher, sequence, sequence % topic_count) for publisher, sequence in stream]
    found = seen(deliveries, topics, cuts)
    assert (found.duplicated, found.out_of_order) == by_hand(deliveries)
    assert found.misrouted == 0
    everything = {publisher: acked(range(31)) for publisher in range(3)}
    assert ledger.lost(everything, found, topics, None) == 93 - len(set(stream))


def test_latency_is_arrival_minus_sending() -> None:
    """One arrival time for each batch."""
    account = ledger.Ledger()
    account.add(*stamps([(0, 0, 0), (0, 1, 0)]), arrived_ns=10)
    account.add(*stamps([(0, 2, 0)]), arrived_ns=30)
    assert account.end_to_end_ns().tolist() == [10, 10, 30]
