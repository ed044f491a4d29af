"""The core of a bridge inwards: what it does, effect by effect."""

from __future__ import annotations

import pytest

from bridge.core import Unfit
from bridge.inward import (
    Acknowledge,
    Answered,
    Arrived,
    Bounds,
    Came,
    Complete,
    Completed,
    Effect,
    Event,
    GiveUp,
    InwardCore,
    NotTaken,
    Publish,
    Release,
    Released,
    Tick,
    Wake,
)
from bridge.options import Counters
from bridge.pace import Rate
from bridge.port import Message

ANSWER_MS = 500


def message(payload: bytes, topic: str = "a") -> Message:
    return Message(0, 0, 0, topic, payload, 1, False, 0, "")


def came(packet_id: int, qos: int = 1, payload: bytes = b"x", dup: bool = False) -> Came:
    return Came(packet_id, qos, dup, message(payload))


def published(packet_id: int, qos: int = 1, payload: bytes = b"x", dup: bool = False, letter: str = "") -> Publish:
    return Publish(packet_id, qos, dup, message(payload), letter)


def _transform(each: Message) -> Message | None:
    if each.payload == b"unfit":
        raise Unfit("it is unfit")
    return None if each.payload == b"left out" else each


class Bridge:
    """A core, and the time."""

    def __init__(self, *, inflight_max: int = 100, here_max: int = 100, rate: int = 0) -> None:
        self.now_ms = 1_000
        bounds = Bounds(inflight_max, 1_000, here_max, ANSWER_MS)
        self.core = InwardCore(bounds, _transform, Counters(), Rate(rate, at_ms=0))

    def does(self, event: Event, after_ms: int = 0) -> list[Effect]:
        """Without when it is to be woken."""
        self.now_ms += after_ms
        effects = self.core.handle(event, self.now_ms)
        self.core.check()
        return [each for each in effects if not isinstance(each, Wake)]

    def wakes(self, event: Event) -> int:
        (at_ms,) = [each.at_ms for each in self.core.handle(event, self.now_ms) if isinstance(each, Wake)]
        return at_ms


def test_a_message_is_acknowledged_there_when_it_is_here_and_not_before() -> None:
    """Under the identifier that it came with."""
    bridge = Bridge()
    assert bridge.does(Arrived([came(7)])) == [published(7)]
    assert bridge.does(Answered([7])) == [Acknowledge(1, [7])]
    assert bridge.core.counters.delivered == 1 and bridge.core.counters.delivered_bytes == 1


def test_the_four_words_of_qos_2_are_handed_on_one_by_one() -> None:
    """Each leaves when the other side has said its own."""
    bridge = Bridge()
    assert bridge.does(Arrived([came(7, 2)])) == [published(7, 2)]
    assert bridge.does(Answered([7])) == [Acknowledge(2, [7])]
    assert bridge.does(Released([7])) == [Release([7])]
    assert bridge.does(Completed([7])) == [Complete([7])]


def test_pubrel_of_what_a_former_connection_has_brought_is_handed_on() -> None:
    """This broker knows whether the identifier is still taken."""
    bridge = Bridge()
    assert bridge.does(Released([7, 8])) == [Release([7, 8])]
    assert bridge.does(Completed([7])) == [Complete([7])]


def test_acknowledgements_leave_in_the_order_in_which_messages_came() -> None:
    """[MQTT-4.6.0-2], for each QoS by itself."""
    bridge = Bridge()
    bridge.does(Arrived([came(1), came(2), came(3, 2), came(4, payload=b"left out")]))
    assert bridge.does(Answered([2, 3])) == [Acknowledge(2, [3])]
    assert bridge.does(Answered([1])) == [Acknowledge(1, [1, 2, 4])]


def test_what_is_left_out_is_acknowledged_and_not_published() -> None:
    """At once; at QoS 2 its identifier is released like any."""
    bridge = Bridge()
    assert bridge.does(Arrived([came(1, payload=b"left out"), came(2, 2, b"left out"), came(0, 0, b"left out")])) == [
        Acknowledge(1, [1]), Acknowledge(2, [2]),
    ]  # fmt: skip
    assert bridge.does(Released([2])) == [Release([2])]
    assert bridge.core.counters.left_out == 3


def test_qos_0_is_published_and_forgotten() -> None:
    """Nobody acknowledges it."""
    bridge = Bridge(here_max=1)
    assert bridge.does(Arrived([came(0, 0), came(0, 0, b"y")])) == [published(0, 0), published(0, 0, b"y")]
    assert bridge.core.held == 0


def test_no_more_is_under_way_here_than_this_broker_lets() -> None:
    """At QoS 2 until its last answer."""
    bridge = Bridge(here_max=2)
    assert bridge.does(Arrived([came(1, 2), came(2), came(3), came(4)])) == [published(1, 2), published(2)]
    assert bridge.does(Answered([1])) == [Acknowledge(2, [1])]
    assert bridge.does(Answered([2])) == [Acknowledge(1, [2]), published(3)]
    assert bridge.does(Released([1])) == [Release([1])]
    assert bridge.does(Completed([1])) == [Complete([1]), published(4)]


