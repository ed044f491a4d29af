"""Clients: who is connected, and who is away and has a session; and how one is disconnected.

Which clients there are, their homes say; how those are connected, their gateways.  A client whose gateway is away is told as its home
knows it, as connected and without details.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from actors.inquiry.asking import Asking, Page
from actors.inquiry.homes import AFTER, WHOLE_VALUE, Cursor, Found, alone, found_of, next_shard, within
from sessions.inquiry_frames import CLIENTS_MAX, ConnectionsOf, ConnectionsTold, Kick, Kicked, OpenConnection
from shards.ids import EXPIRY_NEVER
from shards.queries import Rows
from shards.rows import CONNECTION, SESSION, ConnectionRow, SessionRow, client_key, successor, unpack_as

COUNT_MAX = CLIENTS_MAX
_FAMILIES = (CONNECTION, SESSION)
_QUESTIONS_MAX = 20
"""Of one page: when few of many fit what is wanted it is short, and has a cursor."""
Kind = Literal["ephemeral", "durable", "memory"]


@dataclass(frozen=True, slots=True)
class Client:
    """session: where its session lives.  home: the shard.  user: empty for the anonymous one, None when nobody knows it.

    Times are milliseconds since 1970; expiry_s None: never; protocol as in CONNECT.  What is None is not known, or is not so.
    subscriptions, inflight, queued: of an ephemeral session.
    """

    client: str
    connected: bool
    session: Kind
    home: int
    user: str | None
    protocol: int | None
    gateway: str | None
    peer: str | None = None
    listener: str | None = None
    keep_alive_s: int | None = None
    connected_at_ms: int | None = None
    disconnected_at_ms: int | None = None
    created_at_ms: int | None = None
    expiry_s: int | None = 0
    expires_at_ms: int | None = None
    subscriptions: int | None = None
    inflight: int | None = None
    queued: int | None = None
    unanswered: int | None = None
    congested: bool | None = None


@dataclass(frozen=True, slots=True)
class AtHome:
    """What the home of a client has."""

    client: bytes
    shard: int
    connection: ConnectionRow | None
    session: SessionRow | None

    @property
    def gateway(self) -> str:
        """The process that has the connection, as far as the home knows; empty: none."""
        row = self.connection
        return row.gateway.partition(":")[0] if row is not None and not row.ended_ms else ""

    @property
    def kind(self) -> Kind:
        return "ephemeral" if self.session is None else "memory" if self.session.memory else "durable"


async def page(asking: Asking, cursor: str = "", count_max: int = COUNT_MAX, connected: bool | None = None) -> Page[Client]:
    """connected: only those that are, or that are not.  Raises BadCursor."""
    missing: dict[str, None] = {}
    found: list[Client] = []
    at: Cursor | None = Cursor.parse(cursor)
    for _ in range(_QUESTIONS_MAX):
        if at is None or at.shard >= asking.topology.n_shards or len(found) >= count_max:
            break
        rows, clients, at = await at_homes(asking, at, min(count_max - len(found), COUNT_MAX), missing)
        if rows is not None:
            found += [one for one in await _seen(asking, rows, clients, missing) if connected in (None, one.connected)]
    return Page(tuple(found), str(at) if at is not None and at.shard < asking.topology.n_shards else "", tuple(missing))


async def find(asking: Asking, client: str) -> tuple[Client | None, tuple[str, ...]]:
    """(the client, None when nobody knows it; who did not answer)."""
    missing: dict[str, None] = {}
    found = await at_home(asking, client, missing)
    if found is None:
        return None, tuple(missing)
    seen = await _seen(asking, found[0], [found[1]], missing)
    return (seen[0] if seen else None), tuple(missing)


async def kick(asking: Asking, client: str) -> tuple[bool, tuple[str, ...]]:
    """Disconnect it, with 0x98 if it speaks MQTT 5; (whether it was connected, who did not answer)."""
    missing: dict[str, None] = {}
    asks = [asking.gateway(gateway, Kick(0, [client.encode()]), missing) for gateway in asking.gateways]
    kicked = [told for told in await asyncio.gather(*asks) if isinstance(told, Kicked) and told.clients]
    return bool(kicked), tuple(missing)


# ---------------------------------------------------------------------------------------------------- for others here


async def at_homes(
    asking: Asking, cursor: Cursor, count_max: int, missing: dict[str, None]
) -> tuple[Found | None, list[AtHome], Cursor | None]:
    """The next clients of one shard, by client; and where to go on.  cursor.key: of a client, without the family."""
    behind = cursor.key + AFTER if cursor.key else b""
    ranges = [(family + behind, successor(family), count_max) for family in _FAMILIES]
    told = await asking.rows(cursor.shard, Rows(ranges, WHOLE_VALUE), missing)
    if told is None:
        return None, [], next_shard(asking, cursor)
    # Beyond the end of a family that was cut off nothing is known of it.
    ends = [rows[-1][0][1:] if rows else cursor.key for rows, whole in zip(told.found, told.whole, strict=True) if not whole]
    found = found_of(told)
    clients = _clients(cursor.shard, found, min(ends) if ends else None)
    if len(clients) > count_max:
        clients = clients[:count_max]
        ends = [client_key(b"", clients[-1].client)]
    return found, clients, Cursor(cursor.shard, min(ends)) if ends else next_shard(asking, cursor)


async def at_home(asking: Asking, client: str, missing: dict[str, None]) -> tuple[Found, AtHome] | None:
    """What the home of this client has, which may be nothing; None: it is away."""
    id = client.encode()
    home = asking.home_of(id)
    found = await within(asking, home, [alone(client_key(family, id)) for family in _FAMILIES], missing)
    if found is None:
        return None
    clients = _clients(home, found, None)
    return found, clients[0] if clients else AtHome(id, home, None, None)


async def connections(asking: Asking, clients: Iterable[AtHome], missing: dict[str, None]) -> dict[bytes, OpenConnection | None]:
    """Of those that their homes know as connected: how they are, None when their gateway is away.  Who is not here is not connected."""
    of_gateway: dict[str, list[AtHome]] = {}
    for client in clients:
        if client.gateway:
            of_gateway.setdefault(client.gateway, []).append(client)
    found: dict[bytes, OpenConnection | None] = {}
    for gateway, here in of_gateway.items():
        for start in range(0, len(here), CLIENTS_MAX):
            part = [client.client for client in here[start : start + CLIENTS_MAX]]
            told = await asking.gateway(gateway, ConnectionsOf(0, part), missing)
            if isinstance(told, ConnectionsTold):
                found.update({row.client: row for row in told.rows})
            else:
                found.update(dict.fromkeys(part))
    return found


def shown(text: bytes) -> str:
    return text.decode(errors="replace")


# ---------------------------------------------------------------------------------------------------- within


def _clients(shard: int, found: Found, upto: bytes | None) -> list[AtHome]:
    """found: rows of connections, and of sessions."""
    connected = {key[1:]: unpack_as(ConnectionRow, value) for key, value, _ in found.rows[0]}
    having = {key[1:]: unpack_as(SessionRow, value) for key, value, _ in found.rows[1]}
    keys = sorted({*connected, *having})
    return [AtHome(key[2:], shard, connected.get(key), having.get(key)) for key in keys if upto is None or key <= upto]


async def _seen(asking: Asking, rows: Found, clients: Sequence[AtHome], missing: dict[str, None]) -> list[Client]:
    """Those that are connected or have a session."""
    live = await connections(asking, clients, missing)
    found: list[Client] = []
    for client in clients:
        connected = client.client in live
        if connected or client.session is not None:
            found.append(_client(rows, client, live.get(client.client), connected))
    return found


def _client(rows: Found, client: AtHome, live: OpenConnection | None, connected: bool) -> Client:
    row, session = client.connection, client.session
    user = live.user if live is not None else shown(session.user) if session is not None and session.user is not None else None
    expiry_s = session.expiry_s if session is not None else 0
    due_ms = session.due_ms if session is not None else 0
    ephemeral = live is not None and session is None
    return Client(
        shown(client.client), connected, client.kind, client.shard, user,
        live.protocol if live is not None else session.protocol if session is not None else None,
        client.gateway or None if connected else None,
        live.peer if live is not None else None,
        live.listener if live is not None else None,
        live.keep_alive_s if live is not None else None,
        rows.at_ms - live.since_ms if live is not None else None,
        rows.wall_ms(row.ended_ms) if row is not None and row.ended_ms else None,
        rows.wall_ms(session.created_ms) if session is not None else None,
        None if expiry_s == EXPIRY_NEVER else expiry_s,
        rows.wall_ms(due_ms) if due_ms else None,
        live.subscriptions if live is not None and ephemeral else None,
        live.inflight if live is not None and ephemeral else None,
        live.queued if live is not None and ephemeral else None,
        live.unanswered if live is not None else None,
        live.congested if live is not None else None,
    )  # fmt: skip
