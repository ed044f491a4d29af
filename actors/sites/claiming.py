"""A site takes its place: the settings of the cluster are agreed on, and the record of this site says where it is.  Later: which format the
cluster has in use.

All by compare-and-set, so many sites may do it at the same moment.  Doing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

import structlog

from actors.sites.formats import Use, next_use, refusal
from actors.sites.keys import CLUSTER, SITES, site_key
from actors.sites.looking import Seen, look
from actors.sites.records import Cluster, SiteRecord
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import NO_VALUE, Register

log = structlog.get_logger(__name__)


class CannotJoin(Exception):
    """Why this site cannot be one of the cluster: one sentence for the operator."""


async def agree(register: Register, own: Cluster, begun: bool = True) -> Cluster:
    """Whoever is first says what the cluster is.  begun: it has shards; before that a site that was restored from a backup says which store
    it is.  What it is; raises CannotJoin, RegisterAway, RecordUnreadable."""
    while True:
        found, version = await said_first(register, own)
        if why := found.disagreement(own):
            raise CannotJoin(why)
        if found.id and (begun or found.incarnation >= own.incarnation):
            return found
        # One that was begun by a program that gave the store no name, or by a site with nothing in it.
        new = replace(found, id=own.id, incarnation=max(found.incarnation, own.incarnation))
        await _put(register, CLUSTER, version, new.pack())


def check_restored(own: SiteRecord, sites: Collection[str], shards: Collection[int]) -> None:
    """sites, shards: that the register has.  Raises CannotJoin: what was restored would be neither used nor kept."""
    if own.incarnation > 1 and shards and own.site not in sites:
        raise CannotJoin(
            f"site {own.site.upper()} was restored from a backup, and this cluster has {len(shards)} shards already: join it with an empty "
            "data directory, or let the restored one begin a cluster of its own, below another register.prefix"
        )


async def said_first(register: Register, own: Cluster) -> tuple[Cluster, int]:
    """What the cluster is, and the version of that: `own` where nobody has said it.  Raises RegisterAway, RecordUnreadable."""
    while True:
        held = await register.read(CLUSTER)
        if held is not None:
            return Cluster.unpack(held.value), held.version
        await _put(register, CLUSTER, NO_VALUE, own.pack())


async def take_place(register: Register, own: SiteRecord, is_up: Callable[[SiteRecord], Awaitable[bool]]) -> None:
    """is_up: whether the site of this record answers at its address.  Raises CannotJoin, RegisterAway, RecordUnreadable."""
    key = site_key(own.site)
    while True:
        held = await register.read(key)
        if held is None:
            await _put(register, key, NO_VALUE, own.pack())
            continue
        found = SiteRecord.unpack(held.value)
        if found.state == "forgotten":
            raise CannotJoin(f"site {own.site.upper()} was forgotten by an operator: an empty data directory can join as another site")
        if found == own:
            return
        if found.address != own.address and await is_up(found):
            raise CannotJoin(
                f"site {own.site.upper()} runs at {found.address} on {found.name!r}, and this one is at {own.address} with the same id: "
                "stop one of the two, and never start its data directory again"
            )
        if found.state == "lost":
            log.warning("site.lost_is_back", site=own.site, address=own.address)
        await _put(register, key, held.version, replace(own, state="member").pack())


async def be_let_in(
    register: Register, settings: Cluster, record: SiteRecord, is_up: Callable[[SiteRecord], Awaitable[bool]], begun: bool = True
) -> Cluster:
    """Agrees and takes its place, as above, where this release knows the format.  What the cluster is; raises as they do."""
    cluster = await agree(register, settings, begun)
    check_format(cluster, record)
    await take_place(register, record, is_up)
    # Again: it may have been announced before this site was seen.
    cluster = await agree(register, settings, begun)
    check_format(cluster, record)
    return cluster


def check_format(cluster: Cluster, own: SiteRecord) -> None:
    """Raises CannotJoin."""
    if why := refusal(cluster.use, own.knows, own.release):
        raise CannotJoin(why)


async def settle_format(register: Register, own: Cluster, seen: Seen) -> Cluster:
    """One step towards the highest format that all sites know, where there is one to make.  What the cluster is; raises RegisterAway,
    RecordUnreadable."""
    found, version = await said_first(register, own)
    if found.use == _use_after(found, seen):
        return found
    # The sites, anew: what they said before the record was read is of no use.
    use = _use_after(found, await look(register))
    if use != found.use:
        new = replace(found, format=use.format, announced=use.announced)
        if await register.cas(CLUSTER, version, new.pack()) is Outcome.DONE:
            log.info("cluster.format", format=use.format, announced=use.announced)
            return new
    return found


def _use_after(cluster: Cluster, seen: Seen) -> Use:
    if any(sentence.startswith(SITES) for sentence in seen.unreadable):
        return cluster.use  # Nobody knows what that site knows.
    return next_use(cluster.use, [record.knows for record in seen.sites.values() if record.state != "lost"])


async def _put(register: Register, key: str, version: int, value: bytes) -> None:
    if await register.cas(key, version, value) is Outcome.UNKNOWN:
        # Whether it was made is seen by who reads; the caller begins anew.
        raise RegisterAway(f"the register did not say whether {key} was written")
