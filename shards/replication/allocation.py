"""Which sites hold copies of which shard.  Pure: numbers and site ids in, site ids out, the same for whoever asks.

Always holds: each shard gets min(n_sites, replication_factor) different sites of those that are given.  At first all hold equally many when
the number of shards is a multiple of that of the sites; after a move no site holds two copies more than another.
Who ought to lead is spread in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


class TooFewSites(ValueError):
    """No site at all was named."""


def first_copies(n_shards: int, sites: Collection[str], replication_factor: int) -> list[tuple[str, ...]]:
    """Of a store that is new, by shard: sorted sites, taken in turn, each shard beginning one further."""
    ordered = _sorted(sites)
    copies = min(len(ordered), replication_factor)
    return [tuple([ordered[(shard + copy) % len(ordered)] for copy in range(copies)]) for shard in range(n_shards)]


def moved_copies(now: Sequence[Collection[str]], sites: Collection[str], replication_factor: int) -> list[tuple[str, ...]]:
    """From the sites that hold copies now, by shard, to those that shall, when exactly `sites` may hold any.

    What can stay where it is stays; a copy is moved only when it makes the sites more equal.  Each row is sorted."""
    ordered = _sorted(sites)
    copies = min(len(ordered), replication_factor)
    shards = [{site for site in row if site in ordered} for row in now]
    load = {site: sum(site in row for row in shards) for site in ordered}
    for row in shards:
        while len(row) > copies:
            most = max(sorted(row), key=lambda site: load[site])
            row.remove(most)
            load[most] -= 1
    for row in shards:
        while len(row) < copies:
            least = min([site for site in ordered if site not in row], key=lambda site: load[site])
            row.add(least)
            load[least] += 1
    while True:
        most, least = max(ordered, key=lambda site: load[site]), min(ordered, key=lambda site: load[site])
        if load[most] - load[least] <= 1:
            return [tuple(sorted(row)) for row in shards]
        # There is one, since more shards have the one than the other.
        row = next(row for row in reversed(shards) if most in row and least not in row)
        row.remove(most)
        row.add(least)
        load[most] -= 1
        load[least] += 1


def preferred_leaders(rows: Sequence[Collection[str]]) -> list[str]:
    """Which site ought to lead, by shard, of the sites that hold copies of it: each shard goes to whoever of them has the fewest so far, of
    equals to the next in turn. Of a store that is new that is the first of `first_copies`. Empty: there is no copy."""
    ordered = sorted({site for row in rows for site in row})
    load = dict.fromkeys([*ordered, ""], 0)
    found: list[str] = []
    for shard, row in enumerate(rows):
        turn = [ordered[(shard + place) % len(ordered)] for place in range(len(ordered))]
        site = min([each for each in turn if each in row], key=lambda each: load[each], default="")
        load[site] += 1
        found.append(site)
    return found


def _sorted(sites: Iterable[str]) -> list[str]:
    ordered = sorted(set(sites))
    if not ordered:
        raise TooFewSites("no site is named")
    return ordered
