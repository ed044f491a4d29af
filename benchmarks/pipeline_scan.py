"""What a bulk read is compared with: one process that scans the store's own files and joins the rows into blocks, and no more.

``python -m benchmarks.pipeline_scan STORE...`` opens each store (the directory of a shard, layout `skipstream`) as a RocksDB secondary,
reads the messages of every sealed generation as fast as rocksdict gives them, joins keys and values 8,192 at a time, and prints rows,
bytes and seconds as JSON. No checksum, no socket, no bound of a range: the least that reading costs in Python.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from shards.engine_secondary import SecondaryEngine
from shards.view import StoreView

ROWS_PER_BLOCK = 8192
_DATA, _INDEX = b"\0\0", b"\0\1"
"""What follows the static key: of a message, and of the first index key behind the messages (docs/formats.md, layout `skipstream`)."""


def scan(path: Path) -> tuple[int, int]:
    """(rows, bytes) of all sealed generations of one store."""
    rows = size = 0
    with tempfile.TemporaryDirectory(prefix="hf-scan-") as first, tempfile.TemporaryDirectory(prefix="hf-scan-") as second:
        view, engine = StoreView(str(path), first), SecondaryEngine(str(path), second)
        for info in view.generations():
            if info.until is None:
                continue
            for stream in view.streams_in(info.id, b"#"):
                start, end = stream.static + _DATA, stream.static + _INDEX
                while (found := engine.columns(info.id, start, end, ROWS_PER_BLOCK))[0]:
                    keys, values = found
                    block = b"".join(keys) + b"".join(values)
                    rows, size = rows + len(keys), size + len(block)
                    start = keys[-1] + b"\0"
        engine.close()
        view.close()
    return rows, size


def main(paths: list[str]) -> int:
    began, cpu = time.perf_counter(), time.process_time()
    found = [scan(Path(path)) for path in paths]
    told = {
        "rows": sum(rows for rows, _ in found),
        "bytes": sum(size for _, size in found),
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
