"""The moved clocks themselves: what a process sees of them, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clockshim.control import Clocks

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]

HOUR_S = 3600
PROGRAM = """
import sys, threading, time
from pathlib import Path

def show():
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    print(time.time_ns(), time.monotonic_ns(), boot, Path("/proc/sys/kernel/random/boot_id").read_text().strip(), flush=True)

for line in sys.stdin:
    begun = time.monotonic()
    threading.Lock().acquire(timeout=0.01)
    threading.Condition().acquire()
    assert time.monotonic() - begun < 60
    show()
"""


class Watch:
    """A process that says what its clocks show, when it is asked."""

    def __init__(self, clocks: Clocks) -> None:
        command = [sys.executable, "-c", PROGRAM]
        environment = {**os.environ, **clocks.environment()}
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def look(self) -> tuple[float, float, float, str]:
        """Seconds by which its wall clock, monotonic clock and boot clock differ from ours, and its boot id."""
        assert self._process.stdin is not None and self._process.stdout is not None
        while True:
            asked = time.monotonic()
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            wall, monotonic, boot, boot_id = self._process.stdout.readline().split()
            here = (time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            # It has to answer so soon that both have looked at the same time.
            if time.monotonic() - asked < 0.5:
                break
        apart = [(int(there) - now) / 1e9 for there, now in zip((wall, monotonic, boot), here, strict=True)]
        return apart[0], apart[1], apart[2], boot_id

    def close(self) -> None:
        self._process.communicate(timeout=60)


def near(seconds: float) -> object:
    return pytest.approx(seconds, abs=1.0)


def test_a_running_process_sees_each_step_of_the_wall_clock_and_of_no_other(tmp_path: Path) -> None:
    """Steps add up; the monotonic clock and the boot clock go on as they were."""
    clocks = Clocks(tmp_path)
    watch = Watch(clocks)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        assert watch.look() == (near(0), near(0), near(0), boot_id)
        clocks.step(-HOUR_S)
        assert watch.look() == (near(-HOUR_S), near(0), near(0), boot_id)
        clocks.step(HOUR_S + 10 * 365 * 24 * HOUR_S)
        assert watch.look() == (near(10 * 365 * 24 * HOUR_S), near(0), near(0), boot_id)
        assert abs(clocks.wall_ms() - (time.time() + 10 * 365 * 24 * HOUR_S) * 1000) < 60_000
    finally:
        watch.close()


def test_a_reboot_is_another_id_and_a_boot_clock_that_starts_anew(tmp_path: Path) -> None:
    """Each reboot has an id of its own; the wall clock goes on, or says how long it was off."""
    clocks = Clocks(tmp_path)
    seen = set()
    for reboot in range(2):
        clocks.reboot(off_s=30.0)
        watch = Watch(clocks)
        try:
            wall, monotonic, boot, boot_id = watch.look()
        finally:
            watch.close()
        assert (wall, monotonic) == (near(30 * (reboot + 1)), near(0))
        assert 4 < time.clock_gettime(time.CLOCK_BOOTTIME) + boot < 120
        seen.add(boot_id)
    assert len(seen - {Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()}) == 2
