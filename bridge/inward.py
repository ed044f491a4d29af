"""The core of one bridge inwards while both its connections stand: from what the other broker sends to what this one has acknowledged.

The session at the other broker is the queue, and this is a relay that remembers nothing: each message is published here under the packet
identifier and at the QoS that it came with, and acknowledged there when it is acknowledged here, which means that it is on disk.

    QoS 1   PUBLISH -> PUBLISH here, PUBACK here -> PUBACK
    QoS 2   PUBLISH -> PUBLISH here, PUBREC here -> PUBREC        PUBREL -> PUBREL here, PUBCOMP here -> PUBCOMP

So what was under way when anything died comes again from there; at QoS 2 under its old identifier, which this broker knows until PUBREL
(the shell sees to it that it is of the same session).  Both connections begin and end together: no acknowledgement of a former one can be
taken for one of these.

Holds after every event (see check):
1. a message is WAITING, SENT or SETTLED; those of one QoS are published and acknowledged in the order in which they came;
2. no more than the receive maximum of this broker is without its last answer here;
3. `held` and `held_bytes` are those of messages that are not settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias, assert_never

from bridge.core import Unfit
from bridge.options import Counters
from bridge.pace import Rate
from bridge.port import Message


class Came(NamedTuple):
    """A PUBLISH of the other broker.  packet_id: 0 at QoS 0."""

    packet_id: int
    qos: int
    dup: bool
    message: Message


@dataclass(frozen=True, slots=True)
class Arrived:
    came: Sequence[Came]


@dataclass(frozen=True, slots=True)
class Released:
    """PUBREL of the other broker."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Answered:
    """PUBACK or PUBREC of this broker.  refusal: why it never takes this message; empty: it has it on disk."""

    packet_ids: Sequence[int]
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Completed:
    """PUBCOMP of this broker, whatever its reason."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class NotTaken:
    """This broker never takes this message of QoS 0, which it was handed just now."""

    message: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """A wake-up that was asked for."""


Event: TypeAlias = Arrived | Released | Answered | Completed | NotTaken | Tick


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish it here.  letter: not empty: as a dead letter, for this reason.  May be lost: it comes again from there."""

    packet_id: int
    qos: int
    dup: bool
    message: Message
    letter: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """PUBREL here.  May be lost: the other broker's comes again."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """PUBACK, or at QoS 2 PUBREC, there.  May be lost: the message comes again."""

    qos: int
    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Complete:
    """PUBCOMP there.  May be lost: PUBREL comes again."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End both connections; what is not acknowledged comes again on the next ones."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Tick at this time at the latest; the newest one counts."""

    at_ms: int


Effect: TypeAlias = Publish | Release | Acknowledge | Complete | GiveUp | Wake


@dataclass(frozen=True, slots=True)
class Bounds:
    """here_max: the receive maximum of this broker.  answer_ms: how long it may take for an answer."""

    inflight_max: int
    inflight_bytes_max: int
    here_max: int
    answer_ms: int


class Fate(Enum):
    WAITING = "waiting"
    SENT = "sent"
    SETTLED = "settled"


@dataclass(slots=True)
class Item:
    packet_id: int
    qos: int
    dup: bool
    came: Message | None
    """As it came, for its dead letter; None when it is settled."""
    made: Message | None
    """What is published."""
    size: int
    letter: str = ""
    fate: Fate = Fate.WAITING


@dataclass(slots=True)
class _Here:
    """What this broker owes an answer: when each was sent, oldest first."""

    publishes: dict[int, int] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)

    def oldest_ms(self) -> int | None:
        first = [next(iter(each.values())) for each in (self.publishes, self.releases) if each]
        return min(first, default=None)


class InwardCore:
    def __init__(self, bounds: Bounds, transform: Callable[[Message], Message | None], counters: Counters, rate: Rate) -> None:
        """transform: what is published; None: it is left out.  Raises Unfit.  counters, rate: live longer than this."""
        self._bounds = bounds
        self._transform = transform
        self._rate = rate
        self.counters = counters
        self._waiting: deque[Item] = deque()
        self._order: dict[int, deque[Item]] = {1: deque(), 2: deque()}
        """By QoS, what is not acknowledged there, as it came."""
        self._items: dict[int, Item] = {}
        """The same by packet identifier."""
        self._received: set[int] = set()
        """Identifiers of QoS 2 that PUBREC was sent for and PUBREL has not come for."""
        self._open_here: set[int] = set()
        """Identifiers that count against the receive maximum of this broker."""
        self._here = _Here()
        self.held = self.held_bytes = 0
        self.held_back = False
        """Nothing more is published: it is about to stop."""
        self._effects: list[Effect] = []
        self.given_up = ""

    def has_room(self) -> bool:
        """Whether more may be read from the other broker.  What waits for its PUBREL holds nothing, and must not stop it from coming."""
        return self.held < self._bounds.inflight_max and self.held_bytes < self._bounds.inflight_bytes_max

    @property
    def waits_for_answers(self) -> bool:
        return bool(self._here.publishes or self._here.releases)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Nothing after GiveUp."""
        if self.given_up:
            return []
        match event:
            case Arrived(came):
                for each in came:
                    self._arrived(each)
            case Released(packet_ids):
                self._released(packet_ids, now_ms)
            case Answered(packet_ids, refusal):
                for packet_id in packet_ids:
                    self._answered(packet_id, refusal)
            case Completed(packet_ids):
                self._completed(packet_ids)
            case NotTaken(message):
                self.counters.delivered -= 1
                self.counters.delivered_bytes -= len(message.payload)
                self.counters.refused += 1
                self.counters.dead_letters_dropped += 1
            case Tick():
                pass
            case _ as never:
                assert_never(never)
        self._acknowledge()
        self._turn(now_ms)
        effects, self._effects = self._effects, []
        return effects

    # ---------------------------------------------------------------- from there
    def _arrived(self, came: Came) -> None:
        packet_id = came.packet_id
        if packet_id in self._received and came.dup:
            # Sent again by one who has not heard our PUBREC.
            self._effects.append(Acknowledge(2, [packet_id]))
            return
        if packet_id in self._items and came.dup:
            return
        if packet_id in self._items or packet_id in self._received:
            self._give_up(f"the other broker uses packet identifier {packet_id} for two messages at the same time")
            return
        self.counters.received += 1
        self.counters.retried += came.dup
        message = came.message
        made, letter = self._made(message)
        item = Item(packet_id, came.qos, came.dup, message, made, len(message.payload) + len(message.topic), letter)
        self.held += 1
        self.held_bytes += item.size
        if item.qos:
            self._items[packet_id] = item
            self._order[item.qos].append(item)
        if letter:
            self._refuse(item, letter)
        elif made is None:
            self.counters.left_out += 1
            self._settle(item)
        else:
            self._waiting.append(item)

    def _made(self, message: Message) -> tuple[Message | None, str]:
        try:
            return self._transform(message), ""
        except Unfit as error:
            return None, str(error)

    def _released(self, packet_ids: Sequence[int], now_ms: int) -> None:
        for packet_id in packet_ids:
            if packet_id in self._items:
                self._give_up(f"the other broker releases packet identifier {packet_id} before it was received")
                return
            self._received.discard(packet_id)
            self._here.releases[packet_id] = now_ms
        self._effects.append(Release(list(packet_ids)))

    # ---------------------------------------------------------------- from here
    def _answered(self, packet_id: int, refusal: str) -> None:
        item = self._items.get(packet_id)
        if item is None or item.fate is not Fate.SENT:
            return
        self._here.publishes.pop(packet_id, None)
        if refusal or item.qos == 1:
            self._open_here.discard(packet_id)
        if refusal:
            self._refuse(item, refusal)
            return
        if item.letter:
            self.counters.dead_letters += 1
        else:
            assert item.made is not None
            self.counters.delivered += 1
            self.counters.delivered_bytes += len(item.made.payload)
        self._settle(item)

    def _completed(self, packet_ids: Sequence[int]) -> None:
        done = []
        for packet_id in packet_ids:
            self._open_here.discard(packet_id)
            if self._here.releases.pop(packet_id, None) is not None:
                done.append(packet_id)
        if done:
            self._effects.append(Complete(done))

    # ---------------------------------------------------------------- what becomes of one
    def _refuse(self, item: Item, reason: str) -> None:
        """It becomes a dead letter, under the same identifier.  One that is refused itself is dropped; so is one at QoS 0, which nobody
        would store."""
        again = item.fate is Fate.SENT and bool(item.letter)
        if again or not item.qos:
            self.counters.refused += not again
            self.counters.dead_letters_dropped += 1
            self._settle(item)
            return
        self.counters.refused += 1
        item.letter, item.made, item.fate = reason, item.came, Fate.WAITING
        self._waiting.append(item)

    def _settle(self, item: Item) -> None:
        item.fate = Fate.SETTLED
        item.came = item.made = None
        self.held -= 1
        self.held_bytes -= item.size

    def _acknowledge(self) -> None:
        """In the order in which they came [MQTT-4.6.0-2], [MQTT-4.6.0-3]."""
        for qos, order in self._order.items():
            done = []
            while order and order[0].fate is Fate.SETTLED:
                packet_id = order.popleft().packet_id
                del self._items[packet_id]
                done.append(packet_id)
            if done:
                if qos == 2:
                    self._received.update(done)
                self._effects.append(Acknowledge(qos, done))

    def _give_up(self, reason: str) -> None:
        if not self.given_up:
            self.given_up = reason
            self._effects.append(GiveUp(reason))

    # ---------------------------------------------------------------- what may be done now
    def _turn(self, now_ms: int) -> None:
        if self.given_up:
            return
        wakes = []
        while self._waiting and not self.held_back:
            item = self._waiting[0]
            if item.qos and len(self._open_here) >= self._bounds.here_max:
                break
            if not self._rate.allowed(now_ms, 1):
                wakes.append(self._rate.next_ms(now_ms))
                break
            self._rate.took(1)
            self._waiting.popleft()
            self._publish(item, now_ms)
        oldest_ms = self._here.oldest_ms()
        if oldest_ms is not None:
            late_ms = oldest_ms + self._bounds.answer_ms
            if late_ms <= now_ms:
                self._give_up("this broker has not acknowledged a message in time")
                return
            wakes.append(late_ms)
        if wakes:
            self._effects.append(Wake(min(wakes)))

    def _publish(self, item: Item, now_ms: int) -> None:
        assert item.made is not None
        self._effects.append(Publish(item.packet_id, item.qos, item.dup and not item.letter, item.made, item.letter))
        if item.qos:
            item.fate = Fate.SENT
            self._open_here.add(item.packet_id)
            self._here.publishes[item.packet_id] = now_ms
        else:
            self.counters.delivered += not item.letter
            self.counters.delivered_bytes += len(item.made.payload) * (not item.letter)
            self._settle(item)

    def check(self) -> None:
        assert all(item.fate is Fate.WAITING for item in self._waiting)
        open_ = [item for item in self._items.values() if item.fate is not Fate.SETTLED]
        at_qos_0 = [item for item in self._waiting if not item.qos]
        assert self.held == len(open_) + len(at_qos_0)
        assert self.held_bytes == sum(item.size for item in (*open_, *at_qos_0))
        assert len(self._open_here) <= self._bounds.here_max
        assert not self._received & self._items.keys()
        for order in self._order.values():
            assert not order or order[0].fate is not Fate.SETTLED
