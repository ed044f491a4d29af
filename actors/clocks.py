"""The clocks of this machine, as age and steady time are made of them (shards.clock, shards.steady).

A shard has the age on its disk, so it knows what steady time is in this boot: CLOCK_BOOTTIME and a constant. It leaves the constant
in the run directory, where the processes that have no store find it. They go by the first shard, always: shards may
differ by seconds after a reboot whose clock was not believed. Only while that one cannot be opened, another one speaks for it.

Of several sites each has a constant of its own for the same steady time, told by the copies that it has; it may differ by a moment when
another copy leads, so it is read again then.
"""

from __future__ import annotations

import time
from pathlib import Path

from actors.run import boot_id
from actors.topology import write_whole
from shards.clock import Reading

_NAME = "steady-clock"
_FIRST = 0
_OTHER_KEPT_NS = 1_000_000_000


def read_clocks() -> Reading:
    """Now, of this boot."""
    return Reading(time.time_ns() // 1_000_000, boot_id(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


def tell_steady(run_dir: Path, shard: int, steady_ms: int, now: Reading) -> None:
    """A run lives in one boot, so this is true for as long as anybody can read it."""
    write_whole(run_dir / f"{_NAME}.{shard}", str(steady_ms - now.boottime_ms))


class Steady:
    """Steady time in a process without a store."""

    __slots__ = ("_base_ms", "_n_shards", "_other_ms", "_other_until_ns", "_run_dir")

    def __init__(self, run_dir: Path, n_shards: int) -> None:
        self._run_dir = run_dir
        self._n_shards = n_shards
        self._base_ms: int | None = None
        self._other_ms: int | None = None
        self._other_until_ns = 0

    def look_again(self) -> None:
        """Somebody else leads a shard."""
        self._base_ms = None

    def now_ms(self) -> int:
        """Until any shard of this run has been open for the first time, the wall clock: nobody can store anything before."""
        base_ms = self._base_ms
        if base_ms is None:
            base_ms = self._base_ms = self._told(_FIRST)
        if base_ms is None:
            base_ms = self._of_another()
        if base_ms is None:
            return time.time_ns() // 1_000_000
        return base_ms + time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def _of_another(self) -> int | None:
        """A site may have no copy of the first shard at all: not with every turn of the loop all of these files."""
        now_ns = time.monotonic_ns()
        if self._other_ms is None or now_ns >= self._other_until_ns:
            others = (self._told(shard) for shard in range(_FIRST + 1, self._n_shards))
            self._other_ms = next((told for told in others if told is not None), None)
            self._other_until_ns = now_ns + _OTHER_KEPT_NS
        return self._other_ms

    def _told(self, shard: int) -> int | None:
        try:
            return int((self._run_dir / f"{_NAME}.{shard}").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
