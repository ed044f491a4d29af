"""The files of one process: each value is one number in a mapped file, so it is there whenever the process is killed.

    RUN_DIR/metrics/counter_INCARNATION.db      histogram_INCARNATION.db      gauge_livemostrecent_INCARNATION.db

Files and their names are those of prometheus_client's multi-process mode. An incarnation is NAME.PID.START: pids are used again, and who
reads has to know whether the process lives.

Always holds: room for a file is taken when it is made, and nothing is written beyond that: a store into a mapped page for which a full
disk has no room would end the process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.utils import floatToGoString

from actors.metrics.latency import BOUNDS, Latency
from actors.metrics.names import Kind, Metric
from actors.processes import ProcessId, start_time

DIRECTORY: Final = "metrics"
FILE_BYTES: Final = 64 << 10
PREFIXES: Final[dict[Kind, str]] = {"counter": "counter", "histogram": "histogram", "gauge": "gauge_livemostrecent"}
_ENTRY_BYTES = 32
"""Beside its key, at most."""
_LE = tuple([floatToGoString(bound) for bound in (*BOUNDS, float("inf"))])


def incarnation(name: str) -> str:
    """Of this process."""
    return f"{name}.{os.getpid()}.{start_time(os.getpid())}"


def process_of(incarnation: str) -> ProcessId:
    """Raises ValueError."""
    _, pid, started = incarnation.rsplit(".", 2)
    return ProcessId(int(pid), int(started))


def make_room(path: Path, size: int) -> None:
    """It has its name when it has its size: one without bytes cannot be read, and no other beside it. Raises OSError, and leaves
    nothing behind then."""
    beside = path.with_suffix(".room")
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


class Sheet:
    """Where one process writes. What is given are the figures since its start, not what they grew by."""

    def __init__(self, run_dir: Path, incarnation: str) -> None:
        """Raises OSError, when the disk is full for one."""
        directory = run_dir / DIRECTORY
        directory.mkdir(mode=0o700, exist_ok=True)
        self._files: dict[Kind, MmapedDict] = {}
        for kind, prefix in PREFIXES.items():
            path = directory / f"{prefix}_{incarnation}.db"
            make_room(path, FILE_BYTES)
            self._files[kind] = MmapedDict(str(path))
        self._keys: dict[tuple[str, tuple[str, ...]], str] = {}
        self._taken: dict[Kind, int] = dict.fromkeys(self._files, 8)
        self.left_out: dict[str, None] = {}
        """Metrics for which there is no room. The fault of whoever gives a label too many values."""
        self.now_s = 0.0
        """On the wall clock: of two processes with one name, the newer one's gauges count."""

    def count(self, metric: Metric, value: float, *labels: str) -> None:
        self._write(metric, metric.name, metric.labels, labels, value)

    level = count
    """Of a gauge."""

    def spread(self, metric: Metric, latency: Latency, *labels: str) -> None:
        names = (*metric.labels, "le")
        for le, number in zip(_LE, latency.buckets, strict=True):
            self._write(metric, f"{metric.name}_bucket", names, (*labels, le), number)
        self._write(metric, f"{metric.name}_sum", metric.labels, labels, latency.sum)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _write(self, metric: Metric, name: str, names: tuple[str, ...], labels: tuple[str, ...], value: float) -> None:
        key = self._keys.get((name, labels)) or self._new_key(metric, name, names, labels)
        if key:
            self._files[metric.kind].write_value(key, value, self.now_s)

    def _new_key(self, metric: Metric, name: str, names: tuple[str, ...], labels: tuple[str, ...]) -> str:
        assert len(names) == len(labels), (metric.name, labels)
        # What it means is added by who reads.
        key = mmap_key(metric.family, name, list(names), list(labels), "")
        taken = self._taken[metric.kind] + len(key.encode()) + _ENTRY_BYTES
        if taken > FILE_BYTES:
            self.left_out[metric.name] = None
            return ""
        self._taken[metric.kind] = taken
        self._keys[name, labels] = key
        return key
