"""The first record of each shard, when all sites have come and each has a copy of it.

Any site does it, many at the same time: whoever's compare-and-set is first decides, shard by shard.  Who leads first is whoever of the
replicas asks the register first, so leaders are spread by chance alone; nothing moves them afterwards but failures and operators.

Where one of the sites was restored from a backup its copies are full, and each shard begins with that copy alone
(shards.replication.seeding).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.sites.keys import COPIES, copy_key, shard_key
from actors.sites.looking import Seen
from actors.sites.records import Cluster
from shards.replication.allocation import first_copies
from shards.replication.configuration import Configuration, Rid, first, site_of
from shards.replication.register import NO_VALUE, Held, Register
from shards.replication.seeding import first_of_seed, is_seed


def first_records(seen: Seen, copies: Mapping[str, Held], cluster: Cluster, nonce: Callable[[], str]) -> dict[int, Configuration]:
    """Of the shards that have none yet, and of which every chosen site has a copy; none before n_sites have come.

    copies: what the register has below COPIES."""
    sites = frozenset(seen.sites) - seen.lost
    if len(sites) < cluster.n_sites or len(restored(seen)) > 1:
        return {}
    found: dict[int, Configuration] = {}
    for shard, row in enumerate(first_copies(cluster.n_shards, sites, cluster.replication_factor)):
        if shard_key(shard) in seen.versions:
            continue
        if restored(seen):
            # An empty copy of any shard beside full ones of others would be a part that is lost.
            (site,) = restored(seen)
            seed = _rid(copies.get(copy_key(shard, site)), site)
            if is_seed(seed):
                found[shard] = first_of_seed(seed, row, nonce())
            continue
        rids = [_rid(copies.get(copy_key(shard, site)), site) for site in row]
        if all(rids):
            found[shard] = first(frozenset(rids), nonce())
    return found


def restored(seen: Seen) -> list[str]:
    """Sites whose data directories come from a backup."""
    return sorted(site for site, record in seen.sites.items() if record.incarnation > 1)


def allocated(seen: Seen, cluster: Cluster) -> bool:
    return all(shard_key(shard) in seen.versions for shard in range(cluster.n_shards))


async def allocate(register: Register, seen: Seen, cluster: Cluster, nonce: Callable[[], str]) -> dict[int, Configuration]:
    """What was proposed; whether it was taken is seen at the next look.  Raises RegisterAway."""
    records = first_records(seen, await register.list(COPIES), cluster, nonce)
    for shard, record in records.items():
        await register.cas(shard_key(shard), NO_VALUE, record.pack())
    return records


def _rid(held: Held | None, site: str) -> Rid:
    rid = Rid("" if held is None else held.value.decode(errors="replace"))
    return rid if site_of(rid) == site else Rid("")
