"""From the replicas there are to the sites they shall be on, one step at a time."""

from __future__ import annotations

import random
from dataclasses import replace

from shards.replication.configuration import (
    Configuration,
    Transition,
    added,
    claimed,
    first,
    removed,
    rid_of,
    site_of,
    taken_over,
    targeted,
)
from shards.replication.membership import former, is_outside, next_step, obsolete, of_site


def on(*sites: str, target: tuple[str, ...] | None = None) -> Configuration:
    replicas = frozenset(rid_of(site, "1") for site in sites)
    led = taken_over(first(replicas, ""), rid_of(sites[0], "1"), "")
    return targeted(led, target, "")


def test_without_a_target_nothing_moves() -> None:
    """And with one that is reached."""
    assert next_step(on("a", "b", "c")) is None
    assert next_step(on("a", "b", "c", target=("c", "b", "a"))) is None


def test_who_comes_is_added_before_who_goes_leaves() -> None:
    """There are never fewer copies than there shall be."""
    now = on("a", "b", "c", target=("a", "b", "d"))
    assert next_step(now) == Transition("add", "d")
    assert next_step(on("a", "b", "c", "d", target=("a", "b", "d"))) == Transition("del", "c")


def test_what_is_lost_goes_first_and_does_not_come_back() -> None:
    """A copy that cannot answer only costs."""
    now = on("a", "b", "c", target=("a", "b", "d"))
    assert next_step(now, frozenset("c")) == Transition("del", "c")
    assert next_step(on("a", "b", target=("a", "b", "c")), frozenset("c")) is None


def test_one_step_at_a_time_and_an_obsolete_one_is_given_back() -> None:
    """Another target may come in the middle."""
    now = claimed(on("a", "b", "c", target=("a", "b", "d")), Transition("add", "d"), "")
    assert next_step(now) is None and not obsolete(now)
    assert obsolete(targeted(now, ("a", "b", "c"), "")), "d is not wanted any more"
    assert obsolete(claimed(on("a", "b"), Transition("del", "c"), "")), "it has happened"
    assert of_site(now, "c") == rid_of("c", "1") and of_site(now, "d") is None


def test_a_copy_made_anew_is_outside_until_it_has_the_place_of_the_former() -> None:
    """Whose site has no replica and shall have none is not outside but dismissed."""
    now, anew = on("a", "b", "c"), rid_of("c", "2")
    assert former(now, anew) == rid_of("c", "1") and is_outside(now, anew)
    assert former(now, rid_of("c", "1")) is None and not is_outside(now, rid_of("c", "1"))
    assert former(now, rid_of("d", "1")) is None and not is_outside(now, rid_of("d", "1"))
    assert is_outside(claimed(targeted(now, ("a", "b", "d"), ""), Transition("add", "d"), ""), rid_of("d", "1"))


def test_every_target_is_reached_in_a_bounded_number_of_steps() -> None:
    """Also when it changes on the way; the number of copies never falls below both what it was and what it shall be."""
    rng = random.Random(4)
    for _ in range(300):
        sites = "abcdef"
        now = on(*rng.sample(sites, rng.randint(1, 4)))
        target: tuple[str, ...] = ()
        for turn in range(3):
            target = tuple(sorted(rng.sample(sites, rng.randint(1, 4))))
            now = targeted(now, target, "")
            least = min(len(now.replicas), len(target))
            for _ in range(rng.randint(0, 6) if turn < 2 else 20):
                if obsolete(now):
                    now = claimed(now, None, "")
                step = next_step(now) or now.trans
                if step is None:
                    break
                now = now if now.trans is not None else claimed(now, step, "")
                rid = rid_of(step.site, "1")
                if now.leader == rid and step.op == "del":
                    now = taken_over(now, sorted(now.isr - {rid})[0], "")
                    now = replace(now, isr=now.replicas, elr=frozenset())
                now = added(now, rid, "") if step.op == "add" else removed(now, rid, "")
                assert len(now.replicas) >= least
        assert {site_of(rid) for rid in now.replicas} == set(target)
