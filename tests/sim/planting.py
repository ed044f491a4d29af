"""How a fault is planted into the shipped cores at run time; which ones there are is elsewhere (tests.sim.planted and its like)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.hunting import Misfit
from tests.sim.broker import Plant
from tests.sim.world import World


class Planted(Plant):
    """A fault with a name.  `world` is there once the simulation is made: some faults look at the clock.

    planted: how often what it puts in was run; a fault of which nothing ever runs is a misfit."""

    name = ""
    world: World

    def __init__(self) -> None:
        self.planted = 0

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put what `make` makes of a method in its place."""
        if not callable(getattr(owner, name, None)):
            raise Misfit(f"{self.name}: {type(owner).__name__} has no {name}")
        made = make(getattr(owner, name))

        def counted(*args: Any, **named: Any) -> Any:
            self.planted += 1
            return made(*args, **named)

        setattr(owner, name, counted)
