"""The ledger of a soak finds what a History would find, while it forgets."""

from __future__ import annotations

import pytest

from tests.broker.history import Delivery, payload_of
from tests.gates.soak_ledger import Ledger


class Scene:
    """A publisher ``p`` and a session ``s`` on ``t/#``, subscribed from 10 on."""

    def __init__(self, qos: int = 2) -> None:
        self.ledger = Ledger()
        self.qos = qos
        self.reader = self.ledger.add("s", "t/#", qos, 10)

    def send(self, *, at: int = 20, acknowledged: bool = True, topic: str = "t/1") -> int:
        number = self.ledger.publish("p", topic, self.qos, at)
        if acknowledged:
            self.ledger.acknowledged("p", number, at + 1)
        return number

    def deliver(self, *numbers: int, topic: str = "t/1") -> None:
        for number in numbers:
            self.ledger.delivered("s", Delivery(topic, payload_of("p", number), self.qos))

    @property
    def kinds(self) -> list[str]:
        return [fault.kind for fault in self.ledger.wrong]


def test_what_comes_in_order_is_forgotten() -> None:
    """Nothing is wrong, nothing lags, and memory does not grow."""
    scene = Scene()
    for _ in range(100):
        scene.deliver(scene.send())
    scene.ledger.forget(1000)
    assert scene.kinds == [] and scene.ledger.lagging() == {} and scene.ledger.remembered == 0
    scene.deliver(scene.send())
    assert scene.kinds == []


def test_a_message_that_was_leapt_over_is_missing() -> None:
    """Nothing may come behind a later one of the same publisher and topic."""
    scene = Scene()
    first, second = scene.send(), scene.send()
    scene.deliver(second)
    assert scene.kinds == ["missing"]
    scene.deliver(first)
    assert scene.kinds == ["missing", "duplicate"]


def test_a_message_that_is_acknowledged_after_it_was_leapt_over_is_missing() -> None:
    """The acknowledgement came late, the promise is the same."""
    scene = Scene()
    first = scene.send(acknowledged=False)
    scene.deliver(scene.send())
    assert scene.kinds == []
    scene.ledger.acknowledged("p", first, 50)
    assert scene.kinds == ["missing"]


def test_streams_have_no_order_among_each_other() -> None:
    """Another topic of the same publisher may come first."""
    scene = Scene()
    first, second = scene.send(topic="t/1"), scene.send(topic="t/2")
    scene.deliver(second, topic="t/2")
    scene.deliver(first, topic="t/1")
    assert scene.kinds == []


@pytest.mark.parametrize(("qos", "kinds"), [(1, []), (2, ["duplicate"])])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_repeat_is_a_fault_at_qos_2_only(qos: int, kinds: list[str], forgotten: bool) -> None:
    """Also long after the message was forgotten."""
    scene = Scene(qos)
    number = scene.send()
    scene.deliver(number)
    if forgotten:
        scene.ledger.forget(1000)
    scene.deliver(number)
    assert scene.kinds == kinds and scene.ledger.repeated == 1


def test_what_was_sent_before_the_suback_is_not_due() -> None:
    """It may come, and it may stay away."""
    scene = Scene()
    scene.send(at=5)
    early = scene.send(at=6)
    scene.deliver(early, scene.send())
    assert scene.kinds == [] and scene.ledger.lagging() == {}


def test_what_does_not_come_lags_from_its_acknowledgement_on() -> None:
    """Until then it is nobody's; what lags is not forgotten."""
    scene = Scene()
    waiting = scene.send(acknowledged=False)
    assert scene.ledger.lagging() == {}
    scene.ledger.acknowledged("p", waiting, 70)
    scene.ledger.forget(1000)
    assert scene.ledger.lagging() == {scene.reader: 70} and scene.ledger.remembered == 1


def test_a_reader_that_leaves_wants_nothing_and_may_get_what_was_under_way() -> None:
    """What is sent after the UNSUBACK must not come; after the next SUBSCRIBE things are due again."""
    scene = Scene()
    under_way = scene.send()
    scene.reader.leaving_ns = 30
    assert scene.ledger.lagging() == {}
    scene.reader.gone_ns = 40
    scene.deliver(under_way)
    assert scene.kinds == []
    scene.deliver(scene.send(at=41))
    assert scene.kinds == ["stranger"]
    assert scene.ledger.add("s", "t/#", 2, 60) is scene.reader
    scene.send(at=59)
    due = scene.send(at=61)
    assert list(scene.ledger.lagging()) == [scene.reader]
    scene.deliver(due)
    assert scene.kinds == ["stranger"] and scene.ledger.lagging() == {}


def test_what_was_never_sent_or_goes_elsewhere_is_a_stranger() -> None:
    """Other bytes, another topic, a topic that nobody there wants."""
    scene = Scene()
    scene.send(topic="t/1")
    scene.send(topic="t/2")
    scene.ledger.delivered("s", Delivery("t/1", b"p 7 ", 2))
    scene.deliver(0, topic="t/2")
    scene.deliver(0, topic="u")
    assert scene.kinds == ["stranger"] * 3
