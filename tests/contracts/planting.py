"""How a fault is planted into shipped code, and taken out again.

A fault replaces functions of classes or modules. Every call of what it put there is counted: a fault that was never run has caught
nothing, and one whose place has moved is an error and no catch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.hunting import Misfit


class Planting:
    """One fault, planted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.times = 0

    def replace(self, owner: object, name: str, planted: Callable[..., Any]) -> None:
        """owner: a class or a module."""
        if not callable(getattr(owner, name, None)):
            raise Misfit(f"{owner!r} has no {name!r}")

        def counted(*args: Any, **more: Any) -> Any:
            self.times += 1
            return planted(*args, **more)

        self._patch.setattr(owner, name, counted)


Plant = Callable[[Planting], None]


class Fault(NamedTuple):
    name: str
    plant: Plant

    @contextmanager
    def planted(self) -> Iterator[Planting]:
        with pytest.MonkeyPatch.context() as patch:
            planting = Planting(patch)
            self.plant(planting)
            yield planting


def faults(*plants: Plant) -> tuple[Fault, ...]:
    return tuple(Fault(plant.__name__.replace("_", " "), plant) for plant in plants)
