"""The ledger of a lake knows what was acknowledged and how often each message may be stored."""

from __future__ import annotations

import pytest

from tests.lake.ledger import PAYLOAD_BYTES, LakeLedger, lake_payload, parse_lake_payload


def enrolled(qos: int = 1) -> LakeLedger:
    ledger = LakeLedger()
    ledger.enrol("p", ["a", "b"], qos)
    return ledger


def send(ledger: LakeLedger, count: int, qos: int = 1) -> list[int]:
    return [ledger.publish("p", ledger.next_of("p")[0], qos, 0) for _ in range(count)]


def test_payloads_say_what_they_are() -> None:
    """Client, topic and number come back; other bytes are nobody's; the size is as wanted."""
    payload = lake_payload("p-1", "lake/1/all", 12345)
    assert parse_lake_payload(payload) == ("p-1", "lake/1/all", 12345) and len(payload) == PAYLOAD_BYTES
    assert parse_lake_payload(b"x") is None and parse_lake_payload(b'{"n":1}') is None and parse_lake_payload(b"[1]") is None


def test_each_topic_has_numbers_of_its_own() -> None:
    """A publisher goes round its topics."""
    ledger = enrolled()
    assert [(ledger.next_of("p"), send(ledger, 1)) for _ in range(4)] == [
        (("a", 0), [0]), (("b", 0), [1]), (("a", 1), [2]), (("b", 1), [3]),
    ]  # fmt: skip


def test_what_was_acknowledged_is_known_once() -> None:
    """By (client, topic, number), whatever the order and however often."""
    ledger = enrolled()
    send(ledger, 4)
    for number in (3, 0, 3):
        ledger.acknowledged("p", number, 0)
    assert list(ledger.acknowledged_keys()) == [("p", "a", 0), ("p", "b", 1)]
    assert (ledger.published, ledger.acked) == (4, 2)


def test_what_was_sent_again_may_be_there_again() -> None:
    """At QoS 1 once more for each time, at QoS 2 never."""
    for qos, allowed in ((1, 3), (2, 1)):
        ledger = enrolled(qos)
        send(ledger, 2, qos)
        ledger.sent_again("p", 1)
        ledger.sent_again("p", 1)
        stream = ledger.streams["p", "b"]
        assert stream.times_max(0) == allowed and ledger.streams["p", "a"].times_max(0) == 1
        assert ledger.sent_again_count == 2


def test_a_publisher_keeps_to_its_round() -> None:
    """Another topic or QoS is a mistake of the driver, and said."""
    ledger = enrolled()
    with pytest.raises(AssertionError):
        ledger.publish("p", "b", 1, 0)
    with pytest.raises(AssertionError):
        ledger.publish("p", "a", 2, 0)
