"""Messages that wait: published to `$delayed/SECONDS/topic`, they enter the log so many seconds later.

One is a row and a timer in the record of its acknowledgement, and both are gone in the record in which it enters: it comes once, whatever
crashes.  Time is the age of the shard, so what was due while the broker was away enters when it is back, in the order in which it was due;
what is due in the same millisecond, in the order in which it came.  Then it is a message like others, published at that moment: its expiry
counts from there, it is stored if somebody wants it then, and whoever published it is asked again whether he may (shards.judging).

    taken (row, timer) -> due: enters the log, row and timer erased

Holds after every call (see check): `count` is how many rows there are, and what the count row says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from shards.clock import PositionClock
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import NOT_PERMITTED, REFUSED_QUOTA, REFUSED_RULES, REPEATED, STORED, Delay, Published, Will
from shards.homes import Client, FiredWill, Homes, Outcome
from shards.incoming import Incoming
from shards.rows import DELAYED, META, pack_row, read_u64, u64, unpack_as, unpack_row
from shards.timers import DELAYED_DUE, Timer, Timers

_COUNT_ROW = META + b"delayed"
_STALE = Published(True, b"")


class DelayedRow(NamedTuple):
    """due_ms: age at which it enters.  identity: who published it, as access.identity packs it."""

    due_ms: int
    client: bytes
    identity: bytes
    qos: int
    retain: bool
    topic: bytes
    body: bytes


class Delayed:
    def __init__(
        self, engine: Engine, homes: Homes, timers: Timers, clock: PositionClock, incoming: Incoming, has_room: Callable[[], bool],
        count_max: int,
    ) -> None:  # fmt: skip
        """has_room: whether the store takes messages at all."""
        self._homes = homes
        self._timers = timers
        self._clock = clock
        self._incoming = incoming
        self._has_room = has_room
        self.count_max = count_max
        row = engine.get(HOME_FAMILY, _COUNT_ROW)
        self.count: int = unpack_row(row)[0] if row else 0

    def take(self, draft: Draft, entry: Delay, age_ms: int) -> Published:
        """Columns are those of a Publish; what is taken counts as stored."""
        state = self._homes.live.get(entry.client)
        if state is None or state.conn != entry.conn:
            return _STALE
        codes = bytearray(len(entry.topics))
        before = self.count
        columns = zip(entry.flags, entry.packet_ids, entry.seconds, entry.topics, entry.bodies, strict=True)
        for index, (flags, packet_id, seconds, topic, body) in enumerate(columns):
            codes[index] = self._take(draft, entry, state, age_ms + seconds * 1000, flags, packet_id, topic, body)
        if self.count != before:
            draft.put(_COUNT_ROW, pack_row((self.count,)))
        return Published(False, bytes(codes) if any(codes) else b"")

    def _take(
        self, draft: Draft, entry: Delay, state: Client, due_ms: int, flags: int, packet_id: int, topic: bytes, body: bytes
    ) -> int:  # fmt: skip
        qos = flags >> 1 & 3
        keeps_id = qos == 2 and entry.keep_ids
        if keeps_id and self._incoming.holds(draft, entry.client, state, packet_id):
            return REPEATED
        if flags & NOT_PERMITTED:
            return REFUSED_RULES
        if self.count >= self.count_max or not self._has_room():
            return REFUSED_QUOTA
        number = u64(self._clock.take())
        row = DelayedRow(due_ms, entry.client, state.identity, qos, bool(flags & 1), topic, body)
        draft.put(DELAYED + number, pack_row(row))
        self._timers.set(draft, due_ms, DELAYED_DUE, number)
        self.count += 1
        if keeps_id:
            self._incoming.take(draft, entry.client, state, packet_id)
        return STORED

    def fire(self, draft: Draft, timer: Timer, out: Outcome) -> None:
        """Its timer is due, and erased in this record."""
        value = draft.get(DELAYED + timer.client)
        if value is None:
            return
        row = unpack_as(DelayedRow, value)
        draft.delete(DELAYED + timer.client)
        self.count -= 1
        draft.put(_COUNT_ROW, pack_row((self.count,)))
        out.wills.append(FiredWill(row.client, Will(row.topic, row.qos, row.retain, 0, row.body), row.identity, delayed=True))

    def size(self, draft: Draft, timer: Timer) -> int:
        """Bytes that enter with this timer."""
        return len(draft.get(DELAYED + timer.client) or b"") if timer.kind == DELAYED_DUE else 0

    def implies(self, draft: Draft, timer: Timer) -> bool:
        """Whether a row stands for this timer."""
        value = draft.get(DELAYED + timer.client)
        return value is not None and unpack_row(value)[0] == timer.due_ms

    def lacks_timer(self, draft: Draft, key: bytes, value: bytes) -> Timer | None:
        """The timer that this row should have, if there is none."""
        due_ms = unpack_row(value)[0]
        if self._timers.is_set(draft, due_ms, DELAYED_DUE, key[1:]):
            return None
        return Timer(due_ms, DELAYED_DUE, key[1:])

    def check(self, draft: Draft) -> None:
        rows: list[Any] = draft.scan(DELAYED, self.count + 2)
        assert len(rows) == self.count, f"{len(rows)} delayed messages, {self.count} counted"
        counted = draft.get(_COUNT_ROW)
        assert (unpack_row(counted)[0] if counted else 0) == self.count
        assert all(read_u64(key, 1) <= self._clock.last for key, _ in rows)
