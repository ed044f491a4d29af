"""Gate 1 of issue 10: what a message costs in CPU, and what rates and times are beside mosquitto's, in the median of five turns.

`python -m benchmarks.targets` measures and judges; benchmarks/targets.py has the bars and says when a rate or a time is judged: with a disk
whose own fdatasync has a p50 of at most 0.3 ms before and after, and times beside mosquitto's where this machine is slower than the
one on which their bars were set. CPU per message is judged always. What is wanted beyond that is told and fails nothing.
The records stay in benchmarks/results (gate 2 reads them too, `make bench-compare` finds them by their commit).
"""

from __future__ import annotations

from benchmarks.bench import new_results
from benchmarks.records import read_results, unclean
from benchmarks.targets import BARS, judge, line, missed
from tests.gates.gate import GateFailed, Scale
from tests.gates.measured import measured

LIMIT_S = 1500


async def run(scale: Scale) -> str:
    path = new_results(None, "quick-targets" if scale.quick else "targets").path
    told = await measured("benchmarks.targets", LIMIT_S - 100, "--results", str(path), *(["--quick"] if scale.quick else []))
    if not path.is_file():
        raise GateFailed(f"benchmarks.targets has no result: {told[-300:]}")
    records = read_results(path)
    found = judge(records)
    figure = f"{line(found)}; nothing lost, doubled or out of order in {len(records)} runs: {path.name}"
    without = {bar.scenario for bar in BARS} - {each.bar.scenario for each in found}
    problems = [
        *(f"{each}" for each in missed(found)),
        *(f"{scenario} has no result" for scenario in sorted(without)),
        *(words.removeprefix("WRONG").strip() for words in told.splitlines() if words.startswith("WRONG")),
    ]
    if problems or unclean(records):
        raise GateFailed(f"missed: {'; '.join(problems)} (all: {line(found)}; {path.name})")
    return figure
