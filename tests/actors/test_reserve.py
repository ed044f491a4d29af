"""The reserve (actors.reserve): really allocated, given back when a start needs it, made again, never in the way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.datadir import open_data_directory
from actors.reserve import GIVEN_BACK_BELOW_BYTES, LEAST_BYTES, LEFT_FREE_BYTES, Reserve, give_back
from tests.needs import OWN_MOUNTS

MIB = 1 << 20
PLENTY = 1 << 40


class Disk:
    """A data directory with stores on a disk of which so much is said to be free."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.free = PLENTY
        self.file = path / "reserve"
        (path / "shards" / "0").mkdir(parents=True)

    def reserve(self, most: int = 256 * MIB) -> Reserve:
        return Reserve(self.path, self.path / "shards", most, lambda _: self.free)

    def give_back(self) -> int:
        return give_back(self.path, lambda _: self.free)

    def taken(self) -> int:
        return self.file.stat().st_blocks * 512 if self.file.exists() else 0

    def store(self, size: int) -> None:
        with open(self.path / "shards" / "0" / "000001.sst", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_an_empty_store_reserves_little_and_a_full_one_what_was_asked_for(disk: Disk) -> None:
    """Blocks of the disk, not a sparse file: 16 MiB at first; as much as is stored, in steps; never more than the setting."""
    kept = disk.reserve(100 * MIB)
    kept.look()
    assert disk.taken() == LEAST_BYTES
    disk.store(40 * MIB)
    kept.look()
    assert disk.taken() == 40 * MIB
    disk.store(400 * MIB)
    for _ in range(3):
        kept.look()
    assert disk.taken() == 100 * MIB


def test_it_is_given_back_when_there_is_too_little_room_to_start_and_made_again(disk: Disk) -> None:
    """Not before; and both are in the log."""
    kept = disk.reserve()
    kept.look()
    disk.free = GIVEN_BACK_BELOW_BYTES
    assert disk.give_back() == 0 and disk.file.exists()
    disk.free -= 1
    assert disk.give_back() == LEAST_BYTES and not disk.file.exists()
    assert disk.give_back() == 0
    with capture_logs() as logged:
        disk.free = LEFT_FREE_BYTES
        kept.look()
        kept.look()
        assert disk.taken() == 0, "made now, it would be what makes the disk low"
        disk.free = 4 * LEFT_FREE_BYTES
        kept.look()
    assert disk.taken() == LEAST_BYTES
    assert [line["event"] for line in logged] == ["reserve.not_made", "reserve.made"]


def test_a_small_disk_gives_a_hundredth(disk: Disk) -> None:
    """Of what is free when it is made."""
    disk.free = 1000 * MIB
    kept = disk.reserve()
    disk.store(200 * MIB)
    for _ in range(3):
        kept.look()
    assert disk.taken() == 10 * MIB


def test_none_is_kept_when_none_is_wanted(disk: Disk) -> None:
    """0 removes what an earlier setting made."""
    disk.reserve().look()
    disk.reserve(0).look()
    assert not disk.file.exists()


def test_a_disk_that_refuses_leaves_nothing_half_made(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """tend never raises, says why once, and does not look again at once."""
    asked = 0

    def full(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("actors.reserve.os.posix_fallocate", full)
    kept = disk.reserve()
    with capture_logs() as logged:
        kept.tend()
        kept.tend()
    assert asked == 1 and disk.taken() == 0
    assert [line["event"] for line in logged] == ["reserve.not_made"]


def test_taking_a_data_directory_on_a_full_disk_gives_it_back_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first write, of the holder's pid, would end the start."""
    path = tmp_path / "data"
    open_data_directory(path, n_shards=None, n_shards_new=1).close()
    disk = Disk(path)
    disk.reserve().look()
    seen: list[bool] = []
    written = os.pwrite

    def pwrite(descriptor: int, data: bytes, at: int) -> int:
        seen.append(disk.file.exists())
        return written(descriptor, data, at)

    monkeypatch.setattr("actors.datadir.os.pwrite", pwrite)
    monkeypatch.setattr("actors.datadir.give_back", lambda directory: give_back(directory, lambda _: 0))
    directory = open_data_directory(path, n_shards=None, n_shards_new=1)
    assert directory.given_back == LEAST_BYTES and seen == [False]
    directory.close()


FULL_DISK = """
import os, signal, sys
from pathlib import Path
from actors.reserve import LEAST_BYTES, Reserve, free_bytes, give_back
from shards.engine import StoreFull
from shards.salvage import open_store

data = Path(sys.argv[1])
store = data / "shards" / "0"
store.mkdir(parents=True)
Reserve(data, data / "shards", LEAST_BYTES, lambda _: 1 << 40).look()
if os.fork() == 0:
    engine = open_store(str(store))
    for number in range(200):
        engine.write([(0, b"%05d" % number, os.urandom(20_000))])
    engine.sync()
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
with open(data / "others", "wb", buffering=0) as others:
    try:
        while True:
            others.write(bytes(65536))
    except OSError:
        pass
def fails():
    try:
        open_store(str(store)).close()
    except StoreFull as error:
        return True
    return False
print("fails", fails(), fails())
print("given", give_back(data) == LEAST_BYTES, free_bytes(data) > 8 << 20)
engine = open_store(str(store))
engine.write([(0, b"00000", None), (0, b"drained", b"")])
engine.sync()
print("opened", len(engine.scan(0, b"", b"z", 1000)), engine.damage_found)
engine.close()
"""


@pytest.mark.slow
@pytest.mark.needs("own-mounts")
def test_a_store_on_a_disk_that_is_really_full_opens_with_the_reserve_and_takes_writes(tmp_path: Path) -> None:
    """A file system of its own, 32 MiB, filled to the last byte after a kill: without the reserve it does not open, with it it does."""
    command = f'mount -t tmpfs -o size=32m tmpfs {tmp_path} && exec {sys.executable} -c "$PROGRAM" {tmp_path}'
    environment = {**os.environ, "PROGRAM": FULL_DISK, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run([*OWN_MOUNTS, command], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.splitlines()[-3:] == ["fails True True", "given True True", "opened 200 ()"], ran.stderr
