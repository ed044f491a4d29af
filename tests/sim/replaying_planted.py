"""Faults of replays, planted as those of tests.sim.planted are: a bound that is one off, a seam with a gap, a place that is too far."""

from __future__ import annotations

from typing import Any

from gateway.core import GatewayCore
from sessions.core import SessionCore
from shards.core import ShardCore
from shards.entries import PLACE
from shards.frames import Place
from tests.sim.planting import Planted


class FromIsExclusive(Planted):
    name = "replay begins behind its time"

    def shard(self, core: ShardCore) -> None:
        def make(found: Any) -> Any:
            def late(*args: Any) -> Any:
                replayed = found(*args)
                return replayed._replace(since_ms=replayed.since_ms + 1) if replayed.since_ms else replayed

            return late

        self.replace(core._past, "found", make)


class SeamWithAGap(Planted):
    name = "what comes with the last of the history is left out"

    def session(self, core: SessionCore) -> None:
        def make(segment: Any) -> Any:
            def cut(session: Any, cursor: Any, told: Any, sweep: Any) -> None:
                upto = cursor.past.upto
                if told.after < upto < told.upto and told.merged:
                    count = sum(position <= upto for position in told.positions)
                    told = told._replace(positions=told.positions[:count], values=told.values[:count])
                segment(session, cursor, told, sweep)

            return cut

        self.replace(core._reading, "_segment", make)


class PositionTooFar(Planted):
    name = "replay goes on a second behind its position"

    def gateway(self, core: GatewayCore) -> None:
        def make(wanted: Any) -> Any:
            def far(*args: Any) -> Any:
                asked = wanted(*args)
                if asked.replay is None or asked.replay.since != PLACE:
                    return asked
                places = [Place(place.cut + 1_000_000) if not place.horizon else place for place in asked.replay.places]
                return asked._replace(replay=asked.replay._replace(places=places))

            return far

        self.replace(core._subscribing, "_wanted", make)


class SeamGivenTwice(Planted):
    name = "history is given out twice where it meets what follows"

    def session(self, core: SessionCore) -> None:
        def make(segment: Any) -> Any:
            def twice(session: Any, cursor: Any, told: Any, sweep: Any) -> None:
                segment(session, cursor, told, sweep)
                if told.merged and told.after < cursor.past.upto <= told.upto:
                    segment(session, cursor, told, sweep)

            return twice

        self.replace(core._reading, "_segment", make)


ALL: tuple[type[Planted], ...] = (FromIsExclusive, SeamWithAGap, PositionTooFar, SeamGivenTwice)
