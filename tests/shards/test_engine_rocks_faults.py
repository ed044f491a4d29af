"""The RocksDB engine on a disk that forgets, fills up and fails: each in a process of its own, on the interposed library."""

from __future__ import annotations

from pathlib import Path

import pytest

from shards.engine_rocks import RocksEngine
from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import forget_unsynced
from tests.faultdisk.spoken import Spoken
from tests.faultdisk.trace import Op

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]

# One command a line; each is answered by one line, except that a sync in the background answers when it ends.
PROGRAM = """
import sys, threading
from shards.engine import StoreFailed
from shards.engine_rocks import RocksEngine

engine = RocksEngine(sys.argv[1])

def attempt(name, call):
    try:
        call()
    except StoreFailed as error:
        print(name, type(error).__name__, str(error).replace(chr(10), " "), flush=True)
    else:
        print(name, "ok", flush=True)

print("open", flush=True)
for line in sys.stdin:
    command, _, rest = line.strip().partition(" ")
    if command == "write":
        attempt("write", lambda: engine.write([(0, key.encode(), b"x" * 100) for key in rest.split()]))
    elif command == "sync":
        attempt("sync", engine.sync)
    elif command == "background-sync":
        threading.Thread(target=attempt, args=("background-sync", engine.sync), daemon=True).start()
        print("started", flush=True)
    elif command == "create":
        attempt("create", lambda: engine.create_family(int(rest)))
    elif command == "get":
        print("get", engine.get(0, rest.encode()) is not None, flush=True)
"""


class Program(Spoken):
    def __init__(self, disk: FaultDisk) -> None:
        super().__init__(disk, ["-c", PROGRAM, str(disk.root / "db")])
        assert self.line() == "open"

    def do(self, command: str) -> str:
        self.say(command)
        return self.line()


@pytest.fixture
def disk(tmp_path: Path) -> FaultDisk:
    return FaultDisk(tmp_path / "root", tmp_path)


def found(disk: FaultDisk) -> list[str]:
    engine = RocksEngine(str(disk.root / "db"))
    try:
        return [key.decode() for key, _ in engine.scan(0, b"", b"\xff", 1 << 20)]
    finally:
        engine.close()


def test_a_power_cut_takes_what_was_not_synced_and_nothing_else(disk: FaultDisk) -> None:
    # Property: sync is a real fsync of the log: after it the write survives the loss of the page cache; without it, it does not.
    with Program(disk) as program:
        assert program.do("create 1") == "create ok"
        assert program.do("write a b") == "write ok"
        assert program.do("sync") == "sync ok"
        assert program.do("write c") == "write ok"
    forget_unsynced(disk.root, disk.log)
    assert found(disk) == ["a", "b"]


def test_a_failed_sync_is_never_asked_again(disk: FaultDisk) -> None:
    # Property: after one EIO the engine refuses everything, and no later sync of that file is tried.
    with Program(disk) as program:
        assert program.do("write a") == "write ok"
        disk.fail_syncs(1, suffix=".log")
        assert program.do("sync").startswith("sync StoreFailed")
        assert program.do("sync").startswith("sync StoreFailed")
        assert program.do("write b").startswith("write StoreFailed")
    failed = [sync for sync in disk.trace().syncs(".log") if not sync.ok]
    assert len(failed) == 1
    assert [sync for sync in disk.trace().syncs(".log") if sync.begin_ns > failed[0].end_ns] == []


@pytest.mark.parametrize("suffix", [".log", ""])
def test_a_full_disk_refuses_and_goes_on_without_a_restart(disk: FaultDisk, suffix: str) -> None:
    # Property: StoreFull while it is full; reads work; a sync in between waits and ends well when there is room; nothing that
    # was accepted is lost, nothing refused appears.
    with Program(disk) as program:
        assert program.do("write a") == "write ok"
        assert program.do("sync") == "sync ok"
        assert program.do("write b") == "write ok"
        disk.fill(suffix=suffix)
        for _ in range(3):
            assert program.do("write refused").startswith("write StoreFull")
        assert program.do("background-sync") == "started"
        assert program.do("get b") == "get True"
        assert program.do("get refused") == "get False"
        assert program.do("write refused").startswith("write StoreFull")
        disk.free()
        assert program.line() == "background-sync ok"
        assert program.do("write c") == "write ok"
        assert program.do("sync") == "sync ok"
    refused = [write for write in disk.trace().of(Op.WRITE, suffix=".log") if not write.ok]
    assert refused, "the library did fill the disk"
    forget_unsynced(disk.root, disk.log)
    assert found(disk) == ["a", "b", "c"]


def test_a_store_killed_on_a_full_disk_opens_again(disk: FaultDisk) -> None:
    # Property: a restart while RocksDB has not recovered loses only what was refused.
    with Program(disk) as program:
        program.do("write a")
        program.do("sync")
        disk.fill(suffix=".log")
        assert program.do("write refused").startswith("write StoreFull")
    disk.free()
    assert found(disk) == ["a"]
