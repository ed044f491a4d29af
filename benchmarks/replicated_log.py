"""``python -m benchmarks.replicated_log [DIRECTORY]``: what an entry of 1 kB costs in the replicated log of a shard, for batches of 1, 16
and 256, each with one sync; what reading costs; how fast a log opens.

The loop's part is the write, the sync thread's the sync: they are told apart.  Takes about ten seconds.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from shards.replication.configuration import Rid
from shards.replication.entry import Entry, Kind
from shards.replication.log import ReplicatedLog
from shards.replication.log_opening import open_log

PAYLOAD = os.urandom(1000)
BATCHES = (1, 16, 256)
SECONDS = 2.0


def measure(directory: str, count: int) -> str:
    """One line of the table: medians over batches."""
    log = open_log(os.path.join(directory, str(count)), 0, 1, new=Rid("site/1"))
    writes: list[float] = []
    syncs: list[float] = []
    ends = time.perf_counter() + SECONDS
    while time.perf_counter() < ends:
        entries = [Entry(index, 1, Kind.RECORD, PAYLOAD) for index in range(log.last + 1, log.last + 1 + count)]
        writes.append(_timed(lambda entries=entries: log.append(entries)))  # type: ignore[misc]
        syncs.append(_timed(log.sync))
        log.trim(log.last - 1000)
    written, synced = statistics.median(writes) / count, statistics.median(syncs) / count
    worst = sorted(writes)[int(len(writes) * 0.99)]
    bytes_per_entry = _bytes_of(log, count)
    log.close()
    rate = len(writes) * count / SECONDS
    return f"| {count} | {written * 1e6:.1f} | {worst * 1e6:.0f} | {synced * 1e6:.0f} | {rate:.0f} | {bytes_per_entry:.0f} |"


def read_and_open(directory: str) -> list[str]:
    path = os.path.join(directory, "read")
    log = open_log(path, 0, 1, new=Rid("site/1"))
    for first in range(1, 50_001, 256):
        log.append([Entry(index, 1, Kind.RECORD, PAYLOAD) for index in range(first, first + 256)])
        log.sync()
    last = log.last
    read = _timed(lambda: _read_all(log)) / last
    log.close()
    began = time.perf_counter()
    open_log(path, 0, 1).close()
    opened = time.perf_counter() - began
    return [f"read in pieces of 96 KiB: {read * 1e6:.2f} us an entry", f"opened with {last} entries in {opened * 1e3:.0f} ms"]


def _read_all(log: ReplicatedLog) -> None:
    index = log.first
    while index <= log.last:
        index += len(log.read(index, 1 << 20, 96 << 10))


def _bytes_of(log: ReplicatedLog, count: int) -> float:
    """Of one entry, with its share of what is around the batch."""
    before = log.bytes
    log.append([Entry(index, 1, Kind.RECORD, PAYLOAD) for index in range(log.last + 1, log.last + 1 + count)])
    return (log.bytes - before) / count


def _timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main() -> int:
    directory = tempfile.mkdtemp(prefix="holdfast-log-", dir=sys.argv[1] if len(sys.argv) > 1 else None)
    try:
        print("| entries in a batch | write, us an entry | p99 of a write, us | sync, us an entry | entries a second | bytes an entry |")
        print("|---|---|---|---|---|---|")
        for count in BATCHES:
            print(measure(directory, count), flush=True)
        for line in read_and_open(directory):
            print(line)
    finally:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
