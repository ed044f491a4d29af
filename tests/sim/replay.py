"""Store equal on replay: a core that is opened on a copy of what a shard has written knows what the running one knows."""

from __future__ import annotations

from typing import Any

from shards.core import ShardCore
from shards.engine import HOME_FAMILY
from shards.engine_memory import MemoryEngine
from shards.rows import DELAYED, RETAINED, SESSION, successor
from shards.slots import SlotTable
from shards.store import Store
from tests.sim.rules import Violation
from tests.sim.shape import Shape
from tests.sim.shard_part import ShardPart

_ROWS_MAX = 100_000


def check(part: ShardPart, engine: MemoryEngine, shape: Shape, wall_ms: int) -> None:
    """For a shard at rest: its draft is empty, and everything that it has submitted is written."""
    copy = engine.copy()
    store = Store.open(copy, shape.store, wall_ms=wall_ms)
    opened = ShardCore(part.index, SlotTable.initial(shape.n_shards), copy, store, shape.shard)
    running, replayed = _known(part.core, part.store), _known(opened, store)
    for name, value in running.items():
        if value != replayed[name]:
            raise Violation(f"{part.process.name}: {name} is {value}, and replayed from the disk {replayed[name]}")
    there = tuple([len(copy.scan(HOME_FAMILY, family, successor(family), _ROWS_MAX)) for family in (SESSION, RETAINED, DELAYED)])
    if there != replayed["rows by their counts"]:
        raise Violation(
            f"{part.process.name}: {replayed['rows by their counts']} sessions, retained and delayed messages counted, {there} there"
        )


def _known(core: ShardCore, store: Store) -> dict[str, Any]:
    homes, routes = core._homes, core._routes
    return {
        "clients": {client: (state.conn, state.gateway, state.session_id, state.will) for client, state in sorted(homes.live.items())},
        "sessions that are being erased": sorted(homes.ending.clients),
        "connection numbers": homes._counter,
        "literal routes": routes._literal,
        "wildcard routes": dict(routes._wild.counts()),
        "frames taken": {sender.name: sender.last for sender in core._inbox.senders() if sender.last},
        "owner token": core._owners.token,
        "generations": store.generations(),
        "counts": [(info.id, store.counts(info.id), store.counting.bytes_in(info.id)) for info in store.currents()],
        "rows by their counts": (homes._sessions.count, core._retained.held.count, core._delayed.count),
        "sessions that are away": homes.away,
        "groups": sorted(core._groups.here.items()),
        "members of groups": sorted(core._groups._members.items()),
        "memberships": {client: sorted(subs.items()) for client, subs in sorted(core._deliveries._subs_of.items())},
        "deliveries": {group: sorted(there.items()) for group, there in sorted(core._deliveries._there.items())},
        "writers": dict(core._writers._rows),
        "streams": sorted((generation, stream.static) for generation, stream in store.streams(b"#", 0)),
    }
