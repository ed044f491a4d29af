"""Clients that subscribe into the past while everything else goes on, and what each has to get by then.

Everything that is published at QoS 1 or 2 is captured. A historian asks for all of a filter since the earliest, or since a time at which
something was published, or a millisecond beside it, and now and then for history alone. A durable one rewinds now and then, one whose
session is ephemeral goes on from the position of its last message when it has lost its connection.

    complete    when all is at rest it has everything that is stored and was published since then
    once        nothing of QoS 2 twice, whatever is lost meanwhile; of a session that ends with its connection nothing at all
    in order    of a publisher and topic, but for wills
    no more     nothing of its history from before the time that it asked for, and nothing from after its end
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

from mqtt.body import strip_properties
from mqtt.packets import Item, Properties, Publish, Suback, Subscribe, Unsuback
from mqtt.packets import Subscription as Row
from mqtt.topics import matches
from shards.generations import Generations
from shards.messages import header
from shards.store import Store
from tests.sim.broker import Plant
from tests.sim.client import Attempt, Client, Temper
from tests.sim.ledger import Message, StreamKey
from tests.sim.rules import Violation
from tests.sim.shape import ClientShape, Shape, draw
from tests.sim.simulation import Simulation
from tests.sim.subscribing import Subscribing
from tests.sim.world import SECOND

FILTERS = (b"#", b"a/#", b"a/+", b"+/c")
EARLIEST = -1
REWINDS_EVERY_US = (5 * SECOND, 40 * SECOND)
_ALL = 1 << 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAILED = 0x80


def shape_of(seed: int) -> Shape:
    """A wall clock that is set would say of no message when it was published."""
    shape = draw(Random(seed))
    faults = {kind: weight for kind, weight in shape.faults.items() if kind != "wall step"}
    return replace(shape, shard=replace(shape.shard, capture=(b"#",)), faults=faults)


@dataclass(slots=True, eq=False)
class Life:
    """What was asked for at once. sent_us, granted_us: SUBSCRIBE, and its first SUBACK.  end_us: the newest, by which its history is over
    if it ends; it is asked for again from a position; -1: there is none yet."""

    filter: bytes
    since_ms: int
    ends: bool
    sent_us: int
    granted_us: int = -1
    end_us: int = -1
    got: dict[Message, int] = field(default_factory=dict)
    newest: dict[StreamKey, int] = field(default_factory=dict)
    position: str = ""


class _Heard:
    """In the place of the rules: what has reached this client."""

    def __init__(self, historian: Historian) -> None:
        self._historian = historian

    def delivered(self, client: bytes, identifier: int, payload: bytes, qos: int, retained: bool, durable: bool) -> None:
        if not retained:
            self._historian.heard(identifier, payload)


class Historian(Subscribing):
    def __init__(self, client: Client, simulation: Replaying) -> None:
        super().__init__(client)
        self._simulation = simulation
        self.life: Life | None = None
        self.arriving = ""
        self._lives: dict[int, Life] = {}
        self._open: dict[int, Life] = {}

    @property
    def idle(self) -> bool:
        return super().idle and not self._open and self.life is not None and self.life.granted_us >= 0

    # ------------------------------------------------------------------ what it asks

    def online(self, present: bool) -> None:
        if self._client.durable:
            if not present or self.life is None or self.life.granted_us < 0:
                self.begin()
        elif self.life is not None and self.life.position:
            self._ask(self.life, self.life.position)
        else:
            self.begin()

    def begin(self) -> None:
        """Another life."""
        world = self._client.world
        since_ms = self._simulation.some_time_ms() if world.happens(0.6) else EARLIEST
        life = self.life = Life(world.rng.choice(FILTERS), since_ms, world.happens(0.2), world.now_us)
        self._ask(life, "earliest" if since_ms == EARLIEST else (_EPOCH + timedelta(milliseconds=since_ms)).isoformat())

    def _ask(self, life: Life, since: str) -> None:
        client = self._client
        self._last_id = self._last_id % 65_535 + 1
        self._last_identifier += 1
        self._lives[self._last_identifier] = self._open[self._last_id] = life
        life.end_us = -1
        said = [("replay-from", since), ("replay-positions", "true")]
        if life.ends:
            said.append(("replay-until", "latest"))
        properties = Properties(subscription_identifiers=(self._last_identifier,), user_properties=tuple(said))
        client.world.note(client.id, "replays", (life.filter, since, life.ends))
        client.send(Subscribe(self._last_id, (Row(life.filter, 2, False, False, 2),), properties))

    def rewind(self) -> None:
        if self._client.online and self._client.durable and not self._open:
            self.begin()

    def subacked(self, packet: Suback, left_us: int) -> None:
        life = self._open.pop(packet.packet_id, None)
        if life is None:
            raise Violation(f"{self._client.id} got {packet} and has not asked")
        if packet.reasons[0] >= _FAILED:
            if life is self.life:
                self._client.world.later(SECOND, self._once_more, self._client.attempt)
            return
        if life.granted_us < 0:
            life.granted_us = left_us
        life.end_us = left_us

    def _once_more(self, attempt: Attempt | None) -> None:
        if attempt is not None and self._client.attempt is attempt and not self._open:
            self.begin()

    def unsubacked(self, packet: Unsuback) -> None:
        raise Violation(f"{self._client.id} got {packet} and has not asked")

    def offline(self) -> None:
        self._open.clear()
        self._under_way.clear()
        if not self._client.durable:
            self._taken.clear()
            self._received.clear()

    def session_over(self) -> None:
        self._taken.clear()
        self._received.clear()
        if self._client.durable:
            self.life = None

    # ------------------------------------------------------------------ what it gets

    def heard(self, identifier: int, payload: bytes) -> None:
        message = self._client.ledger.messages.get(payload)
        life = self._lives.get(identifier)
        if message is None or life is None:
            raise Violation(f"{self._client.id} got {payload[:12]!r} under identifier {identifier}")
        if not matches(life.filter, message.topic):
            raise Violation(f"{self._client.id}: {message} came for {life.filter.decode()}")
        if life.ends and message.sent_us > life.end_us >= 0:
            raise Violation(f"no more: {message} came to {self._client.id} after the end of its replay")
        life.position = self.arriving
        life.got[message] = count = life.got.get(message, 0) + 1
        if count > 1:
            if message.qos == 2 or (not self._client.durable and not message.again):
                raise Violation(f"once: {message} came to {self._client.id} {count} times")
            return
        # Wills enter as their connections are taken over: a gateway that stood still meets several of one client in any order.
        # What has expired does not leave; if that was forgotten with its session actor, it may have left, and comes behind others.
        if message.again or message.will or message.expires:
            return
        if message.number < life.newest.get(message.key, 0):
            raise Violation(f"in order: {message} came to {self._client.id} behind #{life.newest[message.key]}")
        life.newest[message.key] = message.number

    def wrong(self, stored: dict[bytes, int]) -> Iterator[str]:
        """stored: payload -> when it was published, as the message says."""
        life = self.life
        if life is None:
            return
        for payload, published_ms in stored.items():
            message = self._client.ledger.messages.get(payload)
            if message is None or not message.qos or not matches(life.filter, message.topic):
                continue
            before = 0 <= message.acked_us < life.sent_us
            if published_ms < life.since_ms:
                if before and message in life.got and not message.again:
                    raise Violation(f"no more: {message} of {published_ms} came to {self._client.id}, since {life.since_ms}")
            elif message not in life.got and not message.expires and (before or not life.ends):
                yield f"{message} of {published_ms} is owed to {self._client.id}, {life.filter.decode()} since {life.since_ms}"


class _HistoryClient(Client):
    subscribing: Historian

    def received(self, attempt: Attempt, items: list[Item], left_us: int) -> None:
        for item in items:
            if self.attempt is attempt:
                if isinstance(item, Publish):
                    self.subscribing.arriving = dict(item.properties.user_properties).get("replay-position", self.subscribing.arriving)
                super().received(attempt, [item], left_us)


class Replaying(Simulation):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        super().__init__(seed, shape_of(seed), plant, keep_all)
        self.historians: list[Historian] = []
        rng = Random(f"historians {seed}")
        for number in range(2):
            expiry_s = 0 if number else 7 * 86_400
            temper = Temper(5, expiry_s, 0, rng.choice((1, 5, 100)))
            wanted = ClientShape(
                f"h{number}", temper, 0.0, 0.0, rng.choice((0.01, 0.05)), 0.02, (), (2,), rng.choice((0.0, 0.5)), 2 * SECOND, 1
            )  # fmt: skip
            client = _HistoryClient(self.world, self.network, self.shape.n_gateways, wanted.name, temper, self.ledger, self.rules)
            client.subscribing = historian = Historian(client, self)
            historian.ack_late, historian.ack_within_us = wanted.ack_late, wanted.ack_within_us
            client.rules = _Heard(historian)  # type: ignore[assignment]
            client.heard_message = partial(self.crowd._heard, wanted)
            client.session_on_disk, client.memory_on_disk = self.broker.session_of, self.broker.memory_of
            self.crowd.members.append((wanted, client))
            self.historians.append(historian)
            self.world.later(self.world.between(*REWINDS_EVERY_US), self._rewind, historian)

    def _rewind(self, historian: Historian) -> None:
        if not self.faults.over:
            historian.rewind()
            self.world.later(self.world.between(*REWINDS_EVERY_US), self._rewind, historian)

    def stored(self) -> dict[bytes, int]:
        """What lies on the disks: payload -> when it was published."""
        found: dict[bytes, int] = {}
        for disk in self.broker.disks:
            store = Store(disk.engine, Generations.view(disk.engine))
            for generation, stream in store.streams(b"#", -1):
                for _, value in store.read(generation, stream, -1, 1 << 60, _ALL, _ALL, _ALL).messages:
                    _, published_ms, _, _, body = header(value)
                    # Of one that was sent again, the first.
                    payload = strip_properties(body)
                    found[payload] = min(published_ms, found.get(payload, published_ms))
        return found

    def some_time_ms(self) -> int:
        """That of a message, or a millisecond beside it."""
        times = sorted(self.stored().values())
        return (self.world.rng.choice(times) if times else self.world.steady_ms) + self.world.rng.choice((-1, 0, 0, 0, 1))

    def _nothing_owed(self) -> bool:
        return super()._nothing_owed() and next(self._owed(), None) is None

    def _owed(self) -> Iterator[str]:
        stored = self.stored()
        for historian in self.historians:
            yield from historian.wrong(stored)

    def _unfinished(self) -> str:
        owed = next(self._owed(), None)
        return super()._unfinished() if owed is None else owed
