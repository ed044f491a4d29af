"""Leases: names under which readers make messages of this shard wait for them.

A lease is one row: how far its reader has taken everything, and within which bounds what comes after that may not be dropped.
Decides what a lease holds, and when it is gone; whether a generation goes is decided in shards.retention, from all that is held.

    made -> renewed, acknowledged, has lost something -> dropped, or not renewed within its ttl: gone

Holds after every call (see check):
1. the table in RAM equals the rows as of everything submitted; there are at most LEASES_MAX;
2. a place only grows, and is never beyond what the shard has stored;
3. a lease that has lost messages says so in its row, from the record of the drop on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from shards.clock import PositionClock
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import (
    LEASE_FORBIDDEN,
    LEASE_SENSELESS,
    LEASE_TAKEN,
    LEASE_UNKNOWN,
    LEASES_FULL,
    START_EARLIEST,
    START_LATEST,
    LeaseAck,
    LeaseDone,
    LeaseDrop,
    LeaseEntry,
    LeasePut,
    LeasesFound,
)
from shards.rows import LEASE, pack_row, successor, unpack_as
from shards.store import Store

LEASES_MAX = 100
NAME_BYTES_MAX = 256
FILTERS_MAX = 100
ROLES = ("reader", "admin")
"""Whose links may make, renew, acknowledge and drop leases."""
_BOUND_MAX = 1 << 62
_SENSELESS = LeaseDone(LEASE_SENSELESS, 0)
_UNKNOWN = LeaseDone(LEASE_UNKNOWN, 0)


class LeaseRow(NamedTuple):
    """position: its reader has taken everything up to here.  Ages are those of the shard; bounds of 1 << 62: without end.

    max_age_ms, max_bytes: how long, and how much, it may hold of what would be gone without it; with `block` they do not count.
    losses: generations that went in spite of it, unread.  The last three say what they held: lost_from <= position <= lost_upto,
    and when the newest of them went, on the wall clock.
    """

    position: int
    ttl_ms: int
    renewed_ms: int
    created_ms: int
    max_age_ms: int
    max_bytes: int
    block: bool
    filters: list[bytes]
    losses: int = 0
    lost_from: int = 0
    lost_upto: int = 0
    lost_wall_ms: int = 0


class Captures(Protocol):
    """Filters that are stored for somebody who has no subscription (shards.routes)."""

    def capture(self, owner: str, filters: Iterable[bytes]) -> None:
        """From now on these are the filters of that owner; none: it has none any more."""


class Expired(NamedTuple):
    """A lease is gone since nobody has renewed it."""

    name: bytes
    position: int


class LeaseTable:
    def __init__(self, engine: Engine, store: Store, clock: PositionClock, captures: Captures) -> None:
        self._store = store
        self._clock = clock
        self._captures = captures
        self._rows: dict[bytes, LeaseRow] = {}
        for key, value in engine.scan(HOME_FAMILY, LEASE, successor(LEASE), LEASES_MAX + 1):
            self._remember(key[1:], unpack_as(LeaseRow, value))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def losses(self) -> int:
        """Of the leases that are there."""
        return sum(row.losses for row in self._rows.values())

    def found(self, age_ms: int) -> LeasesFound:
        return LeasesFound(age_ms, [(name, list(row)) for name, row in sorted(self._rows.items())])

    # ------------------------------------------------------------------ what readers ask

    def take(self, draft: Draft, entry: LeaseEntry, role: str, age_ms: int) -> LeaseDone:
        """role: of the link."""
        if role not in ROLES:
            return LeaseDone(LEASE_FORBIDDEN, 0)
        match entry:
            case LeasePut():
                return self._put(draft, entry, age_ms)
            case LeaseAck():
                return self._ack(draft, entry)
            case LeaseDrop():
                return self._drop(draft, entry)

    def _put(self, draft: Draft, entry: LeasePut, age_ms: int) -> LeaseDone:
        bounds = (entry.ttl_ms, entry.max_age_ms, entry.max_bytes)
        if not 0 < len(entry.name) <= NAME_BYTES_MAX or len(entry.filters) > FILTERS_MAX or not all(0 <= n <= _BOUND_MAX for n in bounds):
            return _SENSELESS
        if not entry.ttl_ms or entry.start < START_EARLIEST:
            return _SENSELESS
        known = self._rows.get(entry.name)
        if known is not None:
            row = known._replace(renewed_ms=age_ms, ttl_ms=entry.ttl_ms, max_age_ms=entry.max_age_ms, max_bytes=entry.max_bytes)
            row = row._replace(block=entry.block, filters=list(entry.filters))
        elif len(self._rows) >= LEASES_MAX:
            return LeaseDone(LEASES_FULL, 0)
        else:
            # Also where the start is named: what it captures is stored from this position on, and nothing behind it is known.
            now = self._clock.take()
            earliest = min(info.since for info in self._store.generations()) - 1
            start = {START_EARLIEST: earliest, START_LATEST: now}.get(entry.start, entry.start)
            place = min(max(start, earliest), now)
            row = LeaseRow(place, entry.ttl_ms, age_ms, age_ms, entry.max_age_ms, entry.max_bytes, entry.block, list(entry.filters))
        self._write(draft, entry.name, row)
        return LeaseDone(LEASE_TAKEN, row.position)

    def _ack(self, draft: Draft, entry: LeaseAck) -> LeaseDone:
        row = self._rows.get(entry.name)
        if row is None:
            return _UNKNOWN
        position = min(entry.position, self._clock.last)
        if position > row.position:
            row = row._replace(position=position)
            self._write(draft, entry.name, row)
        return LeaseDone(LEASE_TAKEN, row.position)

    def _drop(self, draft: Draft, entry: LeaseDrop) -> LeaseDone:
        row = self._rows.get(entry.name)
        if row is None:
            return _UNKNOWN
        self._erase(draft, entry.name)
        return LeaseDone(LEASE_TAKEN, row.position)

    # ------------------------------------------------------------------ what they hold

    def expire(self, draft: Draft, age_ms: int) -> list[Expired]:
        """Those that were not renewed in time are gone."""
        due = [name for name, row in self._rows.items() if age_ms - row.renewed_ms > row.ttl_ms]
        return [Expired(name, self._erase(draft, name).position) for name in due]

    def holding(self, until: int) -> list[bytes]:
        """Whose readers have not taken all below this position."""
        return [name for name, row in self._rows.items() if row.position < until - 1]

    def within(self, name: bytes, over_ms: int, held_bytes: Callable[[int], int], soft: bool) -> bool:
        """Whether a lease may hold a generation any longer whose time has been over for so long.

        held_bytes: of all generations whose time is over and that are not taken up to a position.  soft: above the soft mark of the quota.
        """
        row = self._rows[name]
        if row.block:
            return True
        if soft or over_ms > row.max_age_ms:
            return False
        return row.max_bytes >= _BOUND_MAX or held_bytes(row.position) <= row.max_bytes

    def lose(self, draft: Draft, name: bytes, since: int, until: int, wall_ms: int) -> None:
        """A generation goes that this lease would hold.  Its place stays: of other classes there may be something behind it."""
        row = self._rows[name]
        first, last = max(since, row.position + 1), until - 1
        if row.losses:
            first, last = min(first, row.lost_from), max(last, row.lost_upto)
        lost = row._replace(losses=row.losses + 1, lost_from=first, lost_upto=last, lost_wall_ms=wall_ms)
        self._write(draft, name, lost)

    # ------------------------------------------------------------------ rows

    def _write(self, draft: Draft, name: bytes, row: LeaseRow) -> None:
        draft.put(LEASE + name, pack_row(row))
        self._remember(name, row)

    def _erase(self, draft: Draft, name: bytes) -> LeaseRow:
        draft.delete(LEASE + name)
        row = self._rows.pop(name)
        if row.filters:
            self._capture(name, [])
        return row

    def _remember(self, name: bytes, row: LeaseRow) -> None:
        known = self._rows.get(name)
        self._rows[name] = row
        if row.filters != (known.filters if known is not None else []):
            self._capture(name, row.filters)

    def _capture(self, name: bytes, filters: list[bytes]) -> None:
        self._captures.capture(f"lease {name.decode(errors='backslashreplace')}", filters)

    def check(self, draft: Draft) -> None:
        rows = {key[1:]: unpack_as(LeaseRow, value) for key, value in draft.scan(LEASE, LEASES_MAX + 1)}
        assert rows == self._rows, (rows, self._rows)
        assert len(rows) <= LEASES_MAX
