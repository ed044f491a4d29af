"""What every process says of itself, whatever it serves."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from actors.metrics.latency import Latency
from actors.metrics.names import Metric

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

_BY = ("process",)
STARTS: Final = Metric("holdfast_process_starts_total", "counter", _BY, "Times that this process was started.")
CPU: Final = Metric("holdfast_process_cpu_seconds_total", "counter", _BY, "Seconds of a core that it has used, all threads together.")
RESIDENT: Final = Metric("holdfast_process_resident_bytes", "gauge", _BY, "Memory that it holds.")
LATE: Final = Metric(
    "holdfast_loop_late_seconds", "histogram", _BY,
    "How late its loop came to something that was due, looked at once a second: what takes long there keeps everybody waiting.",
)  # fmt: skip
METRICS: Final = (STARTS, CPU, RESIDENT, LATE)


class ProcessFigures:
    """shares: it is one part of a process that tells the rest of itself under a name of its own."""

    def __init__(self, name: str, *, shares: bool = False) -> None:
        self._name = name
        self._shares = shares

    def write(self, sheet: Sheet, late: Latency) -> None:
        sheet.count(STARTS, 1, self._name)
        if self._shares:
            return
        sheet.count(CPU, time.process_time(), self._name)
        sheet.level(RESIDENT, _resident_bytes(), self._name)
        sheet.spread(LATE, late, self._name)


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
