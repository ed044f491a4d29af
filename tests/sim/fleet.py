"""Many seeds over several processes: shares of them, what each came to, and one sum.

A seed that fails does not end the run: it is listed with the line that replays it.  What is done can be kept in a file, so
that a long run that was broken off goes on where it was; it counts for one commit of the code only, which the caller knows.

Holds: a share does not depend on the process that runs it nor on what ran there before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.sim.simulation import Failed, run

SHARE = 20
_US_PER_MINUTE = 60_000_000


@dataclass(slots=True)
class Share:
    """What a range of seeds came to.  simulated_us counts the seeds that held; cpu_s is that of the process, all seeds."""

    first: int
    seeds: int = 0
    simulated_us: int = 0
    cpu_s: float = 0.0
    messages: int = 0
    delivered: int = 0
    faults: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Share) -> None:
        self.seeds += other.seeds
        self.simulated_us += other.simulated_us
        self.cpu_s += other.cpu_s
        self.messages += other.messages
        self.delivered += other.delivered
        self.faults += other.faults
        self.failures += other.failures

    @property
    def cpu_ms_per_minute(self) -> float:
        """CPU time per simulated minute."""
        return 1000 * self.cpu_s * _US_PER_MINUTE / self.simulated_us if self.simulated_us else 0.0

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, {len(self.failures)} failed, {self.simulated_us / _US_PER_MINUTE:.0f} simulated minutes at "
            f"{self.cpu_ms_per_minute:.0f} ms of CPU each, {self.faults} faults, {self.messages} messages, {self.delivered} deliveries"
        )


def share(seeds: range) -> Share:
    found = Share(seeds[0])
    began = time.process_time()
    for seed in seeds:
        try:
            outcome = run(seed)
        except Failed as failed:
            found.failures.append(str(failed))
        else:
            found.simulated_us += outcome.simulated_us
            found.messages += outcome.messages
            found.delivered += outcome.delivered
            found.faults += outcome.faults
        found.seeds += 1
    found.cpu_s = time.process_time() - began
    return found


def shares(first: int, count: int) -> list[range]:
    return [range(start, min(start + SHARE, first + count)) for start in range(first, first + count, SHARE)]


def run_many(first: int, count: int, processes: int, say: Callable[[str], None], kept: Path | None = None) -> Share:
    """All seeds, the failing ones said as they come, with progress now and then."""
    total = Share(first)
    done = _kept(kept)
    left: list[range] = []
    for seeds in shares(first, count):
        known = done.get(seeds[0])
        if known is not None and known.seeds == len(seeds):
            total.add(known)
        else:
            left.append(seeds)
    if total.seeds:
        say(f"{total.seeds} seeds were run before: {len(total.failures)} failed")
    began = said = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        futures: list[Future[Share]] = [pool.submit(share, seeds) for seeds in left]
        for future in as_completed(futures):
            found = future.result()
            total.add(found)
            for failure in found.failures:
                say(f"FAIL {failure}")
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(found)) + "\n")
            now = time.monotonic()
            if now - said >= 10:
                said = now
                say(f"{total.seeds} of {count} seeds, {len(total.failures)} failed, {now - began:.0f} s")
    return total


def _kept(path: Path | None) -> dict[int, Share]:
    if path is None or not path.exists():
        return {}
    rows = [Share(**json.loads(line)) for line in path.read_text().splitlines()]
    return {row.first: row for row in rows}
