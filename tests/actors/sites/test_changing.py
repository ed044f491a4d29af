"""What operators change: targets that are reached from wherever one is, lost sites first, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.inquiry.sites import Refused
from actors.sites.allocating import first_records
from actors.sites.changing import Change, declare_lost, forget, join, leave, lost_steps, moving, set_replicas
from actors.sites.keys import SHARDS, copy_key, shard_key, site_key
from actors.sites.looking import Seen, seen_of, sites_of
from actors.sites.records import Cluster, SiteRecord
from actors.sites.view import places
from shards.replication.configuration import (
    Configuration,
    Rid,
    added,
    breach,
    claimed,
    expanded,
    forced,
    removed,
    rid_of,
    site_of,
    taken_over,
)
from shards.replication.membership import next_step, obsolete
from shards.replication.register import Held

FACTOR = 3
ALL = "abcdef"


class World:
    """A register in memory, sites of which all can be reached but those that are lost, and leaders that do what leaders do."""

    def __init__(self, n_shards: int, first: str) -> None:
        self._numbers = count(1)
        self.sites = {
            site_key(site): Held(SiteRecord(site, "127.0.0.1", 7883, 1, f"n-{site}", 1, 1).pack(), next(self._numbers)) for site in ALL
        }
        copies = {copy_key(shard, site): Held(f"{site}/1".encode(), 1) for shard in range(n_shards) for site in ALL}
        only = Seen({site: self.seen().sites[site] for site in first})
        made = first_records(only, copies, Cluster(n_shards, len(first), FACTOR), self.nonce)
        self.shards = {shard_key(shard): Held(record.pack(), next(self._numbers)) for shard, record in made.items()}
        for shard in range(n_shards):
            self.change(shard, lambda now: taken_over(now, min(now.isr), self.nonce()))

    def nonce(self) -> str:
        return str(next(self._numbers))

    def seen(self) -> Seen:
        return seen_of(self.sites, getattr(self, "shards", {}))

    def make(self, changes: list[Change]) -> None:
        for key, version, value in changes:
            at = self.shards if key.startswith(SHARDS) else self.sites
            assert at[key].version == version
            if at is self.shards:
                why = breach(Configuration.unpack(at[key].value), Configuration.unpack(value))
                assert why is None, why
            at[key] = Held(value, next(self._numbers))

    def change(self, shard: int, change: Callable[[Configuration], Configuration]) -> None:
        seen = self.seen()
        self.make([Change(shard_key(shard), seen.version(shard_key(shard)), change(seen.shards[shard]).pack())])

    def step(self, shard: int) -> bool:
        """Of the leader; whether there was one."""
        seen = self.seen()
        now = seen.shards[shard]
        if obsolete(now):
            self.change(shard, lambda now: claimed(now, None, self.nonce()))
        elif now.trans is None:
            step = next_step(now)
            if step is None:
                return False
            self.change(shard, lambda now: claimed(now, step, self.nonce()))
        elif now.trans.op == "add":
            rid = rid_of(now.trans.site, "1")
            self.change(shard, lambda now: added(now, rid, self.nonce()))
        else:
            gone = now.trans.site
            if site_of(now.leader) == gone:
                heir = max(rid for rid in now.isr if site_of(rid) != gone)
                self.change(shard, lambda now: taken_over(now, heir, self.nonce()))
                self.change(shard, lambda now: expanded(now, rid_of(gone, "1"), self.nonce()))
            self.change(shard, lambda now: removed(now, rid_of(gone, "1"), self.nonce()))
        return True


SOME = st.sets(st.sampled_from(ALL), min_size=1, max_size=5).map(lambda some: "".join(sorted(some)))


@settings(max_examples=50)
@given(st.integers(1, 4), SOME, st.lists(st.tuples(SOME, st.integers(0, 7)), min_size=1, max_size=4))
def test_whatever_is_asked_whenever_the_last_target_is_reached(n_shards: int, first: str, asked: list[tuple[str, int]]) -> None:
    """Each command comes after some steps of the one before; every change follows the rules; in the end nothing moves any more."""
    world = World(n_shards, first)
    for wanted, steps in asked:
        world.make(set_replicas(world.seen(), wanted, FACTOR, world.nonce))
        for number in range(steps):
            world.step(number % n_shards)
    for shard in range(n_shards):
        for _ in range(40):
            if not world.step(shard):
                break
    seen, wanted = world.seen(), asked[-1][0]
    for now in seen.shards.values():
        assert sites_of(now) <= set(wanted) and len(now.replicas) == min(len(wanted), FACTOR)
        assert moving(now) == [] and now.trans is None
    assert set_replicas(seen, wanted, FACTOR, world.nonce) == []


@given(st.integers(1, 4), st.sampled_from("abcde"))
def test_replicas_of_lost_sites_go_first(n_shards: int, lost: str) -> None:
    """Claimed by the site process of who leads; then the leader goes on, and in the end the lost site can be forgotten."""
    world = World(n_shards, "abcde")
    for shard, now in world.seen().shards.items():
        if site_of(now.leader) == lost:
            heir = max(rid for rid in now.isr if site_of(rid) != lost)
            world.change(shard, lambda now, heir=heir: taken_over(now, heir, world.nonce()))  # type: ignore[misc]
    up = set(ALL) - {lost}
    world.make(declare_lost(world.seen(), lost, up))
    assert declare_lost(world.seen(), lost, up) == []
    world.make(set_replicas(world.seen(), up, FACTOR, world.nonce))
    had = [shard for shard, now in world.seen().shards.items() if lost in sites_of(now)]
    world.make(lost_steps(world.seen(), lambda now: True, world.nonce))
    for shard, now in world.seen().shards.items():
        assert (now.trans is not None and (now.trans.op, now.trans.site) == ("del", lost)) is (shard in had)
        while world.step(shard):
            pass
    assert all(lost not in sites_of(now) for now in world.seen().shards.values())
    world.make(forget(world.seen(), lost, up))
    assert lost not in world.seen().sites and lost in world.seen().forgotten


def test_join_and_leave_are_relative_to_what_shall_be() -> None:
    """Also while something is under way."""
    world = World(2, "abc")
    assert join(world.seen(), "A", FACTOR, world.nonce) == [] and leave(world.seen(), "d", FACTOR, world.nonce) == []
    world.make(leave(world.seen(), "c", FACTOR, world.nonce))
    assert all(now.target == ("a", "b") for now in world.seen().shards.values())
    world.make(join(world.seen(), "d", FACTOR, world.nonce))
    assert all(now.target == ("a", "b", "d") for now in world.seen().shards.values())
    with pytest.raises(Refused, match="Replica sets would become too small"):
        set_replicas(world.seen(), [], FACTOR, world.nonce)


def test_nothing_is_allocated_before_all_sites_and_their_copies_are_there() -> None:
    """And only shards without a record, of copies that are those of the site."""
    world = World(1, "abc")
    sites = {site: record for site, record in world.seen().sites.items() if site in "ab"}
    copies = {copy_key(shard, site): Held(f"{site}/1".encode(), 1) for shard in range(3) for site in "ab"}
    of = Cluster(3, 2, 3)
    assert first_records(Seen({"a": sites["a"]}), copies, of, world.nonce) == {}
    assert sorted(first_records(Seen(sites), copies, of, world.nonce)) == [0, 1, 2]
    assert sorted(first_records(Seen(sites, versions={shard_key(1): 7}), copies, of, world.nonce)) == [0, 2]
    copies[copy_key(0, "b")] = Held(b"c/1", 1)
    del copies[copy_key(2, "a")]
    assert sorted(first_records(Seen(sites), copies, of, world.nonce)) == [1]
    assert first_records(Seen(sites), copies, of, world.nonce)[1].replicas == {Rid("a/1"), Rid("b/1")}


def test_beside_a_restored_site_every_shard_waits_for_its_full_copy_and_begins_with_that_alone() -> None:
    """An empty copy in sync with a full one would be the end of what is in it; of two restored sites nobody chooses one."""
    world = World(2, "abc")
    sites = {site: record for site, record in world.seen().sites.items() if site in "abc"}
    sites["a"] = replace(sites["a"], incarnation=2)
    of = Cluster(2, 3, 2)
    empty = {copy_key(shard, site): Held(f"{site}/1".encode(), 1) for shard in range(2) for site in "abc"}
    assert first_records(Seen(sites), empty, of, world.nonce) == {}
    copies = empty | {copy_key(0, "a"): Held(b"a/seed-1", 1)}
    found = first_records(Seen(sites), copies, of, world.nonce)
    assert sorted(found) == [0]
    copies |= {copy_key(1, "a"): Held(b"a/seed-2", 1)}
    found = first_records(Seen(sites), copies, of, world.nonce)
    assert found[0].replicas == found[0].isr == {Rid("a/seed-1")} and found[0].target == ("a", "b")
    # Of this one no copy is to stay at the restored site: it goes when others have it.
    assert found[1].replicas == found[1].isr == {Rid("a/seed-2")} and found[1].target == ("b", "c")
    assert all(now.leader in now.isr and now.epoch == 1 for now in found.values())
    sites["b"] = replace(sites["b"], incarnation=3)
    assert first_records(Seen(sites), copies, of, world.nonce) == {}


def test_each_forced_leadership_of_any_shard_makes_it_another_store_for_readers() -> None:
    """What they hold may be of what was lost."""
    world = World(3, "abc")
    of = Cluster(3, 3, 3, "5" * 16, 4)
    told = [places("a", of, world.seen(), "abc", ()).store]
    for shard in (1, 1, 2):
        world.change(shard, lambda now: taken_over(now, sorted(now.isr)[0], world.nonce()))
        world.change(shard, lambda now: forced(now, now.leader, ("a", "b", "c"), 0, world.nonce()))
        told.append(places("a", of, world.seen(), "abc", ()).store)
    assert told == [f"{'5' * 16}:{incarnation}" for incarnation in (4, 5, 6, 7)]
