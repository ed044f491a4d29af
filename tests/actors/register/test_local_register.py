"""The register in a file: what is on disk when a change is answered, what damage and a full or failing disk do, who may open it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from actors.register.local import REGISTER_FILE, open_register
from shards.engine import StoreInUse
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import NO_VALUE, RegisterMistake
from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import forget_unsynced
from tests.faultdisk.spoken import Spoken

KEY = "/holdfast/shard/0"
GOLDEN = "0b08d4899301029293a16102c40093a16201c40178"


async def test_it_is_there_again_after_a_restart_with_its_versions(tmp_path: Path) -> None:
    """Versions go on: one of before the restart is never used for something else."""
    one = open_register(tmp_path)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.DONE
    held = await one.read(KEY)
    assert held is not None
    await one.close()
    one = open_register(tmp_path)
    assert await one.list("/") == {KEY: held}
    assert await one.cas(KEY + "1", NO_VALUE, b"y") is Outcome.DONE
    other = await one.read(KEY + "1")
    assert other is not None
    assert other.version > held.version
    await one.close()


async def test_the_file_is_written_as_it_always_was(tmp_path: Path) -> None:
    """Golden bytes: a change of these is a new version."""
    one = open_register(tmp_path)
    await one.cas("b", NO_VALUE, b"x")
    await one.cas("a", NO_VALUE, b"")
    await one.close()
    assert (tmp_path / REGISTER_FILE).read_bytes().hex() == GOLDEN


async def test_there_are_never_two(tmp_path: Path) -> None:
    """One process has it, and gives it back when it is closed; who is late is not answered."""
    one = open_register(tmp_path)
    with pytest.raises(StoreInUse, match="another process has the register open"):
        open_register(tmp_path)
    await one.close()
    await one.close()
    with pytest.raises(RegisterAway, match="it was closed"):
        await one.read(KEY)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.UNKNOWN
    await open_register(tmp_path).close()


async def test_a_register_that_was_cut_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    """Never read as an older one, or as an empty one."""
    one = open_register(tmp_path)
    await one.cas(KEY, NO_VALUE, b"x")
    await one.close()
    file = tmp_path / REGISTER_FILE
    whole = file.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        for content in (bytes(changed), whole[:at]):
            file.write_bytes(content)
            with pytest.raises(RegisterMistake, match=r"the register is damaged: .*/register does not fit its checksum"):
                open_register(tmp_path)


class Register(Spoken):
    """tests.actors.register.program on a watched disk: `count N` counts a key up, each line what it believes."""

    def __init__(self, disk: FaultDisk) -> None:
        super().__init__(disk, ["-m", "tests.actors.register.program", str(disk.root / "register")])
        self.found = int(self.line().split()[1])

    def count(self, times: int) -> list[str]:
        self.say(f"count {times}")
        return self.until("idle")[:-1]


@pytest.fixture
def disk(tmp_path: Path) -> FaultDisk:
    return FaultDisk(tmp_path / "root", tmp_path)


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_a_power_cut_takes_nothing_that_was_done(disk: FaultDisk) -> None:
    """Three times on one register."""
    for done in (0, 5, 10):
        with Register(disk) as register:
            assert register.found == done
            assert register.count(5)[-1] == f"done {done + 5}"
        forget_unsynced(disk.root, disk.log)


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_on_a_full_disk_a_change_is_unknown_and_not_made(disk: FaultDisk) -> None:
    """Reads go on, and with room again changes do."""
    with Register(disk) as register:
        register.count(2)
        disk.fill()
        assert register.count(2) == ["unknown 2", "unknown 2"]
        disk.free()
        assert register.count(1) == ["done 3"]
    forget_unsynced(disk.root, disk.log)
    with Register(disk) as register:
        assert register.found == 3


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_after_a_failed_sync_it_answers_nothing_any_more(disk: FaultDisk) -> None:
    """The next process finds what was done, and the change of which nobody knew or not."""
    with Register(disk) as register:
        register.count(2)
        disk.fail_syncs(1, error=errno.EIO)
        assert register.count(2) == ["away", "away"]
    forget_unsynced(disk.root, disk.log)
    with Register(disk) as register:
        assert register.found in (2, 3)


async def test_a_change_waits_for_its_turn_and_the_loop_does_not(tmp_path: Path) -> None:
    """The disk is in a thread: other tasks run while a change is made."""
    one = open_register(tmp_path)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.DONE
    assert ticks > 1
    ticking.cancel()
    await one.close()
