"""Campaigns of replication: `python -m tests.replication --model --seeds 20000`, or `--seed n` for one history.

With --write the first seed that breaks a promise without a rule is looked for, rule by rule, and kept for the tests.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.replication.model import Model
from tests.replication.model_hunt import RULES, broken


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="histories of the replication protocol")
    parser.add_argument("--model", action="store_true", help="of the model of the rules")
    parser.add_argument("--seed", type=int, help="one history")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true", help="hunt, and write the table that the tests start from")
    asked = parser.parse_args(words)
    if asked.write:
        return RULES.report(RULES.faults, asked.processes, write=True)
    if asked.seed is not None:
        model = Model(asked.seed)
        model.run()
        print(dict(model.happened))
        return 0
    seeds = range(asked.first, asked.first + asked.seeds)
    with ProcessPoolExecutor(asked.processes) as pool:
        failures = [(seed, why) for seed, why in zip(seeds, pool.map(broken, seeds, chunksize=50), strict=True) if why]
    for seed, why in failures:
        print(f"FAIL seed {seed}: {why}")
    print(f"{asked.seeds - len(failures)} of {asked.seeds} histories hold")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
