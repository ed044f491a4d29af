"""Records as a run would have written them, for what computes with them."""

from __future__ import annotations

from benchmarks import meter
from benchmarks.load import Probe, Record
from benchmarks.outcome import Cost, Result, Spread
from benchmarks.scenarios import Options

MACHINE = meter.Machine(2, "some CPU", "6.1", 4000, "3.11.2")


def record(broker: str, result: Result, *, disk_ms: float = 0.2, variant: str = "", commit: str = "abc") -> Record:
    return Record("2030-01-01T00:00:00Z", commit, broker, "1", MACHINE, 0.1, "3.1.1", Options(), Probe(0.1, disk_ms), result, variant)


def ran(
    scenario: str, rate: float = 0.0, cpu_us: float = 0.0, drain_us: float = 0.0, *, ms: float = 0.0, lost: int = 0, sessions: int = 1
) -> Result:
    """A run whose rates of acknowledging, delivering and draining are all the same."""
    return Result(
        scenario,
        sessions,
        512,
        100,
        100,
        0,
        100,
        acked_per_s=rate,
        delivered_per_s=rate,
        drained_per_s=rate,
        end_to_end_ms=Spread(ms, 3 * ms, 9 * ms) if ms else None,
        lost=lost,
        cost={"data": Cost(cpu_us, 0), "all": Cost(cpu_us + 1, 0)},
        drain_cost={"data": Cost(drain_us, 0), "all": Cost(drain_us + 1, 0)} if drain_us else {},
    )
