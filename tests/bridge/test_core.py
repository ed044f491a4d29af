"""The core of a bridge: what it does, effect by effect."""

from __future__ import annotations

from random import Random

import pytest

from bridge.core import BridgeCore, Unfit
from bridge.events import (
    Acknowledge,
    Arrived,
    Buried,
    Bury,
    Close,
    Complete,
    Connected,
    Deliver,
    Delivered,
    Delivery,
    Effect,
    Failed,
    NotBuried,
    Open,
    Opened,
    Released,
    Tick,
    Wake,
)
from bridge.lane import size_of
from bridge.options import Options
from bridge.port import Accepted, Batch, Message, Outcome, Refusal

OPTIONS = Options(inflight_max=100, batch_count_max=3, linger_ms=10, retry_min_ms=100, retry_max_ms=1_000, breaker_after=3)


def message(number: int, topic: str = "a", payload: bytes = b"x", publisher: str = "p") -> Message:
    return Message(number, 0, 1_000 + number, topic, payload, 1, False, 0, publisher, key=topic)


def arrived(*numbers: int, epoch: str = "e", topic: str = "a") -> Arrived:
    return Arrived(epoch, [Delivery(100 + number, message(number, topic)) for number in numbers])


def batch(*numbers: int, epoch: str = "e", topic: str = "a") -> Batch:
    return Batch(epoch, tuple([message(number, topic) for number in numbers]))


