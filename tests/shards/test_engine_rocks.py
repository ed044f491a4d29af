"""What only the RocksDB engine can get wrong: torn logs, damaged files, locks, disk and memory, handles."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shards.engine import StoreDamaged, StoreFailed, StoreFull, StoreInUse
from shards.engine_rocks import RocksEngine, RocksOptions, mapped
from tests.contracts.disks import copy_of_living


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def engine(path: Path) -> Iterator[RocksEngine]:
    made = RocksEngine(str(path))
    yield made
    made.close()


def log_file(path: Path) -> Path:
    return max(path.glob("*.log"))


def copy_of(path: Path, name: str) -> Path:
    """What a killed process leaves behind."""
    target = path.with_name(name)
    copy_of_living(path, target)
    return target


def walk(engine: RocksEngine) -> int:
    """Step a cursor over everything."""
    count = 0
    cursor = engine.cursor(0, b"", b"\xff")
    cursor.seek(b"")
    while cursor.valid():
        cursor.next()
        count += 1
    return count


def keys(path: Path, family: int = 0) -> list[bytes]:
    engine = RocksEngine(str(path))
    try:
        return [key for key, _ in engine.scan(family, b"", b"\xff" * 9, 1 << 30)]
    finally:
        engine.close()


def test_a_log_torn_anywhere_keeps_the_whole_writes_before(engine: RocksEngine, path: Path) -> None:
    # Property: the store opens, whatever byte the log ends at, and holds a prefix of the writes, each whole in all families.
    engine.create_family(1)
    sizes = [os.path.getsize(log_file(path))]
    for n in range(6):
        engine.write([(0, b"%d" % n, b"x" * 50), (1, b"%d" % n, b"y" * 50)])
        sizes.append(os.path.getsize(log_file(path)))
    assert sizes == sorted(set(sizes)), "every write reaches the file at once"
    for cut in range(sizes[0], sizes[-1] + 1, 53):
        torn = copy_of(path, f"torn-{cut}")
        os.truncate(log_file(torn), cut)
        whole = [b"%d" % n for n in range(6) if sizes[n + 1] <= cut]
        assert keys(torn, 0) == keys(torn, 1) == whole, cut


def test_garbage_after_the_last_synced_write_is_dropped(engine: RocksEngine, path: Path) -> None:
    # Property: a power cut may leave anything in the unsynced tail; what was synced is there, and the store goes on from it.
    engine.write([(0, b"a", b"1")])
    engine.sync()
    tails = {"zeros": bytes(40_000), "noise": bytes(range(1, 255)) * 9, "half": b"\x01\x02\x03\x04\xff\xff\x01"}
    for kind in (1, 5, 8, 9, 11):
        tails[f"kind-{kind}"] = b"\x01\x02\x03\x04\x14\x00" + bytes((kind,)) + b"z" * 500
        tails[f"later-{kind}"] = bytes(32768 - os.path.getsize(log_file(path))) + tails[f"kind-{kind}"]
    for name, garbage in tails.items():
        torn = copy_of(path, name)
        with open(log_file(torn), "ab") as log:
            log.write(garbage)
        again = RocksEngine(str(torn))
        assert bool(again.damage_found) == (name == "noise" or name.rpartition("-")[2] in ("5", "6", "7", "8", "11"))
        assert again.scan(0, b"", b"z", 9) == [(b"a", b"1")]
        again.write([(0, b"b", b"2")])
        again.sync()
        again.close()
        assert keys(torn) == [b"a", b"b"]


def test_garbage_in_the_manifest_is_told_at_once(engine: RocksEngine, path: Path) -> None:
    # Property: opening never hangs: RocksDB reads the manifest with the same reader.
    engine.write([(0, b"a", b"1")])
    # While it is open, RocksDB's threads may still be at deleting the manifest that it began with.
    engine.close()
    for kind in (1, 5, 8, 11):
        torn = copy_of(path, f"manifest-{kind}")
        with open(next(torn.glob("MANIFEST-*")), "ab") as manifest:
            manifest.write(b"\x01\x02\x03\x04\x14\x00" + bytes((kind,)) + b"z" * 500)
        with pytest.raises(StoreFailed, match="MANIFEST"):
            RocksEngine(str(torn))


def test_a_damaged_data_file_is_loud_and_never_a_shorter_scan(engine: RocksEngine, path: Path) -> None:
    # Property: an iterator that stops because of damage raises; the plain iterators of rocksdict just end.
    engine.write([(0, b"%05d" % n, os.urandom(100)) for n in range(3000)])
    engine.close()
    (table,) = path.glob("*.sst")
    with open(table, "r+b") as file:
        file.seek(os.path.getsize(table) // 2)
        file.write(b"\xa5" * 64)
    again = RocksEngine(str(path))
    with pytest.raises(StoreFailed, match="Corruption"):
        again.scan(0, b"", b"\xff", 1 << 20)
    # It may lie anywhere among what is read.
    whole = 0
    for start in range(0, 3000, 25):
        for limit in (4, 8, 20, 400):
            try:
                found = again.scan(0, b"%05d" % start, b"\xff", limit)
            except StoreDamaged:
                continue
            assert [key for key, _ in found] == [b"%05d" % n for n in range(start, min(start + limit, 3000))]
            whole += 1
    assert whole > 200
    with pytest.raises(StoreFailed, match="Corruption"):
        walk(again)
    with pytest.raises(StoreFailed, match="Corruption"):
        again.get_many(0, [b"%05d" % n for n in range(3000)])
    again.close()


def test_a_second_open_of_a_used_directory_is_one_clear_sentence(engine: RocksEngine, path: Path) -> None:
    # Property: in the same process and in another, the second one is told who is in the way.
    with pytest.raises(StoreInUse, match=f"^{path} is in use: another process has this store open$"):
        RocksEngine(str(path))
    code = (
        f"from shards.engine_rocks import RocksEngine\ntry: RocksEngine({str(path)!r})\nexcept Exception as e: print(type(e).__name__, e)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout == f"StoreInUse {path} is in use: another process has this store open\n"
    engine.write([(0, b"a", b"1")])


def test_a_directory_of_something_else_is_refused(path: Path) -> None:
    # Property: a RocksDB of another program is not taken over.
    from rocksdict import Options, Rdict

    other = Rdict(str(path), Options(raw_mode=True))
    other.create_column_family("users", Options(raw_mode=True))
    other.close()
    with pytest.raises(StoreFailed, match="'users'"):
        RocksEngine(str(path))


def blocks_bytes(file: Path) -> int:
    """Zero of one that RocksDB has removed meanwhile."""
    try:
        return file.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def test_an_empty_store_takes_little_disk(path: Path) -> None:
    # Property: nothing is preallocated: far below 50 MB, even with several shards [gate 5], after use and a second start.
    for _ in range(2):
        engine = RocksEngine(str(path))
        for family in (1, 2):
            if family not in engine.families():
                engine.create_family(family)
        engine.write([(family, b"key", b"value") for family in (0, 1, 2)])
        engine.sync()
        assert engine.size_bytes() < 1 << 20
        assert sum(map(blocks_bytes, path.iterdir())) < 1 << 20
        engine.close()


def test_scans_and_cursors_survive_the_garbage_collector(engine: RocksEngine) -> None:
    # Property: read options live as long as their iterator; rocksdict ends a scan early, silently, when they do not.
    engine.write([(0, b"%06d" % n, b"x" * 200) for n in range(20_000)])
    cursor = engine.cursor(0, b"", b"\xff")
    cursor.seek(b"")
    count = 0
    while cursor.valid():
        count += 1
        if count % 500 == 0:
            gc.collect(0)
            junk = [bytes(64) for _ in range(200)]
            del junk
        cursor.next()
    assert count == 20_000
    assert len(engine.scan(0, b"", b"\xff", 1 << 20)) == 20_000
    assert len(engine.scan(0, b"000100", b"000200", 1 << 20)) == 100


def test_dropping_a_family_gives_its_space_back(path: Path) -> None:
    # Property: retention frees disk: no handle of ours keeps the files of a dropped family.
    engine = RocksEngine(str(path), RocksOptions(write_buffer_bytes=1 << 20, wal_bytes_max=1 << 20))
    engine.create_family(1)
    for n in range(60):
        engine.write([(1, b"%d-%d" % (n, m), os.urandom(1000)) for m in range(100)])
    before = engine.size_bytes()
    engine.drop_family(1)
    # Files go in the background, and the log of the dropped family with a later switch of logs: so until enough is gone.
    deadline = time.monotonic() + 60
    while engine.size_bytes() >= before - 2_000_000:
        assert time.monotonic() < deadline, f"{before} bytes before the drop, {engine.size_bytes()} long after it"
        engine.write([(0, b"same-%d" % (m % 5), os.urandom(1000)) for m in range(100)])
    engine.close()


def test_a_full_disk_is_told_from_a_broken_one() -> None:
    # Property: the texts of rocksdict, as met on a full tmpfs and on a used directory, become the right error.
    full = mapped("write x", Exception("IO error: No space left on device: While appending to file: x/000004.log: No space left on device"))
    assert isinstance(full, StoreFull)
    broken = mapped("write x", Exception("IO error: Input/output error: While appending to file: x/000004.log"))
    assert type(broken) is StoreFailed
    assert "Input/output error" in str(broken)


def test_a_missing_parent_directory_is_told(tmp_path: Path) -> None:
    # Property: what rocksdict raises at open is ours, with its text.
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed, match="open"):
        RocksEngine(str(tmp_path / "file" / "store"))


def test_columns_take_fewer_entries_at_once_the_larger_they_are(engine: RocksEngine) -> None:
    """What is in memory beyond a bound stays a few hundred kilobytes where messages are like those before them."""
    engine.write([(0, b"a%03d" % n, bytes(20)) for n in range(200)] + [(0, b"b%03d" % n, bytes(300_000)) for n in range(20)])
    small = [len(keys) for keys, *_ in engine.columns(0, b"a", b"b", 1000)]
    large = [len(keys) for keys, *_ in engine.columns(0, b"b", b"c", 1000)]
    assert sum(small) == 200 and small[1] == max(small) == 64
    assert large == [1] * 20
