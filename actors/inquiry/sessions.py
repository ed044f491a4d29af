"""Sessions that outlive their connections: what they have, how far they are, and how one is ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.inquiry.asking import Asking, Page
from actors.inquiry.clients import COUNT_MAX, AtHome, Kind, at_home, at_homes, connections, shown
from actors.inquiry.homes import Cursor, Found, prefixed, within
from actors.inquiry.lag import Lag, Lags, looking, unfinished_by
from actors.inquiry.stored import Stored
from sessions.inquiry_frames import CLIENTS_MAX, LoadedSession, SessionsOf, SessionsTold
from shards.ids import EXPIRY_NEVER
from shards.rows import (
    INCOMING,
    LOSS,
    PROGRESS,
    SUBSCRIPTION,
    ProgressRow,
    client_key,
    split_client_key,
    unpack_as,
)

_QUESTIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Session:
    """kind: durable, or in the memory of a session actor.  home: the shard.  Times are milliseconds since 1970.

    expiry_s None: never.  expires_at_ms: when nobody comes back; None: it does not, or its client is connected.  unfinished: messages that
    were given to it and are not acknowledged.  incoming: QoS 2 messages of its client that wait for PUBREL.  losses: loss records.
    loaded: the session actor has it in its memory at the moment.
    """

    client: str
    kind: Kind
    home: int
    session_id: int
    user: str | None
    protocol: int
    connected: bool
    created_at_ms: int
    disconnected_at_ms: int | None
    expiry_s: int | None
    expires_at_ms: int | None
    subscriptions: int
    unfinished: int
    incoming: int
    losses: int
    loaded: bool
    will: str | None
    """The topic of the will that waits, or would come."""


async def page(asking: Asking, cursor: str = "", count_max: int = COUNT_MAX) -> Page[Session]:
    """Raises BadCursor."""
    missing: dict[str, None] = {}
    found: list[Session] = []
    at: Cursor | None = Cursor.parse(cursor)
    for _ in range(_QUESTIONS_MAX):
        if at is None or at.shard >= asking.topology.n_shards or len(found) >= count_max:
            break
        shard = at.shard
        rows, clients, at = await at_homes(asking, at, min(count_max - len(found), COUNT_MAX), missing)
        if rows is not None:
            found += await _sessions(asking, rows, shard, clients, missing)
    return Page(tuple(found), str(at) if at is not None and at.shard < asking.topology.n_shards else "", tuple(missing))


async def page_with_lag(
    asking: Asking, lags: Lags, cursor: str = "", count_max: int = COUNT_MAX, wanted: Callable[[str], bool] = lambda _: True
) -> Page[tuple[Session, Lag | None]]:
    """Of the next clients those that are wanted, so there may be few, or none and a cursor; a lag for durable ones.  Raises BadCursor."""
    missing: dict[str, None] = {}
    at = Cursor.parse(cursor)
    if at.shard >= asking.topology.n_shards:
        return Page(())
    rows, clients, following = await at_homes(asking, at, min(count_max, COUNT_MAX), missing)
    clients = [client for client in clients if wanted(shown(client.client))]
    sessions = await _sessions(asking, rows, at.shard, clients, missing) if rows is not None else []
    behind = {one.client: one for one in await lags.of(at.shard, clients, missing)} if rows is not None else {}
    both = tuple((one, behind.get(one.client)) for one in sessions)
    return Page(both, str(following) if following is not None else "", tuple(missing))


async def find(asking: Asking, client: str) -> tuple[Session | None, tuple[str, ...]]:
    """(its session, None when it has none that outlives its connection; who did not answer)."""
    missing: dict[str, None] = {}
    found = await at_home(asking, client, missing)
    if found is None:
        return None, tuple(missing)
    rows, there = found
    sessions = await _sessions(asking, rows, there.shard, [there], missing)
    return (sessions[0] if sessions else None), tuple(missing)


async def lag(asking: Asking, stored: Stored, client: str) -> tuple[Lag | None, tuple[str, ...]]:
    """(how far its durable session is behind, None when it has none; who did not answer)."""
    missing: dict[str, None] = {}
    found = await at_home(asking, client, missing)
    if found is None:
        return None, tuple(missing)
    with looking(asking, stored) as look:
        lags = await look.of(found[1].shard, [found[1]], missing)
    return (lags[0] if lags else None), tuple(missing)


async def lags_page(asking: Asking, lags: Lags, cursor: str = "", count_max: int = COUNT_MAX) -> Page[Lag]:
    """Of the next durable sessions.  Raises BadCursor."""
    missing: dict[str, None] = {}
    at = Cursor.parse(cursor)
    if at.shard >= asking.topology.n_shards:
        return Page(())
    rows, clients, following = await at_homes(asking, at, min(count_max, COUNT_MAX), missing)
    found = await lags.of(at.shard, clients, missing) if rows is not None else []
    return Page(tuple(found), str(following) if following is not None else "", tuple(missing))


# ---------------------------------------------------------------------------------------------------- within


async def _sessions(asking: Asking, rows: Found, shard: int, clients: Sequence[AtHome], missing: dict[str, None]) -> list[Session]:
    having = [client for client in clients if client.session is not None]
    if not having:
        return []
    first, last = having[0].client, having[-1].client
    families = (SUBSCRIPTION, INCOMING, LOSS, PROGRESS)
    ranges = [(client_key(family, first), prefixed(client_key(family, last))[1]) for family in families]
    more = await within(asking, shard, ranges, missing)
    if more is None:
        return []
    counts: list[dict[bytes, int]] = [{} for _ in families]
    for of_client, found in zip(counts, more.rows, strict=True):
        for key, _, _ in found:
            client = split_client_key(key)[0]
            of_client[client] = of_client.get(client, 0) + 1
    progress = {split_client_key(key)[0]: unpack_as(ProgressRow, value) for key, value, _ in more.rows[3]}
    live = await connections(asking, having, missing)
    loaded: dict[bytes, LoadedSession] = {}
    for start in range(0, len(having), CLIENTS_MAX):
        ask = SessionsOf(0, [client.client for client in having[start : start + CLIENTS_MAX]])
        told = await asking.session_of(shard, ask, missing)
        if isinstance(told, SessionsTold):
            loaded.update({row.client: row for row in told.rows})
    return [
        _session(rows, client, client.client in live, counts, progress.get(client.client), loaded.get(client.client)) for client in having
    ]


def _session(
    rows: Found, client: AtHome, connected: bool, counts: list[dict[bytes, int]], progress: ProgressRow | None, loaded: LoadedSession | None
) -> Session:
    row, connection, id = client.session, client.connection, client.client
    assert row is not None
    unfinished = unfinished_by(progress)
    subscriptions = counts[0].get(id, 0)
    if loaded is not None and (loaded.memory or loaded.conn):
        unfinished, subscriptions = loaded.waiting + loaded.inflight, loaded.subscriptions
    return Session(
        shown(id), client.kind, client.shard, row.session_id, shown(row.user) if row.user is not None else None, row.protocol, connected,
        rows.wall_ms(row.created_ms), rows.wall_ms(connection.ended_ms) if connection is not None and connection.ended_ms else None,
        None if row.expiry_s == EXPIRY_NEVER else row.expiry_s, rows.wall_ms(row.due_ms) if row.due_ms else None,
        subscriptions, unfinished, counts[1].get(id, 0), counts[2].get(id, 0), loaded is not None,
        shown(connection.will[0]) if connection is not None and connection.will else None,
    )  # fmt: skip
