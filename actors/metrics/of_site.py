"""What the site process counts, of several sites: who is up, who leads, how far replicas are behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from actors.metrics.names import Metric
from shards.replication.configuration import Rid, site_of

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet
    from actors.sites.copies import CopyStatus
    from actors.sites.looking import Seen

_SHARD = ("shard",)
SITES: Final = Metric("holdfast_sites", "gauge", ("status",), "Sites that are up, down or lost, as this one sees them.")
LED: Final = Metric("holdfast_site_shards_led", "gauge", (), "Shards that this site leads.")
EPOCH: Final = Metric("holdfast_replication_epoch", "gauge", _SHARD, "The epoch of the shard's leader; 0: nobody has led yet.")
REPLICAS: Final = Metric("holdfast_replication_replicas", "gauge", _SHARD, "Replicas of the shard.")
IN_SYNC: Final = Metric("holdfast_replication_in_sync", "gauge", _SHARD, "Replicas that are in sync.")
WRITABLE: Final = Metric("holdfast_replication_writable", "gauge", _SHARD, "1: enough are in sync for something to be stored.")
BEHIND: Final = Metric(
    "holdfast_replication_behind_entries", "gauge", ("shard", "site"),
    "Entries of the log that this replica has not acknowledged, of shards that this site leads.",
)  # fmt: skip
MOVING: Final = Metric("holdfast_replication_transitions", "gauge", ("shard", "type"), "Replicas to be added (add) or removed (del).")
TAKEOVERS: Final = Metric("holdfast_replication_takeovers_total", "counter", _SHARD, "Epochs that began since this process did.")
INCARNATION: Final = Metric(
    "holdfast_replication_incarnation", "gauge", _SHARD, "Of the shard: 1, and one more for each time that leadership was forced.",
)  # fmt: skip
GIVEN: Final = Metric(
    "holdfast_site_shards_given_by_plan_total", "counter", (), "Shards whose lead this site gave to the site that the plan has for it."
)
REGISTER_UP: Final = Metric("holdfast_register_up", "gauge", (), "1: the register answered when it was asked last.")
REGISTER_FAILURES: Final = Metric("holdfast_register_failures_total", "counter", (), "Looks into the register that it did not answer.")
METRICS: Final = (
    SITES, LED, EPOCH, REPLICAS, IN_SYNC, WRITABLE, BEHIND, MOVING, TAKEOVERS, INCARNATION, GIVEN, REGISTER_UP, REGISTER_FAILURES,
)  # fmt: skip


class SiteFigures:
    def __init__(self) -> None:
        self.register_failures = 0
        self.given = 0
        self._takeovers: dict[int, int] = {}
        self._behind: set[tuple[str, str]] = set()

    def saw(self, before: Seen, now: Seen) -> None:
        """Two looks, one after the other."""
        for shard, record in now.shards.items():
            if shard in before.shards:
                self._takeovers[shard] = self._takeovers.get(shard, 0) + record.epoch - before.shards[shard].epoch

    def write(self, sheet: Sheet, here: str, seen: Seen, up: Collection[str], copies: Sequence[CopyStatus], *, away: bool) -> None:
        """copies: of this site."""
        from actors.sites.changing import moving

        states = ["lost" if record.state == "lost" else "up" if site in up else "down" for site, record in seen.sites.items()]
        for status in ("up", "down", "lost"):
            sheet.level(SITES, states.count(status), status)
        sheet.level(LED, sum(site_of(now.leader) == here for now in seen.shards.values()))
        sheet.level(REGISTER_UP, not away)
        sheet.count(GIVEN, self.given)
        sheet.count(REGISTER_FAILURES, self.register_failures)
        for shard, now in seen.shards.items():
            name = str(shard)
            sheet.level(EPOCH, now.epoch, name)
            sheet.level(INCARNATION, now.incarnation, name)
            sheet.level(REPLICAS, len(now.replicas), name)
            sheet.level(IN_SYNC, len(now.isr), name)
            sheet.level(WRITABLE, now.writable, name)
            sheet.count(TAKEOVERS, self._takeovers.get(shard, 0), name)
            signs = [sign for sign, _ in moving(now)]
            sheet.level(MOVING, signs.count("+"), name, "add")
            sheet.level(MOVING, signs.count("-"), name, "del")
        self._write_behind(sheet, copies)

    def _write_behind(self, sheet: Sheet, copies: Sequence[CopyStatus]) -> None:
        behind = {
            (str(copy.shard), site_of(Rid(rid))): entries
            for copy in copies
            if copy.role == "leader"
            for rid, entries in copy.behind.items()
        }
        for labels in self._behind - behind.keys():
            # Led elsewhere now: a gauge cannot be taken away.
            sheet.level(BEHIND, 0, *labels)
        self._behind |= behind.keys()
        for labels, entries in behind.items():
            sheet.level(BEHIND, entries, *labels)
