"""What the site process counts is in its sheet, and what somebody else leads now is zero there."""

from __future__ import annotations

from pathlib import Path

from actors.metrics.of_site import SiteFigures
from actors.metrics.sheet import PREFIXES, Sheet, incarnation
from actors.sites.copies import CopyStatus
from actors.sites.looking import Seen
from actors.sites.records import SiteRecord
from shards.replication.configuration import first, rid_of, taken_over, targeted


def seen(epochs: int) -> Seen:
    sites = {site: SiteRecord(site, "127.0.0.1", 7883, 1, "n", 1, 1, "lost" if site == "c" else "member") for site in "abc"}
    now = first(frozenset(rid_of(site, "1") for site in "abc"), "")
    for _ in range(epochs):
        now = taken_over(now, rid_of("a", "1"), "")
    return Seen(sites, shards={0: targeted(now, ("a", "d"), "")})


def test_sites_shards_lag_and_transitions_are_counted(tmp_path: Path) -> None:
    """Each with its labels; a replica that is followed from elsewhere is not behind here any more."""
    figures = SiteFigures()
    figures.saw(seen(1), seen(3))
    sheet = Sheet(tmp_path, incarnation("site-0"))
    leads = CopyStatus(0, "a/1", "leader", 3, "a/1", behind={"b/1": 5})
    figures.write(sheet, "a", seen(3), {"a"}, [leads], away=True)
    assert _levels(sheet)[("holdfast_replication_behind_entries", ("0", "b"))] == 5
    figures.write(sheet, "a", seen(3), {"a"}, [], away=False)
    found = _levels(sheet)
    wanted = {
        ("holdfast_sites", ("up",)): 1, ("holdfast_sites", ("down",)): 1, ("holdfast_sites", ("lost",)): 1,
        ("holdfast_site_shards_led", ()): 1, ("holdfast_replication_epoch", ("0",)): 3, ("holdfast_replication_replicas", ("0",)): 3,
        ("holdfast_replication_in_sync", ("0",)): 3, ("holdfast_replication_writable", ("0",)): 1,
        ("holdfast_replication_transitions", ("0", "add")): 1, ("holdfast_replication_transitions", ("0", "del")): 2,
        ("holdfast_replication_behind_entries", ("0", "b")): 0, ("holdfast_replication_takeovers_total", ("0",)): 2,
        ("holdfast_replication_incarnation", ("0",)): 1, ("holdfast_site_shards_given_by_plan_total", ()): 0,
        ("holdfast_register_up", ()): 1, ("holdfast_register_failures_total", ()): 0,
    }  # fmt: skip
    assert found == wanted
    sheet.close()


def _levels(sheet: Sheet) -> dict[tuple[str, tuple[str, ...]], float]:
    """What is in its files."""
    keys = {key: name for name, key in sheet._keys.items()}
    rows = [row for kind in PREFIXES for row in sheet._files[kind].read_all_values()]  # type: ignore[no-untyped-call]
    return {keys[key]: value for key, value, *_ in rows}
