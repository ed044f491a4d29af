"""An operator who declares and drops shared groups, in the worlds of tests.sim.sharing, where everything else happens too.

kept     when a declaration is told to hold, its group begins before what any shard stores from then on, and asks for it in every
         shard, until it is dropped
shared   one that has members is declared and left to them, again and again, and they notice nothing
gone     of what was dropped nothing is left anywhere
"""

from __future__ import annotations

from random import Random

from shards.engine import HOME_FAMILY
from shards.frames import (
    EARLIEST,
    GROUP_HAS_MEMBERS,
    GROUP_TAKEN,
    GROUP_UNKNOWN,
    LATEST,
    Declare,
    Declared,
    Drop,
    Dropped,
    Frame,
    GroupRows,
    GroupRowsFound,
    Reply,
    Result,
)
from shards.options import STRATEGIES
from shards.rows import GROUP, ROUTE, SESSION, SUBSCRIPTION, GroupRow, SubscriptionRow, client_key, u64, unpack_as, unpack_group
from tests.sim.asker import Asker
from tests.sim.broker import Plant
from tests.sim.process import Process
from tests.sim.rules import Violation
from tests.sim.shard_part import ShardPart
from tests.sim.sharing import TEAM, Sharing
from tests.sim.world import MS, SECOND

SPARE = b"$share/spare/team/#"
"""Nobody ever joins it."""
PAUSE_US = 2 * SECOND
LOOK_US = 100 * MS
SOON_US = (20 * MS, SECOND)


class Declaring(Sharing):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        super().__init__(seed, plant, keep_all)
        self.process = Process(self.world, "admin", 0, 1)
        self.askers = [Asker(self.network, self.process, shard, self) for shard in range(self.shape.n_shards)]
        self.operators = [_Operator(self, filter, Random(f"{filter.decode()} {seed}")) for filter in (SPARE, TEAM)]
        self.held = 0
        self._ids = 0
        self._asked: dict[int, _Operator] = {}
        self.world.later(SECOND, self._start)

    def _start(self) -> None:
        for asker in self.askers:
            asker.start()
        for operator in self.operators:
            operator.begin()

    def heal(self) -> None:
        super().heal()
        for operator in self.operators:
            operator.ends = True

    def _nothing_owed(self) -> bool:
        return all(operator.idle for operator in self.operators) and super()._nothing_owed()

    def _unfinished(self) -> str:
        waiting = [operator.filter.decode() for operator in self.operators if not operator.idle]
        return super()._unfinished() if not waiting else f"{' and '.join(waiting)} are declared and nobody is told that they hold"

    def drain(self) -> None:
        super().drain()
        for shard, disk in enumerate(self.broker.disks):
            for family in (GROUP + SPARE, client_key(SESSION, SPARE)):
                if disk.engine.get(HOME_FAMILY, family) is not None:
                    raise Violation(f"gone: shard {shard} has {family!r}")

    # ------------------------------------------------------------------ what operators use

    def home_of(self, filter: bytes) -> int:
        return self.broker._slots.shard_of(filter)

    def members_there(self) -> bool:
        """The one that stays has joined, so whatever is published is for it."""
        return any(sub.open for sub in self.ledger.of(b"k0"))

    def ask(self, operator: _Operator, entry: Declare | Drop) -> None:
        self._ids += 1
        self._asked[self._ids] = operator
        self.askers[self.home_of(operator.filter)].ask(self._ids, [entry])

    def look(self, operator: _Operator) -> None:
        self._ids += 1
        self._asked[self._ids] = operator
        self.askers[self.home_of(operator.filter)].query(self._ids, GroupRows(operator.filter, 1))

    def watermarks(self) -> list[int] | None:
        parts = [self.broker.places["shard", shard].part for shard in range(self.shape.n_shards)]
        found = [part.core.watermark for part in parts if isinstance(part, ShardPart) and part.core.watermark >= 0]
        return found if len(found) == len(parts) else None

    def require_kept(self, filter: bytes, group: int, upto: dict[int, int]) -> None:
        """By the rows: it begins before what these shards have stored since, and every shard has its route."""
        value = self.broker.disks[self.home_of(filter)].engine.get(HOME_FAMILY, client_key(SUBSCRIPTION, filter, u64(group)))
        if value is None:
            raise Violation(f"kept: {filter.decode()} has no subscription")
        starts = dict(unpack_as(SubscriptionRow, value).starts)
        late = [shard for shard, position in upto.items() if starts.get(shard, position + 1) > position]
        if late:
            raise Violation(f"kept: {filter.decode()} begins at {starts}, and held when shards were at {upto}")
        for shard, disk in enumerate(self.broker.disks):
            if disk.engine.get(HOME_FAMILY, ROUTE + u64(group)) is None:
                raise Violation(f"kept: {filter.decode()} has no route in shard {shard}")

    # ------------------------------------------------------------------ ShardListener

    def shard_linked(self, shard: int) -> None: ...

    def shard_lost(self, shard: int) -> None: ...

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        (reply,) = replies
        self._asked.pop(id).replied(reply)

    def shard_told(self, shard: int, frame: Frame) -> None:
        if isinstance(frame, Result) and frame.id in self._asked:
            told = frame.told
            self._asked.pop(frame.id).told(told if isinstance(told, GroupRowsFound) else None)


