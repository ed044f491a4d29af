"""Hunting planted faults: which seed is the first whose ordinary history fails with a fault, and holds without.

A ground is a place to hunt in: its faults, how one history goes with a fault, and a table of the seeds that were found last, so that
a test begins with the one that is likely; when histories have moved it looks on.

A fault counts as caught when a promise is broken or a core's own assertion. One that does not fit the code any more (what it replaces
has moved, takes other arguments, or is never run) is an error and never a catch.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

F = TypeVar("F")

MISFITS = (TypeError, AttributeError, NameError)
"""What a fault that does not fit raises in the middle of a history."""


class Misfit(BaseException):
    """No Exception, so that nothing on the way takes it for a failure of the history."""


@dataclass(frozen=True, slots=True)
class Catch:
    """seed: the first that fails, -1 when none does. why: how it failed. cpu_s: what the hunt took."""

    name: str
    seed: int
    why: str
    cpu_s: float


class Ground(Generic[F]):
    """Made without arguments, so that it travels to another process by its class, and a fault by its number."""

    faults: Sequence[F]
    table: Path
    seeds_max: int

    @abstractmethod
    def name(self, fault: F) -> str: ...

    @abstractmethod
    def trial(self, fault: F, seed: int) -> tuple[str, int]:
        """How the history of this seed fails with the fault, empty when it does not; and how often something of the fault was run."""

    @abstractmethod
    def holds(self, seed: int) -> bool:
        """Without any fault; a seed that fails by itself catches nothing."""

    def hunt(self, fault: F, seeds: Iterable[int]) -> Catch:
        """Misfit when in none of the seeds anything of the fault was run."""
        began, times = time.process_time(), 0
        for seed in seeds:
            why, run = self.trial(fault, seed)
            times += run
            if why and self.holds(seed):
                return Catch(self.name(fault), seed, why, time.process_time() - began)
        if not times:
            raise Misfit(f"{self.name(fault)}: nothing of it was run")
        return Catch(self.name(fault), -1, "not caught", time.process_time() - began)

    def known_first(self, fault: F) -> Catch:
        """The recorded seed if it still does, else the first."""
        known = self.recorded().get(self.name(fault), 0)
        return self.hunt(fault, [known, *(seed for seed in range(self.seeds_max) if seed != known)])

    def recorded(self) -> dict[str, int]:
        """Fault -> the first seed that catches it, as hunted last."""
        found: dict[str, int] = json.loads(self.table.read_text())
        return found

    def hunted(self, faults: Sequence[F], processes: int, say: Callable[[Catch], None], known: bool = False) -> list[Catch]:
        """In the order of the list, each said as soon as it and all before it are done. known: from the recorded seeds on."""
        catches: list[Catch] = []
        numbers = [self.faults.index(fault) for fault in faults]
        with ProcessPoolExecutor(processes) as pool:
            for catch in pool.map(self._known_first if known else self._in_order, numbers):
                catches.append(catch)
                say(catch)
        return catches

    def _in_order(self, number: int) -> Catch:
        return self._safely(self.faults[number], lambda fault: self.hunt(fault, range(self.seeds_max)))

    def _known_first(self, number: int) -> Catch:
        return self._safely(self.faults[number], self.known_first)

    def _safely(self, fault: F, how: Callable[[F], Catch]) -> Catch:
        try:
            return how(fault)
        except Misfit as misfit:
            return Catch(self.name(fault), -1, f"MISFIT {misfit}", 0.0)

    def report(self, faults: Sequence[F], processes: int, write: bool) -> int:
        """A line for each, the table when it is to be written, and 1 when one was not caught."""
        catches = self.hunted(faults, processes, _row)
        if write:
            table = self.recorded() if self.table.exists() else {}
            table.update({catch.name: catch.seed for catch in catches})
            self.table.write_text(json.dumps({name: table[name] for name in map(self.name, self.faults) if name in table}, indent=4) + "\n")
        missed = [catch.name for catch in catches if catch.seed < 0]
        print(f"{len(catches) - len(missed)} of {len(catches)} planted faults are caught within {self.seeds_max} seeds")
        return 1 if missed else 0


def _row(catch: Catch) -> None:
    print(f"{catch.seed:>5}  {catch.cpu_s:6.1f} s  {catch.name:<66} {catch.why[:150]}", flush=True)
