"""Subscriptions: those of durable sessions from the rows of their homes, the others from who has them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.inquiry.asking import Asking, Page
from actors.inquiry.clients import COUNT_MAX, AtHome, Kind, at_home, at_homes, connections, shown
from actors.inquiry.homes import Cursor, prefixed, within
from sessions.bodies import NO_LOCAL, RETAIN_AS_PUBLISHED
from sessions.inquiry_frames import ROWS_MAX, SubscriptionsOf, SubscriptionsTold
from shards.queries import Place
from shards.rows import ACTIVE, PLACE, SUBSCRIPTION, SubscriptionRow

from shards.rows import client_key, read_u64, split_client_key, unpack_place, unpack_as  # isort: skip


@dataclass(frozen=True, slots=True)
class Subscription:
    """session: where it lives.  identifier 0: none.  stored: its messages come from the store."""

    client: str
    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int
    session: Kind
    stored: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """A subscription of a durable session, as its rows have it.  places: by shard, where it reads there."""

    client: bytes
    sub_id: int
    row: SubscriptionRow
    places: dict[int, Place]

    @property
    def shown(self) -> Subscription:
        return _shown(self.client, self.row.filter, self.row.qos, self.row.options, self.row.identifier, "durable", bool(self.row.starts))


async def page(asking: Asking, cursor: str = "", count_max: int = COUNT_MAX) -> Page[Subscription]:
    """Those of the next clients, so there may be more than `count_max`, or none and a cursor.  Raises BadCursor."""
    missing: dict[str, None] = {}
    at = Cursor.parse(cursor)
    if at.shard >= asking.topology.n_shards:
        return Page(())
    found, clients, following = await at_homes(asking, at, min(count_max, COUNT_MAX), missing)
    rows = await _of(asking, at.shard, clients, missing) if found is not None else []
    return Page(tuple(rows), str(following) if following is not None else "", tuple(missing))


async def of_client(asking: Asking, client: str) -> tuple[list[Subscription], tuple[str, ...]]:
    """(its subscriptions, who did not answer)."""
    missing: dict[str, None] = {}
    found = await at_home(asking, client, missing)
    rows = await _of(asking, found[1].shard, [found[1]], missing) if found is not None else []
    return rows, tuple(missing)


async def kept_by(asking: Asking, shard: int, clients: Sequence[bytes], missing: dict[str, None]) -> dict[bytes, list[Kept]] | None:
    """Subscriptions of durable sessions that are at home in this shard, with their places; of consecutive clients.  None: it is away."""
    if not clients:
        return {}
    ranges = [(client_key(family, clients[0]), prefixed(client_key(family, clients[-1]))[1]) for family in (SUBSCRIPTION, PLACE)]
    found = await within(asking, shard, ranges, missing)
    if found is None:
        return None
    places: dict[tuple[bytes, int], dict[int, Place]] = {}
    for key, value, _ in found.rows[1]:
        client, suffix = split_client_key(key)
        places.setdefault((client, read_u64(suffix)), {})[suffix[8]] = unpack_place(value)
    kept: dict[bytes, list[Kept]] = {client: [] for client in clients}
    for key, value, _ in found.rows[0]:
        client, suffix = split_client_key(key)
        row = unpack_as(SubscriptionRow, value)
        if client in kept and row.state == ACTIVE:
            sub_id = read_u64(suffix)
            # A place that was never moved has no row yet.
            begins = {at: Place(start) for at, start in row.starts}
            kept[client].append(Kept(client, sub_id, row, begins | places.get((client, sub_id), {})))
    return kept


# ---------------------------------------------------------------------------------------------------- within


async def _of(asking: Asking, shard: int, clients: Sequence[AtHome], missing: dict[str, None]) -> list[Subscription]:
    durable = [client.client for client in clients if client.kind == "durable"]
    kept = await kept_by(asking, shard, durable, missing) or {}
    others: dict[bytes, list[Subscription]] = {}
    in_memory = [client.client for client in clients if client.kind == "memory"]
    if in_memory:
        for row in await _told(asking, "", shard, in_memory, missing):
            others.setdefault(row[0], []).append(_shown(*row, "memory", False))
    of_gateway: dict[str, list[bytes]] = {}
    ephemeral = [client for client in clients if client.kind == "ephemeral" and client.gateway]
    live = await connections(asking, ephemeral, missing)
    for client in ephemeral:
        if live.get(client.client) is not None:
            of_gateway.setdefault(client.gateway, []).append(client.client)
    for gateway, here in of_gateway.items():
        for row in await _told(asking, gateway, shard, here, missing):
            others.setdefault(row[0], []).append(_shown(*row, "ephemeral", False))
    found: list[Subscription] = []
    for client in clients:
        found += [one.shown for one in kept.get(client.client, ())]
        found += others.get(client.client, ())
    return found


async def _told(
    asking: Asking, gateway: str, shard: int, clients: list[bytes], missing: dict[str, None]
) -> list[tuple[bytes, bytes, int, int, int]]:
    """Of a gateway, or, when that is empty, of the session actor of this home."""
    rows: list[tuple[bytes, bytes, int, int, int]] = []
    while True:
        ask = SubscriptionsOf(0, clients, len(rows), ROWS_MAX)
        told = await (asking.gateway(gateway, ask, missing) if gateway else asking.session_of(shard, ask, missing))
        if not isinstance(told, SubscriptionsTold):
            return rows
        rows += told.rows
        if told.whole:
            return rows


def _shown(client: bytes, filter: bytes, qos: int, options: int, identifier: int, session: Kind, stored: bool) -> Subscription:
    return Subscription(
        shown(client), shown(filter), qos, bool(options & NO_LOCAL), bool(options & RETAIN_AS_PUBLISHED), identifier, session, stored
    )
