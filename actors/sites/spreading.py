"""Leaders spread over sites by plan: who ought to lead a shard does so again when it has been well for a while.

The plan is a pure function of what the register says (shards.replication.allocation), so all sites have the same one, and no failure
changes it: what a failure has moved goes back to where it was.  The site that leads a shard gives it away, as a drained one does.

Of all sites one moves one shard at a time: who wants to takes a turn, a compare-and-set on one key of the register, and whoever sees that
key change waits for PAUSE_S of its own clock.  No clock is compared with another one, and nothing safe rests on it.

Always holds: a shard is given only to a replica in sync, on a site that was up, not drained, and not moving, for STEADY_S without a break;
this site gives one shard away at most once in AGAIN_S, so a site that comes and goes does not take a shard along each time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from actors.sites.keys import TURN
from actors.sites.looking import Seen, sites_of
from shards.replication.allocation import preferred_leaders
from shards.replication.configuration import Configuration, Rid, site_of
from shards.replication.membership import of_site
from shards.replication.ports import Outcome
from shards.replication.register import NO_VALUE, Register

STEADY_S: Final = 30.0
PAUSE_S: Final = 10.0
AGAIN_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Move:
    """Who leads `shard` here gives it to `to`."""

    shard: int
    to: Rid


def plan_of(seen: Seen) -> dict[int, str]:
    """The site that ought to lead, by shard; none of a shard whose sites are all lost."""
    rows = [seen.wanted(shard) - seen.lost for shard in seen.shards]
    return {shard: site for shard, site in zip(seen.shards, preferred_leaders(rows), strict=True) if site}


class Spreading:
    """here: this site."""

    def __init__(self, here: str, steady_s: float = STEADY_S, pause_s: float = PAUSE_S, again_s: float = AGAIN_S) -> None:
        self._here = here
        self._steady_s = steady_s
        self._pause_s = pause_s
        self._again_s = again_s
        self._well_since: dict[Move, float] = {}
        self._given_s: dict[int, float] = {}
        self._turn: tuple[int, float] | None = None
        """(version of the key, when it was seen first)."""
        self.given = 0
        """Shards that this site has given away by plan."""

    def due(self, seen: Seen, up: Collection[str], drained: Collection[str], now_s: float) -> Move | None:
        """At each look.  The first shard that this site may give away now; it still has to take its turn."""
        well = [
            Move(shard, to)
            for shard, site in plan_of(seen).items()
            if site in up and site not in drained and (to := self._heir(seen.shards[shard], site)) is not None
        ]
        self._well_since = {move: self._well_since.get(move, now_s) for move in well}
        for move, since_s in self._well_since.items():
            given_s = self._given_s.get(move.shard)
            if now_s - since_s >= self._steady_s and (given_s is None or now_s - given_s >= self._again_s):
                return move
        return None

    async def take_turn(self, register: Register, move: Move, now_s: float) -> bool:
        """Whether this site is to do it now.  Raises RegisterAway."""
        held = await register.read(TURN)
        version = NO_VALUE if held is None else held.version
        if self._turn is None or self._turn[0] != version:
            self._turn = version, now_s
        if now_s - self._turn[1] < self._pause_s:
            return False
        if await register.cas(TURN, version, f"{self._here} gives shard {move.shard} to {move.to}".encode()) is not Outcome.DONE:
            return False
        self._given_s[move.shard] = now_s
        self.given += 1
        return True

    def _heir(self, now: Configuration, site: str) -> Rid | None:
        """The replica on this site, when it can lead and the shard is led here and at rest."""
        moving = now.trans is not None or (now.target is not None and frozenset(now.target) != sites_of(now))
        if not now.epoch or site_of(now.leader) != self._here or site == self._here or moving:
            return None
        found = of_site(now, site)
        return found if found in now.isr else None
