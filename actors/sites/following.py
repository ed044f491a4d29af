"""Follows who leads each shard: a process of several sites looks into the run directory ten times a second, and is told when it changed.

With one site nobody moves: nothing is looked at.  A look is a stat on the loop, of a file in memory, and a read of some hundred bytes
when the site process has written another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from actors.sites.whereabouts import OneSite, SeveralSites
from actors.topology import Topology

EVERY_MS: Final = 100


def whereabouts_of(topology: Topology) -> OneSite | SeveralSites:
    return OneSite(topology) if topology.sites is None else SeveralSites(topology)


class Following:
    """Tells `changed` on the loop when somebody is elsewhere than before.

    Life cycle: made -> started -> stopped.  Always holds: what is told has been taken into the whereabouts already.
    """

    def __init__(self, whereabouts: OneSite | SeveralSites, changed: Callable[[], None], every_ms: int = EVERY_MS) -> None:
        self._whereabouts = whereabouts
        self._changed = changed
        self._every_s = every_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if isinstance(self._whereabouts, SeveralSites):
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
