"""The replicated log on a disk that fails, is full, or forgets what was not synced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import forget_unsynced
from tests.faultdisk.spoken import Spoken
from tests.faultdisk.trace import Op
from tests.replication.logs import entry, found

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]


class Replica(Spoken):
    """tests.replication.program on a watched disk."""

    def __init__(self, disk: FaultDisk, mode: str = "sync") -> None:
        super().__init__(disk, ["-m", "tests.replication.program", str(disk.root / "log"), mode])
        self.last, self.epoch, self.promised = map(int, self.line().split()[1:])

    def does(self, what: str, times: int) -> list[str]:
        self.say(f"{what} {times}")
        return self.until("idle")[:-1]


@pytest.fixture
def disk(tmp_path: Path) -> FaultDisk:
    return FaultDisk(tmp_path / "root", tmp_path)


def test_a_power_cut_takes_nothing_that_was_acknowledged(disk: FaultDisk) -> None:
    """Over segments, replacements and promises, three times on one log; each process is killed, and what was not synced is gone."""
    last = epoch = promised = 0
    for _ in range(3):
        with Replica(disk) as replica:
            assert (replica.last, replica.epoch, replica.promised) == (last, epoch, promised)
            replica.does("append", 12)
            promised = int(replica.does("promise", 2)[-1].split()[1])
            last, epoch = map(int, replica.does("replace", 3)[-1].split()[1:])
            # Who has written entries of an epoch has promised it.
            promised = max(promised, epoch)
        forget_unsynced(disk.root, disk.log)
    first, _, entries = found(disk.root / "log")
    assert (first, len(entries)) == (1, last)
    assert [each.payload for each in entries] == [entry(each.index, each.epoch).payload for each in entries]


def test_the_planted_fault_is_found(disk: FaultDisk) -> None:
    """Whoever acknowledges without a sync loses what was acknowledged: the test above sees it."""
    with Replica(disk, "forgetful") as replica:
        assert replica.does("append", 3)[-1] == "acknowledged 3 1"
    forget_unsynced(disk.root, disk.log)
    with Replica(disk) as replica:
        assert replica.last == 0


def test_a_batch_is_one_write_and_one_sync(disk: FaultDisk) -> None:
    """Counted by whoever stands between the program and the disk, where no segment begins."""
    with Replica(disk) as replica:
        replica.does("append", 1)
        before = len(disk.trace().of(Op.WRITE, suffix=".seg")), len(disk.trace().syncs(".seg"))
        replica.does("append", 2)
        replica.does("replace", 1)
        after = len(disk.trace().of(Op.WRITE, suffix=".seg")), len(disk.trace().syncs(".seg"))
    assert after == (before[0] + 3, before[1] + 3)


def test_a_full_disk_refuses_and_leaves_nothing_behind(disk: FaultDisk) -> None:
    """Nothing of what was refused is there; with room again the same entries go in, where a segment begins too."""
    with Replica(disk) as replica:
        replica.does("append", 5)
        disk.fill()
        for what in ("append", "replace"):
            assert [line.split()[0] for line in replica.does(what, 8)] == ["refused"] * 8
        disk.free()
        assert replica.does("append", 2) == ["acknowledged 6 1", "acknowledged 7 1"]
        until_full = 40
        for index in range(8, until_full):
            disk.fill()
            (refused,) = replica.does("append", 1)
            assert refused.startswith("refused"), refused
            assert "No space left on device" in refused
            disk.free()
            assert replica.does("append", 1) == [f"acknowledged {index} 1"]
    forget_unsynced(disk.root, disk.log)
    assert [each.index for each in found(disk.root / "log")[2]] == list(range(1, until_full))


def test_after_a_failed_sync_nothing_is_written_any_more(disk: FaultDisk) -> None:
    """It is said again at every attempt, and the next process finds all that was acknowledged, with or without what was not."""
    with Replica(disk) as replica:
        replica.does("append", 4)
        disk.fail_syncs(1, error=errno.EIO)
        first, second = replica.does("append", 2)
        assert first.startswith("failed")
        assert "Input/output error" in first
        assert second.startswith("failed the log of this replica has failed before")
    with Replica(disk) as replica:
        assert replica.last in (4, 5)
        last = replica.last
        assert replica.does("append", 1) == [f"acknowledged {last + 1} 1"]
    # What the page cache had kept of the failed sync was written anew, so this power cut does not take it from below the rest.
    forget_unsynced(disk.root, disk.log)
    assert found(disk.root / "log")[2][-1].index == last + 1


def test_a_promise_that_could_not_be_written_leaves_the_former_one(disk: FaultDisk) -> None:
    """A sync that fails or a full disk: what is read afterwards was promised."""
    with Replica(disk) as replica:
        assert replica.does("promise", 2) == ["acknowledged 1", "acknowledged 2"]
        disk.fail_syncs(1, suffix=".part")
        assert replica.does("promise", 1)[0].startswith("failed")
    forget_unsynced(disk.root, disk.log)
    with Replica(disk) as replica:
        assert replica.promised == 2
        disk.fill()
        assert replica.does("promise", 1)[0].startswith("failed")
        disk.free()
        assert replica.does("append", 1)[0].startswith("failed the log of this replica has failed before")
    with Replica(disk) as replica:
        assert replica.promised == 2
