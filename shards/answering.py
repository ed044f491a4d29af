"""What a shard tells when it is asked, without being changed: each question of shards.queries goes to whoever knows.

Holds: what is read from home rows is read as if everything submitted were on disk, so it may be told only when that is (waits).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from shards.cuts import Cuts
from shards.draft import Draft
from shards.groups import Groups as GroupTable
from shards.homes import Homes
from shards.leases import LeaseTable
from shards.owners import Owners
from shards.queries import (
    Ask,
    Cut,
    GroupRows,
    Groups,
    GroupsFound,
    Holdings,
    HoldingsFound,
    Leases,
    Load,
    Poll,
    Polled,
    RangeRead,
    ReadRange,
    RetainedPage,
    RetentionState,
    Rewound,
    RewoundNoted,
    RoutesFound,
    RoutesOf,
    Rows,
    Told,
    Unknown,
    UnknownFound,
    Unread,
)
from shards.reading import Reader
from shards.retained import RetainedHome
from shards.retention import Retention
from shards.routes import Routes
from shards.row_pages import rows_found
from shards.store import Counts, GenerationDamaged, GenerationDropped, Store
from shards.unread import page

READ_PER_TURN_MAX = 2000
"""Messages that are read in one turn of a shard, when many sessions ask at once: what has arrived behind that waits for the next turn,
and whoever else needs the loop comes between."""
CROWD = 16
"""With more frames than this before a turn, a poll brings BATCH_OF_MANY messages at most, whatever it asks for: that is dearer, but
publishers have to wait for all of them."""
BATCH_OF_MANY = 100
READ_LEAST = 20
"""A read that brings less costs as much as one that brings so many messages."""
_NOT_COUNTED = Counts(0, 0)

Clock = Callable[[], int]
"""Nanoseconds that pass, from whoever has a clock: for figures, never for a decision."""


def NO_CLOCK() -> int:
    return 0


class Answering:
    def __init__(
        self, draft: Draft, owners: Owners, reader: Reader, routes: Routes, retained: RetainedHome, leases: LeaseTable,
        retention: Retention, cuts: Cuts, homes: Homes, store: Store, groups: GroupTable, ns: Clock = NO_CLOCK,
    ) -> None:  # fmt: skip
        self.reads = self.read_ns = 0
        """How often stored messages were read for a session, and how long that took."""
        self.room = READ_PER_TURN_MAX
        """Messages that may still be read in this turn; what is below 0 was read with the last answer."""
        self._crowded = False
        self._ns = ns
        self._draft = draft
        self._owners = owners
        self._reader = reader
        self._routes = routes
        self._retained = retained
        self._leases = leases
        self._retention = retention
        self._cuts = cuts
        self._homes = homes
        self._store = store
        self._groups = groups

    def begin_turn(self, waiting: int) -> None:
        """waiting: frames that have arrived."""
        self.room = READ_PER_TURN_MAX
        self._crowded = waiting > CROWD

    @staticmethod
    def waits(ask: Ask) -> bool:
        """The answer leaves when everything submitted is committed."""
        return isinstance(ask, Load | RetainedPage | RoutesOf | Unknown | Unread | Leases | Rows | Groups | GroupRows)

    def answer(self, ask: Ask, watermark: int, elapsed_us: int) -> Told | None:
        """None: not now, or never (shards.frames.Result)."""
        draft = self._draft
        match ask:
            case Load():
                return self._owners.load(draft, ask, watermark)
            case Poll() | ReadRange():
                return self._read(ask, watermark, elapsed_us // 1000)
            case RoutesOf(home, after_id, count_max):
                return RoutesFound(self._routes.page(draft, home, after_id, count_max))
            case Unknown(routes):
                return UnknownFound(self._owners.unknown(draft, routes))
            case RetainedPage(topic_filter, after, count_max):
                return self._retained.page(draft, topic_filter, after, count_max)
            case Unread():
                return page(draft, ask, self._owners.token)
            case Leases():
                return self._leases.found(self._retention.age_ms)
            case RetentionState():
                return self._retention.state()
            case Cut():
                return self._cuts.found(watermark)
            case Holdings():
                return self._holdings()
            case Groups():
                return GroupsFound(self._groups.found())
            case GroupRows():
                return self._groups.page(draft, ask, self._retention.age_ms)
            case Rows():
                return rows_found(draft, ask, self._retention.age_ms)
            case Rewound(position):
                self._retention.rewound(position)
                return RewoundNoted(position)
            case _ as never:
                assert_never(never)

    def _read(self, ask: Poll | ReadRange, watermark: int, now_ms: int) -> Polled | RangeRead | None:
        began = self._ns()
        found: Polled | RangeRead | None
        if isinstance(ask, ReadRange):
            found = self._reader.range(ask, watermark)
        else:
            most = min(ask.count_max, BATCH_OF_MANY) if self._crowded else ask.count_max
            found = self._reader.poll(ask._replace(count_max=most), watermark, now_ms)
        self.reads += 1
        self.read_ns += self._ns() - began
        self.room -= max(READ_LEAST, _messages(found))
        return found

    def _holdings(self) -> HoldingsFound:
        counted = [self._counted(info.id) for info in self._store.generations()]
        messages, size = sum(counts.rows for counts in counted), sum(counts.bytes for counts in counted)
        return HoldingsFound(self._homes.away, self._homes.sessions_expired, messages, size, self._retained.held.count)

    def _counted(self, generation: int) -> Counts:
        try:
            return self._store.counts(generation) or _NOT_COUNTED
        except (GenerationDamaged, GenerationDropped):
            return _NOT_COUNTED


def _messages(found: Polled | RangeRead | None) -> int:
    if isinstance(found, Polled):
        return sum([len(segment.values) for segment in found.segments])
    return 0 if found is None else len(found.values)
