"""Sessions that lose their wake-ups, and an operator who moves their places, in worlds where everything else happens too.

    heals       a frame of a feed, or an answer to a poll, that never arrives delays messages and loses none
    skipped     after a skip or a purge to the end, everything that is stored later comes; what was before it may come or not
    rewound     after a rewind everything that is owed comes all the same; what came before may come once more

Real links lose nothing; this is what would happen if one of ours did.  Both end with the faults, or soon after, so whatever is owed then
comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

from sessions.events import FromInquirer
from sessions.inquiry_frames import PURGE, REWIND, SKIP, Move
from sessions.options import Counters
from sessions.session import HEAD
from shards.frames import Feed, Frame, Polled, RangeRead, Result
from tests.sim.broker import Place, Plant
from tests.sim.client import Client
from tests.sim.session_part import SessionPart
from tests.sim.shape import Shape, draw
from tests.sim.shard_part import ShardPart
from tests.sim.simulation import Simulation
from tests.sim.world import SECOND

LOST_FEED, LOST_ANSWER = 0.05, 0.02
LOST_LAST, LAST_US = 0.9, 3 * SECOND
"""Of feeds, for so long before and after the end of the faults: behind the last frame none comes that shows the hole, and somebody has to
look."""
MOVE_EVERY_US = SECOND
INTERVAL_MS = 1_000
UNSURE_US = 10 * SECOND
"""So long after it was asked for a rewind may be carried out."""
_NO_LINK = -1


def shape_of(seed: int) -> Shape:
    """At QoS 0 nothing that comes again can be told from what comes twice, so it is not stored; nobody waits long for what was lost."""
    shape = draw(Random(seed))
    session = replace(shape.session, store_qos0=False, idle_poll_ms=INTERVAL_MS)
    return replace(
        shape, session=session, shard=replace(shape.shard, store_qos0=False), gateway=replace(shape.gateway, store_qos0=False),
    )  # fmt: skip


class Tooling(Simulation):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        super().__init__(seed, shape_of(seed), plant, keep_all)
        self.lost = self.moves = 0
        self._counted: dict[str, Counters] = {}
        self._rewound: dict[bytes, int] = {}
        """What was sent until then may come once more to a client, whenever that is."""
        self._rng = Random(f"tooling {seed}")
        self._make = self.broker.make
        self._delivered = self.rules.delivered
        self.broker.make = self._made  # type: ignore[method-assign]
        self.rules.delivered = self._heard  # type: ignore[method-assign]
        self.world.later(2 * SECOND, self._move)

    def counted(self, name: str) -> int:
        """Of all session actors that there were."""
        return sum(getattr(counters, name) for counters in self._counted.values())

    def _nothing_owed(self) -> bool:
        """What comes once more is owed to nobody, and takes its time."""
        return super()._nothing_owed() and all(
            cursor.doing is HEAD
            for part in self.broker.parts()
            if isinstance(part, SessionPart)
            for session in part.core._state.by_conn.values()
            for sub in session.subs.values()
            for cursor in sub.cursors
        )

    # ------------------------------------------------------------------ what is lost

    def _made(self, place: Place) -> None:
        self._make(place)
        part = place.part
        if isinstance(part, SessionPart):
            part.shard_told = self._losing(part, part.shard_told)  # type: ignore[method-assign, assignment]
            # What is closed by a move is finished, and nobody has acknowledged it.
            part._own_acknowledgements = _nothing  # type: ignore[method-assign]
            self._counted[part.process.name] = part.core.counters

    def _losing(self, part: SessionPart, hear: Callable[[int, Frame], None]) -> Callable[[int, Frame], None]:
        def told(shard: int, frame: Frame) -> None:
            if self._rng.random() < self._lost_share(frame):
                self.lost += 1
                self.world.note(part.process.name, "loses", type(frame).__name__)
            else:
                hear(shard, frame)

        return told

    def _lost_share(self, frame: Frame) -> float:
        if isinstance(frame, Feed) and abs(self.world.now_us - self.shape.safety_us) < LAST_US:
            # Empty ones too: the next one shows what was lost before it.
            return LOST_LAST
        if isinstance(frame, Feed) and frame.values:
            return LOST_FEED if not self.faults.over else 0
        if isinstance(frame, Result) and isinstance(frame.told, Polled | RangeRead):
            return LOST_ANSWER if not self.faults.over else 0
        return 0

    # ------------------------------------------------------------------ the operator

    def _move(self) -> None:
        if self.faults.over:
            return
        self.world.later(int(self._rng.expovariate(1.0) * MOVE_EVERY_US) + 1, self._move)
        durable = [client for client in self.crowd.clients if client.temper.expiry_s and not client.temper.memory]
        shards = [self.broker.places["shard", index].part for index in range(self.shape.n_shards)]
        if not durable or not all(isinstance(part, ShardPart) for part in shards):
            return
        client = self._rng.choice(durable)
        session_id = self.broker.session_of(client.key)
        index = self.broker._slots.shard_of(client.key) % self.shape.n_sessions
        part = self.broker.places["session", index].part
        if not session_id or not isinstance(part, SessionPart) or part.process.stopped:
            return
        ends = [part.core.watermark for part in shards if isinstance(part, ShardPart) and part.core.watermark >= 0]
        if len(ends) == len(shards):
            self._one(client, part, session_id, ends)

    def _one(self, client: Client, part: SessionPart, session_id: int, ends: list[int]) -> None:
        verb = self._rng.choice((SKIP, REWIND, REWIND, PURGE))
        to = [self._rng.randint(0, end) if verb == REWIND else end for end in ends]
        if verb == REWIND:
            self._rewound[client.key] = self.world.now_us + UNSURE_US
            for sub in self.ledger.of(client.key):
                sub.weakly.update(sub.got)
        elif verb == SKIP and self._rng.random() < 0.5:
            # Nothing that was not given yet lies before it, if a skip never goes back.
            to = [0] * len(ends)
        if verb != REWIND and any(to):
            for sub in self.ledger.of(client.key):
                # Also one that its client has given up: if nobody has heard of that, it goes on.
                if sub.since_us >= 0:
                    sub.since_us = self.world.now_us
        self.moves += 1
        self.world.note("operator", ("skips", "rewinds", "purges")[verb], client.id)
        part._feed(FromInquirer(_NO_LINK, Move(self.moves, client.key, session_id, verb, b"", to, "sim")))

    def _heard(self, client: bytes, identifier: int, payload: bytes, qos: int, retained: bool, durable: bool) -> None:
        self._once_more(client, payload)
        self._delivered(client, identifier, payload, qos, retained, durable)
        self._once_more(client, payload)

    def _once_more(self, client: bytes, payload: bytes) -> None:
        """What was sent before a rewind was carried out may have come before that, and come again behind it."""
        message, rewound_us = self.ledger.messages.get(payload), self._rewound.get(client)
        if message is not None and rewound_us is not None and message.sent_us <= rewound_us:
            for sub in self.ledger.of(client):
                if message in sub.got:
                    sub.weakly.add(message)


def _nothing() -> None:
    pass


assert {"stalls_healed", "asked_again", "moved", "closed"} <= {field.name for field in fields(Counters)}
