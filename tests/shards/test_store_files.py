"""A copy of the files of a store that is being written (shards/store_files.py) is the store at one moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shards import store_files
from shards.engine import StoreFailed
from shards.engine_rocks import RocksEngine, RocksOptions
from shards.store_files import StoreFiles, look, name_manifest

SMALL = RocksOptions(write_buffer_bytes=64 << 10, wal_bytes_max=200 << 10)
"""Files come and go all the time."""


class Writer(threading.Thread):
    """Row n of two families, again and again, beside families that come and go."""

    def __init__(self, engine: RocksEngine) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._engine.create_family(1)
        self.reached = 0
        self.failure: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        engine = self._engine
        try:
            while not self.done.is_set():
                number = self.reached + 1
                key, value = b"%08d" % number, os.urandom(150)
                engine.write([(0, key, value), (1, key, value)])
                self.reached = number
                match number % 600:
                    case 300:
                        engine.create_family(number)
                        engine.write([(number, b"k", b"v")])
                    case 0 if number > 600:
                        engine.drop_family(number - 900)
                    case _ if number % 50 == 0:
                        engine.sync()
        except BaseException as error:
            self.failure = error


def copied(files: StoreFiles, target: Path) -> Path:
    target.mkdir()
    for file in list(files.files):
        (target / file.name).write_bytes(os.pread(file.descriptor, file.bytes, 0))
        files.release(file)
    name_manifest(str(target), files.manifest)
    return target


def rows(engine: RocksEngine, family: int) -> list[int]:
    return [int(key) for key, _ in engine.scan(family, b"0", b":", 1 << 30)]


@pytest.mark.slow
def test_a_copy_taken_under_writes_is_a_prefix_of_them_with_all_that_were_made_before(tmp_path: Path) -> None:
    """Whatever is flushed, merged, dropped and deleted meanwhile; and looking into it changes nothing in it."""
    engine = RocksEngine(str(tmp_path / "store"), SMALL)
    writer = Writer(engine)
    writer.start()
    try:
        manifests = set()
        for number in range(12):
            while writer.reached < 700 * number and writer.failure is None:
                pass
            before = writer.reached
            sequence = engine.latest_sequence()
            files = StoreFiles.take(str(tmp_path / "store"))
            # Some of them are not there any more, by their names.
            while writer.reached < 700 * number + 500 and writer.failure is None:
                pass
            path = copied(files, tmp_path / f"copy-{number}")
            there = sorted(os.listdir(path))
            found = look(str(path))
            assert sorted(os.listdir(path)) == there
            assert found.sequence >= sequence and found.tables <= set(there) and (found.generations, found.layouts) == (0, ())
            manifests.add((files.manifest, (path / files.manifest).stat().st_size))
            copy = RocksEngine(str(path))
            try:
                assert rows(copy, 0) == rows(copy, 1)
                assert rows(copy, 0) == list(range(1, len(rows(copy, 0)) + 1)) and len(rows(copy, 0)) >= before
            finally:
                copy.close()
    finally:
        writer.done.set()
        writer.join()
        engine.close()
    assert writer.failure is None
    assert len(manifests) > 6, "files changed between the copies"


@pytest.mark.needs("interpreted")
def test_files_that_change_during_the_look_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the manifest and the logs the owner flushes: what was in the log then is in a file that the manifest does not name yet."""
    engine = RocksEngine(str(tmp_path / "store"))
    engine.write([(0, b"00000001", b"v")])
    looks = []
    opened = store_files._opened

    def overtaken(path: str, manifest: str, size: int) -> list[store_files.OpenFile]:
        looks.append(size)
        if len(looks) == 1:
            engine.release_log()
            engine.write([(0, b"00000002", b"v")])
        return opened(path, manifest, size)

    monkeypatch.setattr(store_files, "_opened", overtaken)
    copy = RocksEngine(str(copied(StoreFiles.take(str(tmp_path / "store")), tmp_path / "copy")))
    assert rows(copy, 0) == [1, 2] and len(looks) == 2
    copy.close()
    engine.close()


def test_a_copy_without_one_of_its_data_files_is_none(tmp_path: Path) -> None:
    """It says which."""
    engine = RocksEngine(str(tmp_path / "store"))
    engine.write([(0, b"k", b"v")])
    engine.close()
    files = StoreFiles.take(str(tmp_path / "store"))
    path = copied(files, tmp_path / "copy")
    (table,) = path.glob("*.sst")
    table.unlink()
    with pytest.raises(StoreFailed, match=table.name):
        look(str(path))


def test_where_there_is_no_store_nothing_is_taken(tmp_path: Path) -> None:
    """An empty directory, and one that is not there."""
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(StoreFailed, match="there is no store"):
            StoreFiles.take(str(path))


def test_what_is_taken_is_let_go_of(tmp_path: Path) -> None:
    """No file stays open, whichever were released before."""
    RocksEngine(str(tmp_path / "store")).close()
    before = len(os.listdir("/proc/self/fd"))
    files = StoreFiles.take(str(tmp_path / "store"))
    assert len(os.listdir("/proc/self/fd")) == before + len(files.files) and files.bytes > 0
    files.release(files.files[0])
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before
