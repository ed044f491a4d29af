"""The clocks of this machine, as age is made of them (shards.clock)."""

from __future__ import annotations

import time

from actors.run import boot_id
from shards.clock import Reading


def read_clocks() -> Reading:
    """Now, of this boot."""
    return Reading(time.time_ns() // 1_000_000, boot_id(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
