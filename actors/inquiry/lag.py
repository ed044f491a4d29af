"""How far sessions are behind, and how long until they lose something.

Behind is what is stored for a session and not acknowledged: what was given to it and is not finished, which its rows or its session
actor count, and what lies behind its place in each shard, which is counted in the stored messages themselves.  Messages of the client's
own that it does not want back (no local), and those that the rules keep from it, are counted until it has passed them.

What a session needs next is lost when its generation goes: at the end of the period for one that is sealed, and not before a whole period
for one that is written to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from actors.inquiry.asking import Asking
from actors.inquiry.clients import AtHome, connections, shown
from actors.inquiry.homes import Found, prefixed, within
from actors.inquiry.stored import Stored
from actors.inquiry.stretches import Counted
from actors.inquiry.subscriptions import Kept, kept_by
from actors.inquiry.unread import FilterPlace, Rest, Unreads
from mqtt.topics import is_shared
from sessions.inquiry_frames import CLIENTS_MAX, ROWS_MAX, LoadedSession, PlacesOf, PlacesTold, SessionsOf, SessionsTold
from shards.queries import Place, RetentionFound, RetentionState
from shards.rows import PROGRESS, RANGE, ProgressRow, RangeRow, client_key, split_client_key, unpack_as

NO_GENERATION: Final = 0
"""They are numbered from 1."""


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """unread: messages behind the place; at least so many, unless counted.  gone: generations that were dropped behind the place.
    unread_bytes: of these messages, as they are stored.  behind_ms: for how long the oldest of them has been there."""

    filter: str
    shard: int
    unread: int
    counted: bool
    gone: int
    oldest_at_ms: int | None
    loss_in_ms: int | None
    unread_bytes: int = 0
    behind_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """messages: behind, all together: unread and unfinished.  oldest_at_ms: when the first unread one was published.  unread_bytes: of the
    unread ones, as they are stored.  behind_ms: for how long the oldest unread one has been there.

    loss_in_ms: until it loses something if it goes on as it is, at least; None: never, because there is nothing behind, or because what it
    has not read is held.  missing: who was not there to say more.
    """

    client: str
    connected: bool
    messages: int
    counted: bool
    unread: int
    unfinished: int
    oldest_at_ms: int | None
    loss_in_ms: int | None
    held: bool
    subscriptions: tuple[SubscriptionLag, ...]
    unread_bytes: int = 0
    behind_ms: int | None = None


def no_rest() -> None:
    """For whoever is waited for."""


class Lags:
    """Of one look, however long it takes: messages of each shard are told as of the first question.  counted: by earlier looks."""

    def __init__(self, asking: Asking, stored: Stored, counted: Counted, rest: Rest = no_rest) -> None:
        self._asking = asking
        self._stored = stored
        self._counted = counted
        self._rest = rest
        config = stored.config
        self._period_ms = config.durable_sessions.message_retention_period.ms
        self._held = config.durable_storage.messages.hold_unread
        self._unreads: dict[int, Unreads] = {}
        """By shard."""
        self._left: dict[int, dict[int, int | None]] = {}
        """By shard, for its sealed generations: ms until they go, None for what somebody holds."""

    async def of(self, shard: int, clients: Sequence[AtHome], missing: dict[str, None]) -> list[Lag]:
        """Of consecutive clients at home in this shard, of those with durable sessions."""
        durable = [client for client in clients if client.kind == "durable"]
        if not durable:
            return []
        live = await connections(self._asking, durable, missing)
        ids = [client.client for client in durable]
        kept = await kept_by(self._asking, shard, ids, missing)
        ranges = [(client_key(family, ids[0]), prefixed(client_key(family, ids[-1]))[1]) for family in (PROGRESS, RANGE)]
        found = await within(self._asking, shard, ranges, missing)
        if kept is None or found is None:
            return []
        # A group has no connection, and is in the memory of who gives its messages (docs/groups.md).
        loaded = await self._loaded(shard, [id for id in ids if id in live or is_shared(id)], missing)
        rows = _UnderWay(found)
        behind = [
            await self._behind(shard, client.client, kept.get(client.client, []), loaded.get(client.client), missing) for client in durable
        ]
        wanted: dict[int, dict[FilterPlace, None]] = {at: {} for at in rows.generations}
        for places in behind:
            for at, filter, place in places:
                wanted.setdefault(at, {})[filter, place] = None
        for at, these in wanted.items():
            await self._count(at, these, rows.generations.get(at, NO_GENERATION), missing)
        return [
            await self._lag(client.client, client.client in live, places, loaded.get(client.client), rows, missing)
            for client, places in zip(durable, behind, strict=True)
        ]

    async def _loaded(self, shard: int, clients: list[bytes], missing: dict[str, None]) -> dict[bytes, LoadedSession]:
        found: dict[bytes, LoadedSession] = {}
        for start in range(0, len(clients), CLIENTS_MAX):
            told = await self._asking.session_of(shard, SessionsOf(0, clients[start : start + CLIENTS_MAX]), missing)
            if isinstance(told, SessionsTold):
                found.update({row.client: row for row in told.rows if row.conn})
        return found

    async def _behind(
        self, home: int, client: bytes, kept: list[Kept], loaded: LoadedSession | None, missing: dict[str, None]
    ) -> list[tuple[int, bytes, Place]]:
        """(shard, filter, place) of each subscription that may have something unread there."""
        filters = {one.sub_id: one.row.filter for one in kept}
        places = {(one.sub_id, shard): place for one in kept for shard, place in one.places.items()}
        if loaded is not None:
            places = await self._places_now(home, client, loaded, places, missing)
        return [(shard, filters[sub_id], place) for (sub_id, shard), place in places.items() if sub_id in filters]

    async def _lag(
        self, client: bytes, connected: bool, places: list[tuple[int, bytes, Place]], loaded: LoadedSession | None, rows: _UnderWay,
        missing: dict[str, None],
    ) -> Lag:  # fmt: skip
        unfinished = rows.unfinished(client) if loaded is None else loaded.waiting + loaded.inflight
        found: list[SubscriptionLag] = []
        now_ms = time.time_ns() // 1_000_000
        for shard, filter, place in places:
            unreads = self._unreads.get(shard)
            unread = unreads.of(filter, place) if unreads is not None else None
            if unread is not None and (unread.count or unread.gone):
                loss_in_ms = await self._loss_in(shard, unread.generation, missing) if unread.count else None
                found.append(
                    SubscriptionLag(
                        shown(filter), shard, unread.count, unread.counted, unread.gone, unread.oldest_at_ms, loss_in_ms, unread.bytes,
                        _since(unread.oldest_at_ms, now_ms),
                    )
                )  # fmt: skip
        losses = [one.loss_in_ms for one in found]
        if unfinished:
            losses += [await self._loss_in(at, generation, missing) for at, those in rows.streams(client).items() for generation in those]
        counting = [loss_in_ms for loss_in_ms in losses if loss_in_ms is not None]
        oldest = [one.oldest_at_ms for one in found if one.oldest_at_ms is not None]
        unread_in_all = sum(one.unread for one in found)
        held = bool(losses) and (self._held or not counting)
        return Lag(
            shown(client), connected, unread_in_all + unfinished, all(one.counted for one in found), unread_in_all, unfinished,
            min(oldest, default=None), None if held else min(counting, default=None), held, tuple(found),
            sum(one.unread_bytes for one in found), _since(min(oldest, default=None), now_ms),
        )  # fmt: skip

    async def _places_now(
        self, home: int, client: bytes, loaded: LoadedSession, rows: dict[tuple[int, int], Place], missing: dict[str, None]
    ) -> dict[tuple[int, int], Place]:
        """Where a connected session really is: what is not named stands at the head."""
        if loaded.behind == 0:
            return {}
        found: dict[tuple[int, int], Place] = {}
        skip = 0
        while True:
            told = await self._asking.session_of(home, PlacesOf(0, client, skip, ROWS_MAX), missing)
            if not isinstance(told, PlacesTold) or not told.known:
                return rows
            found.update({(sub_id, shard): place for sub_id, shard, place in told.rows})
            skip += len(told.rows)
            if told.whole:
                return found

    async def _count(self, shard: int, places: Iterable[FilterPlace], newest: int, missing: dict[str, None]) -> None:
        """newest: of the generations that something is under way of."""
        unreads = self._unreads.get(shard)
        if unreads is None:
            unreads = await self._stored.look(shard, partial(Unreads, shard, self._counted, self._period_ms, self._rest), missing)
            if unreads is None:
                return
            self._unreads[shard] = unreads
        elif newest > max(unreads.periods, default=NO_GENERATION):
            await self._stored.look(shard, unreads.look, missing)
        if new := unreads.unknown(places):
            await asyncio.to_thread(unreads.count, new)

    async def _loss_in(self, shard: int, generation: int, missing: dict[str, None]) -> int | None:
        """None: it is held, or it is gone."""
        if shard not in self._left:
            told = await self._asking.shard(shard, RetentionState(), missing)
            rows = told.generations if isinstance(told, RetentionFound) else []
            self._left[shard] = {number: None if held else max(0, left_ms) for number, _, _, _, left_ms, held in rows}
        unreads = self._unreads.get(shard)
        return self._left[shard].get(generation, unreads.periods.get(generation) if unreads is not None else None)


@contextmanager
def looking(asking: Asking, stored: Stored) -> Iterator[Lags]:
    """For whoever asks now; what was counted for those before is not counted again."""
    with stored.counting() as counted:
        yield Lags(asking, stored, counted)


class _UnderWay:
    """What was given to sessions and is not finished, by their rows."""

    def __init__(self, found: Found) -> None:
        self._progress = {split_client_key(key)[0]: unpack_as(ProgressRow, value) for key, value, _ in found.rows[0]}
        self._ranges: dict[bytes, list[RangeRow]] = {}
        self.generations: dict[int, int] = {}
        """By shard, the newest that something is under way of."""
        for key, value, _ in found.rows[1]:
            row = unpack_as(RangeRow, value)
            self._ranges.setdefault(split_client_key(key)[0], []).append(row)
            if row.shard >= 0:
                self.generations[row.shard] = max([self.generations.get(row.shard, NO_GENERATION), *(number for number, _ in row.streams)])

    def unfinished(self, client: bytes) -> int:
        return unfinished_by(self._progress.get(client))

    def streams(self, client: bytes) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for row in self._ranges.get(client, ()):
            if row.shard >= 0:
                found.setdefault(row.shard, set()).update(generation for generation, _ in row.streams)
        return found


def _since(at_ms: int | None, now_ms: int) -> int | None:
    return None if at_ms is None else max(0, now_ms - at_ms)


def unfinished_by(row: ProgressRow | None) -> int:
    """Messages that were given to a session and are not finished, as its rows have it."""
    if row is None:
        return 0
    over = sum(number < 0 for number in row.received2)
    return row.next1 - 1 - row.committed1 + row.next2 - 1 - row.committed2 - over
