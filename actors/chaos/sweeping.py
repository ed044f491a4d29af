"""The end of a fault: its file is taken away, and what it stopped is continued.  By its command, or by the launcher when that is gone."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import structlog

from actors.chaos.faults import Fault, active_faults, forget_fault, written_faults
from actors.processes import send


def end_fault(run_dir: Path, fault: Fault) -> None:
    """Doing it twice is nothing."""
    # Forgotten first: whoever reads the faults at this moment finds nobody stopped by it any more.
    forget_fault(run_dir, fault)
    still = {process for each in active_faults(run_dir) for process in each.processes}
    for process in fault.processes:
        if process not in still:
            send(process, signal.SIGCONT)


def sweep(run_dir: Path, *, everything: bool = False) -> None:
    """Those whose time is up; everything: all, because the broker stops."""
    now_s = time.monotonic()
    for fault in written_faults(run_dir):
        if everything or not fault.active(now_s):
            end_fault(run_dir, fault)
            structlog.get_logger().warning("chaos.swept", kind=fault.kind, targets=list(fault.targets), by=fault.by)
