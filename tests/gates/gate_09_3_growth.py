"""Gate 3 of issue 10: a message costs at most 15 % more CPU as there are more messages, topics, sessions, subscriptions or processes, and
no other transport, size or level of quality falls off a cliff: at QoS 0 to ephemeral subscribers at least half of mosquitto's rate.

`python -m benchmarks.growth` measures; benchmarks/growth/curves.py says what growth is. The table of variants has to be whole; but for
QoS 0 it has no bar. It goes on where it was broken off, with the records of this commit.
"""

from __future__ import annotations

from benchmarks.growth.__main__ import results_of, wrong
from benchmarks.growth.curves import line
from benchmarks.growth.measuring import PARTS
from benchmarks.records import read_results
from benchmarks.variants import qos0_ratio
from tests.gates.gate import GateFailed, Scale
from tests.gates.measured import measured

WITHIN_MIN = 45
LIMIT_S = WITHIN_MIN * 60 + 700
"""A run that has begun in time may end, and brokers stop."""


async def run(scale: Scale) -> str:
    path = results_of(quick=scale.quick)
    quick = ["--quick"] if scale.quick else []
    told = await measured("benchmarks.growth", LIMIT_S - 100, "--results", str(path), "--within", str(WITHIN_MIN), *quick)
    if not path.is_file():
        raise GateFailed(f"benchmarks.growth has no result: {told[-300:]}")
    records = read_results(path)
    ratio = qos0_ratio(records)
    figure = f"{line(records)}; QoS 0 {'-' if ratio is None else f'{ratio:.2f}'} of mosquitto's rate; {len(records)} runs in {path.name}"
    problems = wrong(records, list(PARTS), quick=scale.quick)
    if problems:
        raise GateFailed(f"{'; '.join(problems)} ({figure})")
    return figure
