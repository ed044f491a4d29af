"""Declared groups while everything else happens: they hold when it is said that they do, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from sessions.core import SessionCore
from shards.core import ShardCore
from tests.sim.declaring import Declaring
from tests.sim.planting import Planted
from tests.sim.simulation import Failed, finished


@pytest.mark.slow
def test_a_declared_group_holds_from_then_on_whatever_breaks() -> None:
    """With members and without; the line of a failure has its seed."""
    worlds: list[Declaring] = []

    def made(seed: int) -> Declaring:
        worlds.append(Declaring(seed))
        return worlds[-1]

    for seed in CAUGHT.values():
        finished(lambda seed=seed: made(seed))  # type: ignore[misc]
    assert sum(world.held for world in worlds) > 10 * len(worlds)


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


CAUGHT: dict[type[Planted], int] = {HoldsTooEarly: 5, NotBegunAgain: 1, LeftBehind: 19}
"""The first seed that fails with each."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", CAUGHT, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_declarations_is_found(fault: type[Planted]) -> None:
    """In a world that holds without it."""
    plant = fault()
    with pytest.raises(Failed):
        finished(lambda: Declaring(CAUGHT[fault], plant))
    assert plant.planted
