"""Gate 5 of issue 2: 20 minutes of traffic with a random kill every few seconds: nothing lost, no stall, memory and descriptors flat.

The soak itself is soak.py, which also runs for other lengths of time (``make soak-2h``).
"""

from __future__ import annotations

from tests.gates.gate import Scale
from tests.gates.soak import soak

LIMIT_S = 1600
MINUTES = 20
SEED = 5


async def run(scale: Scale) -> str:
    return await soak(scale.of(MINUTES) * 60.0, SEED, lambda line: print(line, flush=True))
