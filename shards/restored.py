"""A store that comes from a backup goes on as a new incarnation: nothing in it is mistaken for what was lost.

A copy of a store is as the store was at some moment. What came later is gone, and others know of it: sessions in other shards, whose copies
are of moments a little later, readers outside, publishers. So everything that is numbered goes on above all that the former incarnation can
have handed out (shards.replacement has the spans). In the order of positions:

    what is in the copy  |  a generation that is gone: what came after the copy  |  new current generations

A place in the middle, of a session that had read on, meets nothing that is old under a new number; one before it reads what is there, and
then learns that something is gone, as from any generation that was dropped. And each subscription that is at home in any copy gets its
route in all of them: whatever it matches from now on is stored for it, whichever of the copies was taken first.

For a store that serves nobody. Atomic: all of it is one record, and it is durable when `begin_incarnation` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shards.clock import AgeMark
from shards.counting import begun
from shards.dropped import FORGOTTEN, Dropped, DroppedRows, dropped_key
from shards.engine import HOME_FAMILY, Engine, Op, StoreFailed
from shards.generations import ROW_PREFIX, ROWS_END, GenerationId, GenerationInfo
from shards.housekeeping import AGE_ROW, POSITION_ROW
from shards.replacement import GENERATIONS_PER_INCARNATION, POSITIONS_PER_INCARNATION, TOKENS_PER_INCARNATION, Route
from shards.rows import META, OWNER, ROUTE, pack_row, u64, unpack_row

RESTORED = "restored"
"""Why the generation in the middle is gone."""
INCARNATION_ROW = META + b"incarnation"
"""That the copies of a shard have begun, of several sites (shards.begun_anew)."""
_CONN_ROW = META + b"conn"
_CONNECTIONS_PER_INCARNATION = 1 << 32
_NO_EARLIER_WALL_MS = 1_577_836_800_000
"""The beginning of 2020. Counted from there, the wall clock fits into the positions of an incarnation for 142 years."""


def begin_incarnation(
    engine: Engine, incarnation: int, routes: Iterable[Route], wall_ms: int, later_lost: bool = True, reason: str = RESTORED,
    more: Iterable[Op] = (),
) -> int:  # fmt: skip
    """routes: of all subscriptions at home in other shards. wall_ms: now. later_lost: something may have been stored after the copy was
    made; False: nobody is told of a loss. reason: of it. more: goes into the same record. Returns the position at which the store goes
    on. Raises StoreFailed."""
    infos = [GenerationInfo.decode(*row) for row in engine.scan(HOME_FAMILY, ROW_PREFIX, ROWS_END, 1 << 32)]
    currents = [info for info in infos if info.until is None]
    if not currents:
        raise StoreFailed("no generation was found: no broker has started on this store yet")
    mark = engine.get(HOME_FAMILY, AGE_ROW)
    age = AgeMark.decode(mark) if mark else None
    age_ms, made_wall_ms = (age.age_ms, age.reading.wall_ms) if age else (0, 0)
    last = max(_number(engine, POSITION_ROW), *(info.since for info in currents))
    # The wall clock is in it for whoever restores the same backup twice: what the second brings is not taken for what the first brought.
    since = (incarnation - 1) * POSITIONS_PER_INCARNATION + 1000 * max(0, wall_ms - _NO_EARLIER_WALL_MS)
    number = (incarnation - 1) * GENERATIONS_PER_INCARNATION + 1
    if since <= last + 1 or number <= max(info.id for info in infos):
        raise StoreFailed(f"position {last} was reached in it, and incarnation {incarnation} begins at {since}")
    until = last + 1 if later_lost else since
    ops: list[Op] = [*_forgotten(engine, infos)]
    for info in currents:
        ops.append((HOME_FAMILY, *replace(info, until=until, sealed_age_ms=age_ms).encode()))
        if later_lost:
            gone = Dropped(number, info.klass, until, since, made_wall_ms, wall_ms, wall_ms, reason)
            ops.append((HOME_FAMILY, *gone.encode()))
            number += 1
    for info in currents:
        fresh = replace(
            info, id=GenerationId(number), since=since, until=None, created_age_ms=age_ms, created_wall_ms=wall_ms, sealed_age_ms=None
        )  # fmt: skip
        engine.create_family(number)
        ops += [(HOME_FAMILY, *fresh.encode()), begun(number)]
        number += 1
    token = max(_number(engine, OWNER) + 1, (incarnation - 1) * TOKENS_PER_INCARNATION)
    connection = max(_number(engine, _CONN_ROW), (incarnation - 1) * _CONNECTIONS_PER_INCARNATION)
    ops += [
        (HOME_FAMILY, OWNER, pack_row((token, ""))),
        (HOME_FAMILY, _CONN_ROW, pack_row((connection,))),
        (HOME_FAMILY, POSITION_ROW, pack_row((since,))),
        # Of the sites from which it comes: those that share it from now on count anew.
        (HOME_FAMILY, INCARNATION_ROW, None),
    ]
    engine.write([*ops, *route_ops(routes), *more])
    engine.sync()
    return since


def route_ops(routes: Iterable[Route]) -> list[Op]:
    """Who has one already keeps it as it is."""
    return [(HOME_FAMILY, ROUTE + u64(sub_id), pack_row((topic_filter, client))) for sub_id, topic_filter, client in routes]


def _number(engine: Engine, key: bytes) -> int:
    row = engine.get(HOME_FAMILY, key)
    return int(unpack_row(row)[0]) if row else 0


def _forgotten(engine: Engine, infos: list[GenerationInfo]) -> list[Op]:
    """The row that says how far back nothing is known. Without one, the hole in the numbers of generations that a new incarnation leaves
    would be taken for generations that were dropped before there were such rows."""
    if engine.get(HOME_FAMILY, dropped_key(FORGOTTEN)) is not None:
        return []
    rows = DroppedRows(engine, {info.id: info.since for info in infos})
    return [(HOME_FAMILY, *Dropped(FORGOTTEN, "", 0, rows.forgotten_until, 0, 0, 0, "").encode())]
