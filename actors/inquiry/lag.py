"""How far sessions are behind, and how long until they lose something.

Behind is what is stored for a session and not acknowledged: what was given to it and is not finished, which its rows or its session
actor count, and what lies behind its place in each shard, which is counted in the stored messages themselves.  Messages of the client's
own that it does not want back (no local), and those that the rules keep from it, are counted until it has passed them.

What a session needs next is lost when its generation goes: at the end of the period for one that is sealed, and not before a whole period
for one that is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from actors.inquiry.asking import Asking
from actors.inquiry.clients import AtHome, connections, shown
from actors.inquiry.homes import Found, prefixed, within
from actors.inquiry.stored import Stored
from actors.inquiry.stretches import CHUNK_ROWS, NONE, Counted, Some
from actors.inquiry.subscriptions import Kept, kept_by
from actors.reader.views import Seen
from sessions.inquiry_frames import CLIENTS_MAX, ROWS_MAX, LoadedSession, PlacesOf, PlacesTold, SessionsOf, SessionsTold
from shards.generations import GenerationDropped, GenerationInfo
from shards.messages import published_at_of
from shards.queries import Place, RetentionFound, RetentionState
from shards.retention import READ
from shards.rows import PROGRESS, RANGE, ProgressRow, RangeRow, client_key, split_client_key, unpack_row
from shards.store import Stream

COUNT_MAX = 1_000_000
"""Messages that are counted for one subscription in one shard; what is more is said to be more."""
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """unread: messages behind the place; at least so many, unless counted.  gone: generations that were dropped behind the place."""

    filter: str
    shard: int
    unread: int
    counted: bool
    gone: int
    oldest_at_ms: int | None
    loss_in_ms: int | None


@dataclass(frozen=True, slots=True)
class Lag:
    """messages: behind, all together: unread and unfinished.  oldest_at_ms: when the first unread one was published.

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


@dataclass(frozen=True, slots=True)
class _Unread:
    """generation: of the first of these messages."""

    count: int
    counted: bool
    gone: int
    oldest_at_ms: int | None = None
    generation: int = 0


_Place = tuple[bytes, Place]
"""Filter and place, in some shard."""
Rest = Callable[[], None]
"""Called in the thread after each piece of reading; who has no hurry waits there."""


def no_rest() -> None:
    """For whoever is waited for."""


class Lags:
    """Of one look: what several sessions wait for alike is counted once.  counted: by earlier looks."""

    def __init__(self, asking: Asking, stored: Stored, counted: Counted | None = None, rest: Rest = no_rest) -> None:
        self._asking = asking
        self._stored = stored
        self._counted = counted or Counted()
        self._rest = rest
        config = stored.config
        self._period_ms = config.durable_sessions.message_retention_period.ms
        self._held = config.durable_storage.messages.hold_unread
        self._unread: dict[tuple[int, bytes, Place], _Unread] = {}
        self._periods: dict[int, dict[int, int]] = {}
        """By shard, for its generations: how long each is kept once it is sealed."""
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
        loaded = await self._loaded(shard, [client.client for client in durable if client.client in live], missing)
        rows = _UnderWay(found)
        behind = [
            await self._behind(shard, client.client, kept.get(client.client, []), loaded.get(client.client), missing) for client in durable
        ]
        wanted: dict[int, dict[_Place, None]] = {at: {} for client in durable for at in rows.streams(client.client)}
        for places in behind:
            for at, filter, place in places:
                wanted.setdefault(at, {})[filter, place] = None
        await self._count(wanted, missing)
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
        for shard, filter, place in places:
            unread = self._unread.get((shard, filter, place))
            if unread is not None and (unread.count or unread.gone):
                loss_in_ms = await self._loss_in(shard, unread.generation, missing) if unread.count else None
                found.append(
                    SubscriptionLag(shown(filter), shard, unread.count, unread.counted, unread.gone, unread.oldest_at_ms, loss_in_ms)
                )
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

    async def _count(self, wanted: dict[int, dict[_Place, None]], missing: dict[str, None]) -> None:
        """One look at each shard, whatever the number of places."""
        for shard, places in wanted.items():
            new = [place for place in places if (shard, *place) not in self._unread]
            if not new and shard in self._periods:
                continue
            counting = _Counting(shard, self._counted, self._period_ms, self._rest)
            seen = await self._stored.look(shard, partial(counting.behind, new), missing)
            if seen is not None:
                found, self._periods[shard] = seen
                self._unread.update({(shard, *place): unread for place, unread in found.items()})

    async def _loss_in(self, shard: int, generation: int, missing: dict[str, None]) -> int | None:
        """None: it is held, or it is gone."""
        if shard not in self._left:
            told = await self._asking.shard(shard, RetentionState(), missing)
            rows = told.generations if isinstance(told, RetentionFound) else []
            self._left[shard] = {number: None if held else max(0, left_ms) for number, _, _, _, left_ms, held in rows}
        return self._left[shard].get(generation, self._periods.get(shard, {}).get(generation))


