"""What is measured of processes and disks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import meter


def test_descendants_are_counted_once_however_often_they_are_named() -> None:
    """`status` lists parents and children alike."""
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}
    assert meter.descendants([10, 11, 12], parents) == {10, 11, 12}
    assert meter.descendants([10], parents) == {10, 11, 12}
    assert meter.descendants([99], parents) == set()


@pytest.mark.slow
def test_cpu_of_a_child_that_has_ended_is_counted() -> None:
    """A process that starts and ends within a run has cost something too."""
    before = meter.measure({"me": [os.getpid()]})["me"].cpu_s
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    spent = meter.measure({"me": [os.getpid()]})["me"].cpu_s - before
    assert 0.28 <= spent < 3


def test_cpu_is_counted_more_finely_than_in_ticks() -> None:
    """A run of ten thousand messages is over in a few of them."""
    times = os.times()
    ended_s = times.children_user + times.children_system
    before = time.process_time()
    used_s = meter.measure({"me": [os.getpid()]})["me"].cpu_s - ended_s
    assert before <= used_s + 1e-6 and used_s - 1e-6 <= time.process_time()


def test_memory_and_bytes_written_are_those_of_the_group() -> None:
    """This process has some of the one; a process that is not there has none of either."""
    mine = meter.measure({"me": [os.getpid()]})["me"]
    assert 1 << 20 < mine.pss_bytes < 1 << 33
    nobody = meter.measure({"none": [2**22 + 1]})["none"]
    assert (nobody.cpu_s, nobody.pss_bytes, nobody.written_bytes) == (0, 0, 0)


def test_the_disk_probe_times_something(tmp_path: Path) -> None:
    """More than nothing, less than a minute, and it leaves no file."""
    assert 0 < meter.fdatasync_p50_ms(tmp_path, rounds=3) < 60_000
    assert list(tmp_path.iterdir()) == []


def test_stored_bytes_are_what_the_directory_occupies(tmp_path: Path) -> None:
    """Files below it included; no directory means none."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(os.urandom(100_000))
    assert 100_000 <= meter.stored_bytes(tmp_path) < 200_000
    assert meter.stored_bytes(None) == 0


def test_the_machine_is_described() -> None:
    """A result without it could not be compared with anything."""
    here = meter.machine()
    assert here.cores >= 1
    assert here.memory_mib > 100
    assert here.model and here.kernel and here.python
