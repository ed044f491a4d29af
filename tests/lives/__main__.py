"""Plays lives by name in the simulator: `python -m tests.lives WORDS ... [--seed N] [--crashes] [--trace]`.

A life is chosen when its name holds all the words; it is played in a world of its own with each of a few seeds, so that a
failure that was seen in a crowd is seen alone and small.
"""

from __future__ import annotations

import argparse
import sys

from tests.lives.simulated import Theatre
from tests.lives.table import full


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lives", description="Play some lives of the table in the simulator.")
    parser.add_argument("words", nargs="+", help="parts of the name")
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    parser.add_argument("--worlds", type=int, default=5, help="how often each life is played")
    parser.add_argument("--most", type=int, default=20, help="lives at most")
    parser.add_argument("--crashes", action="store_true", help="shards crash meanwhile")
    parser.add_argument("--trace", action="store_true", help="what happened, when it was not right")
    chosen = parser.parse_args()
    lives = [life for life in full() if all(word in life.name for word in chosen.words)]
    wrong = 0
    for life in lives[: chosen.most]:
        print(life.name)
        for seed in range(chosen.seed, chosen.seed + chosen.worlds):
            theatre = Theatre([life], seed, crashes=chosen.crashes, keep_all=chosen.trace)
            for what in theatre.run().get(life, []):
                wrong += 1
                print(f"    seed {seed}: {what}")
            if wrong and chosen.trace:
                print("\n".join(theatre.world.tell()))
                return 1
    print(f"{min(len(lives), chosen.most)} of {len(lives)} lives with such names, {wrong} faults")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
