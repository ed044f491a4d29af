"""Hunts planted faults: which seed is the first whose ordinary history fails with it, and holds without.

The seeds are kept in catches.json, so that a test begins with the one that is likely; when histories have moved it looks on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.contracts.campaign import Failed, live
from tests.contracts.planted import ALL
from tests.contracts.planting import MISFITS, Fault, Misfit

SEEDS_MAX = 200
TABLE = Path(__file__).with_name("catches.json")


@dataclass(frozen=True, slots=True)
class Catch:
    """seed: -1 when none was found. why: how it failed."""

    name: str
    seed: int
    why: str
    cpu_s: float


def hunt(fault: Fault, seeds: Iterable[int]) -> Catch:
    began, times = time.process_time(), 0
    for seed in seeds:
        with fault.planted() as planting:
            try:
                live(seed)
                why = ""
            except Failed as failed:
                why = str(failed)
                if isinstance(failed.__cause__, MISFITS):
                    raise Misfit(f"{fault.name}: {failed.__cause__!r}") from failed
            times += planting.times
        if why and _holds(seed):
            return Catch(fault.name, seed, why, time.process_time() - began)
    if not times:
        raise Misfit(f"{fault.name}: nothing of it was run")
    return Catch(fault.name, -1, "not caught", time.process_time() - began)


def _holds(seed: int) -> bool:
    """A seed that fails by itself catches nothing."""
    try:
        live(seed)
    except Failed:
        return False
    return True


def recorded() -> dict[str, int]:
    found: dict[str, int] = json.loads(TABLE.read_text())
    return found


def in_order(fault: Fault) -> Catch:
    return hunt(fault, range(SEEDS_MAX))


def known_first(fault: Fault) -> Catch:
    known = recorded().get(fault.name, 0)
    return hunt(fault, [known, *(seed for seed in range(SEEDS_MAX) if seed != known)])


def _numbered(number: int) -> Catch:
    """By its number: a fault does not travel to another process."""
    return _safely(in_order, ALL[number])


def _numbered_known(number: int) -> Catch:
    return _safely(known_first, ALL[number])


def _safely(how: object, fault: Fault) -> Catch:
    try:
        return in_order(fault) if how is in_order else known_first(fault)
    except Misfit as misfit:
        return Catch(fault.name, -1, f"MISFIT {misfit}", 0.0)


def hunted(numbers: list[int], processes: int, known: bool, say: Callable[[Catch], None]) -> list[Catch]:
    """known: from the recorded seeds on."""
    catches: list[Catch] = []
    with ProcessPoolExecutor(processes) as pool:
        for catch in pool.map(_numbered_known if known else _numbered, numbers):
            catches.append(catch)
            say(catch)
    return catches


def _row(catch: Catch) -> None:
    print(f"{catch.seed:>4}  {catch.cpu_s:5.1f} s  {catch.name:<60} {catch.why.partition(';')[0][:150]}", flush=True)


def main(words: str, processes: int, write: bool) -> int:
    numbers = [number for number, fault in enumerate(ALL) if words in fault.name]
    catches = hunted(numbers, processes, False, _row)
    if write:
        table = recorded() if TABLE.exists() else {}
        table.update({catch.name: catch.seed for catch in catches})
        TABLE.write_text(json.dumps({fault.name: table[fault.name] for fault in ALL}, indent=4) + "\n")
    missed = [catch.name for catch in catches if catch.seed < 0]
    print(f"{len(catches) - len(missed)} of {len(catches)} planted faults are caught within {SEEDS_MAX} seeds")
    return 1 if missed else 0
