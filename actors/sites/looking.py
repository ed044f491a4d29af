"""What the register says of all sites and shards, at a moment: two lists, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.sites.keys import SHARDS, SITES, shard_key, site_key
from actors.sites.records import RecordUnreadable, SiteRecord
from shards.replication.configuration import Configuration, ConfigurationUnreadable, site_of
from shards.replication.register import NO_VALUE, Held, Register


@dataclass(frozen=True, slots=True)
class Seen:
    """sites: by id, without those that were forgotten.  versions: of the register, by key.  unreadable: one sentence for each value that is
    left out."""

    sites: Mapping[str, SiteRecord] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    shards: Mapping[int, Configuration] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(site for site, record in self.sites.items() if record.state == "lost")

    def version(self, key: str) -> int:
        return self.versions.get(key, NO_VALUE)

    def wanted(self, shard: int) -> frozenset[str]:
        """The sites that copies of this shard are on, or shall be on."""
        now = self.shards[shard]
        return sites_of(now) if now.target is None else frozenset(now.target)


def sites_of(now: Configuration) -> frozenset[str]:
    """With replicas."""
    return frozenset(site_of(rid) for rid in now.replicas)


async def look(register: Register) -> Seen:
    """Raises RegisterAway."""
    return seen_of(await register.list(SITES), await register.list(SHARDS))


def seen_of(sites: Mapping[str, Held], shards: Mapping[str, Held]) -> Seen:
    """Of the values below SITES and SHARDS."""
    records: dict[str, SiteRecord] = {}
    configurations: dict[int, Configuration] = {}
    unreadable: list[str] = []
    for key, held in sites.items():
        try:
            record = SiteRecord.unpack(held.value)
        except RecordUnreadable as error:
            unreadable.append(f"{key}: {error}")
            continue
        if key == site_key(record.site):
            records[record.site] = record
    for key, held in shards.items():
        number = key.removeprefix(SHARDS)
        if not number.isdecimal() or key != shard_key(int(number)):
            continue
        try:
            configurations[int(number)] = Configuration.unpack(held.value)
        except ConfigurationUnreadable as error:
            unreadable.append(f"{key}: {error}")
    there = {site: record for site, record in records.items() if record.state != "forgotten"}
    versions = {key: held.version for key, held in (*sites.items(), *shards.items())}
    ordered = dict(sorted(configurations.items()))
    return Seen(there, frozenset(records) - frozenset(there), ordered, versions, tuple(unreadable))
