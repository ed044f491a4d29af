"""`holdfast storage lease`: names under which readers make messages wait for them (docs/retention.md), of a running broker.

A lease is in every shard, with a place in each.  The JSON form is an interface: fields are added, never renamed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import typer

from actors.asking import NotReached, Shards, running
from cli.paths import data_path
from cli.stores import refuse
from config.values import INFINITY, Duration, Size
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, is_shared
from shards.frames import (
    LEASE_TAKEN,
    LEASE_UNKNOWN,
    LEASES_FULL,
    START_EARLIEST,
    START_LATEST,
    LeaseAck,
    LeaseDone,
    LeaseDrop,
    LeasePut,
    Leases,
    LeasesFound,
    Reply,
)
from shards.leases import FILTERS_MAX, LEASES_MAX, LeaseRow

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Readers for which messages wait, of a running broker.")

DataDir = Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker that is meant.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the lease: letters, digits and _ . -")]
_NAMES = re.compile(r"[A-Za-z0-9_.-]{1,64}")
Found = dict[str, dict[int, tuple[LeaseRow, int]]]
"""Lease -> shard -> (row, ms until it has to be renewed)."""
T = TypeVar("T")


@app.command()
def ls(data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """All leases: their places, their bounds, and what they have lost."""
    found = _run(data_dir, _leases)
    rows = [_facts(name, shard, row, left_ms) for name, shards in sorted(found.items()) for shard, (row, left_ms) in sorted(shards.items())]
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(_line(row))
    if not rows:
        print("there are no leases")


@app.command()
def create(
    name: Name,
    ttl: Annotated[str, typer.Option("--ttl", help="It is gone when it is not renewed for so long.")] = "7d",
    max_age: Annotated[str, typer.Option("--max-age", help="How long messages wait for it beyond their time.")] = "7d",
    max_bytes: Annotated[str, typer.Option("--max-bytes", help="How much may wait for it beyond its time, in each shard.")] = "infinity",
    block: Annotated[bool, typer.Option("--block", help="Wait at whatever price: at the quota publishers are refused.")] = False,
    filters: Annotated[list[str] | None, typer.Option("--filter", help="Store these topics though no session wants them.")] = None,
    start: Annotated[str, typer.Option("--start", help="earliest, latest, or a position.")] = "latest",
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Make a lease, in every shard."""
    if not _NAMES.fullmatch(name):
        refuse(f"{name!r} is no name for a lease: 1 to 64 letters, digits and _ . - are allowed.", 2)
    put = LeasePut(name.encode(), _duration(ttl), _duration(max_age), _size(max_bytes), block, _filters(filters or []), _start(start))

    async def make(shards: Shards) -> list[Reply]:
        if name in await _leases(shards):
            refuse(f"there is a lease {name} already; `holdfast storage lease renew {name}` prolongs it.")
        replies = await shards.ask_all(put)
        if any(isinstance(reply, LeaseDone) and reply.code for reply in replies):
            # In every shard or in none.
            await shards.ask_all(LeaseDrop(name.encode()))
        return replies

    _say(name, _run(data_dir, make), as_json)


