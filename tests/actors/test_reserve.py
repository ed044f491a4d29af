"""The reserve (actors.reserve): really allocated, given back when a start needs it, made again, never in the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors import reserve
from actors.datadir import open_data_directory
from actors.reserve import GIVEN_BACK_BELOW_BYTES, LEAST_BYTES, LEFT_FREE_BYTES, Reserve, give_back

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

    monkeypatch.setattr(reserve.os, "posix_fallocate", full)
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
