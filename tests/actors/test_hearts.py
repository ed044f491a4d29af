"""A gateway whose loop stands still is told from one that gets no processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from actors.heartbeat import Heartbeat, read_beat, standing_for_disk
from actors.processes import starved_s
from actors.supervisor import Pulse

WITHIN_S = 60.0


def test_a_heart_is_seen_to_beat_from_outside(tmp_path: Path) -> None:
    """Every beat counts one; a new process puts a new heart in the old one's place, and the old one beats unseen; it says who beats."""
    path = tmp_path / "g0.beat"
    assert read_beat(path) is None
    old = Heartbeat(path)
    old.beat()
    old.beat()
    seen = read_beat(path)
    assert seen is not None and (seen.pid, seen.thread, seen.count) == (os.getpid(), threading.get_native_id(), 2)
    new = Heartbeat(path)
    old.beat()
    seen = read_beat(path)
    assert seen is not None and seen.count == 0
    new.close()
    old.close()


def test_a_loop_that_waits_for_a_disk_says_so(tmp_path: Path) -> None:
    """From outside it is told from one that is stuck; where no heart beats in a process nobody is told."""
    standing_for_disk(True)
    path = tmp_path / "g0.beat"
    heart = Heartbeat(path)
    seen = []
    for stands in (False, True, False):
        standing_for_disk(stands)
        seen.append(read_beat(path))
    assert [beat is not None and beat.stands for beat in seen] == [False, True, False]
    heart.close()
    standing_for_disk(True)


def test_what_a_heart_waits_for_a_processor_is_not_standing_still() -> None:
    """Blocked or in an endless loop it stands still by the clock; where the kernel counts nothing too."""
    pulse = Pulse(1, 7, 100.0, 20.0)
    assert pulse.still_s(104.0, 20.0) == 4.0
    assert pulse.still_s(104.0, 23.5) == 0.5
    assert pulse.still_s(104.0, 0.0) == 4.0


def test_the_kernel_counts_who_could_run_and_may_not() -> None:
    """Of two that want one processor all the time; not of one that sleeps."""
    alone = (
        f"import os, time; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); print(flush=True); end = time.monotonic() + 90\n"
    )
    busy, asleep = "while time.monotonic() < end: pass", "time.sleep(90)"
    with ExitStack() as stack:
        children = []
        for does in (busy, busy, asleep):
            child = stack.enter_context(subprocess.Popen([sys.executable, "-c", alone + does], stdout=subprocess.PIPE))
            stack.callback(child.kill)
            assert child.stdout is not None
            child.stdout.readline()
            children.append(child.pid)
        before = [starved_s(pid, pid) for pid in children]
        deadline = time.monotonic() + WITHIN_S
        while True:
            waited = [starved_s(pid, pid) - at for pid, at in zip(children, before, strict=True)]
            if min(waited[:2]) > 0.1:
                break
            assert time.monotonic() < deadline, waited
            time.sleep(0.01)
        assert waited[2] < min(waited[:2])


def test_a_thread_that_is_gone_has_waited_for_nothing() -> None:
    """And whatever is no thread at all."""
    assert starved_s(os.getpid(), 0) == 0.0
