"""Whether sessions have acknowledged all of a sealed generation: what a home answers, and how a shard finds out from all homes.

The shard asks each home for its sessions, page by page, one question at a time.  A home tells of each session what it has not read
up to the end of the generation: its subscriptions with their places, and whether it has messages of it under way.  All rows of one
session are read at one moment, as of everything submitted, and are told when that is committed.  Whether there is anything for such
a subscription behind its place, the shard looks up in the generation itself: a subscription for which nothing came has an old place
all its life and has missed nothing.

A session that has been found to want nothing of the generation is not asked for again.  That is right, as an answer never turns back: a
place only grows, save that somebody moves it back by hand, or subscribes into the past, and then we are told and begin again (Rewound,
Replay); what is behind it and matches was handed out before it moved, in the same commit that has the range; a new subscription begins
above everything that is sealed, and one that is being made holds until it is known where.  So the rows are gone over once for each
generation, and the first session that holds it is looked at again, once a second, until it lets go.

Nothing is known of a home that has not answered, so it holds.  Everything here is bounded per turn.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from mqtt.topics import is_shared
from shards.draft import Draft
from shards.frames import Place, Query, Result, Unread, UnreadFound
from shards.ids import token_of_sub
from shards.rows import (
    ADDING,
    PLACE,
    RANGE,
    SESSION,
    SUBSCRIPTION,
    RangeRow,
    SessionRow,
    SubscriptionRow,
    client_key,
    read_u64,
    split_client_key,
    successor,
    unpack_as,
    unpack_place,
)  # fmt: skip
from shards.store import GenerationDropped, Store, Stream

ROWS_PER_PAGE = 100
PAUSE_US = 20_000
LOOK_AGAIN_US = 1_000_000
KEYS_PER_TURN = 2_000
PROBES_PER_TURN = 200
_FILTERS_REMEMBERED = 64
_ROWS_OF_SESSION = 1_000_000
_PROBE_BYTES = 1 << 20
NOBODY = ""


# ---------------------------------------------------------------------- the home


def page(draft: Draft, ask: Unread, token: int) -> UnreadFound:
    """token: of the owner of the sessions here, under which subscriptions are being made."""
    behind: list[tuple[bytes, bytes, Place]] = []
    holding: list[bytes] = []
    looked = 0
    start, end = SESSION + ask.start, successor(SESSION)
    while looked < ask.rows_max:
        rows = draft.scan_range(start, end, 50)
        for key, value in rows:
            client, _ = split_client_key(key)
            start = key + b"\x00"
            looked += 1
            if unpack_as(SessionRow, value).memory == 0:
                looked += _session(draft, ask, token, client, behind, holding)
            if looked >= ask.rows_max:
                break
        if len(rows) < 50 and (not rows or start == rows[-1][0] + b"\x00"):
            return UnreadFound(behind, holding, b"")
    return UnreadFound(behind, holding, start[1:])


def _session(draft: Draft, ask: Unread, token: int, client: bytes, behind: list[tuple[bytes, bytes, Place]], holding: list[bytes]) -> int:
    """What this session has not acknowledged; returns how many rows it has."""
    places: dict[int, Place] = {}
    place_rows = draft.scan(client_key(PLACE, client), _ROWS_OF_SESSION)
    for key, value in place_rows:
        suffix = split_client_key(key)[1]
        if suffix[8] == ask.shard:
            places[read_u64(suffix)] = unpack_place(value)
    holds = False
    subscription_rows = draft.scan(client_key(SUBSCRIPTION, client), _ROWS_OF_SESSION)
    for key, value in subscription_rows:
        sub_id = read_u64(split_client_key(key)[1])
        row = unpack_as(SubscriptionRow, value)
        if row.state == ADDING:
            # Where it begins is not known yet.  One that a former owner was making is never finished.
            holds |= token_of_sub(sub_id) == token & 0xFFFFFFFF
            continue
        # Nor where a declared group begins, as long as its routes are not in every shard.
        holds |= not row.starts and is_shared(client)
        for shard, position in row.starts:
            if shard == ask.shard:
                place = places.get(sub_id, Place(position))
                if place.cut < ask.until - 1:
                    behind.append((client, row.filter, place))
    range_rows = draft.scan(client_key(RANGE, client), _ROWS_OF_SESSION)
    for _, value in range_rows:
        under_way = unpack_as(RangeRow, value)
        holds |= under_way.shard == ask.shard and any(generation == ask.generation for generation, _ in under_way.streams)
    if holds:
        holding.append(client)
    return len(place_rows) + len(subscription_rows) + len(range_rows)


# ---------------------------------------------------------------------- the shard that asks


class _Probe:
    """Looks up whether a generation has anything for a subscription behind its place, in steps."""

    def __init__(self, store: Store, generation: int, until: int) -> None:
        self._store = store
        self._generation = generation
        self._until = until
        self._streams: OrderedDict[bytes, list[Stream]] = OrderedDict()
        self._nothing_after: OrderedDict[bytes, int] = OrderedDict()
        """Behind this position there is nothing for a filter: many subscriptions have the same one."""
        self._at = 0
        self._after = -1
        """How far the stream at `_at` was searched without finding anything; -1: it was not begun."""

    def finds(self, topic_filter: bytes, place: Place, keys: int) -> tuple[bool | None, int]:
        """(whether, None when it takes more than these keys; how many are left)."""
        if place.cut >= self._nothing_after.get(topic_filter, self._until):
            return False, keys - 1
        try:
            streams = self._streams_of(topic_filter)
            while self._at < len(streams):
                stream = streams[self._at]
                after = max(self._after, self._reached(place, stream.static))
                if after < self._until - 1:
                    read = self._store.read(self._generation, stream, after, self._until - 1, 1, _PROBE_BYTES, keys)
                    keys -= 16
                    if read.values:
                        return self._ended(True), keys
                    if not read.done:
                        self._after = read.place
                        keys = 0
                        return None, keys
                self._at, self._after = self._at + 1, -1
                if keys <= 0:
                    return None, keys
        except GenerationDropped:
            # It is damaged and not read any more: nobody can wait for it.
            pass
        if not place.horizon:
            self._nothing_after[topic_filter] = place.cut
            if len(self._nothing_after) > _FILTERS_REMEMBERED:
                self._nothing_after.popitem(last=False)
        return self._ended(False), keys

    def _ended(self, found: bool) -> bool:
        self._at, self._after = 0, -1
        return found

    def _reached(self, place: Place, static: bytes) -> int:
        """How far the sweep has come in this stream (shards.queries.Place)."""
        if not place.horizon:
            return place.cut
        here, there = (self._generation, static), (place.generation, place.static)
        return place.horizon if here < there else place.position if here == there else place.cut

    def _streams_of(self, topic_filter: bytes) -> list[Stream]:
        known = self._streams.get(topic_filter)
        if known is None:
            known = self._streams[topic_filter] = self._store.streams_in(self._generation, topic_filter)
            if len(self._streams) > _FILTERS_REMEMBERED:
                self._streams.popitem(last=False)
        return known


@dataclass(slots=True)
class _Examination:
    """One generation: the homes before `home`, and the sessions of it before `start`, want nothing of it."""

    generation: int
    until: int
    probe: _Probe
    home: int = 0
    start: bytes = b""
    behind: deque[tuple[bytes, bytes, Place]] = field(default_factory=deque)
    """Of the page that was answered: not looked up yet."""
    next_start: bytes | None = None
    """Where the next page begins once `behind` is empty; None: no page was answered."""
    holder: str = "sessions that were not asked yet"
    again_us: int = 0


class Examiner:
    """Finds out, for the generations that Retention wants to drop, whether sessions want them."""

    def __init__(self, shard: int, n_shards: int, store: Store) -> None:
        self._shard = shard
        self._n_shards = n_shards
        self._store = store
        self._examined: dict[int, _Examination] = {}
        self._turn_us = 0
        self._now_us = 0
        self._ids = 0
        self._outstanding: tuple[int, int, int] | None = None
        """(query id, home, generation) of the question that another home was asked."""
        self.pages = 0

    @property
    def busy(self) -> bool:
        return bool(self._examined)

    @property
    def running(self) -> bool:
        """There is something to ask soon."""
        if not self._examined or self._outstanding is not None:
            return False
        return any(one.home < self._n_shards and not one.again_us for one in self._examined.values())

    def wants(self, generation: int, until: int) -> str:
        """Who holds it, as far as is known; NOBODY when all sessions of all homes want nothing of it."""
        one = self._examined.get(generation)
        if one is None:
            one = self._examined[generation] = _Examination(generation, until, _Probe(self._store, generation, until))
        return NOBODY if one.home == self._n_shards else one.holder

    def forget_others(self, wanted: set[int]) -> None:
        """Only these are still to be dropped."""
        for generation in [known for known in self._examined if known not in wanted]:
            del self._examined[generation]

    def forget_above(self, position: int) -> None:
        """A place went back to here: of what is above it everybody is asked anew."""
        for generation in [known for known, one in self._examined.items() if one.until > position]:
            del self._examined[generation]
            if self._outstanding is not None and self._outstanding[2] == generation:
                self._outstanding = None

    def linked(self, shard: int) -> None:
        """What it was asked over its former link may be lost."""
        if self._outstanding is not None and self._outstanding[1] == shard:
            self._outstanding = None

    def told(self, shard: int, result: Result) -> None:
        if self._outstanding is None or (result.id, shard) != self._outstanding[:2]:
            return
        one = self._examined.get(self._outstanding[2])
        self._outstanding = None
        if one is not None and isinstance(result.told, UnreadFound):
            self._take(one, result.told)

    def turn(self, draft: Draft, token: int, elapsed_us: int) -> tuple[int, Query] | None:
        """One step: a page of our own sessions, a question to another home, or looking up; at most every PAUSE_US."""
        self._now_us = elapsed_us
        if elapsed_us < self._turn_us:
            return None
        ready = [one for one in self._examined.values() if one.home < self._n_shards and one.again_us <= elapsed_us]
        if not ready:
            return None
        self._turn_us = elapsed_us + PAUSE_US
        # In turns: one that a session holds for ever is not in the way of another class.
        one = ready[0]
        self._examined[one.generation] = self._examined.pop(one.generation)
        one.again_us = 0
        if one.next_start is None:
            return self._ask(one, draft, token)
        self._look_up(one)
        return None

    def _ask(self, one: _Examination, draft: Draft, token: int) -> tuple[int, Query] | None:
        ask = Unread(self._shard, one.generation, one.until, one.start, ROWS_PER_PAGE)
        if one.home == self._shard:
            # What was read may not be on disk yet: the drop comes behind it in the same log.
            self._take(one, page(draft, ask, token))
            return None
        if self._outstanding is not None:
            return None
        self._ids += 1
        self._outstanding = (self._ids, one.home, one.generation)
        return one.home, Query(self._ids, ask)

    def _take(self, one: _Examination, found: UnreadFound) -> None:
        self.pages += 1
        one.next_start = found.next_start
        one.behind = deque(found.behind)
        if found.holding:
            # The others of the page may have let go by the time that this one does: all of it is asked again then.
            one.holder = f"session {found.holding[0].decode(errors='replace')}"
            one.behind.clear()
            one.next_start = None
            one.again_us = self._now_us + LOOK_AGAIN_US

    def _look_up(self, one: _Examination) -> None:
        keys = KEYS_PER_TURN
        for _ in range(PROBES_PER_TURN):
            if not one.behind or keys <= 0:
                break
            client, topic_filter, place = one.behind[0]
            found, keys = one.probe.finds(topic_filter, place, keys)
            if found is None:
                return
            if found:
                one.holder = f"session {client.decode(errors='replace')}, which has not read all of {topic_filter.decode(errors='replace')}"
                one.behind.clear()
                one.next_start = None
                one.again_us = self._now_us + LOOK_AGAIN_US
                return
            one.behind.popleft()
        if not one.behind and one.next_start is not None:
            one.start, one.next_start = one.next_start, None
            if not one.start:
                one.home += 1
