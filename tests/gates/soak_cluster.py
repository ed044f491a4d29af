"""The soak of three sites: every fault of the matrix, again and again, in another order each time; goes on where it was ended.

``python -m tests.gates.soak_cluster [--rounds N] [--fault NAME] [--seed N] [--again]`` (``make soak-cluster``) prints a line for each
fault and the figures at the end, and ends by itself: after N rounds. A round is a store of its own: three brokers with a Ray each, three
etcds, durable sessions and publishers at QoS 1 and 2 that move between sites, all faults of tests/sites/matrix.py, and at the end the
verdict on what was acknowledged and on the copies, entry by entry; then three sites in one Ray cluster (tests/sites/one_ray.py), and
processes of a replica that end at each step of what they write (tests/actors/replica/fail_points.py). Rounds that are over are in
``.soak-cluster.json`` of this checkout and are not made again; one that failed is, and its seed is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.gates.gate import GateFailed
from tests.gates.gate_08_1_matrix import Figures, matrix
from tests.gates.show import one_line
from tests.sites.matrix import MATRIX

ROUNDS = 3
ROUND_LIMIT_S = 5400
STATE = Path(__file__).parents[2] / ".soak-cluster.json"


@dataclass(frozen=True, slots=True)
class Round:
    """One that is over: its seed, its faults, and what was counted."""

    seed: int
    faults: list[str]
    seconds: float
    acknowledged: int
    delivered: int
    slowest: dict[str, float]
    points: int


def read_rounds(state: Path) -> list[Round]:
    """Raises GateFailed with one sentence."""
    try:
        return [Round(**row) for row in json.loads(state.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise GateFailed(f"{state} is not what a soak has written ({error}); begin with --again") from None


def keep_rounds(state: Path, rounds: Sequence[Round]) -> None:
    beside = state.with_suffix(".part")
    beside.write_text(json.dumps([asdict(each) for each in rounds], indent=1) + "\n", encoding="utf-8")
    beside.replace(state)


def unknown(names: Sequence[str]) -> str:
    """What is wrong with these names of faults, in one sentence; empty: nothing."""
    wrong = [name for name in names if name not in MATRIX]
    return f"no fault is called {', '.join(map(repr, wrong))}; there are: {', '.join(MATRIX)}" if wrong else ""


async def one_round(seed: int, names: Sequence[str]) -> Round:
    chance = random.Random(seed)
    order = chance.sample(list(names), len(names))
    began = time.monotonic()
    async with asyncio.timeout(ROUND_LIMIT_S):
        found: Figures = await matrix(order, chance, whole=len(order) == len(MATRIX))
    return Round(seed, order, time.monotonic() - began, found.acknowledged, found.delivered, found.slowest, found.points)


def figures(rounds: Sequence[Round]) -> str:
    slowest: dict[str, float] = {}
    for each in rounds:
        for name, seconds in each.slowest.items():
            slowest[name] = max(seconds, slowest.get(name, 0.0))
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in slowest.items())
    return (
        f"{len(rounds)} rounds, {sum(len(each.faults) for each in rounds)} faults, {sum(each.points for each in rounds)} ends at a step of "
        f"a write, {sum(each.seconds for each in rounds) / 60:.0f} min: {sum(each.acknowledged for each in rounds)} messages acknowledged, "
        f"{sum(each.delivered for each in rounds)} delivered, none missing, in order, QoS 2 once, copies equal; seconds until everything "
        f"flowed again, at the most: {times}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.soak_cluster", description="All faults of three sites, again and again.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"so many in all, those that are over among them ({ROUNDS})")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME", help="only this one; may be given several times")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--again", action="store_true", help="forget the rounds that are over")
    parser.add_argument("--state", type=Path, default=STATE, help="where rounds that are over are kept")
    chosen = parser.parse_args(arguments)
    names: list[str] = chosen.fault or list(MATRIX)
    seed = chosen.seed
    try:
        if why := unknown(names):
            raise GateFailed(why)
        rounds = [] if chosen.again else read_rounds(chosen.state)
        if rounds:
            print(f"{len(rounds)} rounds are over already", flush=True)
        while len(rounds) < chosen.rounds:
            seed = chosen.seed + len(rounds)
            print(f"round {len(rounds) + 1}, seed {seed}", flush=True)
            rounds.append(asyncio.run(one_round(seed, names)))
            keep_rounds(chosen.state, rounds)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        print(f"FAIL soak of a cluster, seed {seed}: {one_line(error)}", flush=True)
        return 1
    print(f"PASS soak of a cluster: {figures(rounds)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
