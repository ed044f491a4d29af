"""Rules that change while everything else goes on, and who may hear what by them.

Every few seconds there is another version of the rules: a client may not read a topic, or not publish or retain there, for a while. Each
gateway and each shard hears of it a little later, as it would by looking at a file; one that starts has the newest.

    no leak     a second after a version denies it, and as long as no later one allows it, a client gets nothing of a topic it may not read,
                nobody gets what was published since by a client that may not, no will of it enters, and a new subscription brings no
                retained message of it
    one answer  what its home has taken of a client, it does not refuse when it comes once more
    the rest    every other promise holds as it does without rules, for what no version has denied
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from access.rules import OPEN, Access, compile_access
from access.rules_file import parse_rules
from gateway.core import GatewayCore
from gateway.events import AccessChanged as GatewayHears
from mqtt.encode import topic_of_head
from mqtt.packets import AckKind, Item, Publish, PublishRun
from mqtt.reason import ReasonCode
from sessions.core import SessionCore
from shards.core import ShardCore
from shards.events import AccessChanged as ShardHears
from tests.sim.broker import Part, Plant
from tests.sim.client import Attempt, Client, Temper
from tests.sim.gateway_part import GatewayPart
from tests.sim.ledger import Message
from tests.sim.rules import Violation
from tests.sim.shape import TOPICS, ClientShape, Shape, draw
from tests.sim.shard_part import ShardPart
from tests.sim.simulation import Simulation
from tests.sim.world import MS, SECOND, World

WITHIN_US = SECOND
TOLD_WITHIN_US = 700 * MS
COPIES_WITHIN_US = 20 * SECOND
"""So long retained messages of a subscription that has ended may still come."""
EVERY_US = (2 * SECOND, 9 * SECOND)
STANDING_STILL = ("stop gateway", "stop session", "stop shard", "zombie gateway", "zombie session", "full", "eio")
"""Faults in which a process, or what it has written, stands still for longer than a right may last."""

_SLOW = ClientShape(
    name="w0", temper=Temper(version=5, expiry_s=0, keep_alive_s=0, receive_max=1), publishes=0.0, subscribes=0.0, restless=0.01, torn=0.0,
    filters=(b"a/+", b"x"), qos=(1, 2), ack_late=1.0, ack_within_us=6 * SECOND, window=1,
)  # fmt: skip
AIMED = 0.5
"""How often a right is taken away that somebody is just using."""

Denied = tuple[str, bytes, bytes]
"""A right, a client and a topic."""


def shape_of(seed: int) -> Shape:
    """In half of the worlds there is a subscriber for which messages wait in its gateway for seconds."""
    shape = draw(Random(seed))
    slow = (_SLOW,) if Random(f"slow {seed}").random() < 0.5 else ()
    faults = {kind: weight for kind, weight in shape.faults.items() if kind not in STANDING_STILL}
    return replace(shape, clients=shape.clients + slow, faults=faults)


class Versions:
    """What was denied when."""

    def __init__(self) -> None:
        self._versions: list[tuple[int, dict[Denied, None]]] = [(0, {})]
        self.access: Access = OPEN

    def change(self, at_us: int, denied: dict[Denied, None]) -> None:
        self._versions.append((at_us, denied))
        blocks = [
            f"[[rule]]\ndeny = ['{right}']\ntopics = ['{topic.decode()}']\nclient_ids = ['{client.decode()}']\n"
            for right, client, topic in denied
        ]
        text = "version = 1\n" + "".join(blocks) + "[[rule]]\nallow = ['all']\ntopics = ['#']\n"
        self.access = compile_access(len(self._versions), parse_rules(text), claims=False, decides=False)

    @property
    def denied(self) -> dict[Denied, None]:
        return self._versions[-1][1]

    def since(self, right: str, client: bytes, topic: bytes, at_us: int) -> int | None:
        """From when on this was denied, without a break, up to then; None: it was allowed."""
        since = None
        for began_us, denied in self._versions:
            if began_us > at_us:
                break
            if (right, client, topic) not in denied:
                since = None
            elif since is None:
                since = began_us
        return since

    def long_denied(self, right: str, client: bytes, topic: bytes, at_us: int, first_us: int) -> bool:
        """Whether that which began at `first_us` began after everybody knew that it was denied, and it was so until `at_us`."""
        since = self.since(right, client, topic, at_us)
        return since is not None and first_us > since + WITHIN_US


class _Starting(Plant):
    """Who starts has the newest rules; and what a fault plants is planted all the same."""

    def __init__(self, versions: Versions, inner: Plant) -> None:
        self._versions = versions
        self._inner = inner
        self.late, self.patient = inner.late, inner.patient

    @property
    def world(self) -> World:
        return self._inner.world

    @world.setter
    def world(self, world: World) -> None:
        self._inner.world = world

    def shard(self, core: ShardCore) -> None:
        self._inner.shard(core)
        core.handle(ShardHears(self._versions.access))

    def session(self, core: SessionCore) -> None:
        self._inner.session(core)

    def gateway(self, core: GatewayCore) -> None:
        self._inner.gateway(core)
        core.handle(GatewayHears(self._versions.access))


class Revoking(Simulation):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        self.versions = Versions()
        self._heard: dict[bytes, bytes] = {}
        super().__init__(seed, shape_of(seed), _Starting(self.versions, plant or Plant()), keep_all)
        self._watched = self.ledger.will_written
        self.ledger.will_written = self._will_written
        for client in self.crowd.clients:
            _Listening(client, self)
            # Identifiers come again soon.
            client.publishing.ids_max = client.publishing.window + 2
        self.world.later(3 * SECOND, self._change)

    def heal(self) -> None:
        super().heal()
        self._in_force({})

    # ------------------------------------------------------------------ versions

    def _change(self) -> None:
        if self.faults.over:
            return
        world, rng = self.world, self.world.rng
        denied = {each: None for each in self.versions.denied if rng.random() < 0.7}
        for _ in range(rng.randint(1, 4)):
            client = rng.choice(self.crowd.clients).key
            right = rng.choice(("subscribe", "subscribe", "publish", "publish", "retain", "retain"))
            # What has just come is what may be on its way once more, and what waits is to leave yet.
            waiting = self._waiting_for(client) if right == "subscribe" else []
            topic = rng.choice(waiting) if waiting else self._heard.get(client, TOPICS[0]) if rng.random() < AIMED else rng.choice(TOPICS)
            if right == "retain":
                topic = rng.choice((b"r/a", b"r/b"))
            elif right == "publish" and rng.random() < 0.4:
                topic = b"w/" + client
            denied[right, client, topic] = None
        self._in_force(denied)
        world.later(world.between(*EVERY_US), self._change)

    def _waiting_for(self, client: bytes) -> list[bytes]:
        """Topics of what waits in a gateway for the window of this client."""
        cores = [part.core for part in self.broker.parts() if isinstance(part, GatewayPart)]
        connections = [core._state.by_client[client] for core in cores if client in core._state.by_client]
        return [topic_of_head(row[1]) for each in connections if each.ephemeral is not None for row in each.ephemeral.queue]

    def left_behind(self, client: Client) -> None:
        """A client has lost its connection: what it does not know to be taken it may have no right to publish when it is back."""
        topics = [message.topic for message in client.publishing.unacknowledged]
        if topics and not self.faults.over and self.world.happens(AIMED):
            self.world.later(self.world.between(0, 200 * MS), self._deny, ("publish", client.key, self.world.rng.choice(topics)))

    def _deny(self, denied: Denied) -> None:
        if not self.faults.over:
            self._in_force({**self.versions.denied, denied: None})

    def _in_force(self, denied: dict[Denied, None]) -> None:
        for right, client, topic in denied:
            kept = self.ledger.unreadable if right == "subscribe" else self.ledger.unpublishable
            kept[client, topic] = None
        self.versions.change(self.world.now_us, denied)
        self.world.note("rules", "change", sorted(denied))
        access = self.versions.access
        for part in self.broker.parts():
            part.process.after(self.world.between(0, TOLD_WITHIN_US), self._tell, part, access)

    def _tell(self, part: Part, access: Access) -> None:
        """Only the newest one: who looks late sees what is there then."""
        if access is not self.versions.access:
            return
        if isinstance(part, GatewayPart):
            part.feed(GatewayHears(access))
        elif isinstance(part, ShardPart):
            part.core.handle(ShardHears(access))

    # ------------------------------------------------------------------ what must not come

    def _will_written(self, will: Message) -> None:
        self._watched(will)
        now_us = self.world.now_us
        if self.versions.long_denied("publish", will.publisher, will.topic, now_us, now_us):
            raise Violation(f"no leak: {will} is stored, and {will.publisher.decode()} may not publish it")

    def heard(self, client: Client, topic: bytes, payload: bytes, retained: bool, left_us: int) -> None:
        versions = self.versions
        self._heard[client.key] = topic
        if versions.long_denied("subscribe", client.key, topic, left_us, left_us):
            raise Violation(f"no leak: {client.id} got {payload[:12]!r} of {topic.decode()} at {left_us}, which it may not read")
        message = self.ledger.messages.get(payload)
        if message is None or message.will:
            return
        if not retained and versions.long_denied("publish", message.publisher, topic, left_us, message.sent_us):
            raise Violation(f"no leak: {client.id} got {message} at {left_us}, which {message.publisher.decode()} may not publish")
        late_us = left_us - COPIES_WITHIN_US
        subs = [sub for sub in self.ledger.matching(client.key, message) if sub.until_us < 0 or sub.until_us > late_us]
        if not retained or not subs or any(sub.as_published_once for sub in subs):
            return
        newest_us = min(sub.asked_us for sub in subs)
        for right in ("publish", "retain"):
            if versions.long_denied(right, message.publisher, topic, left_us, newest_us):
                raise Violation(f"no leak: {client.id} got {message} as retained at {left_us}, and its publisher lost the right to {right}")


class _Listening:
    """Hears what a client hears, and that it is offline, before it does."""

    def __init__(self, client: Client, simulation: Revoking) -> None:
        self._client = client
        self._simulation = simulation
        self._received = client.received
        client.received = self.received  # type: ignore[method-assign]
        self._offline = client.publishing.offline
        client.publishing.offline = self.offline  # type: ignore[method-assign]
        self._acked = client.publishing.acked
        client.publishing.acked = self.acked  # type: ignore[method-assign]

    def offline(self) -> None:
        self._simulation.left_behind(self._client)
        self._offline()

    def acked(self, kind: AckKind, packet_id: int, reason: ReasonCode, left_us: int) -> None:
        message = self._client.publishing.awaiting(packet_id)
        if kind is AckKind.PUBREC and reason is ReasonCode.NOT_AUTHORIZED and message is not None and message.ever_synced:
            raise Violation(f"one answer: {self._client.id} is refused {message} at {left_us}, which its home has taken")
        self._acked(kind, packet_id, reason, left_us)

    def received(self, attempt: Attempt, items: list[Item], left_us: int) -> None:
        heard = self._simulation.heard
        for item in items:
            if isinstance(item, PublishRun):
                for flags, topic, body in zip(item.flags, item.topics, item.bodies, strict=True):
                    heard(self._client, topic, body[1:], bool(flags & 1), left_us)
            elif isinstance(item, Publish):
                heard(self._client, item.topic, item.payload, bool(item.flags & 1), left_us)
        self._received(attempt, items, left_us)
