"""Follows who leads each shard: a process of several sites looks into the run directory ten times a second, and is told when it changed.

With one site nobody moves: nothing is looked at.  A look is a stat on the loop, of a file in memory, and a read of some hundred bytes
when the site process has written another one.

When leadership of a shard was forced, a process that has talked to it before ends, and begins anew: the numbers of its links, its
connections and its owner tokens are of an incarnation that is over, and what was answered there may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from actors.fatal import die
from actors.sites.whereabouts import OneSite, SeveralSites
from actors.topology import Topology

EVERY_MS: Final = 100
TOGETHER_S: Final = 1.0
"""Several shards are forced one after the other, and a process ends once for them."""


def whereabouts_of(topology: Topology) -> OneSite | SeveralSites:
    return OneSite(topology) if topology.sites is None else SeveralSites(topology)


def store_id(topology: Topology, whereabouts: OneSite | SeveralSites) -> str:
    """The same for ever, and at all sites that share the store; empty: the site process has not said it yet."""
    return whereabouts.known.store.partition(":")[0] if isinstance(whereabouts, SeveralSites) else topology.site


class Following:
    """Tells `changed` on the loop when somebody is elsewhere than before.

    Life cycle: made -> started -> stopped.  Always holds: what is told has been taken into the whereabouts already.
    """

    def __init__(
        self, whereabouts: OneSite | SeveralSites, changed: Callable[[], None], every_ms: int = EVERY_MS,
        forced: Callable[[list[int]], None] | None = None, together_s: float = TOGETHER_S,
    ) -> None:  # fmt: skip
        """forced: what is done when these shards are of another incarnation than before; None: this process ends."""
        self._whereabouts = whereabouts
        self._changed = changed
        self._forced = forced or begin_anew
        self._together_s = together_s
        self._incarnations: dict[int, int] = {}
        self._before: list[int] = []
        self._every_s = every_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if isinstance(self._whereabouts, SeveralSites):
            self._began_anew(self._whereabouts)
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look, self._whereabouts)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, whereabouts: SeveralSites) -> None:
        # Before anything that may fail: who leads later has to be heard of as well.
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look, whereabouts)
        if whereabouts.look():
            self._changed()
        if anew := self._began_anew(whereabouts):
            if not self._before:
                asyncio.get_running_loop().call_later(self._together_s, self._tell)
            self._before += anew

    def _tell(self) -> None:
        before, self._before = self._before, []
        if self._timer is not None:
            self._forced(sorted(set(before)))

    def _began_anew(self, whereabouts: SeveralSites) -> list[int]:
        """Shards that were of another incarnation when this was asked last."""
        now = {shard: led.incarnation for shard, led in whereabouts.known.leads.items()}
        before, self._incarnations = self._incarnations, {**self._incarnations, **now}
        return [shard for shard, incarnation in now.items() if before.get(shard, incarnation) < incarnation]


def begin_anew(shards: list[int]) -> None:
    """Ends this process."""
    die("process.begins_anew", shards=shards, cause="leadership was forced: what these shards have answered before may be lost")
