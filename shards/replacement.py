"""A new store in the place of one that is lost, such that nobody takes it for the lost one.

The other shards still hold what referred to the lost store: places and ranges of sessions that read it, positions up to which its retained
messages were applied, routes of its sessions under their subscription ids. So everything in the new store that is numbered begins above
all that a former incarnation of the site can have handed out, and readers find that what they had not read was dropped (shards.dropped).
The routes of subscriptions that are at home in other shards are made anew, since whatever they match has to be stored again.

Sessions and retained messages that were at home in the lost store are lost with it; the sweeps of the others remove what belonged to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shards.dropped import Dropped
from shards.engine import HOME_FAMILY, Engine, Op
from shards.generations import GenerationId, GenerationInfo
from shards.housekeeping import POSITION_ROW
from shards.layouts.registry import layout_named
from shards.options import StoreOptions
from shards.rows import OWNER, ROUTE, SUBSCRIPTION, SubscriptionRow, pack_row, split_client_key, successor, u64, unpack_as

POSITIONS_PER_INCARNATION = 1 << 52
"""Microseconds of 142 years."""
GENERATIONS_PER_INCARNATION = 1 << 20
TOKENS_PER_INCARNATION = 1 << 20
_ROWS_PER_WRITE = 1000

Route = tuple[int, bytes, bytes]
"""Subscription id, filter, client."""


def routes_of_home(engine: Engine) -> Iterator[Route]:
    """The routes that the sessions at home in this store need in every other one."""
    start = SUBSCRIPTION
    while rows := engine.scan(HOME_FAMILY, start, successor(SUBSCRIPTION), _ROWS_PER_WRITE):
        for key, value in rows:
            client, suffix = split_client_key(key)
            row = unpack_as(SubscriptionRow, value)
            # One that is just being added has no start yet, and is added everywhere by its home.
            if row.starts:
                yield int.from_bytes(suffix, "big"), row.filter, client
        start = rows[-1][0] + b"\x00"


def fill_replacement(engine: Engine, incarnation: int, options: StoreOptions, routes: Iterable[Route], wall_ms: int) -> None:
    """Into an empty store, of the site's new incarnation; it is durable when this returns."""
    former = incarnation - 1
    number, since = former * GENERATIONS_PER_INCARNATION + 1, former * POSITIONS_PER_INCARNATION
    engine.create_family(number)
    first = GenerationInfo(GenerationId(number), layout_named(options.layout), options.of_layout, since, None, 0, wall_ms, None)
    # For readers, whatever there was is one generation that went all at once.
    lost = Dropped(number - 1, first.klass, 0, since, 0, 0, wall_ms, "store lost")
    ops: list[Op] = [
        (HOME_FAMILY, *first.encode()),
        (HOME_FAMILY, *lost.encode()),
        (HOME_FAMILY, POSITION_ROW, pack_row((since,))),
        (HOME_FAMILY, OWNER, pack_row((former * TOKENS_PER_INCARNATION, ""))),
    ]
    for sub_id, topic_filter, client in routes:
        ops.append((HOME_FAMILY, ROUTE + u64(sub_id), pack_row((topic_filter, client))))
        if len(ops) >= _ROWS_PER_WRITE:
            engine.write(ops)
            ops = []
    engine.write(ops)
    engine.sync()
