"""How RocksDB is set up, as RocksDB itself says it."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from rocksdict import Cache, Rdict

from shards.backends import open_backend
from shards.engine import HOME_FAMILY, Op, index_of
from shards.engine_rocks import RocksEngine, RocksOptions
from shards.engine_secondary import SecondaryEngine
from shards.rocks_options import MERGED_RUNS, database_options

SMALL = RocksOptions(write_buffer_bytes=64 << 10, wal_bytes_max=1 << 20)
PIDS = int(Path("/proc/sys/kernel/pid_max").read_text())


def styles(path: Path) -> dict[str, str]:
    """How each family is merged, from the newest options file."""
    text = max(path.glob("OPTIONS-*")).read_text()
    found: dict[str, str] = dict(re.findall(r'\[CFOptions "(\w+)"\]\n(?:  .*\n)*?  compaction_style=(\w+)', text))
    return found


def fill(engine: RocksEngine, family: int, writes: int) -> dict[bytes, bytes]:
    """20 rows of half a kB in each write, in an order of keys in which every file overlaps every other."""
    rng = random.Random(3)
    kept = {}
    for _ in range(writes):
        ops: list[Op] = []
        for _ in range(20):
            key, value = rng.randbytes(12), rng.randbytes(500)
            kept[key] = value
            ops.append((family, key, value))
        engine.write(ops)
    return kept


def written_again(engine: RocksEngine, family: int) -> float:
    """Bytes written to data files for each byte that was flushed."""
    stats = engine._rdict(family).property_value("rocksdb.cfstats") or ""
    (line,) = [line for line in stats.splitlines() if line.startswith(" Sum")]
    return float(line.split()[11])


def test_generations_are_merged_in_runs_and_sessions_in_levels_also_after_a_restart(tmp_path: Path) -> None:
    # Property: what only grows is not written again as often as what is written over.
    for _ in range(2):
        engine = RocksEngine(str(tmp_path))
        if not engine.families()[1:]:
            engine.create_family(1)
        assert styles(tmp_path) == {"default": "kCompactionStyleLevel", "g1": "kCompactionStyleUniversal"}
        engine.close()


def test_runs_of_like_size_are_merged_and_an_index_in_small_files(tmp_path: Path) -> None:
    # Property: what RocksDB itself has written down of its options, also after a restart.
    for _ in range(2):
        engine = RocksEngine(str(tmp_path))
        if not engine.families()[1:]:
            engine.create_family(1)
            engine.create_family(index_of(1))
        text = max(tmp_path.glob("OPTIONS-*")).read_text()
        sections = dict(re.findall(r'\[CFOptions "(\w+)"\](.*?)(?=\n\[|\Z)', text, re.DOTALL))
        (merging,) = re.findall(r"compaction_options_universal=\{(.*)\}", sections["g1"])
        assert {"stop_style=kCompactionStopStyleSimilarSize", "size_ratio=1000", "min_merge_width=8"} <= set(merging.split(";"))
        index = {line.strip() for line in sections["i1"].splitlines()}
        assert {
            "target_file_size_base=2097152",
            "max_bytes_for_level_base=67108864",
            "level0_file_num_compaction_trigger=8",
            "compression=kNoCompression",
        } <= index
        engine.close()


@pytest.mark.slow
def test_a_message_is_written_again_a_few_times_only(tmp_path: Path) -> None:
    # Property: the cost of merging grows with the logarithm of a generation; in levels it was six or seven here.
    engine = RocksEngine(str(tmp_path), SMALL)
    engine.create_family(1)
    kept = fill(engine, 1, 1_200)
    flushed = len(kept) * 512 / SMALL.write_buffer_bytes
    assert flushed > 5 * MERGED_RUNS
    assert written_again(engine, 1) < 3.5
    assert dict(engine.scan(1, b"", b"\xff" * 13, 1 << 30)) == kept
    engine.close()


@pytest.mark.slow
def test_a_store_that_was_merged_in_levels_opens_with_all_that_it_had(tmp_path: Path) -> None:
    # Property: stores of before need no conversion, and go on in the new way.
    cache = Cache(1 << 20)
    levels = database_options(SMALL, cache)
    db = Rdict(str(tmp_path), levels, {"default": levels})
    old = db.create_column_family("g1", levels)
    kept = {b"%06d" % (n * 7919 % 20_000): b"%d" % n * 40 for n in range(20_000)}
    for key, value in kept.items():
        old[key] = value
    old.compact_range(None, None)
    del old
    db.close()
    engine = RocksEngine(str(tmp_path), SMALL)
    kept |= fill(engine, 1, 200)
    assert dict(engine.scan(1, b"", b"\xff" * 13, 1 << 30)) == kept
    engine.compact(1)
    assert dict(engine.scan(1, b"", b"\xff" * 13, 1 << 30)) == kept
    engine.close()


def test_the_block_cache_is_as_large_as_was_asked_for(tmp_path: Path) -> None:
    # Property: the setting reaches RocksDB, for all families together.
    engine = open_backend("rocksdb", str(tmp_path), "salvage", 3 << 20)
    assert isinstance(engine, RocksEngine)
    engine.create_family(1)
    assert engine._rdict(1).property_int_value("rocksdb.block-cache-capacity") == 3 << 20
    assert engine._rdict(0).property_int_value("rocksdb.block-cache-capacity") == 3 << 20
    engine.close()


@pytest.mark.slow
def test_rows_that_were_deleted_in_masses_go_soon_and_messages_are_not_merged_for_deleted_pages(tmp_path: Path) -> None:
    # Property: the rows of sessions that ended are given back; in a generation the same would rewrite all that lies beside them.
    engine = RocksEngine(str(tmp_path))
    engine.create_family(1)
    keys = [b"%06d" % number for number in range(20_000)]
    for family in (1, HOME_FAMILY):
        engine.write([(family, key, key * 20) for key in keys])
        engine.release_log()
        engine.write([(family, key, None) for key in keys])
        engine.release_log()
    deadline = time.monotonic() + 30
    while engine.tables(HOME_FAMILY):
        assert time.monotonic() < deadline
    assert len(engine.tables(1)) == 2
    engine.close()


@pytest.mark.slow
def test_opening_begins_no_threads_for_each_family(tmp_path: Path) -> None:
    """A reader opens the store anew after each flush, and there are as many families as generations."""
    families = 24
    engine = RocksEngine(str(tmp_path / "store"), SMALL)
    for family in range(1, families + 1):
        engine.create_family(family)
    begun = []
    for attempt in range(5):
        # Others begin threads too: the fewest count, and RocksDB's own 15 for each family are far more.
        before = last_thread()
        looking = SecondaryEngine(str(tmp_path / "store"), str(tmp_path / f"scratch-{attempt}"))
        begun.append((last_thread() - before) % PIDS)
        looking.close()
    engine.close()
    assert min(begun) < 8 * families


def last_thread() -> int:
    """Number of the process or thread of this machine that was begun last."""
    return int(Path("/proc/loadavg").read_text().split()[4])
