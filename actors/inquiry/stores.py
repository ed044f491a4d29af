"""What the stores of a running broker consist of: shards, their generations, and how long those are kept."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from actors.inquiry.asking import Asking, Page
from actors.inquiry.homes import Cursor
from actors.inquiry.sites import STORAGE
from actors.inquiry.stored import Stored
from actors.quota import quota_bytes
from actors.reader.views import Seen
from actors.reserve import free_bytes, stored_bytes
from shards.generations import GenerationDropped, GenerationInfo
from shards.queries import Holdings, HoldingsFound, RetentionFound, RetentionState, Rows

COUNT_MAX = 500


@dataclass(frozen=True, slots=True)
class Shard:
    """sessions_away: whose client is not connected.  messages, bytes: as published, in the generations that are there, as far as counted;
    disk_bytes: of its files.  quota_level: 0, 1 above the soft mark, 2 used up.  What the shard alone knows is None when it is away."""

    shard: int
    storage: str
    site: str
    up: bool
    sessions_away: int | None
    messages: int | None
    bytes: int | None
    retained: int | None
    disk_bytes: int
    quota_level: int | None


@dataclass(frozen=True, slots=True)
class Generation:
    """since, until: positions.  bytes: on the disk; streams: None while nobody has looked.  period_ms: how long it is kept once sealed.

    left_ms: until its time is over, negative when it is; None: it is not sealed, or the clock stands still.  drops_at_ms None: not sealed,
    or held.  held_by: who keeps it for longer; empty: nobody."""

    shard: int
    generation: int
    retention_class: str
    layout: str
    current: bool
    since: int
    until: int | None
    created_at_ms: int
    sealed_at_ms: int | None
    messages: int | None
    bytes: int
    streams: int | None
    period_ms: int
    left_ms: int | None
    drops_at_ms: int | None
    held_by: str


@dataclass(frozen=True, slots=True)
class Part:
    """Of a store: a generation."""

    generation: int
    retention_class: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Store:
    """bytes: of all its files."""

    shard: int
    bytes: int
    generations: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """quota_bytes None: unlimited.  quota_level: the highest of all shards."""

    stores: tuple[Store, ...]
    bytes: int
    quota_bytes: int | None
    quota_level: int
    free_bytes: int
    retention_ms: int


async def shards(asking: Asking) -> tuple[list[Shard], tuple[str, ...]]:
    """(by number, who did not answer)."""
    missing: dict[str, None] = {}
    topology = asking.topology
    found: list[Shard] = []
    for shard in range(topology.n_shards):
        held = await asking.shard(shard, Holdings(), missing)
        kept = await asking.shard(shard, RetentionState(), missing) if held is not None else None
        size = await asyncio.to_thread(stored_bytes, topology.store_path(shard))
        known = held if isinstance(held, HoldingsFound) else None
        state = kept if isinstance(kept, RetentionFound) else None
        found.append(
            Shard(
                shard, STORAGE, topology.site.upper(), known is not None, known.away if known else None, known.messages if known else None,
                known.bytes if known else None, known.retained if known else None, size, state.quota_level if state else None,
            )
        )  # fmt: skip
    return found, tuple(missing)


async def generations(asking: Asking, stored: Stored, cursor: str = "", count_max: int = COUNT_MAX) -> Page[Generation]:
    """By shard and number.  Raises BadCursor."""
    missing: dict[str, None] = {}
    at = Cursor.parse(cursor)
    after = int.from_bytes(at.key, "big") if at.key else -1
    found: list[Generation] = []
    for shard in range(at.shard, asking.topology.n_shards):
        found += [one for one in await _generations(asking, stored, shard, missing) if shard > at.shard or one.generation > after]
        if len(found) > count_max:
            break
    rows = found[:count_max]
    following = str(Cursor(rows[-1].shard, rows[-1].generation.to_bytes(8, "big"))) if len(found) > count_max else ""
    return Page(tuple(rows), following, tuple(missing))


async def storage(asking: Asking, stored: Stored) -> tuple[Storage, tuple[str, ...]]:
    """(what it takes on the disk, who did not answer)."""
    missing: dict[str, None] = {}
    topology = asking.topology
    stores: list[Store] = []
    level = 0
    for shard in range(topology.n_shards):
        parts = await stored.look(shard, _parts, missing) or []
        state = await asking.shard(shard, RetentionState(), missing)
        level = max(level, state.quota_level if isinstance(state, RetentionFound) else 0)
        stores.append(Store(shard, await asyncio.to_thread(stored_bytes, topology.store_path(shard)), tuple(parts)))
    quota, free = await asyncio.to_thread(lambda: (quota_bytes(stored.config, topology.data_dir), free_bytes(topology.store_dir)))
    period = stored.config.durable_sessions.message_retention_period.ms
    return Storage(tuple(stores), sum(one.bytes for one in stores), quota, level, free, period), tuple(missing)


# ---------------------------------------------------------------------------------------------------------- within


async def _generations(asking: Asking, stored: Stored, shard: int, missing: dict[str, None]) -> list[Generation]:
    state = await asking.shard(shard, RetentionState(), missing)
    now = await asking.rows(shard, Rows([], 0), missing)
    if not isinstance(state, RetentionFound) or now is None:
        return []
    left = {number: (left_ms, held_by) for number, _, _, _, left_ms, held_by in state.generations}
    period = stored.config.durable_sessions.message_retention_period.ms
    return await stored.look(shard, partial(_seen, shard, left, period, now.age_ms), missing) or []


def _seen(shard: int, left: dict[int, tuple[int, str]], period_ms: int, age_ms: int, seen: Seen) -> list[Generation]:
    """In the thread.  left: of sealed ones, how long they are kept, and who holds them."""
    found: list[Generation] = []
    now_ms = _now_ms()
    for info in seen.view.generations():
        try:
            found.append(_generation(shard, info, left.get(info.id), period_ms, age_ms, now_ms, seen))
        except GenerationDropped:
            continue
    return found


def _generation(
    shard: int, info: GenerationInfo, left: tuple[int, str] | None, period_ms: int, age_ms: int, now_ms: int, seen: Seen
) -> Generation:
    view = seen.view
    total = view.total(info.id)
    left_ms, held_by = left if left is not None else (None, "")
    sealed = None if info.sealed_age_ms is None else now_ms - age_ms + info.sealed_age_ms
    return Generation(
        shard, int(info.id), info.klass, info.layout, info.until is None, info.since, info.until,
        view.wall.wall_ms(info.since, info.created_wall_ms), sealed, total.rows if total is not None else None, view.disk_bytes(info.id),
        view.streams_known(info.id), view.period_ms(info, period_ms), left_ms,
        None if left_ms is None or held_by else now_ms + max(0, left_ms), held_by,
    )  # fmt: skip


def _parts(seen: Seen) -> list[Part]:
    return [Part(int(info.id), info.klass, seen.view.disk_bytes(info.id)) for info in seen.view.generations()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
