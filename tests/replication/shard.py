"""What a leading replica is for: a shard that numbers records, knows repeats of its producers, and answers what is committed; and these.

Small, but with what the real one has: rows in the same record as the message, families that are made and dropped, a committer that may
refuse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from shards.committer import Record
from shards.engine import Engine, Op, StoreFailed
from shards.replication.committer import ReplicatedCommitter
from shards.replication.entry import Kind, of_family
from shards.replication.events import Submit
from tests.replication.world import World

ROLL_EVERY = 9
FAMILIES_MAX = 1
WINDOW = 4
AGAIN_MS = 400


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


class SimShard:
    """Opened on the data engine at Serve. Listens to its committer."""

    def __init__(self, world: World, engine: Engine, position: int, bring: Callable[[Submit], None]) -> None:
        self.world = world
        self._bring = bring
        self._position = position
        self._watermark = -1
        self._newest = {key[1:]: int.from_bytes(value, "big") for key, value in engine.scan(0, b"P", b"Q", 1 << 20)}
        self._generations = [int.from_bytes(key[1:], "big") for key, _ in engine.scan(0, b"g", b"h", 1 << 20)]
        self._next_family = max(engine.families()) + 1
        self._waiting: deque[tuple[int, bytes, int, Callable[[], None]]] = deque()
        self._dropping: deque[tuple[int, int]] = deque()
        self.committer = ReplicatedCommitter(position, self, bring)
        self.over = False

    def take(self, producer: bytes, seq: int, answer: Callable[[], None]) -> None:
        """A message; a repeat is answered when what it repeats is committed, and what leaves a gap is not taken."""
        if self.over or seq > self._newest.get(producer, 0) + 1:
            return
        if seq <= self._newest.get(producer, 0):
            if not any(other == producer and number == seq for _, other, number, _ in self._waiting) and self._watermark >= 0:
                answer()
            return
        position = self._position + 1
        ops: list[Op] = [(0, b"P" + producer, _u64(seq)), (0, b"e" + _u64(position), producer + b" " + _u64(seq))]
        if position % ROLL_EVERY == 1 or not self._generations:
            ops += self._roll(position)
            if self.over:
                # The family could not be made, and nothing may name it.
                return
        ops.append((self._generations[-1], _u64(position), producer))
        self._newest[producer] = seq
        self._position = position
        self._waiting.append((position, producer, seq, answer))
        try:
            self.committer.submit(Record(position, ops))
        except StoreFailed:
            self.over = True

    def _roll(self, position: int) -> list[Op]:
        family = self._next_family
        self._next_family += 1
        self._generations.append(family)
        self._bring(Submit(Kind.MAKE, of_family(1, 1, Kind.MAKE, family).payload))
        ops: list[Op] = [(0, b"g" + _u64(family), b"")]
        if len(self._generations) > FAMILIES_MAX:
            oldest = self._generations.pop(0)
            ops.append((0, b"g" + _u64(oldest), None))
            self._dropping.append((position, oldest))
        return ops

    # ---- the listener

    def committed(self, position: int) -> None:
        self._watermark = position
        while self._waiting and self._waiting[0][0] <= position:
            self._waiting.popleft()[3]()
        while self._dropping and self._dropping[0][0] <= position:
            family = self._dropping.popleft()[1]
            self._bring(Submit(Kind.DROP, of_family(1, 1, Kind.DROP, family).payload))

    def refused(self, position: int, reason: str) -> None:
        # As the real one does when its disk is full in the middle: it begins anew from what is stored.
        self.over = True
        self.world.happened["refused"] += 1

    def failed(self, reason: str) -> None:
        self.over = True


class Serving(Protocol):
    def shards(self) -> list[SimShard]:
        """Those that think they serve now, also one that is deposed and does not know it."""


class Producer:
    """Sends its messages in order, some at a time, to whoever says it serves; again and again, until each is acknowledged."""

    def __init__(self, name: bytes, world: World, serving: Serving) -> None:
        self.name = name
        self.acked: set[int] = set()
        self.sent = 0
        self.resting = self.ended = False
        self._world = world
        self._serving = serving
        world.later(world.between(1, 100), self._send)

    @property
    def done(self) -> bool:
        return self.ended or len(self.acked) == self.sent

    def end(self) -> None:
        """Nothing more is sent; what is under way may be acknowledged still."""
        self.ended = True

    def _send(self) -> None:
        if self.ended:
            return
        open_ = [seq for seq in range(max(1, self.sent - 3 * WINDOW), self.sent + 1) if seq not in self.acked]
        if not self.resting and len(open_) < WINDOW:
            self.sent += 1
            open_.append(self.sent)
        shards = self._serving.shards()
        if shards:
            shard = self._world.rng.choice(shards)
            for seq in open_:
                self._world.later(self._world.between(1, 8), shard.take, self.name, seq, partial(self._answered, seq))
        self._world.later(self._world.between(20, AGAIN_MS), self._send)

    def _answered(self, seq: int) -> None:
        self.acked.add(seq)
        self._world.happened["acknowledged"] += 1
