"""A lease, as far as a reading has one: made when it is missing, renewed, and asked for its place (docs/retention.md, "Leases").

The checkpoint of a query is the truth about what was read; the lease only says what must not be dropped before. It is acknowledged for what
Spark has committed, and never for more.
"""

from __future__ import annotations

from typing import Any, Literal

from holdfast_spark.client import Client
from holdfast_spark.options import LeaseOptions
from holdfast_spark.protocol import Code, Refused


def put_lease(client: Client, options: LeaseOptions, *, start: Literal["earliest", "latest"]) -> dict[str, Any]:
    """The lease, which begins at ``start`` when there was none of this name; one that is there is renewed and stays where it is."""
    found = client.lease(
        "put",
        name=options.name,
        ttl_ms=options.ttl_ms,
        max_age_ms=options.max_age_ms,
        max_bytes=options.max_bytes,
        block=options.block,
        filters=list(options.capture),
        start=start,
    )
    return _named(found, options.name)


def lease_cuts(client: Client, options: LeaseOptions, *, start: Literal["earliest", "latest"]) -> dict[int, int]:
    """Up to where everything was taken, in each shard."""
    return {int(shard): int(cut) for shard, cut in put_lease(client, options, start=start)["to"].items()}


def _named(leases: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for each in leases:
        if each["name"] == name:
            return each
    raise Refused(Code.REQUEST, f"the reader was asked for the lease {name!r} and told of {[each['name'] for each in leases]}")
