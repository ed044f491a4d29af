"""The safety net: goes over the home rows every session_gc_interval and looks for what timers and records have missed.

Sessions end by their timers, to the second, and their rows go with them; so this finds nothing, unless a program of ours
was wrong, now or in an older version.  What it finds it counts by kind and mends:

    expiry       a session that is away and has no timer                       gets its timer, and ends by it
    session      a session that is neither connected nor away                  is away from now on
    subscription, place, range, progress, incoming, loss: rows without a session   are erased (shards.ending), routes become work
    connection   a row of an ended connection without a timer                  gets its timer
    delayed      a delayed message without a timer                             gets its timer, and enters by it
    timer        a timer that nothing in the rows stands for                   is erased
    sender       answers kept for a sender that nobody knows                   are erased

Retained messages that have expired are erased by the way: nothing else comes by their rows, and that is no fault.

Routes are looked for by the session actor, which reaches every shard (sessions.sweeping).

A turn looks at `batch` rows at most, one turn every PAUSE_MS: a sweep of a million rows takes minutes and disturbs nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from shards.delayed import Delayed
from shards.draft import Draft
from shards.homes import Homes
from shards.ids import EXPIRY_NEVER
from shards.inbox import Inbox
from shards.retained import RetainedHome
from shards.rows import (
    CONNECTION,
    DELAYED,
    INCOMING,
    LOSS,
    PLACE,
    PROGRESS,
    RANGE,
    RETAINED,
    SESSION,
    SLOT,
    SUBSCRIPTION,
    TIMER,
    TO_COPY,
    ConnectionRow,
    SessionRow,
    client_key,
    pack_session,
    split_client_key,
    successor,
    unpack_as,
)  # fmt: skip
from shards.timers import DELAYED_DUE, EXPIRY, Timers

_Rows = list[tuple[bytes, bytes]]
_ORPHANS = {
    SUBSCRIPTION: "subscription", PLACE: "place", RANGE: "range", PROGRESS: "progress", INCOMING: "incoming", LOSS: "loss",
    TO_COPY: "to_copy",
}  # fmt: skip
_RARE = (LOSS, TO_COPY)


class Sweep:
    PAUSE_MS = 20

    def __init__(
        self, homes: Homes, timers: Timers, inbox: Inbox, delayed: Delayed, retained: RetainedHome, interval_ms: int, batch: int
    ) -> None:  # fmt: skip
        self._homes = homes
        self._delayed = delayed
        self._retained = retained
        self._timers = timers
        self._inbox = inbox
        self._interval_us = interval_ms * 1000
        self._batch = batch
        self.found: dict[str, int] = dict.fromkeys(("expiry", "session", *_ORPHANS.values(), "connection", "delayed", "timer", "sender"), 0)
        self.sweeps = 0
        self._age_ms = self._wall_ms = 0
        self._next_us = -1
        self._stages: list[tuple[bytes, Callable[[Draft, _Rows], bytes]]] = [
            (SESSION, self._sessions),
            *((family, self._orphans) for family in _ORPHANS),
            (CONNECTION, self._connections),
            (DELAYED, self._delayed_rows),
            (TIMER, self._timer_rows),
            (SLOT, self._slots),
            (RETAINED, self._retained_rows),
        ]
        self._stage = len(self._stages)
        self._place = b""

    @property
    def running(self) -> bool:
        return self._stage < len(self._stages)

    def settings_changed(self, interval_ms: int, batch: int) -> None:
        """The next sweep counts from the next turn; one that is under way goes on."""
        self._batch = batch
        if interval_ms * 1000 != self._interval_us:
            self._interval_us = interval_ms * 1000
            if not self.running:
                self._next_us = -1

    def turn(self, draft: Draft, age_ms: int, elapsed_us: int, wall_ms: int) -> None:
        if self._next_us < 0:
            self._next_us = elapsed_us + self._interval_us
        if elapsed_us < self._next_us:
            return
        if not self.running:
            self._begin(0)
        self._age_ms, self._wall_ms = age_ms, wall_ms
        self._next_us = elapsed_us + self.PAUSE_MS * 1000
        left = self._batch
        while left > 0 and self.running:
            family, look = self._stages[self._stage]
            rows = draft.scan_range(self._place, successor(family), 1 if family in _ORPHANS else left)
            # Some rows are rare: where there are none, a sweep takes as many turns as without a look for them.
            left -= max(family not in _RARE, len(rows))
            if rows:
                self._place = look(draft, rows)
            else:
                self._begin(self._stage + 1)
        if not self.running:
            self.sweeps += 1
            self._next_us = elapsed_us + self._interval_us

    def _begin(self, stage: int) -> None:
        self._stage = stage
        self._place = self._stages[stage][0] if self.running else b""

    # ------------------------------------------------------------------ what is looked at, and where to go on

    def _sessions(self, draft: Draft, rows: _Rows) -> bytes:
        homes = self._homes
        for key, value in rows:
            client, _ = split_client_key(key)
            row = unpack_as(SessionRow, value)
            if client in homes.live:
                continue
            if not row.due_ms and row.expiry_s != EXPIRY_NEVER:
                self.found["session"] += 1
                row = row._replace(due_ms=self._age_ms + row.expiry_s * 1000)
                draft.put(key, pack_session(row))
                self._timers.set(draft, row.due_ms, EXPIRY, client)
            self._want_timers(draft, client, homes.connection(draft, client), row, "expiry")
        return rows[-1][0] + b"\x00"

    def _orphans(self, draft: Draft, rows: _Rows) -> bytes:
        """From client to client: one look for all rows of a family that it has."""
        key = rows[0][0]
        client, _ = split_client_key(key)
        if client not in self._homes.ending.clients and draft.get(client_key(SESSION, client)) is None:
            self.found[_ORPHANS[key[:1]]] += 1
            self._homes.ending.mark(draft, client)
        return successor(client_key(key[:1], client))

    def _connections(self, draft: Draft, rows: _Rows) -> bytes:
        for key, value in rows:
            client, _ = split_client_key(key)
            row = unpack_as(ConnectionRow, value)
            if row.ended_ms and client not in self._homes.live:
                self._want_timers(draft, client, row, self._homes.session(draft, client), "connection")
        return rows[-1][0] + b"\x00"

    def _want_timers(self, draft: Draft, client: bytes, row: ConnectionRow | None, session: SessionRow | None, kind: str) -> None:
        for due_ms, timer in self._homes.timers_of(row, session):
            if not self._timers.is_set(draft, due_ms, timer, client):
                self.found[kind] += 1
                self._timers.set(draft, due_ms, timer, client)

    def _delayed_rows(self, draft: Draft, rows: _Rows) -> bytes:
        for key, value in rows:
            timer = self._delayed.lacks_timer(draft, key, value)
            if timer is not None:
                self.found["delayed"] += 1
                self._timers.set(draft, *timer)
        return rows[-1][0] + b"\x00"

    def _timer_rows(self, draft: Draft, rows: _Rows) -> bytes:
        for key, _ in rows:
            timer = self._timers.of_key(key)
            due_ms, kind, client = timer
            if kind == DELAYED_DUE:
                if not self._delayed.implies(draft, timer):
                    self.found["timer"] += 1
                    draft.delete(key)
                continue
            wanted: list[tuple[int, bytes]] = []
            if client not in self._homes.live:
                wanted = self._homes.timers_of(self._homes.connection(draft, client), self._homes.session(draft, client))
            if (due_ms, kind) not in wanted:
                self.found["timer"] += 1
                draft.delete(key)
        return rows[-1][0] + b"\x00"

    def _retained_rows(self, draft: Draft, rows: _Rows) -> bytes:
        self._retained.erase_expired(draft, rows, self._wall_ms)
        return rows[-1][0] + b"\x00"

    def _slots(self, draft: Draft, rows: _Rows) -> bytes:
        for key, _ in rows:
            if not self._inbox.knows(key[1:-1].decode()):
                self.found["sender"] += 1
                draft.delete(key)
        return rows[-1][0] + b"\x00"
