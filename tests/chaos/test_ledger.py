"""The judge of the loss oracle, fed by hand: each rule finds what it is for, and lets pass what MQTT allows."""

from __future__ import annotations

from chaos.ledger import EXAMPLES_MAX, Ledger, Reader, payload_of, read_payload

P, Q = "publisher", "other"


def ledger(*readers: Reader) -> Ledger:
    found = Ledger()
    for reader in readers or (Reader("r1", 1), Reader("r2", 2)):
        found.subscribed(reader)
    return found


def send(of: Ledger, qos: int, topic: str = "t", publisher: str = P) -> int:
    number = of.publish(publisher, topic, qos, 0.0)
    of.acknowledged(publisher, number, 0.1)
    return number


def give(of: Ledger, reader: str, number: int, qos: int, *, dup: bool = False, topic: str = "t", publisher: str = P) -> None:
    of.arrived(reader, topic, payload_of(publisher, number), qos, dup)


def give_all(of: Ledger, number: int, qos: int, **how: str) -> None:
    for reader in of.readers.values():
        of.arrived(reader.name, how.get("topic", "t"), payload_of(how.get("publisher", P), number), min(qos, reader.qos), False)


def kinds(of: Ledger) -> dict[str, int]:
    return {kind: count for kind, count in of.counts.items() if count}


def test_nothing_is_said_of_what_went_well() -> None:
    """Two publishers, two topics, both QoS: all arrives, once, in order."""
    of = ledger()
    for n in range(20):
        for publisher in (P, Q):
            number = send(of, 1 + n % 2, f"t{n % 3}", publisher)
            give_all(of, number, 1 + n % 2, topic=f"t{n % 3}", publisher=publisher)
    of.lose(of.owed())
    assert (of.owed(), kinds(of), of.received, of.again) == ({}, {}, 80, 0)


def test_what_was_acknowledged_and_came_to_one_of_two_is_lost_to_the_other() -> None:
    """By a PUBACK or a PUBREC."""
    for qos in (1, 2):
        of = ledger()
        number = send(of, qos)
        give(of, "r1", number, 1)
        assert of.owed() == {"r2": 1}
        of.lose(of.owed())
        assert kinds(of) == {"lost": 1} and of.faults[0].who == "r2"


def test_nobody_is_owed_what_was_refused_or_got_no_answer() -> None:
    """An error is an answer, and the broker may have kept the other one or not."""
    of = ledger()
    refused = of.publish(P, "t", 1, 0.0)
    of.publish(P, "t", 1, 0.0)
    of.refused(P, refused, 0.1)
    of.acknowledged(P, refused, 0.2)
    of.lose(of.owed())
    assert (of.owed(), kinds(of), of.unanswered()) == ({}, {}, 1)
    assert of.count(acknowledged=True) == 0 and of.count(acknowledged=False) == 1


def test_what_came_before_its_acknowledgement_is_not_owed_any_more() -> None:
    """A reader may be faster than the publisher's answer."""
    of = ledger()
    number = of.publish(P, "t", 2, 0.0)
    give_all(of, number, 2)
    of.acknowledged(P, number, 0.1)
    assert of.owed() == {}


def test_qos_1_may_come_again_with_dup_and_not_without() -> None:
    """Unless its publisher has sent it again: each sending may be a copy."""
    of = ledger()
    number = send(of, 1)
    give_all(of, number, 1)
    give(of, "r1", number, 1, dup=True)
    assert kinds(of) == {} and of.again == 1
    of.sent_again(P, number, as_new=False)
    give(of, "r1", number, 1)
    assert kinds(of) == {}
    give(of, "r1", number, 1)
    assert kinds(of) == {"repeated": 1}


def test_what_was_published_at_qos_2_has_one_copy_however_often_it_was_sent() -> None:
    """So a reader at QoS 1 gets it without DUP once."""
    of = ledger()
    number = send(of, 2)
    of.sent_again(P, number, as_new=False)
    give_all(of, number, 2)
    assert kinds(of) == {}
    give(of, "r1", number, 1)
    assert kinds(of) == {"repeated": 1}


def test_qos_2_comes_once_with_dup_or_without() -> None:
    """To the application; what comes under an id that is not released yet, the client keeps to itself."""
    for dup in (False, True):
        of = ledger()
        number = send(of, 2)
        give_all(of, number, 2)
        give(of, "r2", number, 2, dup=dup)
        assert kinds(of) == {"twice": 1}


