"""Leaders go to where the plan has them: after a while, one at a time, and never to and fro.  The clock is played."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from actors.sites.keys import TURN, shard_key
from actors.sites.looking import Seen
from actors.sites.records import SiteRecord
from actors.sites.spreading import AGAIN_S, PAUSE_S, STEADY_S, Move, Spreading, plan_of
from shards.replication.allocation import first_copies
from shards.replication.configuration import (
    Configuration,
    Transition,
    claimed,
    expanded,
    first,
    rid_of,
    shrunk,
    site_of,
    taken_over,
    targeted,
)
from shards.replication.ports import Outcome
from shards.replication.register import NO_VALUE, Held

SITES = "abc"
SHARDS = 7


class Key:
    """The one key of the register that turns are taken by."""

    def __init__(self) -> None:
        self.held: Held | None = None

    async def read(self, key: str) -> Held | None:
        assert key == TURN
        return self.held

    async def cas(self, key: str, version: int, value: bytes) -> Outcome:
        if version != (NO_VALUE if self.held is None else self.held.version):
            return Outcome.CONFLICT
        self.held = Held(value, version + 1)
        return Outcome.DONE

    async def list(self, prefix: str) -> dict[str, Held]:
        raise AssertionError(prefix)

    async def close(self) -> None:
        """Nothing to be ended."""


def led_by(now: Configuration, site: str) -> Configuration:
    """Taken over, and the former leader is back in the isr."""
    by = next(rid for rid in now.replicas if site_of(rid) == site)
    led = taken_over(now, by, "")
    for rid in sorted(led.replicas - led.isr):
        led = expanded(led, rid, "")
    return led


class World:
    """All shards are led by a; a hand over succeeds at once."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.key = Key()
        rows = first_copies(SHARDS, SITES, 3)
        self.shards = {at: led_by(first(frozenset(rid_of(site, "1") for site in row), ""), "a") for at, row in enumerate(rows)}
        self.up = set(SITES)
        self.drained: set[str] = set()
        self.each = {site: Spreading(site) for site in SITES}
        self.moves: list[tuple[float, Move]] = []

    @property
    def seen(self) -> Seen:
        return Seen({site: SiteRecord(site, "", 1, 1, site, 1, 1) for site in SITES}, shards=self.shards)

    async def passes(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 1
            for site in sorted(self.up):
                move = self.each[site].due(self.seen, self.up, self.drained, self.now_s)
                if move is not None and await self.each[site].take_turn(self.key, move, self.now_s):
                    assert site_of(self.shards[move.shard].leader) == site
                    self.shards[move.shard] = led_by(self.shards[move.shard], site_of(move.to))
                    self.moves.append((self.now_s, move))

    def fails(self, site: str) -> None:
        """Another one leads what it led."""
        self.up.discard(site)
        for shard, now in self.shards.items():
            if site_of(now.leader) == site:
                self.shards[shard] = led_by(now, min(self.up))

    def led(self) -> list[str]:
        return [site_of(now.leader) for now in self.shards.values()]


async def test_all_sites_come_to_lead_equally_many_one_shard_at_a_time_and_then_nothing_moves() -> None:
    """Not before they have been well for a while."""
    world = World()
    await world.passes(STEADY_S - 1)
    assert world.moves == []
    await world.passes(200)
    assert world.led() == [row[0] for row in first_copies(SHARDS, SITES, 3)] == list(plan_of(world.seen).values())
    times = [at for at, _ in world.moves]
    assert len(times) == 4 and all(later - former >= PAUSE_S for former, later in pairwise(times))
    await world.passes(5_000)
    assert len(world.moves) == 4


async def test_what_a_failure_has_moved_goes_back_and_a_site_that_comes_and_goes_takes_little_along() -> None:
    """Each of the others gives a shard to it once in AGAIN_S."""
    world = World()
    await world.passes(400)
    planned, before = world.led(), len(world.moves)
    world.fails("b")
    await world.passes(100)
    assert len(world.moves) == before and "b" not in world.led()
    world.up.add("b")
    await world.passes(STEADY_S - 1)
    assert len(world.moves) == before
    await world.passes(100)
    assert world.led() == planned
    begin_s, before = world.now_s, len(world.moves)
    for _ in range(40):
        world.fails("b")
        await world.passes(5)
        world.up.add("b")
        await world.passes(STEADY_S + 40)
    shards = planned.count("b")
    assert len(world.moves) - before <= shards * ((world.now_s - begin_s) / AGAIN_S + 1)


async def test_who_is_down_drained_behind_or_on_the_move_gets_nothing() -> None:
    """And being well begins anew with each of these."""
    for spoil in ("down", "drained", "behind", "moving", "leaving"):
        world = World()
        await world.passes(STEADY_S - 1)
        before = dict(world.shards)
        if spoil == "down":
            world.up = {"a"}
        elif spoil == "drained":
            world.drained = {"b", "c"}
        for shard, now in before.items():
            if spoil == "behind":
                alone = shrunk(shrunk(now, rid_of("b", "1"), ""), rid_of("c", "1"), "")
                world.shards[shard] = alone
            elif spoil == "moving":
                world.shards[shard] = claimed(now, Transition("del", "b"), "")
            elif spoil == "leaving":
                world.shards[shard] = targeted(now, ("a", "b"), "")
        await world.passes(300)
        assert world.moves == [], spoil
        world.up, world.drained, world.shards = set(SITES), set(), before
        await world.passes(STEADY_S - 1)
        assert world.moves == [], spoil
        await world.passes(60)
        assert world.moves, spoil


async def test_of_two_that_want_a_turn_one_gets_it() -> None:
    """The other waits as if it had just seen the first one's."""
    key, move = Key(), Move(3, rid_of("c", "1"))
    a, b = Spreading("a"), Spreading("b")
    assert not await a.take_turn(key, move, 0) and not await b.take_turn(key, move, 0)
    assert await a.take_turn(key, move, PAUSE_S) and not await b.take_turn(key, move, PAUSE_S)
    assert not await b.take_turn(key, move, 2 * PAUSE_S - 1) and await b.take_turn(key, move, 2 * PAUSE_S)
    assert (a.given, b.given) == (1, 1) and key.held is not None and key.held.value == b"b gives shard 3 to c/1"


def test_a_site_that_is_lost_is_not_in_the_plan() -> None:
    """What it ought to lead goes to the others, also while its copies still count."""
    seen = World().seen
    without = replace(seen, sites={**seen.sites, "b": replace(seen.sites["b"], state="lost")})
    assert sorted(set(plan_of(without).values())) == ["a", "c"] and plan_of(without).keys() == seen.shards.keys()
    assert shard_key(0) == "shards/0"
