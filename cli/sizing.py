"""`holdfast sizing`: the disk and memory that a load will want.

Arithmetic over the sizes of rows and messages as they are written, and over the memory of a shard that docs/operations.md has measured; how
fast a machine is, it does not know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import typer

from cli.asked import Json, amount, number, print_json
from cli.stores import refuse
from cli.typed import duration_ms
from config.values import INFINITY
from shards.queries import Place
from shards.rows import (
    ACTIVE,
    CONNECTION,
    PLACE,
    PROGRESS,
    ROUTE,
    SESSION,
    SUBSCRIPTION,
    TIMER,
    ConnectionRow,
    ProgressRow,
    SessionRow,
    SubscriptionRow,
    client_key,
    pack_connection,
    pack_place,
    pack_progress,
    pack_row,
    pack_session,
    pack_subscription,
    u64,
)

MESSAGE_OVERHEAD_BYTES = 70
"""Header, topic, key and index of a message beside its payload (docs/operations.md)."""
SHARD_MEMORY_BYTES = 320 << 20
"""Under full load, with both caches in use (docs/operations.md)."""
_CLIENT, _FILTER, _NUMBER = b"c" * 24, b"f" * 32, 1 << 50
"""A client id, a filter and a position as they are in practice."""

Rate = Annotated[float, typer.Option("--rate", min=0, metavar="N", help="Messages a second that are stored.")]
Payload = Annotated[int, typer.Option("--payload", min=0, metavar="BYTES", help="Of one message.")]
Retention = Annotated[str, typer.Option("--retention", metavar="TIME", help="durable_sessions.message_retention_period.")]
Generation = Annotated[str, typer.Option("--generation", metavar="TIME", help="durable_storage.messages.generation_length.")]
Sessions = Annotated[int, typer.Option("--sessions", min=0, metavar="N", help="Durable sessions, online and away.")]
Subscriptions = Annotated[int, typer.Option("--subscriptions", min=0, metavar="N", help="Of one session.")]
Streams = Annotated[int, typer.Option("--streams", min=1, metavar="N", help="That a subscription reads in one shard (topics explain).")]
Parts = Annotated[int, typer.Option("--shards", min=1, max=256, metavar="N", help="durable_storage.messages.n_shards.")]


@dataclass(frozen=True, slots=True)
class Sizing:
    """messages: that are stored at the most.  streams_read: by a subscription that is behind.  *_bytes: of the whole broker."""

    messages: int
    message_bytes: int
    merging_bytes: int
    places: int
    session_bytes: int
    disk_bytes: int
    shard_memory_bytes: int
    streams_read: int


def sizing(
    rate: Rate, payload: Payload = 256, retention: Retention = "7d", generation: Generation = "1d", sessions: Sessions = 0,
    subscriptions: Subscriptions = 1, streams: Streams = 1, shards: Parts = 1, as_json: Json = False,
) -> None:  # fmt: skip
    """How much disk and memory a load wants: rate x retention, sessions x subscriptions, streams x shards."""
    kept_ms, length_ms = duration_ms(retention), duration_ms(generation)
    if kept_ms >= INFINITY:
        refuse("what is kept for ever wants a disk without end: name a period with --retention.", 2)
    found = sized(rate, payload, kept_ms, min(length_ms, kept_ms), sessions, subscriptions, streams, shards)
    if as_json:
        print_json(found)
        return
    print(f"messages     {amount(found.message_bytes)}: {number(found.messages, 'message')}, read or not, until their generation goes")
    print(f"merging      {amount(found.merging_bytes)}: room for one generation once more")
    print(
        f"sessions     {amount(found.session_bytes)}: their rows, and {number(found.places, 'place')}, one for a subscription in each shard"
    )
    print(f"disk         {amount(found.disk_bytes)} in all; storage_quota has to leave as much")
    print(f"memory       {amount(found.shard_memory_bytes)} for {number(shards, 'shard')} under full load; other processes take theirs")
    print(
        f"catching up  {number(found.streams_read, 'stream')} to read for a subscription that is behind; n_shards cannot be changed later"
    )


def sized(
    rate: float, payload: int, kept_ms: int, length_ms: int, sessions: int, subscriptions: int, streams: int, shards: int
) -> Sizing:  # fmt: skip
    each = payload + MESSAGE_OVERHEAD_BYTES
    # The period of a generation begins when it is sealed.
    messages = math.ceil(rate * (kept_ms + length_ms) / 1000)
    merging = math.ceil(rate * length_ms / 1000) * each
    places = sessions * subscriptions * shards
    rows = sessions * (_session_bytes() + subscriptions * _subscription_bytes(shards))
    return Sizing(
        messages, messages * each, merging, places, rows, messages * each + merging + rows, shards * SHARD_MEMORY_BYTES, streams * shards
    )


def _session_bytes() -> int:
    rows = (
        (client_key(CONNECTION, _CLIENT), pack_connection(ConnectionRow(_NUMBER, "", _NUMBER, False, None))),
        (client_key(SESSION, _CLIENT), pack_session(SessionRow(_NUMBER, 1 << 20, 5, _NUMBER, _NUMBER, 0, b"user"))),
        (client_key(PROGRESS, _CLIENT), pack_progress(ProgressRow(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, []))),
        (TIMER + u64(_NUMBER) + b"e" + _CLIENT, b""),
    )
    return sum(len(key) + len(value) for key, value in rows)


def _subscription_bytes(shards: int) -> int:
    starts = [(shard, _NUMBER) for shard in range(shards)]
    row = pack_subscription(SubscriptionRow(_FILTER, 1, 0, 0, ACTIVE, starts))
    alone = len(client_key(SUBSCRIPTION, _CLIENT, u64(_NUMBER))) + len(row)
    in_each = len(client_key(PLACE, _CLIENT, u64(_NUMBER) + b"\0")) + len(pack_place(Place(_NUMBER)))
    route = len(ROUTE + u64(_NUMBER)) + len(pack_row((_FILTER, _CLIENT)))
    return alone + shards * (in_each + route)
