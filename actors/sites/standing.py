"""How the sites stand, for `holdfast status`: from the run directory alone, so it answers in a moment, whoever is away."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.run import read_run
from actors.sites.whereabouts import SeveralSites
from actors.topology import Topology


@dataclass(frozen=True, slots=True)
class SiteStanding:
    """leads: shards, as far as this site has heard."""

    site: str
    name: str
    address: str
    up: bool
    leads: int


@dataclass(frozen=True, slots=True)
class Standing:
    """register: where it is, and what hangs on it.  unled: shards of which nobody is known to lead them."""

    register: str
    sites: tuple[SiteStanding, ...]
    unled: int


def standing_of(data_dir: Path) -> Standing | None:
    """None: this broker stands alone, or does not run."""
    run = read_run(data_dir)
    if run is None or not run.launched():
        return None
    try:
        topology = Topology.from_json((run.run_dir / "topology.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if topology.sites is None else standing_in(topology)


def standing_in(topology: Topology) -> Standing:
    from actors.register.chosen import settings_of  # loads the schema of settings, which only several sites need here
    from config.register import standing

    plan, known = topology.sites, SeveralSites(topology).known
    assert plan is not None
    leaders = [led.site for led in known.leads.values() if led.site]
    sites = tuple([
        SiteStanding(each.site.upper(), each.name, f"{each.host}:{each.port}", each.up, leaders.count(each.site))
        for each in known.sites.values()
    ])  # fmt: skip
    return Standing(standing(settings_of(topology), plan.n_sites), sites, topology.n_shards - len(leaders))
