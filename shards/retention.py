"""Which sealed generation may go, and why the others may not.

Once a second, class by class, the oldest sealed generation is looked at: it goes when its time is over and nobody holds it.  Who can
hold one is asked in this order, the cheapest first: leases (shards.leases), then sessions that have not acknowledged all of it
(shards.unread, only with hold_unread).  At most one goes in a turn, never one behind another of its class that stays, and none while the
age is suspended.  What becomes of its files is the business of shards.housekeeping.

Holds: with hold_unread no generation goes before every home has said that its sessions want nothing of it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from shards.draft import Draft
from shards.engine import Engine
from shards.frames import Query, Result, RetentionFound
from shards.generations import GenerationInfo
from shards.leases import LeaseTable
from shards.options import ShardOptions
from shards.store import Store
from shards.unread import NOBODY, PAUSE_US, Examiner

PERIOD, READ, LEASE = "period", "read", "lease"
"""Why a generation went (shards.dropped): its time was over, and nobody was asked; or every session had acknowledged all of it; or a lease
would have held it beyond its bounds."""
SUSPENDED = "the clock, which jumped over a restart"
_NEWS_MAX = 1000


class Dropped(NamedTuple):
    """A generation has gone."""

    generation: int
    klass: str
    reason: str


class Held(NamedTuple):
    """A generation whose time is over stays, said once."""

    generation: int
    klass: str
    by: str


class LeaseLost(NamedTuple):
    """A lease would have held a generation, and was passed over."""

    name: str
    generation: int


class LeaseExpired(NamedTuple):
    """Nobody has renewed it in time."""

    name: str
    position: int


News: TypeAlias = Dropped | Held | LeaseLost | LeaseExpired
"""What the shell says in the log."""


class Retention:
    def __init__(self, shard: int, n_shards: int, engine: Engine, store: Store, leases: LeaseTable, options: ShardOptions) -> None:
        self.options = options
        """May be changed while it runs."""
        self.leases = leases
        self.quota_level = 0
        self.news: deque[News] = deque(maxlen=_NEWS_MAX)
        """Taken, and emptied, by the shell, for its log."""
        self.dropped = 0
        self.leases_expired = 0
        self.lease_losses = 0
        self._engine = engine
        self._store = store
        self._examiner = Examiner(shard, n_shards, store)
        self._held: dict[int, str] = {}
        """Sealed generations whose time is over, with who holds them; as of the last look."""
        self._sizes: list[tuple[int, int]] | None = None
        """(until, bytes) of the generations whose time is over, when this look has needed them."""
        self._suspended = False
        self.age_ms = 0
        """As of the last look."""

    # ------------------------------------------------------------------ what others see

    @property
    def asking(self) -> bool:
        """Sessions are being asked: a turn is wanted every PAUSE_MS."""
        return self._examiner.running

    PAUSE_MS = PAUSE_US // 1000

    @property
    def counters(self) -> dict[str, int]:
        return {
            "generations_dropped": self.dropped, "generations_held": len(self._held), "unread_pages": self._examiner.pages,
            "leases": len(self.leases), "leases_expired": self.leases_expired, "lease_losses": self.lease_losses,
            "quota_level": self.quota_level,
        }  # fmt: skip

    def state(self) -> RetentionFound:
        rows: list[tuple[int, str, int, int, int, str]] = []
        for info in self._sealed():
            assert info.until is not None
            left_ms = -self._over_ms(info)
            held = self._held.get(info.id, "")
            if self._suspended:
                held = SUSPENDED
            elif left_ms <= 0 and not held:
                # It is not the oldest of its class.
                older = [other for other in self._sealed() if other.klass == info.klass and other.id < info.id]
                held = f"generation {older[0].id}, which is older" if older else ""
            rows.append((info.id, info.klass, info.since, info.until, left_ms, held))
        return RetentionFound(rows, self.quota_level)

    # ------------------------------------------------------------------ other shards

    def told(self, shard: int, result: Result | None) -> None:
        """What a shard has answered; None: the link to it is up, and what it was asked before may be lost."""
        if result is None:
            self._examiner.linked(shard)
        else:
            self._examiner.told(shard, result)

    def rewound(self, position: int) -> None:
        """A session reads again from here on, or a subscription begins here: what was found out of the sessions is not true any more."""
        self._examiner.forget_above(position)

    def ask(self, draft: Draft, token: int, elapsed_us: int) -> tuple[tuple[int, Query], ...]:
        """One step of asking sessions; a question for another shard, if it takes one.  token: of the owner of the sessions here."""
        asked = self._examiner.turn(draft, token, elapsed_us) if self._examiner.busy else None
        return () if asked is None else (asked,)

    # ------------------------------------------------------------------ once a second

    def look(self, draft: Draft, age_ms: int, wall_ms: int, suspended: bool) -> int | None:
        """The generation that goes in this record, whose rows are erased in it."""
        self.age_ms, self._suspended = age_ms, suspended
        if suspended:
            return None
        if len(self.leases):
            for expired in self.leases.expire(draft, age_ms):
                self.leases_expired += 1
                self.news.append(LeaseExpired(_text(expired.name), expired.position))
        due = self._due()
        if not due and not self._held:
            return None
        held_before, self._held, self._sizes = self._held, {}, None
        self._examiner.forget_others({info.id for info in due} if self.options.hold_unread else set())
        gone: int | None = None
        for info in due:
            if gone is not None:
                # One in a turn; what was said of it last is true until the next one.
                if info.id in held_before:
                    self._held[info.id] = held_before[info.id]
                continue
            by, passed = self._holder(info)
            if by == NOBODY:
                gone = info.id
                self._drop(draft, info, passed, wall_ms)
            else:
                self._held[info.id] = by
                if info.id not in held_before:
                    self.news.append(Held(info.id, info.klass, by))
        return gone

    def _holder(self, info: GenerationInfo) -> tuple[str, list[bytes]]:
        """(who holds it, NOBODY for nobody; leases that would, beyond their bounds)."""
        assert info.until is not None
        passed: list[bytes] = []
        if len(self.leases):
            over_ms, soft = self._over_ms(info), self.quota_level >= 1
            for name in self.leases.holding(info.until):
                if self.leases.within(name, over_ms, self._held_bytes, soft):
                    return f"lease {_text(name)}", []
                passed.append(name)
        if self.options.hold_unread:
            return self._examiner.wants(info.id, info.until), passed
        return NOBODY, passed

    def _drop(self, draft: Draft, info: GenerationInfo, passed: list[bytes], wall_ms: int) -> None:
        assert info.until is not None
        reason = LEASE if passed else READ if self.options.hold_unread else PERIOD
        draft.ops.extend(self._store.drop(info.id, wall_ms, reason))
        for name in passed:
            self.leases.lose(draft, name, info.since, info.until, wall_ms)
            self.lease_losses += 1
            self.news.append(LeaseLost(_text(name), info.id))
        self.dropped += 1
        self.news.append(Dropped(info.id, info.klass, reason))

    # ------------------------------------------------------------------ times

    def _sealed(self) -> list[GenerationInfo]:
        return [info for info in self._store.generations() if info.sealed_age_ms is not None]

    def _due(self) -> list[GenerationInfo]:
        """The oldest sealed generation of each class, if its time is over; the oldest first."""
        oldest: dict[str, GenerationInfo] = {}
        for info in self._sealed():
            oldest.setdefault(info.klass, info)
        return [info for info in oldest.values() if self._over_ms(info) >= 0]

    def _over_ms(self, info: GenerationInfo) -> int:
        """How long its time has been over; negative when it is not."""
        assert info.sealed_age_ms is not None
        return self.age_ms - info.sealed_age_ms - self._store.period_ms(info, self.options.retention_ms)

    def _held_bytes(self, position: int) -> int:
        """What stays only for a lease with this place: generations whose time is over and that it has not taken all of."""
        if self._sizes is None:
            self._sizes = [(info.until or 0, self._engine.family_bytes(info.id)) for info in self._sealed() if self._over_ms(info) >= 0]
        return sum(size for until, size in self._sizes if position < until - 1)


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