def test_nothing_more_is_read_while_as_much_as_may_be_is_held() -> None:
    """What waits for PUBREL alone is not held: it must be able to come."""
    bridge = Bridge(inflight_max=2)
    bridge.does(Arrived([came(1, 2), came(2, 2)]))
    assert not bridge.core.has_room()
    bridge.does(Answered([1, 2]))
    assert bridge.core.has_room() and bridge.core.held_bytes == 0
    bridge.does(Arrived([came(3, payload=b"x" * 1_000)]))
    assert not bridge.core.has_room()


def test_what_cannot_be_transformed_or_is_refused_for_good_becomes_a_dead_letter() -> None:
    """As it came, under its identifier; acknowledged there when the letter is here."""
    bridge = Bridge()
    assert bridge.does(Arrived([came(1, payload=b"unfit")])) == [published(1, payload=b"unfit", letter="it is unfit")]
    assert bridge.does(Arrived([came(2, 2)])) == [published(2, 2)]
    assert bridge.does(Answered([2], "not authorized")) == [published(2, 2, letter="not authorized")]
    assert bridge.does(Answered([1])) == [Acknowledge(1, [1])]
    assert bridge.does(Answered([2])) == [Acknowledge(2, [2])]
    counters = bridge.core.counters
    assert (counters.refused, counters.dead_letters, counters.delivered) == (2, 2, 0)


def test_a_dead_letter_that_is_refused_is_dropped_and_so_is_one_at_qos_0() -> None:
    """There is nowhere else to put it."""
    bridge = Bridge()
    bridge.does(Arrived([came(1, payload=b"unfit")]))
    assert bridge.does(Answered([1], "not authorized")) == [Acknowledge(1, [1])]
    assert bridge.does(Arrived([came(0, 0, b"unfit")])) == []
    counters = bridge.core.counters
    assert (counters.refused, counters.dead_letters, counters.dead_letters_dropped) == (2, 0, 2)


def test_what_comes_twice_on_one_connection_is_published_once() -> None:
    """MQTT 3.1.1 lets a broker send again; what it has not heard is said again."""
    bridge = Bridge()
    bridge.does(Arrived([came(1), came(2, 2)]))
    assert bridge.does(Arrived([came(1, dup=True), came(2, 2, dup=True)])) == []
    assert bridge.does(Answered([2])) == [Acknowledge(2, [2])]
    assert bridge.does(Arrived([came(2, 2, dup=True)])) == [Acknowledge(2, [2])]


@pytest.mark.parametrize("event", [Arrived([came(1, payload=b"another")]), Arrived([came(2, 2)]), Released([1])])
def test_an_identifier_for_two_messages_ends_the_connections(event: Event) -> None:
    """Nobody could say which of them is acknowledged."""
    bridge = Bridge()
    bridge.does(Arrived([came(1), came(2, 2)]))
    bridge.does(Answered([2]))
    (given_up,) = bridge.does(event)
    assert isinstance(given_up, GiveUp) and "packet identifier" in given_up.reason
    assert bridge.does(Answered([1])) == []


def test_an_answer_that_does_not_come_ends_the_connections() -> None:
    """After `deliver_timeout`, by the oldest."""
    bridge = Bridge()
    assert bridge.wakes(Arrived([came(1)])) == bridge.now_ms + ANSWER_MS
    assert bridge.does(Tick(), after_ms=ANSWER_MS - 1) == []
    (given_up,) = bridge.does(Tick(), after_ms=1)
    assert isinstance(given_up, GiveUp) and "not acknowledged" in given_up.reason


def test_no_more_than_the_rate_is_published_in_a_second() -> None:
    """The others wait, and hold the reading up."""
    bridge = Bridge(rate=10)
    many = Arrived([came(number) for number in range(1, 31)])
    assert len(bridge.does(many)) == 10
    assert bridge.does(Tick(), after_ms=50) == []
    assert bridge.does(Tick(), after_ms=50) == [published(11)]
    assert [each.packet_id for each in bridge.does(Tick(), after_ms=200) if isinstance(each, Publish)] == [12, 13]


def test_what_is_about_to_stop_publishes_nothing_more() -> None:
    """What it has published is waited for."""
    bridge = Bridge()
    bridge.does(Arrived([came(1)]))
    bridge.core.held_back = True
    assert bridge.does(Arrived([came(2)])) == []
    assert bridge.core.waits_for_answers
    assert bridge.does(Answered([1])) == [Acknowledge(1, [1])]
    assert not bridge.core.waits_for_answers


def test_what_this_broker_never_takes_at_qos_0_is_not_counted_as_delivered() -> None:
    """It is handed on and done with, and nobody would store its dead letter."""
    bridge = Bridge()
    assert bridge.does(Arrived([came(0, 0, b"too large")])) == [published(0, 0, b"too large")]
    assert bridge.does(NotTaken(message(b"too large"))) == []
    counters = bridge.core.counters
    assert (counters.delivered, counters.delivered_bytes, counters.refused, counters.dead_letters_dropped) == (0, 0, 1, 1)
