"""Archives that were killed and begun again, and what is in them: the files that the manifest or the Delta table names, read by pyarrow."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.archive_verify import verify
from pipeline.manifest import Manifest
from shards.view import StoreView
from tests.gates.gate import GateFailed
from tests.lake.archiver import Archiving
from tests.lake.files import COLUMNS, table_of
from tests.lake.stored import ALL, BYTES, COUNT, Row, row_of, stores_of
from tests.needs import ROOT

RUN_S = 240.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the archive: how it ended, the steps that came, and what it said at its end."""

    code: int
    steps: Counter[str]
    rows: int
    acknowledged: dict[int, int]


def archive(asked: Archiving) -> Ran:
    """In a process of its own, to its end. Raises GateFailed when it ended otherwise than it was told to."""
    done = subprocess.run(asked.command(), cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]
    steps = Counter(each["name"] for each in told if each["event"] == "step")
    ended = [each for each in told if each["event"] == "done"]
    wanted = -9 if asked.die_at and not ended else 0
    if done.returncode != wanted:
        raise GateFailed(f"{asked.format} archive ended with code {done.returncode}: {' | '.join(done.stderr.splitlines()[-3:])[-500:]}")
    if not ended:
        return Ran(done.returncode, steps, 0, {})
    return Ran(0, steps, int(ended[0]["rows"]), {int(shard): int(cut) for shard, cut in ended[0]["acknowledged"].items()})


def stored_rows(data_dir: Path) -> list[Row]:
    """All rows of the stores of a broker that runs, beside it; whoever calls sees to it that nothing is written meanwhile."""
    found: list[Row] = []
    for shard, path in stores_of(data_dir).items():
        with tempfile.TemporaryDirectory(prefix="hf-beside-") as scratch:
            view = StoreView(str(path), scratch)
            found += sorted(rows_of_view(shard, view), key=lambda row: row.offset)
            view.close()
    return found


def rows_of_view(shard: int, view: StoreView) -> Iterator[Row]:
    for info in view.generations():
        for stream in view.streams_in(info.id, b"#"):
            place, done = -1, False
            while not done:
                read = view.read(info.id, stream, place, ALL, COUNT, BYTES)
                for position, value in read.messages:
                    yield row_of(shard, position, value)
                place, done = read.place, read.done


def files_of(root: Path, form: str) -> list[Path]:
    """What counts for whoever reads it in this form; nothing when there is nothing yet."""
    if form == "delta":
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(root)):
            return []
        return [root / path for path in DeltaTable(str(root)).file_uris()]
    return [root / path for path in Manifest(root).load().files]


def archived_rows(root: Path, form: str) -> list[Row]:
    files = files_of(root, form)
    if not files:
        return []
    table = table_of(files, COLUMNS).sort_by([("shard", "ascending"), ("offset", "ascending")])
    return [Row(*values) for values in zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)]


def below(rows: list[Row], cuts: dict[int, int]) -> list[Row]:
    return [row for row in rows if row.offset < cuts.get(row.shard, 0)]


def flipped_bytes(root: Path, count: int, chance: random.Random) -> list[str]:
    """Flip a bit of one byte, see whether ``verify`` finds it, put it back; where it did not. In each file at least once."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    missed = []
    for number in range(max(count, len(files))):
        path = files[number % len(files)]
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data))
        bit = 1 << chance.randrange(8)
        data[at] ^= bit
        path.write_bytes(data)
        if not verify(root).problems:
            missed.append(f"bit {bit:#04x} of byte {at} of {len(data)} in {path.relative_to(root)}")
        data[at] ^= bit
        path.write_bytes(data)
    if problems := verify(root).problems:
        raise GateFailed(f"an archive that was put back as it was is found wrong: {problems[0]}")
    return missed
