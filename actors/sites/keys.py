"""The keys of the register, all below `register.prefix` (docs/replication.md, "Processes")."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "cluster"
SITES: Final = "sites/"
COPIES: Final = "copies/"
SHARDS: Final = "shards/"
TURN: Final = "turn"
"""Who gave a shard away by plan last, for people; its version is what sites go by (actors.sites.spreading)."""


def site_key(site: str) -> str:
    """Its record (actors.sites.records)."""
    return f"{SITES}{site}"


def copy_key(shard: int, site: str) -> str:
    """The rid of the copy that this site has of the shard, in UTF-8."""
    return f"{COPIES}{shard}/{site}"


def shard_key(shard: int) -> str:
    """The register record of the shard (shards.replication.configuration)."""
    return f"{SHARDS}{shard}"
