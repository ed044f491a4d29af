"""Each check of a history finds the fault it is for, and a history without faults has none."""

from __future__ import annotations

import random

import pytest

from tests.broker.history import Delivery, Fault, History, faults, matches, parse_payload, payload_of, summary


def history_of(count: int = 6, *, qos: int = 2) -> History:
    """A publisher with ``count`` acknowledged messages on two topics, a `#` session and a literal one that got all they should."""
    history = History()
    history.subscribed("all", "a/#", qos, now_ns=0)
    history.subscribed("one", "a/b/0", qos, now_ns=0)
    for n in range(count):
        topic = f"a/b/{n % 2}"
        number = history.publish("p", topic, qos, now_ns=10 + n)
        history.acknowledged("p", number, now_ns=20 + n)
        history.delivered("all", delivery(n, qos=qos))
        if n % 2 == 0:
            history.delivered("one", delivery(n, qos=qos))
    return history


def delivery(n: int, *, topic: str | None = None, qos: int = 2, payload: bytes | None = None) -> Delivery:
    return Delivery(topic or f"a/b/{n % 2}", payload_of("p", n, 32) if payload is None else payload, qos)


def kinds(history: History) -> list[tuple[str, str]]:
    return [(fault.kind, fault.session) for fault in faults(history)]


def test_a_history_in_which_all_went_well_has_no_faults() -> None:
    """All acknowledged messages arrived once and in order."""
    assert faults(history_of()) == []


@pytest.mark.parametrize("gone", range(6))
def test_an_acknowledged_message_that_did_not_arrive_is_missing(gone: int) -> None:
    """Whichever one it is, first and last included, exactly that one is named."""
    history = history_of()
    history.sessions["all"].deliveries.pop(gone)
    assert faults(history) == [Fault("missing", "all", f"message {gone} of p on a/b/{gone % 2}")]


def test_a_message_without_an_acknowledgement_may_be_missing() -> None:
    """Nothing was promised for it; when it arrives it is no stranger."""
    history = history_of()
    number = history.publish("p", "a/b/0", 2, now_ns=99)
    assert faults(history) == []
    history.delivered("all", delivery(number))
    assert faults(history) == []


def test_a_message_from_before_the_suback_is_not_due() -> None:
    """Only what the broker read after the SUBACK is due; a message read later is, however early it was sent to a stopped gateway."""
    history = history_of()
    history.subscribed("late", "a/#", 2, now_ns=13)
    assert sorted(number for _, number in history.due("late")) == [3, 4, 5]
    history.sent["p", 0].seen_ns = 50
    assert sorted(number for _, number in history.due("late")) == [0, 3, 4, 5]


def test_a_second_arrival_at_qos_2_is_a_duplicate_and_at_qos_1_a_repeat() -> None:
    """QoS 2 on both sides means once; at QoS 1 it is counted and allowed."""
    twice = history_of(qos=2)
    twice.delivered("all", delivery(3))
    assert kinds(twice) == [("duplicate", "all")]
    allowed = history_of(qos=1)
    allowed.delivered("all", delivery(3, qos=1))
    assert faults(allowed) == []
    assert allowed.repeats("all") == 1


def test_two_messages_of_a_topic_that_changed_places_are_disorder() -> None:
    """Order counts per publisher and topic; two topics may interleave in any way."""
    history = history_of()
    arrived = history.sessions["all"].deliveries
    arrived[0], arrived[1] = arrived[1], arrived[0]
    assert faults(history) == []
    arrived[0], arrived[3] = arrived[3], arrived[0]
    assert ("disorder", "all") in kinds(history)


def test_a_repeat_of_an_older_message_is_no_disorder_but_a_late_first_arrival_is() -> None:
    """After a reconnect old QoS 1 messages come again; a message that comes first after its successor was reordered."""
    history = history_of(qos=1)
    history.delivered("one", delivery(0, qos=1))
    assert faults(history) == []
    first = history.sessions["one"].deliveries.pop(0)
    history.sessions["one"].deliveries[-1:] = [first]
    assert kinds(history) == [("disorder", "one")]


@pytest.mark.parametrize(
    "strange",
    [
        delivery(0, payload=payload_of("p", 77)),
        delivery(0, payload=payload_of("q", 0)),
        delivery(0, payload=b"p 0 cut"),
        delivery(0, payload=b""),
    ],
)
def test_what_was_never_sent_is_a_stranger(strange: Delivery) -> None:
    """An unknown number, an unknown publisher and changed bytes are all found."""
    history = history_of()
    history.delivered("all", strange)
    assert kinds(history) == [("stranger", "all")]


def test_a_message_on_a_wrong_topic_or_outside_the_filter_is_a_stranger() -> None:
    """Payload and topic belong together, and a literal subscription gets its own topic only."""
    history = history_of()
    history.sessions["all"].deliveries[0] = delivery(0, topic="a/b/1")
    history.delivered("one", delivery(1))
    assert sorted(kinds(history)) == [("stranger", "all"), ("stranger", "one")]


def test_any_single_damage_to_a_random_history_is_found() -> None:
    """Drop, repeat, swap or forge one delivery of a literal QoS 2 session: there is always a fault."""
    for seed in range(200):
        random_ = random.Random(seed)
        history = history_of(8)
        arrived = history.sessions["one"].deliveries
        at = random_.randrange(len(arrived) - 1)
        match random_.randrange(4):
            case 0:
                arrived.pop(at)
            case 1:
                arrived.insert(random_.randrange(len(arrived)), arrived[at])
            case 2:
                arrived[at], arrived[at + 1] = arrived[at + 1], arrived[at]
            case _:
                arrived.append(delivery(0, payload=payload_of("p", 100 + at)))
        assert faults(history), seed
        assert "first:" in summary(faults(history))


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("+/b/#", "a/b", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_filters_match_as_the_specification_says(topic_filter: str, topic: str, expected: bool) -> None:
    """The examples of section 4.7 of the specification."""
    assert matches(topic_filter, topic) is expected


def test_a_payload_reads_back_whatever_its_size() -> None:
    """Padding never changes who and which; foreign bytes are not taken for ours."""
    for size in (0, 5, 16, 256):
        assert parse_payload(payload_of("p-1", 42, size)) == ("p-1", 42)
    assert parse_payload(b"p 4") is None and parse_payload(b"") is None and parse_payload(b"p x .") is None
