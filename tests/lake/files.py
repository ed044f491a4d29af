"""What a streaming query has written with Spark's Parquet sink, as readers see it: the files that its log names, and no others.

A task that was killed leaves files behind that belong to nothing; `_spark_metadata` says which ones count. Read with pyarrow and not with
Spark, so that a row is judged that somebody else would see as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from tests.lake.stored import Row

LOG = "_spark_metadata"
COLUMNS = ["shard", "offset", "client_id", "topic", "qos", "retain", "payload"]


def committed_files(lake: Path) -> list[Path]:
    """The files of all batches that were committed, in no order."""
    log = lake / LOG
    if not log.is_dir():
        return []
    numbers = {int(path.name.removesuffix(".compact")): path for path in sorted(log.iterdir()) if path.name[0].isdigit()}
    # A compact file has everything up to its batch; its plain twin, when there is one, sorts before it and is replaced.
    compacts = [number for number, path in numbers.items() if path.name.endswith(".compact")]
    since = max(compacts, default=-1)
    named: dict[str, str] = {}
    for number, path in sorted(numbers.items()):
        if number >= since:
            lines = path.read_text().splitlines()
            if not lines or lines[0] != "v1":
                raise ValueError(f"{path} begins with {lines[:1]}, not with v1")
            for line in lines[1:]:
                entry = json.loads(line)
                named[entry["path"]] = entry["action"]
    return [Path(unquote(urlparse(path).path)) for path, action in named.items() if action == "add"]


def orphans(lake: Path) -> list[Path]:
    """Parquet files that no batch names: what killed tasks left."""
    return sorted(set(lake.rglob("*.parquet")) - set(committed_files(lake)))


def table_of(files: list[Path], columns: list[str]) -> pa.Table:
    # One by one: a common schema is not looked for, it has to be there.
    return pa.concat_tables([pq.ParquetFile(path).read(columns=columns) for path in files])


def lake_rows(lake: Path) -> list[Row]:
    """All rows, duplicates included, in the order of (shard, offset)."""
    files = committed_files(lake)
    if not files:
        return []
    table = table_of(files, COLUMNS).sort_by([("shard", "ascending"), ("offset", "ascending")])
    return [Row(*values) for values in zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)]
