"""Gate 2 of issue 10: in every run that a figure comes from nothing was lost, doubled, out of order, misrouted or refused.

Runs `make bench` with all its variants (other transports, sizes, levels of quality), and looks at every record that is there of this
commit: of this run, and of gates 1 and 3 where they have run before; these two fail by themselves for a run that was not clean. What
counts is the generator's own ledger, by sequence numbers in payloads; of mosquitto nothing is asked.
"""

from __future__ import annotations

from benchmarks import meter
from benchmarks.bench import RESULTS, new_results
from benchmarks.compare import resolve
from benchmarks.records import read_results, unclean
from benchmarks.variants import names
from benchmarks.workers import RunFailed
from tests.gates.gate import GateFailed, Scale
from tests.gates.measured import measured

LIMIT_S = 1100
BENCH_S = 900
"""What `make bench` may take."""
SCENARIOS = {"ingest", "offline", "fan-in", "fan-out", "pairs", "one-session", "sessions", "single", "latency"}


async def run(scale: Scale) -> str:
    path = new_results(None, "quick-bench" if scale.quick else "bench").path
    told = await measured("benchmarks", BENCH_S, "--results", str(path), *(["--quick"] if scale.quick else []))
    if not path.is_file():
        raise GateFailed(f"benchmarks has no result: {told[-300:]}")
    mine = [record for record in read_results(path) if record.broker == "holdfast"]
    absent = SCENARIOS - {record.result.scenario for record in mine if not record.variant}
    absent |= set(names()) - {record.variant for record in mine}
    records = {path: mine}
    try:
        others = [each for each in resolve(meter.commit().rstrip("+"), RESULTS) if each != path]
    except RunFailed:
        others = []
    for other in others:
        records[other] = [record for record in read_results(other) if record.broker == "holdfast"]
    every = [record for found in records.values() for record in found]
    figure = (
        f"{len(every)} runs of {len(records)} results of this commit, {sum(each.result.acked for each in every):,} messages acknowledged, "
        f"{sum(each.result.delivered for each in every):,} delivered: nothing lost, doubled or out of order"
    )
    problems = [f"{name.name}: {sentence}" for name, found in records.items() for sentence in unclean(found)]
    if absent:
        problems.append(f"no result of {', '.join(sorted(absent))}: {told[-300:]}")
    if problems:
        raise GateFailed("; ".join(problems))
    return figure
