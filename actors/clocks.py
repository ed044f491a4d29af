"""The clocks of this machine, as age and steady time are made of them (shards.clock, shards.steady).

The first shard has the age on its disk, so it knows what steady time is in this boot: CLOCK_BOOTTIME and a constant. It leaves
the constant in the run directory, where the processes that have no store find it.
"""

from __future__ import annotations

import time
from pathlib import Path

from actors.run import boot_id
from actors.topology import write_whole
from shards.clock import Reading

_NAME = "steady-clock"


def read_clocks() -> Reading:
    """Now, of this boot."""
    return Reading(time.time_ns() // 1_000_000, boot_id(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


def tell_steady(run_dir: Path, steady_ms: int, now: Reading) -> None:
    """A run lives in one boot, so this is true for as long as anybody can read it."""
    write_whole(run_dir / _NAME, str(steady_ms - now.boottime_ms))


class Steady:
    """Steady time in a process without a store."""

    __slots__ = ("_base_ms", "_path")

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / _NAME
        self._base_ms: int | None = None

    def now_ms(self) -> int:
        """Until the first shard of this run has been open for the first time, the wall clock: nobody can store anything before."""
        if self._base_ms is None:
            try:
                self._base_ms = int(self._path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                return time.time_ns() // 1_000_000
        return self._base_ms + time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
