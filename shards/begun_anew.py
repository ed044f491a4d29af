"""A shard goes on as another incarnation, because leadership was forced: what its copy lacks is lost, and nothing is mistaken for it.

It is as if the copy had been restored from a backup (shards.restored): everything that is numbered goes on above all that the former
incarnation can have handed out, and readers find that what came behind the copy is gone.  But the other shards go on serving meanwhile, and
nobody can say which routes this one should have.  So it has, for each home, one that stands for all of them: it wants every topic.  The
session actor of that home adds its routes again, in every shard, and then removes it (sessions.rerouting).  Until then this shard stores
too much, and never too little.

Holds: it is one record, with the row that says which incarnation has begun; so it is there whole, or begins again.
"""

from __future__ import annotations

from shards.engine import HOME_FAMILY, Engine
from shards.generations import ROW_PREFIX, ROWS_END, GenerationInfo
from shards.housekeeping import POSITION_ROW
from shards.ids import stands_for
from shards.options import StoreOptions
from shards.replacement import GENERATIONS_PER_INCARNATION, POSITIONS_PER_INCARNATION, Route, fill_replacement
from shards.restored import INCARNATION_ROW, begin_incarnation
from shards.rows import pack_row, unpack_row

FIRST = 1
FORCED = "leadership forced"
"""Why the generation in the middle is gone."""
EVERY_TOPIC = b"#"


def begun(engine: Engine) -> int:
    """The incarnation that this copy has begun."""
    row = engine.get(HOME_FAMILY, INCARNATION_ROW)
    return int(unpack_row(row)[0]) if row else FIRST


def begin_anew(engine: Engine, incarnation: int, complete: bool, n_shards: int, options: StoreOptions, wall_ms: int) -> None:
    """complete: nothing that was acknowledged is missing, so nobody is told of a loss.  Raises StoreFailed."""
    routes: list[Route] = [(stands_for(home), EVERY_TOPIC, b"") for home in range(n_shards)]
    infos = [GenerationInfo.decode(*row) for row in engine.scan(HOME_FAMILY, ROW_PREFIX, ROWS_END, 1 << 32)]
    row = engine.get(HOME_FAMILY, POSITION_ROW)
    last = max([int(unpack_row(row)[0]) if row else 0, *(info.since for info in infos)])
    newest = max([0, *(info.id for info in infos)])
    # A store that was restored before it had copies may have gone further than the incarnations of its copies say.
    number = max(incarnation, last // POSITIONS_PER_INCARNATION + 2, newest // GENERATIONS_PER_INCARNATION + 2)
    said = (HOME_FAMILY, INCARNATION_ROW, pack_row((incarnation,)))
    if infos:
        begin_incarnation(engine, number, routes, wall_ms, later_lost=not complete, reason=FORCED, more=[said])
    else:
        fill_replacement(engine, number, options, routes, wall_ms)
        engine.write([said])