class _Operator:
    """Of one group: declares, waits until that holds, drops, and begins again; at the end it is dropped."""

    def __init__(self, world: Declaring, filter: bytes, rng: Random) -> None:
        self.filter = filter
        self.ends = self.idle = False
        self._of = world
        self._rng = rng
        self._group = 0
        self._waits = False
        self._upto: dict[int, int] = {}

    def begin(self) -> None:
        self._of.world.later(int(self._rng.expovariate(1.0) * PAUSE_US) + 1, self._declare)

    def _declare(self) -> None:
        if self.ends:
            self.idle = True
        elif self.filter == TEAM and not self._of.members_there():
            self.begin()
        else:
            spare = self.filter == SPARE
            since = self._rng.choice((LATEST, EARLIEST)) if spare else LATEST
            strategy = self._rng.choice(("", *STRATEGIES)) if spare else ""
            self._of.ask(self, Declare(self.filter, since, 0, "said", strategy, "sim"))

    def _drop(self) -> None:
        if self._upto:
            self._of.require_kept(self.filter, self._group, self._upto)
        self._upto = {}
        self._of.ask(self, Drop(self.filter, self._group, self.filter == TEAM, "sim"))

    def replied(self, reply: Reply) -> None:
        if isinstance(reply, Declared):
            if reply.code != GROUP_TAKEN:
                raise Violation(f"declared: {self.filter.decode()} was refused with {reply.code}")
            self._group = reply.group
            if self._rng.random() < 0.4:
                # Nobody waits for it; often it is still being made.
                self._of.world.later(int(self._rng.random() * self._rng.choice(SOON_US)) + 1, self._drop)
            else:
                self._waits = True
                self._look()
        elif isinstance(reply, Dropped):
            if reply.code not in (GROUP_TAKEN, GROUP_UNKNOWN) or reply.code == GROUP_HAS_MEMBERS:
                raise Violation(f"dropped: {self.filter.decode()} was refused with {reply.code}")
            self.begin()

    def _look(self) -> None:
        if self._waits:
            self._of.look(self)
            self._of.world.later(LOOK_US, self._look)

    def told(self, found: GroupRowsFound | None) -> None:
        if not self._waits or found is None or not found.rows or found.rows[0][0] != self.filter:
            return
        row: GroupRow = unpack_group(found.rows[0][1])
        if row.id != self._group or not row.begun or row.lays:
            return
        self._waits = False
        self._of.held += 1
        self._upto = dict(enumerate(self._of.watermarks() or []))
        self._of.require_kept(self.filter, self._group, self._upto)
        self._of.world.later(int(self._rng.expovariate(1.0) * PAUSE_US) + 1, self._drop)