class Bridge:
    """A core, and the time."""

    def __init__(self, options: Options = OPTIONS, left_out: int = 0, unfit: int = 0) -> None:
        def transform(came: Message) -> Message | None:
            if came.number == unfit:
                raise Unfit("it is unfit")
            return None if came.number == left_out else came

        self.core = BridgeCore(options, transform, Random(0))
        self.now_ms = 1_000

    def does(self, event: object, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        effects = self.core.handle(event, self.now_ms)  # type: ignore[arg-type]
        self.core.check()
        return effects

    def is_open(self) -> None:
        """One message was accepted."""
        assert self.does(arrived(1)) == [Open(0)]
        assert self.does(Opened(0, None)) == [Wake(self.now_ms + 10)]
        assert self.does(Tick(), 10) == [Deliver(0, batch(1))]
        assert self.does(Delivered(0, Outcome(1))) == [Acknowledge([101])]
        assert self.does(Released([101])) == [Complete([101])]


def test_a_message_is_acknowledged_when_the_target_has_it_and_forgotten_when_that_is_known() -> None:
    """PUBREC, PUBREL, PUBCOMP."""
    bridge = Bridge()
    bridge.is_open()
    assert bridge.core.held == 0 and not bridge.core._items


def test_a_batch_leaves_when_it_is_full_or_has_waited_and_one_at_a_time() -> None:
    """The next one leaves when its lane is free."""
    bridge = Bridge()
    bridge.is_open()
    assert bridge.does(arrived(2, 3, 4, 5, 6)) == [Deliver(0, batch(2, 3, 4))]
    assert bridge.does(arrived(7)) == []
    assert bridge.does(Delivered(0, Outcome(3))) == [Acknowledge([102, 103, 104]), Deliver(0, batch(5, 6, 7))]


def test_a_batch_leaves_when_it_has_its_bytes_and_a_message_that_is_larger_goes_alone() -> None:
    """Neither waits for more; what has no room begins the next batch."""
    sizes = {number: size_of(message(number)) for number in (1, 2, 3)}
    bridge = Bridge(Options(inflight_max=100, batch_count_max=50, batch_bytes_max=2 * sizes[1], linger_ms=10_000))
    assert bridge.does(arrived(1, 2, 3)) == [Open(0)]
    assert bridge.does(Opened(0, None)) == [Deliver(0, batch(1, 2))]
    large = message(4, payload=b"x" * 1_000)
    assert bridge.does(Arrived("e", [Delivery(104, large)])) == []
    assert bridge.does(Delivered(0, Outcome(2))) == [Acknowledge([101, 102]), Deliver(0, batch(3))]
    assert bridge.does(Delivered(0, Outcome(1))) == [Acknowledge([103]), Deliver(0, Batch("e", (large,)))]


def test_nothing_is_waited_for_that_the_broker_will_not_send() -> None:
    """Its window is full."""
    bridge = Bridge(Options(inflight_max=2, batch_count_max=10, linger_ms=10_000))
    assert bridge.does(arrived(1, 2)) == [Open(0)]
    assert bridge.does(Opened(0, None)) == [Deliver(0, batch(1, 2))]


def test_what_was_not_taken_comes_first_again() -> None:
    """Before what has come since."""
    bridge = Bridge()
    bridge.is_open()
    bridge.does(arrived(2, 3, 4))
    assert bridge.does(arrived(5)) == []
    assert bridge.does(Delivered(0, Outcome(1))) == [Acknowledge([102]), Deliver(0, batch(3, 4, 5))]
    assert bridge.core.counters.retried == 2


def test_what_fails_is_tried_again_later_and_later_and_first() -> None:
    """Half of the time is by chance; the target is closed before."""
    bridge = Bridge()
    bridge.is_open()
    bridge.does(arrived(2, 3, 4))
    waits = []
    for _ in range(5):
        close, wake = bridge.does(Failed(0, "it is away"))
        assert close == Close(0) and isinstance(wake, Wake)
        waits.append(wake.at_ms - bridge.now_ms)
        assert bridge.does(arrived(5)) == [wake]
        assert bridge.does(Tick(), waits[-1]) == [Open(0)]
        assert bridge.does(Opened(0, None)) == [Deliver(0, batch(2, 3, 4))]
    assert all(full / 2 <= wait <= full for wait, full in zip(waits, (100, 200, 400, 800, 1_000), strict=True)), waits
    assert bridge.does(Delivered(0, Outcome(3)))[0] == Acknowledge([102, 103, 104])
    assert bridge.core.failures_in_a_row == 0


def test_it_waits_as_long_as_the_target_says_and_at_once_for_the_longest_when_somebody_must_act() -> None:
    """Retry-After is longer than any interval of ours; a wrong password is not tried often."""
    bridge = Bridge()
    bridge.does(arrived(1))
    _, wake = bridge.does(Failed(0, "busy", retry_after_ms=5_000))
    assert wake == Wake(bridge.now_ms + 5_000)
    bridge.does(Tick(), 5_000)
    _, wake = bridge.does(Failed(0, "no such table", final=True))
    assert isinstance(wake, Wake) and wake.at_ms - bridge.now_ms >= 500


def lanes(count: int = 3) -> Bridge:
    return Bridge(Options(batch_count_max=1, linger_ms=0, lanes=count, retry_min_ms=100, retry_max_ms=100, breaker_after=3))


def test_when_the_breaker_is_open_one_lane_alone_tries() -> None:
    """The others begin again when it has delivered something."""
    bridge = lanes()
    topics = [str(n) for n in range(20)]
    opened = [
        effect.lane
        for n, topic in enumerate(topics, 1)
        for effect in bridge.does(Arrived("e", [Delivery(n, message(n, topic))]))
        if isinstance(effect, Open)
    ]
    assert sorted(opened) == [0, 1, 2]
    for lane in opened:
        bridge.does(Failed(lane, "it is away"))
    assert bridge.core.failures_in_a_row == 1, "they were begun together"
    for expected in (2, 3):
        tried = [effect for effect in bridge.does(Tick(), 100) if isinstance(effect, Open)]
        assert len(tried) == 3
        for each in tried:
            bridge.does(Failed(each.lane, "it is away"))
        assert bridge.core.failures_in_a_row == expected
    assert bridge.core.breaker(bridge.now_ms) == "open"
    (only,) = [effect for effect in bridge.does(Tick(), 100) if isinstance(effect, Open)]
    assert bridge.core.breaker(bridge.now_ms) == "trying"
    assert [effect for effect in bridge.does(Opened(only.lane, None)) if isinstance(effect, Open)] == []
    begun = [effect for effect in bridge.does(Delivered(only.lane, Outcome(1))) if isinstance(effect, Open)]
    assert len(begun) == 2 and bridge.core.breaker(bridge.now_ms) == "closed"


@pytest.mark.parametrize("by", ["topic", "publisher", "key"])
def test_what_is_alike_takes_one_lane(by: str) -> None:
    """So its order stays."""
    bridge = Bridge(Options(lanes=4, lanes_by=by))  # type: ignore[arg-type]
    found = [bridge.core._lane_of(message(n, "t", publisher="p")) for n in range(10)]
    assert len(set(found)) == 1


def test_what_comes_again_while_it_is_here_is_the_same_message() -> None:
    """After a reconnect: neither handed on twice, nor forgotten; what is settled is said at once."""
    bridge = Bridge()
    bridge.is_open()
    bridge.does(arrived(2, 3, 4))
    assert bridge.does(Connected()) == []
    assert bridge.does(arrived(2, 3, 4)) == []
    assert bridge.does(Delivered(0, Outcome(3))) == [Acknowledge([102, 103, 104])]
    assert bridge.does(arrived(2, 3, 4)) == [Acknowledge([102, 103, 104])]


def test_what_the_target_knows_that_it_has_is_not_given_to_it() -> None:
    """Only of the same epoch."""
    bridge = Bridge()
    bridge.does(arrived(5, 6, 7))
    assert bridge.does(Opened(0, Accepted("e", 6))) == [Acknowledge([105, 106]), Wake(bridge.now_ms + 10)]
    assert bridge.does(arrived(4)) == [Acknowledge([104]), Wake(bridge.now_ms + 10)]
    assert bridge.core.counters.repeated == 3
    other = Bridge()
    other.does(arrived(5, 6, 7))
    assert other.does(Opened(0, Accepted("former", 6))) == [Deliver(0, batch(5, 6, 7))]


def test_in_a_new_epoch_everything_begins_anew() -> None:
    """What is under way meant something to the former one only."""
    bridge = Bridge()
    bridge.is_open()
    bridge.does(arrived(2, 3, 4))
    assert bridge.does(arrived(1, 2, epoch="f")) == []
    assert bridge.does(Delivered(0, Outcome(3))) == [Wake(bridge.now_ms + 10)]
    assert bridge.does(Tick(), 10) == [Deliver(0, batch(1, 2, epoch="f"))]


def test_what_is_left_out_is_acknowledged() -> None:
    """Nobody else gets it either."""
    bridge = Bridge(left_out=2)
    bridge.is_open()
    assert bridge.does(arrived(2)) == [Acknowledge([102])]


def test_what_is_refused_is_acknowledged_when_its_dead_letter_is_stored() -> None:
    """By the target, or by the transform; said again on each connection, and later when it was refused."""
    bridge = Bridge(unfit=5)
    bridge.is_open()
    bridge.does(arrived(2, 3, 4))
    assert bridge.does(Delivered(0, Outcome(3, (Refusal(1, "too large"),)))) == [Bury(3, message(3), "too large"), Acknowledge([102, 104])]
    assert bridge.does(arrived(5)) == [Bury(5, message(5), "it is unfit")]
    assert bridge.does(Connected()) == [Bury(3, message(3), "too large"), Bury(5, message(5), "it is unfit")]
    assert bridge.does(Buried(3)) == [Acknowledge([103])]
    assert bridge.does(NotBuried(5)) == [Wake(bridge.now_ms + 1_000)]
    assert bridge.does(Tick(), 1_000) == [Bury(5, message(5), "it is unfit")]
    assert bridge.does(Buried(5)) == [Acknowledge([105])]
    assert bridge.core.counters.dead_letters == 2


def test_a_dead_letter_that_is_refused_ends() -> None:
    """Else it would be carried for ever."""
    bridge = Bridge(unfit=2)
    bridge.is_open()
    assert bridge.does(arrived(2, topic="dead-letters")) == [Acknowledge([102])]
    assert bridge.core.counters.dead_letters_dropped == 1


def test_no_more_messages_are_handed_on_than_the_rate_allows() -> None:
    """A second's worth may go at once."""
    bridge = Bridge(Options(batch_count_max=100, linger_ms=0, rate_max=10))
    numbers = range(1, 31)
    bridge.does(arrived(*numbers))
    handed: list[tuple[int, int]] = []
    effects = bridge.does(Opened(0, None))
    while sum(count for _, count in handed) < 30:
        for effect in effects:
            if isinstance(effect, Deliver):
                handed.append((bridge.now_ms, len(effect.batch.messages)))
                effects = bridge.does(Delivered(0, Outcome(len(effect.batch.messages))))
                break
        else:
            effects = bridge.does(Tick(), 50)
    assert handed[0] == (1_000, 10) and handed[-1][0] == 3_000


def test_nothing_is_begun_any_more_when_it_is_about_to_stop() -> None:
    """What is under way is finished."""
    bridge = Bridge()
    bridge.is_open()
    bridge.does(arrived(2, 3, 4))
    bridge.core.held_back = True
    bridge.does(arrived(5))
    assert bridge.does(Delivered(0, Outcome(3))) == [Acknowledge([102, 103, 104])]
