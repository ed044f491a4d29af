"""Hunts planted faults: which seed is the first one that the ordinary simulator fails with, fault by fault.

`python -m tests.sim.hunt` prints the table that tests/sim/catches.json holds, and with --write writes it there; --of takes
words of the names.  A fault counts as caught when a promise is broken or a core's own assertion; a fault that does not fit
the core any more (what it replaces has moved) is an error and never a catch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.sim.planted import ALL, RARE, Misfit, Planted
from tests.sim.simulation import Failed, run

SEEDS_MAX = 500
TABLE = Path(__file__).with_name("catches.json")
_MISFITS = (TypeError, AttributeError, NameError)


@dataclass(frozen=True, slots=True)
class Catch:
    """seed: the first that fails, -1 when none does.  why: how it failed.  cpu_s: what the hunt took."""

    name: str
    seed: int
    why: str
    cpu_s: float


def caught(plant: Planted, seed: int) -> str:
    """How the simulator fails at this seed with this fault; empty when it does not see it."""
    try:
        run(seed, plant=plant)
    except Failed as failed:
        if isinstance(failed.__cause__, _MISFITS):
            raise Misfit(f"{plant.name}: {failed.__cause__!r}") from failed
        return str(failed)
    return ""


def hunt(fault: type[Planted], seeds: Iterable[int] = range(SEEDS_MAX)) -> Catch:
    """Misfit when in none of the seeds anything of the fault was run."""
    began, times = time.process_time(), 0
    for seed in seeds:
        plant = fault()
        why = caught(plant, seed)
        times += plant.planted
        if why and _holds(seed):
            return Catch(fault.name, seed, why, time.process_time() - began)
    if not times:
        raise Misfit(f"{fault.name}: nothing was planted")
    return Catch(fault.name, -1, "not caught", time.process_time() - began)


def _hunted(fault: type[Planted], seeds: Iterable[int]) -> Catch:
    try:
        return hunt(fault, seeds)
    except Misfit as misfit:
        return Catch(fault.name, -1, f": MISFIT {misfit}", 0.0)


def _holds(seed: int) -> bool:
    """Without any fault; a seed that fails by itself catches nothing."""
    try:
        run(seed)
    except Failed:
        return False
    return True


def recorded() -> dict[str, int]:
    """Fault -> the first seed that catches it, as hunted last."""
    found: dict[str, int] = json.loads(TABLE.read_text())
    return found


def in_order(fault: type[Planted]) -> Catch:
    """The first seed of all that catches it."""
    return _hunted(fault, range(SEEDS_MAX))


def known_first(fault: type[Planted]) -> Catch:
    """The recorded seed if it still does, else the first."""
    known = recorded()[fault.name]
    return _hunted(fault, [known, *(seed for seed in range(SEEDS_MAX) if seed != known)])


def hunted(
    faults: list[type[Planted]], processes: int, say: Callable[[Catch], None], how: Callable[[type[Planted]], Catch] = in_order
) -> list[Catch]:
    """In the order of the list, each said as soon as it and all before it are done."""
    catches: list[Catch] = []
    with ProcessPoolExecutor(processes) as pool:
        for catch in pool.map(how, faults):
            catches.append(catch)
            say(catch)
    return catches


def _row(catch: Catch) -> None:
    print(f"{catch.seed:>5}  {catch.cpu_s:6.1f} s  {catch.name:<66} {catch.why.partition(': ')[2][:150]}", flush=True)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="the first seed that catches each planted fault")
    parser.add_argument("--write", action="store_true", help="write the table that the tests start from")
    parser.add_argument("--rare", action="store_true", help="those too that may take more seeds")
    parser.add_argument("--of", default="", help="only faults whose name contains this")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args(words)
    catches = hunted([fault for fault in (*ALL, *(RARE if asked.rare else ())) if asked.of in fault.name], asked.processes, _row)
    if asked.write:
        table = recorded() if TABLE.exists() else {}
        table.update({catch.name: catch.seed for catch in catches})
        TABLE.write_text(json.dumps({fault.name: table[fault.name] for fault in ALL}, indent=4) + "\n")
    missed = [catch.name for catch in catches if catch.seed < 0]
    print(f"{len(catches) - len(missed)} of {len(catches)} planted faults are caught within {SEEDS_MAX} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
