"""What a bulk read is compared with: one process that goes through the store's own files row by row and joins the rows into blocks.

``python -m benchmarks.pipeline_scan STORE...`` opens each store (the directory of a shard, layout `skipstream`) as a RocksDB secondary,
asks rocksdict's iterator for key, value and the next one of every message of each sealed generation, joins keys and values 8,192 at a time,
and prints rows, bytes, seconds and CPU seconds as JSON. No checksum, no socket, no bound of a range: the loop that anybody would write.
Its CPU of a row is also the measure of a machine: the bars of bulk reading were set where it took 0.72 us (gate 4.4). Opening is not in the
time: it follows the whole log of the store, and a reader has done that before anybody asks.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from shards.engine_secondary import SecondaryEngine
from shards.view import StoreView

ROWS_PER_BLOCK = 8192
_DATA, _INDEX = b"\0\0", b"\0\1"
"""What follows the static key: of a message, and of the first index key behind the messages (docs/formats.md, layout `skipstream`)."""


@contextmanager
def opened(path: Path) -> Iterator[tuple[StoreView, SecondaryEngine]]:
    """What knows the streams of one store, and what reads its rows."""
    with tempfile.TemporaryDirectory(prefix="hf-scan-") as first, tempfile.TemporaryDirectory(prefix="hf-scan-") as second:
        view, engine = StoreView(str(path), first), SecondaryEngine(str(path), second)
        yield view, engine
        engine.close()
        view.close()


def scan(view: StoreView, engine: SecondaryEngine) -> tuple[int, int]:
    """(rows, bytes) of all sealed generations of one store."""
    rows = size = 0
    for info in view.generations():
        if info.until is None:
            continue
        for stream in view.streams_in(info.id, b"#"):
            start, end = stream.static + _DATA, stream.static + _INDEX
            while found := engine.scan(info.id, start, end, ROWS_PER_BLOCK):
                size += len(b"".join([key for key, _ in found]) + b"".join([value for _, value in found]))
                rows, start = rows + len(found), found[-1][0] + b"\0"
    return rows, size


def main(paths: list[str]) -> int:
    with ExitStack() as stack:
        stores = [stack.enter_context(opened(Path(path))) for path in paths]
        print(json.dumps(timed(stores)))
    return 0


def timed(stores: Sequence[tuple[StoreView, SecondaryEngine]]) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    found = [scan(*each) for each in stores]
    return {
        "rows": sum(rows for rows, _ in found),
        "bytes": sum(size for _, size in found),
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