@app.command()
def renew(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Let its time to live begin anew."""

    async def again(shards: Shards) -> list[Reply]:
        found = (await _leases(shards)).get(name)
        if found is None:
            return [LeaseDone(LEASE_UNKNOWN, 0)]
        # A shard that lacks it was away when it was made or has dropped it: it gets it as the others have it.
        first = next(iter(found.values()))[0]
        replies = []
        for shard in range(shards.count):
            row = found[shard][0] if shard in found else first
            put = LeasePut(name.encode(), row.ttl_ms, row.max_age_ms, row.max_bytes, row.block, row.filters, START_EARLIEST)
            replies.append(await shards.ask(shard, put))
        return replies

    _say(name, _run(data_dir, again), as_json)


@app.command()
def ack(
    name: Name,
    position: Annotated[int, typer.Argument(metavar="POSITION", min=0, help="Everything up to here was taken.")],
    shard: Annotated[int, typer.Option("--shard", min=0, help="Positions are those of one shard.")] = 0,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Say how far its reader has come in a shard; messages up to there wait for it no longer."""

    async def tell(shards: Shards) -> list[Reply]:
        if shard >= shards.count:
            refuse(f"there is no shard {shard}: the broker has {shards.count}, counted from 0.", 2)
        return [await shards.ask(shard, LeaseAck(name.encode(), position))]

    _say(name, _run(data_dir, tell), as_json, shard)


@app.command()
def rm(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Drop a lease: nothing waits for it any longer."""

    async def drop(shards: Shards) -> list[Reply]:
        replies = await shards.ask_all(LeaseDrop(name.encode()))
        # One that some shards have dropped by themselves is gone now, which is what was asked for.
        gone = [reply for reply in replies if isinstance(reply, LeaseDone) and not reply.code]
        return list(gone) or replies

    _checked(name, _run(data_dir, drop))
    print(json.dumps({"name": name}) if as_json else f"the lease {name} is gone")


# ---------------------------------------------------------------------------------------------------- asking


def _run(data_dir: str, asks: Callable[[Shards], Coroutine[Any, Any, T]]) -> T:
    async def linked() -> T:
        async with Shards(topology) as shards:
            return await asks(shards)

    try:
        topology = running(data_path(data_dir))
        return asyncio.run(linked())
    except NotReached as error:
        refuse(f"{error}.")


async def _leases(shards: Shards) -> Found:
    found: Found = {}
    for shard, told in enumerate(await shards.query_all(Leases())):
        assert isinstance(told, LeasesFound)
        for name, fields in told.leases:
            row = LeaseRow(*fields)
            of_name = found.setdefault(name.decode(errors="backslashreplace"), {})
            of_name[shard] = (row, min(row.ttl_ms, max(0, row.renewed_ms + row.ttl_ms - told.age_ms)))
    return found


def _checked(name: str, replies: list[Reply]) -> list[LeaseDone]:
    done = [reply for reply in replies if isinstance(reply, LeaseDone)]
    for reply in done:
        if reply.code == LEASE_UNKNOWN:
            refuse(f"there is no lease {name}.")
        if reply.code == LEASES_FULL:
            refuse(f"there are {LEASES_MAX} leases already, which is as many as there may be: drop one with `holdfast storage lease rm`.")
        if reply.code != LEASE_TAKEN:
            refuse(f"the lease {name} cannot be like that (code {reply.code}).")
    return done


def _say(name: str, replies: list[Reply], as_json: bool, first: int = 0) -> None:
    """first: the shard of the first reply."""
    positions = {shard: reply.position for shard, reply in enumerate(_checked(name, replies), first)}
    if as_json:
        print(json.dumps([{"name": name, "shard": shard, "position": position} for shard, position in positions.items()]))
        return
    for shard, position in positions.items():
        print(f"the lease {name} is at position {position} of shard {shard}")


# ---------------------------------------------------------------------------------------------------- words


def _facts(name: str, shard: int, row: LeaseRow, left_ms: int) -> dict[str, Any]:
    return {
        "name": name, "shard": shard, "position": row.position, "left_ms": left_ms, "ttl_ms": row.ttl_ms,
        "max_age_ms": None if row.max_age_ms >= INFINITY else row.max_age_ms,
        "max_bytes": None if row.max_bytes >= INFINITY else row.max_bytes,
        "block": row.block, "filters": [each.decode(errors="replace") for each in row.filters],
        "losses": row.losses, "lost_from": row.lost_from if row.losses else None, "lost_upto": row.lost_upto if row.losses else None,
        "lost_wall_ms": row.lost_wall_ms if row.losses else None,
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    age = "for ever" if row["max_age_ms"] is None else Duration(row["max_age_ms"])
    size = "" if row["max_bytes"] is None else f" and {Size(row['max_bytes'])}"
    holds = "holds at whatever price" if row["block"] else f"holds {age}{size} beyond their time"
    line = f"{row['name']}, shard {row['shard']}: at position {row['position']}, {holds}, to be renewed in {_roughly(row['left_ms'])}"
    if row["filters"]:
        line += f", stores {' '.join(row['filters'])}"
    if row["losses"]:
        line += f"; LOST {row['losses']} generation{'s' * (row['losses'] > 1)} from {row['lost_from']} to {row['lost_upto']}"
    return line


def _roughly(ms: int) -> str:
    if ms >= INFINITY // 2:
        return "infinity"
    return str(Duration(ms - ms % 1000 or ms))


def _duration(text: str) -> int:
    try:
        return Duration.parse(text).ms
    except ValueError:
        refuse(f'{text!r} is no duration: one such as "12h" or "7d", or "infinity", is wanted.', 2)


def _size(text: str) -> int:
    try:
        return int(Size.parse(text))
    except ValueError:
        refuse(f'{text!r} is no size: one such as "10GiB", or "infinity", is wanted.', 2)


def _filters(texts: list[str]) -> list[bytes]:
    if len(texts) > FILTERS_MAX:
        refuse(f"{len(texts)} filters are too many for a lease: {FILTERS_MAX} are allowed.", 2)
    found = []
    for text in texts:
        try:
            topic_filter = check_topic_filter(text)
        except ProtocolError as error:
            refuse(f"{text!r} is no topic filter: {error}.", 2)
        if is_shared(topic_filter):
            refuse(f"{text!r} begins with $share: name the topics themselves.", 2)
        found.append(topic_filter)
    return found


def _start(text: str) -> int:
    known = {"earliest": START_EARLIEST, "latest": START_LATEST}
    if text in known:
        return known[text]
    if not text.isdecimal():
        refuse(f'{text!r} is no start: "earliest", "latest" or a position is wanted.', 2)
    return int(text)
