"""The process of one shard, as an actor runs it, without Ray: ``python -m benchmarks.shard.host TOPOLOGY_FILE [--watch]``.

It prints a line of JSON when the shard answers, and one for each line it reads: its own use of the machine, its counters, and with
--watch the stops of its loop since the line before. The end of its input ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

import structlog
import uvloop

from actors.shard import ShardServer
from actors.topology import Topology
from benchmarks.shard.stops import Watch

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def usage() -> dict[str, float]:
    """CPU seconds of this process and all its threads, those of RocksDB too; memory in MiB, as the kernel counts it now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"cpu_s": used.ru_utime + used.ru_stime, "now_s": time.monotonic()}
    found["rocksdb_s"] = sum(map(_rocksdb_s, Path("/proc/self/task").iterdir()))
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Rss", "Pss"):
            found[f"{name.lower()}_mib"] = int(rest.split()[0]) / 1024
    return found


def _rocksdb_s(thread: Path) -> float:
    """CPU of one thread, if it is RocksDB's own."""
    name, _, rest = (thread / "stat").read_text().rpartition(")")
    fields = rest.split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if "(rocksdb" in name else 0.0


async def serve(topology: Topology, watched: bool) -> None:
    server = ShardServer(topology, 0)
    await server.start()
    watch = Watch(server) if watched else None
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(json.dumps({"started_s": time.monotonic()} | usage()), flush=True)
    while await reader.readline():
        generations = len(server._store.generations())
        stops = watch.take() if watch is not None else {}
        print(json.dumps(usage() | {"counters": server.counters(), "generations": generations, "stops": stops}), flush=True)
    await server.stop()


def main(arguments: list[str]) -> None:
    topology = Topology.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30), logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(serve(topology, "--watch" in arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
