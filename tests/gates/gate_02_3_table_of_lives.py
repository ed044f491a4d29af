"""Gate 3 of issue 2: the table of lives is complete, and every life in it is as the specification says.

First all of it in the simulator, in two processes, and a tenth of it again while shards crash.  Then a stratified sample on
a real broker with two gateways, where every way in which a connection can end has its share.  --quick plays all pairs of
values and a tenth of the rest.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from random import Random

from tests.broker import real_lives
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.lives import simulated
from tests.lives.table import Life, full, pairs, sample

LIMIT_S = 3600
PROCESSES = 2
WORLDS_PER_TASK = 4
SAMPLE = 200
N_SHARDS = 3
NAMED = 10

Wrong = dict[Life, list[str]]


def in_worlds(task: tuple[int, list[list[Life]], bool]) -> Wrong:
    """Some worlds, in a process of their own."""
    seed, chosen, crashes = task
    wrong: Wrong = {}
    for number, lives in enumerate(chosen):
        wrong.update(simulated.live(lives, seed + number, crashes=crashes))
    return wrong


async def in_the_simulator(lives: list[Life], crashes: bool = False) -> Wrong:
    chosen = list(simulated.worlds(lives))
    tasks = [(start, chosen[start : start + WORLDS_PER_TASK], crashes) for start in range(0, len(chosen), WORLDS_PER_TASK)]
    loop = asyncio.get_running_loop()
    wrong: Wrong = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        for done in asyncio.as_completed([loop.run_in_executor(pool, in_worlds, task) for task in tasks]):
            wrong.update(await done)
    return wrong


async def on_a_real_broker(lives: list[Life]) -> Wrong:
    async with running(settings(N_SHARDS, **real_lives.SETTINGS)) as watched:
        return await real_lives.live(watched.broker, lives)


def require_none(wrong: Wrong, count: int, where: str) -> None:
    if wrong:
        named = [f"[{life.name}] {'; '.join(what)}" for life, what in list(wrong.items())[:NAMED]]
        raise GateFailed(f"{len(wrong)} of {count} lives {where} are not as specified: {' | '.join(named)}")


async def run(scale: Scale) -> str:
    table = full()
    lives = list(table) if not scale.quick else [*pairs(), *Random(0).sample(table, len(table) // 10)]
    require_none(await in_the_simulator(lives), len(lives), "in the simulator")
    crashed = Random(1).sample(lives, len(lives) // 10)
    require_none(await in_the_simulator(crashed, crashes=True), len(crashed), "in the simulator with crashing shards")
    chosen = sample(scale.of(SAMPLE, 60))
    require_none(await on_a_real_broker(chosen), len(chosen), "on a real broker")
    again = f"{len(crashed)} of them again while shards crash"
    return f"{len(lives)} of {len(table)} lives in the simulator, {again}, and {len(chosen)} on a real broker are as specified"
