"""What the register says of the whole cluster, and of each site: JSON, so that an operator can read it there.

Pure.  The record of a shard is elsewhere (shards.replication.configuration).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from actors.sites.formats import FIRST, ONLY_FIRST, Known, Use

CLUSTER_VERSION: Final = 1
SITE_VERSION: Final = 1
State = Literal["member", "lost", "forgotten"]
_SETTINGS = {
    "n_shards": "durable_storage.messages.n_shards",
    "n_sites": "durable_storage.messages.n_sites",
    "replication_factor": "durable_storage.messages.replication_factor",
}


class RecordUnreadable(ValueError):
    """A value of the register that is no record of a known version.  One sentence."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What all sites have to agree on.  Whoever is first writes it.

    id: of the store, sixteen hex digits, as a site that stands alone has one; empty: it is not known yet.  incarnation: of the store.
    format, announced: as in actors.sites.formats."""

    n_shards: int
    n_sites: int
    replication_factor: int
    id: str = ""
    incarnation: int = 1
    format: int = FIRST
    announced: int = FIRST

    @property
    def use(self) -> Use:
        return Use(self.format, self.announced)

    @property
    def store(self) -> str:
        """By this readers of all sites call it; empty: it has no name yet."""
        return f"{self.id}:{self.incarnation}" if self.id else ""

    def pack(self) -> bytes:
        return _packed(CLUSTER_VERSION, asdict(self))

    @staticmethod
    def unpack(data: bytes) -> Cluster:
        """Raises RecordUnreadable."""
        row = _unpacked(data, "the record of the cluster", CLUSTER_VERSION)
        try:
            found = Cluster(
                row["n_shards"], row["n_sites"], row["replication_factor"], row.get("id", ""), row.get("incarnation", 1),
                row.get("format", FIRST), row.get("announced", FIRST),
            )  # fmt: skip
        except KeyError as error:
            raise RecordUnreadable(f"the record of the cluster in the register has no {error}") from None
        numbers = (found.n_shards, found.n_sites, found.replication_factor, found.incarnation, found.format, found.announced)
        if type(found.id) is not str or not all(type(value) is int and value > 0 for value in numbers):
            raise RecordUnreadable(f"the record of the cluster in the register cannot be: {found}")
        return found

    def disagreement(self, own: Cluster) -> str:
        """Why a site with these settings cannot be of this cluster, in one sentence; empty: it can."""
        for name, key in _SETTINGS.items():
            theirs, ours = getattr(self, name), getattr(own, name)
            if theirs != ours:
                return f"{key} is {ours} here and {theirs} in the register of this cluster: it has to be the same on all sites"
        return ""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One site.  host, port: where the others reach it.  name: of its machine.  format: of its data directory.  release: that it ran last.
    knows: the formats of a cluster that this release knows (actors.sites.formats).

    state: member; lost: an operator has said that it does not come back; forgotten: lost, and without copies, and not shown any more."""

    site: str
    host: str
    port: int
    n_gateways: int
    name: str
    incarnation: int
    format: int
    state: State = "member"
    release: str = ""
    knows: Known = ONLY_FIRST

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def pack(self) -> bytes:
        return _packed(SITE_VERSION, asdict(self))

    @staticmethod
    def unpack(data: bytes) -> SiteRecord:
        """Raises RecordUnreadable."""
        row = _unpacked(data, "the record of a site", SITE_VERSION)
        try:
            found = SiteRecord(
                row["site"], row["host"], row["port"], row["n_gateways"], row["name"], row["incarnation"], row["format"], row["state"],
                row.get("release", ""), Known(*row.get("knows", ONLY_FIRST)),
            )  # fmt: skip
        except KeyError as error:
            raise RecordUnreadable(f"the record of a site in the register has no {error}") from None
        except TypeError:
            raise RecordUnreadable(f"the record of a site in the register cannot be: it knows the formats {row['knows']!r}") from None
        texts = (found.site, found.host, found.name, found.release)
        numbers = (found.port, found.n_gateways, found.incarnation, found.format, *found.knows)
        if not all(type(text) is str for text in texts) or not all(type(number) is int for number in numbers):
            raise RecordUnreadable(f"the record of a site in the register cannot be: {found}")
        if found.state not in get_args(State):
            raise RecordUnreadable(f"site {found.site} is {found.state!r} in the register, which this program does not know")
        return found


def _packed(version: int, fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": version, **fields}, separators=(",", ":")).encode()


def _unpacked(data: bytes, what: str, version: int) -> dict[str, Any]:
    try:
        row = json.loads(data)
    except ValueError:
        raise RecordUnreadable(f"{what} in the register is no JSON, in {len(data)} bytes") from None
    if not isinstance(row, dict) or row.get("version") != version:
        found = row.get("version") if isinstance(row, dict) else type(row).__name__
        raise RecordUnreadable(f"{what} in the register has version {found!r}; this program reads version {version}")
    return row
