"""The core of one bridge: from what the broker delivers to what its target has accepted.  Events in, effects out.

The session of the bridge at the broker is the queue: it has everything that the target has not accepted, on disk.  Here are the next
`inflight_max` messages of it at most, which the broker has sent at QoS 2.  PUBREC leaves for a message when it is settled: accepted by the
target, left out by the transform, or stored as a dead letter.  So what this process forgets when it dies comes again, with the same number,
and what the target has and nobody was told of any more is given to it once more: it knows by the number, or by the position.

One failure holds up all lanes, for a time that doubles with each one in a row; after `breaker_after` of them one lane alone tries, until
its target has taken something.

Holds after every event (see check):
1. an item is WAITING in exactly one lane, or DYING, or SETTLED;
2. a lane hands on its items in the order in which they arrived, one batch at a time, and nothing passes what has failed;
3. items are as many as the broker has sent without having been told of, and bytes are those of items that are not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import assert_never

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
    Event,
    Failed,
    NotBuried,
    Open,
    Opened,
    Released,
    Tick,
    Wake,
)
from bridge.lane import Doing, Fate, Item, Lane
from bridge.options import Counters, Options
from bridge.pace import Breaker, Pace, Rate
from bridge.port import Batch, Message, Outcome


class Unfit(Exception):
    """The transform cannot be made of this message: one sentence."""


class BridgeCore:
    def __init__(self, options: Options, transform: Callable[[Message], Message | None], rng: Random) -> None:
        """transform: what the target gets; None: it is left out.  Raises Unfit."""
        self._options = options
        self._transform = transform
        self._pace = Pace(options.retry_min_ms, options.retry_max_ms, options.breaker_after, rng)
        self._rate = Rate(options.rate_max, float(options.rate_max))
        self.counters = Counters()
        self.lanes = [Lane(index) for index in range(options.lanes)]
        self._epoch = ""
        self._items: dict[int, Item] = {}
        self._numbers: dict[int, int] = {}
        """By packet identifier."""
        self.held_bytes = 0
        self.held = 0
        """Items that are not settled, and bytes of them."""
        self.last_error = ""
        self._bury_again: dict[int, int] = {}
        """Numbers of dead letters that were refused, and when they are tried again."""
        self._effects: list[Effect] = []
        self.held_back = False
        """Nothing more is begun: it is about to stop."""

    # ---------------------------------------------------------------- what is seen
    @property
    def failures_in_a_row(self) -> int:
        return self._pace.failures

    def breaker(self, now_ms: int) -> Breaker:
        return self._pace.breaker(now_ms)

    # ---------------------------------------------------------------- events
    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        acknowledged: list[int] = []
        match event:
            case Arrived(epoch, deliveries):
                self._arrived(epoch, deliveries, now_ms, acknowledged)
            case Released(packet_ids):
                self._released(packet_ids)
            case Delivered(lane, outcome):
                self._delivered(self.lanes[lane], outcome, acknowledged)
            case Opened(lane, accepted):
                one = self.lanes[lane]
                assert one.doing is Doing.OPENING
                one.doing, one.accepted = Doing.IDLE, accepted
                self._leave_out_accepted(one, acknowledged)
                if not one.queue:
                    self._pace.worked()
            case Failed():
                self._failed(event, now_ms)
            case Buried(number):
                item = self._items.get(number)
                if item is not None and item.fate is Fate.DYING:
                    self.counters.dead_letters += 1
                    self._settle(item, acknowledged)
            case NotBuried(number):
                self._bury_again[number] = now_ms + self._options.retry_max_ms
            case Connected():
                self._bury_again.clear()
                for item in self._items.values():
                    if item.fate is Fate.DYING:
                        self._bury(item)
            case Tick():
                pass
            case _ as never:
                assert_never(never)
        if acknowledged:
            self._effects.append(Acknowledge(acknowledged))
        self._turn(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _arrived(self, epoch: str, deliveries: Sequence[Delivery], now_ms: int, acknowledged: list[int]) -> None:
        if epoch != self._epoch:
            self._begin(epoch)
        for packet_id, message in deliveries:
            known = self._items.get(message.number)
            if known is not None:
                # The broker has not heard of it: its connection has ended since it was sent.
                if known.fate is Fate.SETTLED:
                    acknowledged.append(packet_id)
                continue
            self.counters.received += 1
            self._new(packet_id, message, now_ms, acknowledged)

    def _begin(self, epoch: str) -> None:
        """Numbers count from anew: what was there before is no business of the session any more."""
        self._epoch = epoch
        self._items.clear()
        self._numbers.clear()
        self._bury_again.clear()
        for lane in self.lanes:
            lane.clear()
        self.held = self.held_bytes = 0

    def _new(self, packet_id: int, came: Message, now_ms: int, acknowledged: list[int]) -> None:
        reason = ""
        message: Message | None
        try:
            message = self._transform(came)
        except Unfit as error:
            message, reason = came, str(error)
        item = Item(came.number, packet_id, came, message, self._lane_of(message or came), now_ms)
        self._items[item.number] = item
        self._numbers[packet_id] = item.number
        self.held += 1
        self.held_bytes += item.size
        lane = self.lanes[item.lane]
        if message is None:
            self.counters.left_out += 1
            self._settle(item, acknowledged)
        elif reason:
            self._refuse(item, reason, acknowledged)
        elif self._has(lane, item):
            self.counters.repeated += 1
            self._settle(item, acknowledged)
        else:
            lane.put(item)

    def _lane_of(self, message: Message) -> int:
        lanes = self._options.lanes
        if lanes == 1:
            return 0
        by = {"topic": message.topic, "publisher": message.publisher, "key": message.key}[self._options.lanes_by]
        return int.from_bytes(blake2b(by.encode(errors="replace"), digest_size=4).digest(), "big") % lanes

    def _has(self, lane: Lane, item: Item) -> bool:
        """Whether the target has said that it has accepted it."""
        accepted = lane.accepted
        return accepted is not None and accepted.epoch == self._epoch and item.number <= accepted.number

    def _leave_out_accepted(self, lane: Lane, acknowledged: list[int]) -> None:
        if lane.accepted is not None and lane.accepted.epoch == self._epoch:
            for item in lane.drop(lane.accepted.number):
                self.counters.repeated += 1
                self._settle(item, acknowledged)

    def _released(self, packet_ids: Sequence[int]) -> None:
        for packet_id in packet_ids:
            number = self._numbers.pop(packet_id, None)
            item = None if number is None else self._items.get(number)
            if item is not None and item.fate is Fate.SETTLED:
                del self._items[item.number]
            elif item is not None:
                # Given up by somebody, as a purge does; it is finished here first.
                self._numbers[packet_id] = item.number
        self._effects.append(Complete(list(packet_ids)))

    # ---------------------------------------------------------------- what became of a batch
    def _delivered(self, lane: Lane, outcome: Outcome, acknowledged: list[int]) -> None:
        assert lane.doing is Doing.BUSY
        lane.doing = Doing.IDLE
        items, lane.under_way = lane.under_way, []
        if not items:
            return  # Of a former epoch.
        assert 0 <= outcome.done <= len(items), f"{outcome.done} of {len(items)} messages settled"
        refused = {each.index: each.reason for each in outcome.refused}
        for index, item in enumerate(items[: outcome.done]):
            if index in refused:
                self._refuse(item, refused[index], acknowledged)
                continue
            assert item.message is not None
            self.counters.delivered += 1
            self.counters.delivered_bytes += len(item.message.payload)
            self._settle(item, acknowledged)
        lane.put_back(items[outcome.done :])
        if outcome.done:
            self._pace.worked()

    def _failed(self, event: Failed, now_ms: int) -> None:
        lane = self.lanes[event.lane]
        assert lane.doing in (Doing.OPENING, Doing.BUSY)
        lane.doing, lane.accepted = Doing.CLOSED, None
        items, lane.under_way = lane.under_way, []
        lane.put_back(items)
        self.counters.failures += 1
        self.last_error = event.reason
        self._pace.failed(now_ms, retry_after_ms=event.retry_after_ms, final=event.final)
        self._effects.append(Close(event.lane))

    def _refuse(self, item: Item, reason: str, acknowledged: list[int]) -> None:
        self.counters.refused += 1
        assert item.came is not None
        if item.came.topic == self._options.dead_letter_topic:
            self.counters.dead_letters_dropped += 1
            self._settle(item, acknowledged)
            return
        item.fate, item.reason, item.message = Fate.DYING, reason, None
        self._bury(item)

    def _bury(self, item: Item) -> None:
        assert item.came is not None
        self._effects.append(Bury(item.number, item.came, item.reason))

    def _settle(self, item: Item, acknowledged: list[int]) -> None:
        item.fate = Fate.SETTLED
        item.came = item.message = None
        self.held -= 1
        self.held_bytes -= item.size
        acknowledged.append(item.packet_id)

    # ---------------------------------------------------------------- what may be done now
    def _turn(self, now_ms: int) -> None:
        wakes = [at_ms for at_ms in self._bury_again.values() if at_ms > now_ms]
        for number in [number for number, at_ms in self._bury_again.items() if at_ms <= now_ms]:
            del self._bury_again[number]
            item = self._items.get(number)
            if item is not None and item.fate is Fate.DYING:
                self._bury(item)
        for lane in self.lanes:
            at_ms = self._pump(lane, now_ms)
            if at_ms:
                wakes.append(at_ms)
        if wakes:
            self._effects.append(Wake(min(wakes)))

    def _pump(self, lane: Lane, now_ms: int) -> int:
        """Begin what this lane can do; or when it can, if that is a matter of time, else 0."""
        if not lane.queue or self.held_back or lane.doing in (Doing.OPENING, Doing.BUSY):
            return 0
        if now_ms < self._pace.not_before_ms:
            return self._pace.not_before_ms
        if self._pace.breaker(now_ms) != "closed" and any(other.doing in (Doing.OPENING, Doing.BUSY) for other in self.lanes):
            return 0
        if lane.doing is Doing.CLOSED:
            lane.doing = Doing.OPENING
            self._effects.append(Open(lane.index))
            return 0
        ready_ms = self._ready_ms(lane)
        if ready_ms > now_ms:
            return ready_ms
        options = self._options
        count = self._rate.allowed(now_ms, options.batch_count_max)
        if not count:
            return self._rate.next_ms(now_ms)
        items = lane.take(count, options.batch_bytes_max)
        self._rate.took(len(items))
        lane.doing = Doing.BUSY
        self.counters.batches += 1
        messages: list[Message] = []
        for item in items:
            assert item.message is not None
            messages.append(item.message)
            self.counters.retried += item.tried
            item.tried = True
        self._effects.append(Deliver(lane.index, Batch(self._epoch, tuple(messages))))
        return 0

    def _ready_ms(self, lane: Lane) -> int:
        options = self._options
        full = len(lane.queue) >= options.batch_count_max or lane.bytes >= options.batch_bytes_max
        # Where the broker sends nothing more, nothing more is to be waited for.
        if full or lane.queue[0].tried or len(self._items) >= options.inflight_max:
            return 0
        return lane.queue[0].since_ms + options.linger_ms

    def check(self) -> None:
        waiting = [item for lane in self.lanes for item in (*lane.under_way, *lane.queue)]
        assert len(waiting) == len({item.number for item in waiting})
        for lane in self.lanes:
            assert lane.bytes == sum(item.size for item in lane.queue)
            assert bool(lane.under_way) <= (lane.doing is Doing.BUSY)
        by_fate = {fate: [item for item in self._items.values() if item.fate is fate] for fate in Fate}
        assert {item.number for item in by_fate[Fate.WAITING]} == {item.number for item in waiting}
        assert self.held == len(by_fate[Fate.WAITING]) + len(by_fate[Fate.DYING])
        assert self.held_bytes == sum(item.size for fate in (Fate.WAITING, Fate.DYING) for item in by_fate[fate])
