"""LEASE: names under which readers make messages wait for them, in all shards at once (docs/retention.md).

On the wire a lease has a cut in each shard, below which its reader has everything; a shard keeps the position, which is one less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.reader import asked
from actors.reader.access import Holder
from actors.reader.shard_side import ShardSide
from config.values import INFINITY
from holdfast_spark.protocol import Code, Refused
from shards.frames import (
    LEASE_SENSELESS,
    LEASE_UNKNOWN,
    LEASES_FULL,
    START_EARLIEST,
    START_LATEST,
    LeaseAck,
    LeaseDone,
    LeaseDrop,
    LeasePut,
)
from shards.leases import FILTERS_MAX, LEASES_MAX, NAME_BYTES_MAX, LeaseRow
from shards.queries import Leases, LeasesFound

Rows = dict[str, dict[int, tuple[LeaseRow, int]]]
"""Lease -> shard -> (row, ms until it has to be renewed)."""
_STARTS = {"earliest": START_EARLIEST, "latest": START_LATEST}


def lease(side: ShardSide, n_shards: int, holder: Holder, request: asked.Request) -> dict[str, Any]:
    """Raises Refused, ShardAway."""
    do = request.get("do")
    if do == "list":
        found = rows(side, n_shards)
        return {"leases": [_facts(name, found[name]) for name in sorted(found) if holder.has_lease(name)]}
    if do not in ("put", "ack", "drop"):
        raise asked.senseless(f'do is {asked.shown(do)}, and "put", "ack", "drop" or "list" is wanted')
    name = asked.text(request, "name", NAME_BYTES_MAX // 4)
    if do == "put":
        _put(side, n_shards, holder, name, request)
    elif do == "ack":
        holder.check_lease(name, (), block=False)
        cuts = asked.by_shard(request, "to", n_shards)
        # A cut of 0 says that nothing was taken.
        _done(name, side.ask({shard: LeaseAck(name.encode(), cut - 1) for shard, cut in cuts.items() if cut}))
    else:
        holder.check_lease(name, (), block=False)
        replies = side.ask({shard: LeaseDrop(name.encode()) for shard in range(n_shards)})
        # One that some shards have dropped by themselves is gone now, which is what was asked for.
        gone = {shard: reply for shard, reply in replies.items() if isinstance(reply, LeaseDone) and not reply.code}
        _done(name, gone or replies)
        return {"leases": []}
    found = rows(side, n_shards)
    return {"leases": [_facts(name, found[name])] if name in found else []}


def rows(side: ShardSide, n_shards: int) -> Rows:
    found: Rows = {}
    for shard, told in sorted(side.query(range(n_shards), Leases()).items()):
        assert isinstance(told, LeasesFound), told
        for name, fields in told.leases:
            row = LeaseRow(*fields)
            of_name = found.setdefault(name.decode(errors="backslashreplace"), {})
            of_name[shard] = (row, max(0, row.renewed_ms + row.ttl_ms - told.age_ms))
    return found


def _put(side: ShardSide, n_shards: int, holder: Holder, name: str, request: asked.Request) -> None:
    filters = asked.filters(request, empty=True)
    if len(filters) > FILTERS_MAX:
        raise asked.senseless(f"filters has {len(filters)} topic filters, and {FILTERS_MAX} are allowed for a lease")
    block = request.get("block", False)
    if not isinstance(block, bool):
        raise asked.senseless(f"block is {asked.shown(block)}, and true or false is wanted")
    holder.check_lease(name, filters, block)
    ttl_ms, max_age_ms, max_bytes = (_bound(request, field, low) for field, low in (("ttl_ms", 1), ("max_age_ms", 0), ("max_bytes", 0)))
    starts = _starts(request, n_shards)
    before = rows(side, n_shards).get(name)
    replies = side.ask(
        {
            shard: LeasePut(name.encode(), ttl_ms, max_age_ms, max_bytes, block, list(filters), start)
            for shard, start in starts.items()
        }
    )  # fmt: skip
    if before is None and any(isinstance(reply, LeaseDone) and reply.code for reply in replies.values()):
        # In every shard or in none.
        side.ask({shard: LeaseDrop(name.encode()) for shard in range(n_shards)})
    _done(name, replies)


def _starts(request: asked.Request, n_shards: int) -> dict[int, int]:
    """Where a new one begins, by shard: a cut of each may be said as well."""
    start = request.get("start", "latest")
    if isinstance(start, str) and start in _STARTS:
        return dict.fromkeys(range(n_shards), _STARTS[start])
    if not isinstance(start, dict):
        raise asked.senseless(f'start is {asked.shown(start)}, and "earliest", "latest" or a cut of each shard is wanted')
    cuts = asked.by_shard(request, "start", n_shards)
    return {shard: max(0, cuts[shard] - 1) if shard in cuts else START_EARLIEST for shard in range(n_shards)}


def _bound(request: asked.Request, field: str, low: int) -> int:
    found = asked.whole_or_none(request, field, low, INFINITY)
    return INFINITY if found is None else found


def _done(name: str, replies: Mapping[int, object]) -> None:
    for reply in replies.values():
        assert isinstance(reply, LeaseDone), reply
        if reply.code == LEASE_UNKNOWN:
            raise asked.senseless(f"there is no lease {name}")
        if reply.code == LEASES_FULL:
            raise Refused(Code.FULL, f"there are {LEASES_MAX} leases already, which is as many as there may be")
        if reply.code == LEASE_SENSELESS:
            raise asked.senseless(f"the lease {name} cannot be like that")
        assert not reply.code, reply


def _facts(name: str, shards: Mapping[int, tuple[LeaseRow, int]]) -> dict[str, Any]:
    row = next(iter(shards.values()))[0]
    lost = {shard: row for shard, (row, _) in sorted(shards.items()) if row.losses}
    return {
        "name": name,
        "to": {str(shard): row.position + 1 for shard, (row, _) in sorted(shards.items())},
        "ttl_ms": _endless(row.ttl_ms),
        "left_ms": _endless(min(left for _, left in shards.values())),
        "max_age_ms": _endless(row.max_age_ms),
        "max_bytes": _endless(row.max_bytes),
        "block": row.block,
        "filters": [each.decode(errors="replace") for each in row.filters],
        "losses": sum(row.losses for row in lost.values()),
        "lost_from": {str(shard): row.lost_from for shard, row in lost.items()},
        "lost_upto": {str(shard): row.lost_upto + 1 for shard, row in lost.items()},
    }


def _endless(bound: int) -> int | None:
    return None if bound >= INFINITY // 2 else bound
