"""A bridge inwards between two brokers that forget nothing, killed at any moment: nothing is lost, and at QoS 2 nothing comes twice."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.inward import (
    Acknowledge,
    Answered,
    Arrived,
    Bounds,
    Came,
    Complete,
    Completed,
    Event,
    GiveUp,
    InwardCore,
    Publish,
    Release,
    Released,
    Tick,
    Wake,
)
from bridge.options import Counters
from bridge.pace import Rate
from bridge.port import Message

WINDOW = 4
HERE_MAX = 3
IDS = 6
"""So few that each is used again and again."""


@dataclass
class Sent:
    """Of the session there: a message under an identifier, and whether its PUBREC was heard."""

    number: int
    qos: int
    received: bool = False


class Bridge(RuleBasedStateMachine):
    """Numbers are messages.  Each way of each connection is a queue, and all four are lost together."""

    @initialize()
    def begin(self) -> None:
        self.qos: list[int] = []
        """By number, of all that were published there."""
        self.waiting: deque[int] = deque()
        self.sent: dict[int, Sent] = {}
        self.last_id = 0
        self.acknowledged: set[int] = set()
        self.lost: set[int] = set()
        """With their session."""
        self.stored: list[int] = []
        self.ids_here: set[int] = set()
        self.now_ms = 0
        self._cross()

    def _cross(self) -> None:
        """Both connections are new: what is under way is sent again, in its order."""
        self.core = InwardCore(Bounds(WINDOW, 1_000_000, HERE_MAX, 1_000_000), lambda each: each, Counters(), Rate(0))
        self.to_here: deque[Publish | Release] = deque()
        self.from_here: deque[Event] = deque()
        self.to_there: deque[Acknowledge | Complete] = deque()
        self.from_there: deque[Event] = deque()
        for packet_id, each in self.sent.items():
            self.from_there.append(Released([packet_id]) if each.received else Arrived([self._came(packet_id, each, dup=True)]))

    def _came(self, packet_id: int, each: Sent, *, dup: bool) -> Came:
        return Came(packet_id, each.qos, dup, Message(0, 0, 0, "t", str(each.number).encode(), each.qos, False, 0, ""))

    def _feed(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now_ms):
            match effect:
                case Publish() | Release():
                    self.to_here.append(effect)
                case Acknowledge() | Complete():
                    self.to_there.append(effect)
                case GiveUp(reason):
                    raise AssertionError(reason)
                case Wake():
                    pass

    # ---------------------------------------------------------------- there

    @rule(qos=st.sampled_from((1, 2)))
    def publish(self, qos: int) -> None:
        self.waiting.append(len(self.qos))
        self.qos.append(qos)

    @precondition(lambda self: self.waiting and len(self.sent) < WINDOW)
    @rule()
    def send(self) -> None:
        while True:
            self.last_id = self.last_id % IDS + 1
            if self.last_id not in self.sent:
                break
        number = self.waiting.popleft()
        each = self.sent[self.last_id] = Sent(number, self.qos[number])
        self.from_there.append(Arrived([self._came(self.last_id, each, dup=False)]))

    @precondition(lambda self: self.to_there)
    @rule()
    def hear_there(self) -> None:
        word = self.to_there.popleft()
        for packet_id in word.packet_ids:
            each = self.sent.get(packet_id)
            if isinstance(word, Complete):
                assert each is None or each.received, "PUBCOMP of what was not received"
                self.sent.pop(packet_id, None)
                continue
            assert each is not None and each.qos == word.qos, f"{packet_id} is acknowledged and was not sent"
            assert each.number in self.stored, f"{each.number} is acknowledged and not here"
            self.acknowledged.add(each.number)
            if word.qos == 1:
                del self.sent[packet_id]
            else:
                each.received = True
                self.from_there.append(Released([packet_id]))

    @rule()
    def lose_the_session(self) -> None:
        """Of what was not acknowledged nobody knows more; the shell has this broker forget its identifiers."""
        self.lost |= {each.number for each in self.sent.values() if not each.received} | set(self.waiting)
        self.sent.clear()
        self.waiting.clear()
        self.ids_here.clear()
        self._cross()

    # ---------------------------------------------------------------- between

    @precondition(lambda self: self.from_there and self.core.has_room())
    @rule()
    def hear_from_there(self) -> None:
        self._feed(self.from_there.popleft())

    @precondition(lambda self: self.from_here)
    @rule()
    def hear_from_here(self) -> None:
        self._feed(self.from_here.popleft())

    @rule()
    def wake(self) -> None:
        self.now_ms += 1
        self._feed(Tick())

    @rule()
    def kill(self) -> None:
        """The bridge, or one of the brokers: what each has on disk stays, and what was on its way is gone."""
        self._cross()

    # ---------------------------------------------------------------- here

    @precondition(lambda self: self.to_here)
    @rule()
    def work_here(self) -> None:
        word = self.to_here.popleft()
        if isinstance(word, Release):
            self.ids_here -= set(word.packet_ids)
            self.from_here.append(Completed(word.packet_ids))
            return
        if word.packet_id not in self.ids_here:
            self.stored.append(int(word.message.payload))
            if word.qos == 2:
                self.ids_here.add(word.packet_id)
        self.from_here.append(Answered([word.packet_id]))

    # ---------------------------------------------------------------- what holds

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.check()
        once = [number for number in self.stored if self.qos[number] == 2]
        assert len(once) == len(set(once)), f"twice at QoS 2: {once}"
        for qos in (1, 2):
            firsts = list(dict.fromkeys([number for number in self.stored if self.qos[number] == qos]))
            assert firsts == sorted(firsts), f"a message came for the first time after a later one: {firsts}"

    def teardown(self) -> None:
        """When everybody does what he should, everything is over soon."""
        if not hasattr(self, "core"):
            return
        for _ in range(20 * (len(self.qos) + 5)):
            if self.waiting and len(self.sent) < WINDOW:
                self.send()
            if self.from_there and self.core.has_room():
                self.hear_from_there()
            if self.to_here:
                self.work_here()
            if self.from_here:
                self.hear_from_here()
            if self.to_there:
                self.hear_there()
            self.holds()
        assert not self.waiting and not self.sent and not self.ids_here
        assert set(self.stored) >= set(range(len(self.qos))) - self.lost
        assert self.acknowledged <= set(self.stored)


TestInward = pytest.mark.slow(Bridge.TestCase)
TestInward.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
