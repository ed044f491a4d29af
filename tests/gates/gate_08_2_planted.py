"""Gate 2 of issue 8: what finds mistakes in replication: the model check of the rules, and campaigns over real shard processes.

The model holds over many histories, and breaks a promise when any of its rules is left out, the six of the model it comes from among them.
Three shard processes over real logs, stores, links and disks that lose what was not synced hold over several seeds; with each of five
faults planted in them, some seed finds it, by what of a campaign can show it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import structlog

from tests.actors.replica import nemesis
from tests.actors.replica.campaign import SEEDS_MAX, found
from tests.actors.replica.campaign import run as campaign
from tests.actors.replica.planted import FIVE
from tests.gates.gate import GateFailed, Scale
from tests.replication.model import Model
from tests.replication.model_hunt import RULES
from tests.replication.model_words import Rule, Violation

LIMIT_S = 2 * 3600
SEEDED = 6
"""Rules of the model that this one comes from; they are the first."""
HISTORIES, SEEDS = 5_000, 8
FIRST = 100
"""The campaigns of `make test` are before it."""
_SHOWN = 160
BREAKS: dict[str, tuple[nemesis.Stretch, ...]] = {
    "acknowledged before the fsync": (nemesis.without_power,),
    "no epoch check": (nemesis.stood_still,),
    "served above the commit": (nemesis.cut_off,),
    "cut off whatever comes": (nemesis.said_again,),
    "a checkpoint takes its place in pieces": (nemesis.behind,),
}
"""By fault the stretches of a campaign that can show it; without a fault all of them are gone through, by each seed."""


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def history(seed: int) -> tuple[str, Counter[str]]:
    """What it breaks, and what happened in it."""
    model = Model(seed)
    try:
        model.run()
    except Violation as broken:
        return f"seed {seed}: {broken}", model.happened
    return "", model.happened


def model_checked(histories: int, processes: int) -> str:
    began_s, happened = time.monotonic(), Counter[str]()
    with ProcessPoolExecutor(processes) as pool:
        for why, counts in pool.map(history, range(histories), chunksize=20):
            if why:
                raise GateFailed(f"the rules do not hold: {why}")
            happened.update(counts)
    catches = RULES.hunted(list(Rule), processes, lambda catch: say(f"{catch.seed:>5}  without: {catch.name}"), known=True)
    if missed := [catch.name for catch in catches if catch.seed < 0]:
        raise GateFailed(f"without these rules nothing breaks: {missed}")
    figures = ", ".join(f"{happened[what]} {what}s" for what in ("power cut", "takeover", "change", "commit"))
    return (
        f"model: {histories} histories hold ({figures}) in {time.monotonic() - began_s:.0f} s, "
        f"{SEEDED} of {SEEDED} seeded mistakes and {len(catches) - SEEDED} more found"
    )


async def processes_checked(seeds: int) -> str:
    acknowledged, happened = 0, Counter[str]()
    for seed in range(FIRST, FIRST + seeds):
        ended = await campaign(seed, keep=True)
        say(f"{seed:>5}  {ended.why or 'holds'}; {ended}")
        if ended.why:
            raise GateFailed(f"three processes without a fault, seed {seed}: {ended.why}")
        acknowledged += ended.acknowledged
        happened.update(ended.happened)
    figures = ", ".join(f"{what} {times}" for what, times in sorted(happened.items()))
    for fault in FIVE:
        seed, why = await found(fault.name, range(FIRST, FIRST + SEEDS_MAX), BREAKS[fault.name])
        say(f"{seed:>5}  {fault.name}: {why[:_SHOWN]}")
        if seed < 0:
            raise GateFailed(f"{fault.name}: not found by {SEEDS_MAX} seeds")
    held = f"processes: {seeds} seeds hold, {acknowledged} acknowledged and none missing ({figures})"
    return f"{held}, {len(FIVE)} of {len(FIVE)} planted faults found"


async def run(scale: Scale) -> str:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    model = await asyncio.to_thread(model_checked, scale.of(HISTORIES), len(os.sched_getaffinity(0)))
    say(model)
    return f"{model}; {await processes_checked(scale.of(SEEDS, 2))}"
