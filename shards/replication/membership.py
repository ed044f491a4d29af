"""Which step of membership comes next, from the replicas there are to the sites they shall be on. Pure: a record in, a step out.

The plan: replicas of lost sites go first, then additions and deletions in turn, an addition first, so that there are never fewer copies
than need be. One step at a time; after each the plan is made anew, so a target that has changed meanwhile is simply the next plan.
"""

from __future__ import annotations

from shards.replication.configuration import Configuration, Rid, Transition, site_of

NOT_LOST: frozenset[str] = frozenset()


def next_step(now: Configuration, lost: frozenset[str] = NOT_LOST) -> Transition | None:
    """None: nothing is to be done, or something is under way. lost: sites that an operator has declared gone for ever."""
    if now.target is None or now.trans is not None:
        return None
    sites = {site_of(rid) for rid in now.replicas}
    wanted = set(now.target)
    leaving = sorted(sites - wanted)
    if gone := [site for site in leaving if site in lost]:
        return Transition("del", gone[0])
    if joining := sorted(wanted - sites - lost):
        # An addition first; then a deletion while there are more copies than shall be.
        if not leaving or len(sites) <= len(wanted):
            return Transition("add", joining[0])
        return Transition("del", leaving[0])
    return Transition("del", leaving[0]) if leaving else None


def obsolete(now: Configuration) -> bool:
    """The step that is claimed leads away from the target, or is done: it is given back, if it has not happened yet."""
    if now.trans is None:
        return False
    sites = {site_of(rid) for rid in now.replicas}
    if (now.trans.site in sites) == (now.trans.op == "add"):
        return True
    return now.target is not None and (now.trans.site in now.target) != (now.trans.op == "add")


def of_site(now: Configuration, site: str) -> Rid | None:
    """The replica on this site, if there is one."""
    found = sorted(rid for rid in now.replicas if site_of(rid) == site)
    return found[0] if found else None


def former(now: Configuration, rid: Rid) -> Rid | None:
    """Whose place this copy is to take: its site has a replica, and that is another copy, of a disk that the site has no more. None:
    nobody's.

    Also on a site that is to leave: with too few in sync nothing can be moved, and this may be the one that is missing."""
    return None if rid in now.replicas else of_site(now, site_of(rid))


def is_outside(now: Configuration, rid: Rid) -> bool:
    """It is no replica and is to become one: its site is to be added, or its copy was made anew."""
    if rid in now.replicas:
        return False
    return (now.trans is not None and now.trans.site == site_of(rid)) or former(now, rid) is not None
