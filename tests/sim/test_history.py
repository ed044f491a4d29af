"""One seed and one commit give one history: in the same process, in another one, under another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.simulation import run

SEEDS = (0, 1, 2, 3, 4, 5)
_TELL = "import sys; from tests.sim.simulation import run; print(*[run(int(seed)).history for seed in sys.argv[1:]])"


@pytest.mark.slow
def test_one_seed_gives_one_history_whatever_the_process_and_its_hash_seed() -> None:
    """Frames, bytes of sockets, syncs and crashes with their times, compared by digest.  Worlds that ran before in the same
    process, the order of the seeds and PYTHONHASHSEED change nothing; different seeds give different histories."""
    words = [str(seed) for seed in SEEDS]
    others = [
        subprocess.Popen(
            [sys.executable, "-c", _TELL, *order], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        for order, hash_seed in ((words, "0"), (words[::-1], "4711"))
    ]
    here = [run(seed).history for seed in SEEDS]
    there = [other.communicate(timeout=240)[0].split() for other in others]
    assert there == [here, here[::-1]]
    assert len(set(here)) == len(SEEDS)