class _UnderWay:
    """What was given to sessions and is not finished, by their rows."""

    def __init__(self, found: Found) -> None:
        self._progress = {split_client_key(key)[0]: ProgressRow(*unpack_row(value)) for key, value, _ in found.rows[0]}
        self._ranges: dict[bytes, list[RangeRow]] = {}
        for key, value, _ in found.rows[1]:
            self._ranges.setdefault(split_client_key(key)[0], []).append(RangeRow(*unpack_row(value)))

    def unfinished(self, client: bytes) -> int:
        return unfinished_by(self._progress.get(client))

    def streams(self, client: bytes) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for row in self._ranges.get(client, ()):
            if row.shard >= 0:
                found.setdefault(row.shard, set()).update(generation for generation, _ in row.streams)
        return found


def unfinished_by(row: ProgressRow | None) -> int:
    """Messages that were given to a session and are not finished, as its rows have it."""
    if row is None:
        return 0
    over = sum(number < 0 for number in row.received2)
    return row.next1 - 1 - row.committed1 + row.next2 - 1 - row.committed2 - over


# ---------------------------------------------------------------------------------------------------- in the thread


class _Counting:
    """One look at the messages of one shard."""

    def __init__(self, shard: int, counted: Counted, period_ms: int, rest: Rest) -> None:
        self._shard = shard
        self._counted = counted
        self._period_ms = period_ms
        self._rest = rest
        self._streams: dict[tuple[int, bytes], list[Stream]] = {}
        """Those that are known, by generation and filter."""

    def behind(self, places: list[_Place], seen: Seen) -> tuple[dict[_Place, _Unread], dict[int, int]]:
        """What lies behind each place; and the periods of all generations."""
        generations = seen.view.generations()
        self._counted.keep(self._shard, {int(info.id) for info in generations})
        found = {place: self._unread(*place, seen) for place in places}
        return found, {int(info.id): seen.view.period_ms(info, self._period_ms) for info in generations}

    def _unread(self, filter: bytes, place: Place, seen: Seen) -> _Unread:
        """What matches behind the place and below the cut."""
        view, upto = seen.view, seen.cut - 1
        count, whole = 0, True
        first: tuple[int, GenerationInfo, Stream] | None = None
        for info in view.generations():
            if (info.until is not None and info.until <= place.cut) or not whole:
                continue
            end = upto if info.until is None else min(upto, info.until)
            try:
                for stream in self._streams_in(info, filter, seen):
                    after = max(_reached(place, info.id, stream.static), info.since - 1)
                    if after >= end or not whole:
                        continue
                    reading = partial(self._some, seen, info.id, stream)
                    behind = self._counted.of(self._shard, info.id, stream).behind(after, end, COUNT_MAX - count, reading)
                    count, whole = count + behind.rows, behind.whole
                    if behind.first != NONE and (first is None or behind.first < first[0]):
                        first = behind.first, info, stream
            except GenerationDropped:
                continue
        gone = sum(dropped.reason != READ for dropped in view.dropped_between(place.cut, upto, filter))
        if first is None:
            return _Unread(count, whole, gone)
        position, info, stream = first
        read = view.read(info.id, stream, position - 1, position, 1, 1)
        oldest = [view.wall.wall_ms(at, published_at_of(value)) for at, value in read.messages]
        return _Unread(count, whole, gone, min(oldest, default=None), info.id)

    def _streams_in(self, info: GenerationInfo, filter: bytes, seen: Seen) -> list[Stream]:
        found = self._streams.get((info.id, filter))
        if found is None:
            found = self._streams[info.id, filter] = seen.view.streams_in(info.id, filter)
        return found

    def _some(self, seen: Seen, generation: int, stream: Stream, after: int, upto: int) -> Some:
        columns = seen.view.bulk(generation, stream, after, upto, CHUNK_ROWS, _CHUNK_BYTES)
        self._rest()
        first = int.from_bytes(columns.positions[:8], "little") if columns.rows else NONE
        return Some(columns.rows, upto if columns.done else columns.place, first)


def _reached(place: Place, generation: int, static: bytes) -> int:
    """How far it has come in this stream (shards.queries.Place)."""
    if not place.horizon:
        return place.cut
    here, there = (generation, static), (place.generation, place.static)
    return place.horizon if here < there else place.position if here == there else place.cut