def test_a_publisher_that_was_forgotten_may_have_made_a_second_copy() -> None:
    """That it was forgotten is a fault, and the copy is none on top."""
    of = ledger()
    number = send(of, 2)
    of.forgotten(P)
    of.sent_again(P, number, as_new=True)
    give_all(of, number, 2)
    give(of, "r2", number, 2)
    assert kinds(of) == {"forgotten": 1}


def test_order_is_kept_for_each_publisher_topic_and_qos() -> None:
    """And between them there is none."""
    of = ledger()
    one, two = send(of, 1), send(of, 1)
    at_2, elsewhere, others = send(of, 2), send(of, 1, "u"), send(of, 1, publisher=Q)
    give(of, "r1", others, 1, publisher=Q)
    give(of, "r1", elsewhere, 1, topic="u")
    give(of, "r1", at_2, 1)
    give(of, "r1", one, 1)
    give(of, "r1", two, 1)
    give(of, "r1", one, 1, dup=True)
    assert kinds(of) == {}
    give(of, "r2", two, 1)
    give(of, "r2", one, 1)
    assert kinds(of) == {"disorder": 1}


def test_what_nobody_sent_or_somebody_sent_elsewhere_is_a_stranger() -> None:
    """Whoever sent it, and whatever it says."""
    of = ledger()
    number = send(of, 1)
    give(of, "r1", number + 1, 1)
    give(of, "r1", number, 1, topic="u")
    of.arrived("r1", "t", b"something else", 1, False)
    assert kinds(of) == {"stranger": 3}


def test_a_group_is_owed_each_message_once() -> None:
    """Whoever of its members gets it; at QoS 2 one of them, once."""
    of = ledger(Reader("a", 2, "g"), Reader("b", 2, "g"), Reader("r", 2))
    numbers = [send(of, 2) for _ in range(4)]
    for number in numbers:
        give(of, "r", number, 2)
    give(of, "b", numbers[1], 2)
    give(of, "a", numbers[0], 2)
    give(of, "b", numbers[2], 2)
    assert of.owed() == {"group g": 1} and kinds(of) == {}
    give(of, "a", numbers[2], 2)
    of.lose(of.owed())
    assert kinds(of) == {"twice": 1, "lost": 1} and {fault.who for fault in of.faults} == {"a", "group g"}


def test_a_group_may_get_qos_1_twice() -> None:
    """What one member did not acknowledge another one gets, and for him it is new."""
    of = ledger(Reader("a", 1, "g"), Reader("b", 1, "g"))
    number = send(of, 1)
    give(of, "a", number, 1)
    give(of, "b", number, 1)
    assert kinds(of) == {}


def test_a_retained_value_is_as_new_as_what_was_acknowledged_before() -> None:
    """A newer one is fine, an older one or none is not; no reader is owed it."""
    of = ledger()
    of.retained_topics = frozenset(["kept"])
    for _ in range(3):
        send(of, 1, "kept")
    of.looked("l", "kept", payload_of(P, 2), 1)
    of.looked("l", "kept", payload_of(P, 1), 1)
    of.looked("l", "kept", None, -1)
    assert kinds(of) == {} and of.owed() == {} and of.looks == 3
    of.looked("l", "kept", payload_of(P, 1), 2)
    of.looked("l", "kept", None, 0)
    of.looked("l", "kept", b"?", 0)
    assert kinds(of) == {"stale": 2, "stranger": 1}


def test_silence_is_measured_while_somebody_waits() -> None:
    """From the first message without an answer, or from the answer before; what is never answered counts to the end."""
    of = ledger()
    first = of.publish(P, "t", 1, 10.0)
    second = of.publish(P, "t", 1, 11.0)
    of.acknowledged(P, first, 12.0)
    of.acknowledged(P, second, 12.5)
    third = of.publish(P, "t", 1, 100.0)
    of.refused(P, third, 100.5)
    of.publish(Q, "t", 1, 100.0)
    assert of.longest_silence(101.0) == (2.0, P) and of.longest_silence(103.0) == (3.0, Q)


def test_many_faults_are_counted_and_some_are_told() -> None:
    """A broker that loses everything must not fill the screen."""
    of = ledger()
    for _ in range(50):
        send(of, 1)
    of.lose(of.owed())
    assert kinds(of) == {"lost": 100} and len(of.faults) == EXAMPLES_MAX


def test_a_payload_says_who_and_which_and_nothing_else_does() -> None:
    """At any size."""
    for size in (0, 64):
        assert read_payload(payload_of(P, 7, size)) == (P, 7)
    assert [read_payload(each) for each in (b"", b"p 7", b"p x ", b"p 7 x")] == [None] * 4
