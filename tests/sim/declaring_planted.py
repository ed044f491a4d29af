"""Faults of declared groups; planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from sessions.core import SessionCore
from shards.core import ShardCore
from tests.sim.planting import Planted


class HoldsTooEarly(Planted):
    name = "a declaration is said to hold before every shard has its route"

    def session(self, core: SessionCore) -> None:
        declaring: Any = core._groups._declaring

        def make(routed: Any) -> Any:
            def early(laying: Any, shard: int, position: int, replayed: Any) -> None:
                for other in range(core._state.n_shards):
                    if other != shard and other not in laying.positions:
                        routed(laying, other, position, replayed)
                routed(laying, shard, position, replayed)

            return early

        self.replace(declaring, "_routed", make)


class NotBegunAgain(Planted):
    name = "the next owner does not finish what was declared"

    def session(self, core: SessionCore) -> None:
        declaring: Any = core._groups._declaring
        self.replace(declaring, "lay", lambda lay: lambda home, found: lay(home, found) if home.token == 1 else None)


class LeftBehind(Planted):
    name = "the routes of what was dropped while it was made stay"

    def shard(self, core: ShardCore) -> None:
        groups: Any = core._groups

        def make(end: Any) -> Any:
            def gone(draft: Any, filter: bytes, age_ms: int, out: Any) -> None:
                lays = groups.here[filter].lays
                end(draft, filter, age_ms, out)
                if lays:
                    out.work.clear()

            return gone

        self.replace(groups, "_end", make)


ALL: list[type[Planted]] = [HoldsTooEarly, NotBegunAgain, LeftBehind]
"""Each is caught within the seeds of tests.sim.declaring_hunt; tests hold it."""
