"""What a durable session would be given next, without moving anything: read from its rows and the files, in the process that asks.

First what it was given before and has not finished, in the order of its ranges; then, shard by shard, what lies behind its places, in the
order of positions.  Sessions get the latter stream by stream where they are far behind, so the order among topics may be another one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from actors.inquiry.asking import Asking
from actors.inquiry.clients import at_home, connections, shown
from actors.inquiry.homes import prefixed, within
from actors.inquiry.stored import Stored
from actors.inquiry.subscriptions import Kept, kept_by
from actors.inquiry.unread import reached
from actors.reader.views import Seen
from mqtt.body import strip_properties
from sessions.bodies import QOS1, QOS2, Bodies
from sessions.inquiry_frames import ROWS_MAX, PlacesOf, PlacesTold
from sessions.ranges import COPIES, GIVEN, Terms
from shards.generations import GenerationDropped, GenerationId
from shards.messages import RETAIN, header
from shards.queries import Place
from shards.rows import PROGRESS, RANGE, ProgressRow, RangeRow, client_key, unpack_as
from shards.store import Stream

COUNT_MAX: Final = 1_000
STREAMS_MAX: Final = 1_000
"""Of one shard that are looked into; what the others have is not told."""
PAYLOAD_BYTES_MAX: Final = 4_096
"""Of each that are shown."""
_BYTES_MAX: Final = 8 << 20
_PUBLISH_QOS: Final = {0: 0, QOS1: 1, QOS2: 2}


@dataclass(frozen=True, slots=True)
class Peeked:
    """given: it was given to the session before, and is not finished.  shard and position: where it stands, null for a copy of a retained
    message.  qos: at which it comes.  published_at_ms: steady time (docs/glossary.md).  bytes: of the payload.  payload: its first bytes
    in base64, when that was asked for."""

    given: bool
    shard: int | None
    position: int | None
    filter: str
    topic: str
    publisher: str
    qos: int
    retain: bool
    published_at_ms: int
    bytes: int
    payload: str | None


@dataclass(frozen=True, slots=True)
class Peek:
    """whole: there is nothing more."""

    client: str
    connected: bool
    messages: tuple[Peeked, ...]
    whole: bool


async def peek(
    asking: Asking, stored: Stored, client: str, filter: str | None = None, count_max: int = 20, payload: bool = False
) -> tuple[Peek | None, tuple[str, ...]]:
    """(what comes next, None when it has no durable session; who did not answer)."""
    missing: dict[str, None] = {}
    found = await at_home(asking, client, missing)
    if found is None or found[1].kind != "durable":
        return None, tuple(missing)
    there = found[1]
    kept = await kept_by(asking, there.shard, [there.client], missing)
    rows = await within(
        asking, there.shard, [prefixed(client_key(RANGE, there.client)), prefixed(client_key(PROGRESS, there.client))], missing
    )
    if kept is None or rows is None:
        return None, tuple(missing)
    wanted = [one for one in kept[there.client] if filter is None or one.row.filter == filter.encode()]
    connected = there.client in await connections(asking, [there], missing)
    places = {(one.sub_id, shard): place for one in wanted for shard, place in one.places.items()}
    if connected:
        places = await _places_now(asking, there.shard, there.client, places, missing)
    progress = unpack_as(ProgressRow, rows.rows[1][0][1]) if rows.rows[1] else ProgressRow(1, 0, 1, 0, 0, 1, 0, [])
    told = _Telling(there.client, progress, count_max, payload)
    for _, value, _ in rows.rows[0]:
        row = unpack_as(RangeRow, value)
        if told.room and (filter is None or row.filter == filter.encode()):
            await _given(stored, told, row, missing)
    by_shard: dict[int, list[tuple[Kept, Place]]] = {}
    for one in wanted:
        for shard in one.places:
            place = places.get((one.sub_id, shard))
            if place is not None:
                by_shard.setdefault(shard, []).append((one, place))
    for shard in sorted(by_shard):
        if told.room:
            unread = await stored.look(shard, partial(_unread, by_shard[shard], told.room), missing)
            told.unread(shard, unread or [])
    return Peek(client, connected, tuple(told.found), not told.more), tuple(missing)


async def _places_now(
    asking: Asking, home: int, client: bytes, rows: dict[tuple[int, int], Place], missing: dict[str, None]
) -> dict[tuple[int, int], Place]:
    """Where a connected session really is: what is not named stands at the head, and has nothing unread."""
    found: dict[tuple[int, int], Place] = {}
    skip = 0
    while True:
        told = await asking.session_of(home, PlacesOf(0, client, skip, ROWS_MAX), missing)
        if not isinstance(told, PlacesTold) or not told.known:
            return rows
        found.update({(sub_id, shard): place for sub_id, shard, place in told.rows if (sub_id, shard) in rows})
        skip += len(told.rows)
        if told.whole:
            return found


async def _given(stored: Stored, told: _Telling, row: RangeRow, missing: dict[str, None]) -> None:
    if row.shard == COPIES:
        told.given(row, [(0, value) for value in row.copies])
        return
    if row.shard == GIVEN:
        # Its messages are in rows of deliveries, which peeking does not read.
        return
    messages = await stored.look(row.shard, partial(_of_range, row), missing)
    told.given(row, messages or [])


class _Telling:
    """What is found, up to a number."""

    def __init__(self, client: bytes, progress: ProgressRow, count_max: int, payload: bool) -> None:
        self.found: list[Peeked] = []
        self.more = False
        """There is more than that."""
        self._client = client
        self._progress = progress
        self._count_max = count_max
        self._payload = payload

    @property
    def room(self) -> int:
        return self._count_max - len(self.found)

    def given(self, row: RangeRow, messages: list[tuple[int, bytes]]) -> None:
        """Those of a range that are not finished, as far as rows know."""
        if not messages:
            return
        terms = Terms(row.sub_id, row.filter, row.qos, row.options, row.identifier)
        indexes, firsts = Bodies([value for _, value in messages]).select(range(len(messages)), self._client, terms, row.shard == COPIES)
        numbers = {QOS1: row.first1, QOS2: row.first2}
        for index, first in zip(indexes, firsts, strict=True):
            kind = first & (QOS1 | QOS2)
            if not kind:
                continue
            number = numbers[kind]
            numbers[kind] += 1
            if not self._finished(row, kind, number):
                self._put(True, row.shard, *messages[index], row.filter, _PUBLISH_QOS[kind])

    def unread(self, shard: int, messages: list[tuple[int, bytes, Kept]]) -> None:
        for position, value, one in messages:
            row = one.row
            terms = Terms(one.sub_id, row.filter, row.qos, row.options, row.identifier)
            _, firsts = Bodies([value]).select(range(1), self._client, terms)
            if firsts:
                self._put(False, shard, position, value, row.filter, _PUBLISH_QOS[firsts[0] & (QOS1 | QOS2)])

    def _finished(self, row: RangeRow, kind: int, number: int) -> bool:
        progress = self._progress
        committed = progress.committed1 if kind == QOS1 else progress.committed2
        if number <= committed or (kind == QOS2 and number in map(abs, progress.received2)):
            return True
        at = 0 if kind == QOS1 else 2
        spans = [row.lost[start + at : start + at + 2] for start in range(0, len(row.lost), 4)]
        return any(first <= number < first + count for first, count in spans)

    def _put(self, given: bool, shard: int, position: int, value: bytes, filter: bytes, qos: int) -> None:
        if not self.room:
            self.more = True
            return
        flags, published_at_ms, publisher, topic, body = header(value)
        payload = strip_properties(body)
        self.found.append(
            Peeked(
                given, None if shard == COPIES else shard, None if shard == COPIES else position, shown(filter), shown(topic),
                shown(publisher), qos, bool(flags & RETAIN), published_at_ms, len(payload),
                b64encode(payload[:PAYLOAD_BYTES_MAX]).decode() if self._payload else None,
            )
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- in the thread


def _of_range(row: RangeRow, seen: Seen) -> list[tuple[int, bytes]]:
    """Its messages again, in their order; what is gone of it is left out."""
    found: list[tuple[int, bytes]] = []
    for generation, static in row.streams:
        try:
            streams = [one for one in seen.view.streams_in(generation, row.filter) if one.static == static]
            for stream in streams:
                found += seen.view.read(generation, stream, row.after, min(row.upto, seen.cut - 1), COUNT_MAX, _BYTES_MAX).messages
        except GenerationDropped:
            continue
    return sorted(found) if row.merged else found


def _unread(wanted: list[tuple[Kept, Place]], count_max: int, seen: Seen) -> list[tuple[int, bytes, Kept]]:
    """The first ones behind the places, and one more when there is."""
    found: list[tuple[int, bytes, Kept]] = []
    for one, place in wanted:
        of_one: list[tuple[int, bytes, Kept]] = []
        for since, generation, stream in islice(_streams(one.row.filter, place, seen), STREAMS_MAX):
            if len(of_one) > count_max and since > max(position for position, _, _ in of_one):
                break
            after = max(reached(place, generation, stream.static), since - 1)
            try:
                read = seen.view.read(generation, stream, after, seen.cut - 1, count_max + 1, _BYTES_MAX)
            except GenerationDropped:
                continue
            of_one += [(position, value, one) for position, value in read.messages]
            of_one = sorted(of_one, key=lambda row: row[0])[: count_max + 1]
        found += of_one
    return sorted(found, key=lambda row: row[0])[: count_max + 1]


def _streams(filter: bytes, place: Place, seen: Seen) -> Iterator[tuple[int, GenerationId, Stream]]:
    """(since, generation, stream) of what may have something, the oldest generation first."""
    for info in sorted(seen.view.generations(), key=lambda info: info.since):
        if info.until is not None and info.until <= place.cut:
            continue
        try:
            for stream in seen.view.streams_in(info.id, filter):
                yield info.since, info.id, stream
        except GenerationDropped:
            continue
