"""A bridge, a broker that forgets nothing, a target that fails as it likes: all gets there, in order, and once where that is promised."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.core import BridgeCore
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
    Event,
    Failed,
    Open,
    Opened,
    Released,
    Tick,
    Wake,
)
from bridge.options import Options
from bridge.port import Accepted, Message, Outcome, Refusal

WINDOW = 8
TOPICS = ("a", "b", "c", "d")
REFUSED = b"bad"


def message(number: int, topic: str, payload: bytes) -> Message:
    return Message(number, 0, number, topic, payload, 1, False, 0, "p", key=topic)


class Bridge(RuleBasedStateMachine):
    """broker: what is published, from number 1 on; `received`: PUBREC was heard; the target of each lane keeps what it has taken."""

    @initialize(lanes=st.integers(1, 3), remembers=st.booleans(), seed=st.integers(0, 1_000))
    def begin(self, lanes: int, remembers: bool, seed: int) -> None:
        self.rng = Random(seed)
        self.remembers = remembers
        self.options = Options(
            inflight_max=WINDOW, batch_count_max=3, linger_ms=5, lanes=lanes, retry_min_ms=10, retry_max_ms=40, breaker_after=2
        )  # fmt: skip
        self.published: list[Message] = []
        self.received: set[int] = set()
        self.finished: set[int] = set()
        self.sent: list[int] = []
        """In this connection, not acknowledged."""
        self.connected = False
        self.taken: list[list[Message]] = [[] for _ in range(lanes)]
        self.buried: list[int] = []
        self.now_ms = 0
        self._new_process()

    def _new_process(self) -> None:
        self.core = BridgeCore(self.options, lambda came: came, self.rng)
        self.calls: dict[int, Open | Deliver] = {}
        self.letters: list[int] = []
        self.wake_ms = 0

    def _feed(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now_ms):
            match effect:
                case Acknowledge(packet_ids):
                    for number in packet_ids if self.connected else ():
                        assert self._is_over(number), f"{number} is acknowledged and nowhere"
                        self.received.add(number)
                case Complete(packet_ids):
                    self.finished.update(packet_ids if self.connected else ())
                case Open(lane) | Deliver(lane):
                    assert lane not in self.calls, "one call of a lane at a time"
                    self.calls[lane] = effect
                case Close(lane):
                    assert lane not in self.calls
                case Bury(number):
                    if self.connected:
                        self.letters.append(number)
                case Wake(at_ms):
                    self.wake_ms = at_ms

    def _is_over(self, number: int) -> bool:
        return number in self.buried or any(number == each.number for lane in self.taken for each in lane)

    # ---------------------------------------------------------------- the broker

    @rule(topic=st.sampled_from(TOPICS), bad=st.booleans())
    def publish(self, topic: str, bad: bool) -> None:
        number = len(self.published) + 1
        self.published.append(message(number, topic, REFUSED if bad and not self.remembers else b"x"))

    @rule()
    def connect(self) -> None:
        if not self.connected:
            self.connected, self.sent = True, []
            self._feed(Connected())
            self._feed(Released(sorted(self.received - self.finished)))

    @rule()
    def lose_the_connection(self) -> None:
        self.connected, self.letters = False, []

    @rule(count=st.integers(1, WINDOW))
    def send(self, count: int) -> None:
        """What has no PUBREC, in order, as far as the window goes; twice in one connection never."""
        if not self.connected:
            return
        room = WINDOW - len(set(self.sent) - self.finished) - len(self.received - self.finished - set(self.sent))
        fresh = [each for each in self.published if each.number not in self.received and each.number not in self.sent]
        sending = fresh[: max(0, min(count, room))]
        self.sent += [each.number for each in sending]
        if sending:
            self._feed(Arrived("e", [Delivery(each.number, each) for each in sending]))

    @rule()
    def release(self) -> None:
        waiting = sorted(self.received - self.finished)
        if self.connected and waiting:
            self._feed(Released(waiting))

    # ---------------------------------------------------------------- the target

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(("works", "works", "works", "in part", "fails", "fails late")))
    def answer(self, data: st.DataObject, how: str) -> None:
        lane = data.draw(st.sampled_from(sorted(self.calls)))
        self._answer(lane, how, data.draw(st.integers(1, 3)))

    def _answer(self, lane: int, how: str, part: int = 1) -> None:
        call = self.calls.pop(lane)
        taken = self.taken[lane]
        if isinstance(call, Open):
            if how.startswith("fails"):
                self._feed(Failed(lane, "away"))
            else:
                last = Accepted("e", taken[-1].number) if taken and self.remembers else None
                self._feed(Opened(lane, last))
            return
        if how == "fails":
            self._feed(Failed(lane, "away"))
            return
        messages = call.batch.messages
        done = min(part, len(messages)) if how == "in part" else len(messages)
        refused = tuple([Refusal(at, "bad") for at, each in enumerate(messages[:done]) if each.payload == REFUSED])
        taken += [each for each in messages[:done] if each.payload != REFUSED]
        if how == "fails late":
            # It has them, and nobody hears of it.
            self._feed(Failed(lane, "away"))
        else:
            self._feed(Delivered(lane, Outcome(done, refused)))

    @precondition(lambda self: self.letters)
    @rule()
    def bury(self) -> None:
        number = self.letters.pop(0)
        self.buried.append(number)
        self._feed(Buried(number))

    @rule(ms=st.integers(1, 50))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self._feed(Tick())

    @rule()
    def die(self) -> None:
        """kill -9: what a target had been given it may have taken, or not."""
        for lane, call in list(self.calls.items()):
            if isinstance(call, Deliver) and self.rng.random() < 0.5:
                self.taken[lane] += [each for each in call.batch.messages if each.payload != REFUSED]
        self.connected = False
        self._new_process()

    # ---------------------------------------------------------------- what holds

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.check()
        assert self.core.held <= WINDOW
        for lane in self.taken:
            for topic in TOPICS:
                numbers = [each.number for each in lane if each.topic == topic]
                if self.remembers:
                    assert len(numbers) == len(set(numbers)), f"twice: {numbers}"
                    assert numbers == sorted(numbers)
                firsts = list(dict.fromkeys(numbers))
                assert firsts == sorted(firsts), f"a message of {topic} came for the first time after a later one: {numbers}"

    def teardown(self) -> None:
        """When everybody does what he should, everything is over soon."""
        if not hasattr(self, "core"):
            return
        for _ in range(20 * (len(self.published) + 5)):
            self.connect()
            self.send(WINDOW)
            for lane in sorted(self.calls):
                self._answer(lane, "works")
            while self.letters:
                self.bury()
            self.release()
            self.pass_time(50)
            self.holds()
        assert {each.number for each in self.published} == self.finished
        for each in self.published:
            assert (each.number in self.buried) == (each.payload == REFUSED)
        assert not self.core._items


TestBridge = pytest.mark.slow(Bridge.TestCase)
TestBridge.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
