"""The interposed library under a real RocksDB: order, failures, and what a power cut takes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import forget_unsynced
from tests.faultdisk.spoken import Spoken
from tests.faultdisk.trace import Flag, Op, Trace
from tests.faultdisk.wal import records

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]


class Program(Spoken):
    """tests.faultdisk.program on a watched disk."""

    def __init__(self, disk: FaultDisk, count: int, mode: str) -> None:
        super().__init__(disk, ["-m", "tests.faultdisk.program", str(disk.root / "db"), str(count), mode], keep_logs=True)
        self.found = int(self.until("open")[-1].split()[1])

    def until_idle(self) -> list[str]:
        return self.until("idle")[:-1]

    def more(self, count: int) -> list[str]:
        self.say(f"more {count}")
        return self.until_idle()


@pytest.fixture
def disk(tmp_path: Path) -> FaultDisk:
    return FaultDisk(tmp_path / "root", tmp_path)


def kept_log(disk: FaultDisk, trace: Trace) -> bytes:
    """The content of the log file that the last WAL write went to."""
    return (disk.kept / str(trace.of(Op.WRITE, suffix=".log")[-1].file)).read_bytes()


def test_every_acknowledged_key_was_written_and_then_synced(disk: FaultDisk) -> None:
    """For each key: its bytes are in a log record whose write ended before a successful sync of that file began."""
    with Program(disk, 20, "sync") as program:
        lines = program.until_idle()
    assert lines == [f"acknowledged {n}" for n in range(20)]
    trace = disk.trace()
    writes, syncs = trace.of(Op.WRITE, suffix=".log"), trace.syncs(".log")
    ends = {n: record.end for record in records(kept_log(disk, trace)) for n in range(20) if b"key-%06d" % n in record.data}
    for n in range(20):
        write = next(w for w in writes if w.offset + w.result >= ends[n])
        assert any(s.ok and s.begin_ns >= write.end_ns and s.length >= ends[n] for s in syncs), n
    # One at a time: each key has a sync of its own, between its write and the next one's.
    assert len([s for s in syncs if s.begin_ns >= writes[0].end_ns]) == 20


def test_without_a_sync_the_trace_shows_none_and_a_power_cut_loses_everything(disk: FaultDisk) -> None:
    """The fault the library is for: keys acknowledged without a sync are there after kill -9 and gone after a power cut."""
    with Program(disk, 50, "forgetful") as program:
        assert len(program.until_idle()) == 50
    trace = disk.trace()
    first_put = trace.of(Op.WRITE, suffix=".log")[0]
    assert [s for s in trace.syncs(".log") if s.ok and s.begin_ns >= first_put.end_ns] == []

    with Program(disk, 0, "forgetful") as program:
        assert program.found == 50
    # Opening flushed what was recovered into a synced table; so the cut comes after 50 further keys.
    with Program(disk, 50, "forgetful") as program:
        program.until_idle()
    lost = forget_unsynced(disk.root, disk.log)
    assert any(each.path.endswith(".log") and each.lost_bytes > 50 * 100 for each in lost), lost
    with Program(disk, 0, "forgetful") as program:
        assert program.found == 50


def test_with_a_sync_before_each_acknowledgement_a_power_cut_loses_none(disk: FaultDisk) -> None:
    """Three cycles of write, kill -9 and power cut on one log keep every acknowledged key."""
    for cycle in range(3):
        with Program(disk, 30, "sync") as program:
            assert program.found == cycle * 30
            assert len(program.until_idle()) == 30
        forget_unsynced(disk.root, disk.log)
    with Program(disk, 0, "sync") as program:
        assert program.found == 90


def test_one_failed_sync_reaches_the_program_and_is_logged(disk: FaultDisk) -> None:
    """EIO once: the call that hit it is not acknowledged, the trace has one failed sync, the counter says one."""
    with Program(disk, 3, "sync") as program:
        assert len(program.until_idle()) == 3
        disk.fail_syncs(1, suffix=".log")
        lines = program.more(1)
        assert lines[0].startswith("failed 3") and "IO error" in lines[0], lines
    failed = [s for s in disk.trace().syncs() if not s.ok]
    assert [(s.result, s.flags) for s in failed] == [(-errno.EIO, Flag.INJECTED)]
    assert failed[0].path.endswith(".log")
    assert disk.spoiled().syncs_failed == 1


def test_a_failing_rule_for_other_files_leaves_the_log_alone(disk: FaultDisk) -> None:
    """The suffix rule is about names: syncs of the log succeed while those of *.sst would fail."""
    with Program(disk, 1, "sync") as program:
        program.until_idle()
        disk.fail_syncs(-1, suffix=".sst")
        assert program.more(2) == ["acknowledged 1", "acknowledged 2"]
    assert disk.spoiled().syncs_failed == 0


def test_what_a_failed_sync_dropped_never_becomes_durable(disk: FaultDisk) -> None:
    """A program that ignores EIO and syncs again is not helped: after the power cut the bytes are gone."""
    path = disk.root / "file"
    append = "import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
    careful = append + "os.write(f, b'a' * 10); os.fsync(f)\n"
    careless = (
        append + "os.write(f, b'b' * 10)\ntry: os.fsync(f)\nexcept OSError as e: print(e.errno)\nos.write(f, b'c' * 10); os.fsync(f)\n"
    )
    environment = {**os.environ, **disk.environment()}
    subprocess.run([sys.executable, "-c", careful, str(path)], env=environment, check=True, timeout=120)
    disk.fail_syncs(1)
    done = subprocess.run(
        [sys.executable, "-c", careless, str(path)], env=environment, check=True, timeout=120, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(errno.EIO)
    assert path.read_bytes() == b"a" * 10 + b"b" * 10 + b"c" * 10
    assert [(each.path, each.kept_bytes, each.lost_bytes) for each in forget_unsynced(disk.root, disk.log)] == [("file", 10, 20)]


def test_a_full_disk_refuses_writes_until_there_is_space_again(disk: FaultDisk) -> None:
    """ENOSPC while the flag is set: no put is acknowledged, the trace has the refused writes, nothing of them is in the file."""
    with Program(disk, 2, "sync") as program:
        program.until_idle()
        disk.fill(suffix=".log")
        lines = program.more(1)
        assert lines[0].startswith("failed 2") and "No space" in lines[0], lines
        size = max(w.offset + w.result for w in disk.trace().of(Op.WRITE, suffix=".log") if w.ok)
        refused = [w for w in disk.trace().of(Op.WRITE, suffix=".log") if not w.ok]
        assert refused and all(w.result == -errno.ENOSPC and Flag.INJECTED in w.flags for w in refused)
        assert len(kept_log(disk, disk.trace())) == size
        disk.free()
    with Program(disk, 1, "sync") as program:
        assert program.found == 2
        assert program.until_idle() == ["acknowledged 2"]


def test_a_delayed_sync_takes_so_long_and_can_be_lifted(disk: FaultDisk) -> None:
    """While the delay is set each sync lasts at least as long; a delay that is lifted ends the one under way."""
    with Program(disk, 1, "sync") as program:
        program.until_idle()
        disk.delay_syncs(30_000)
        program.more(2)
        slow = disk.trace().syncs(".log")[-2:]
        assert all(s.end_ns - s.begin_ns >= 30_000_000 for s in slow)
        disk.delay_syncs(3_600_000_000)
        program.say("more 1")
        while disk.spoiled().syncs_delayed < 3:
            os.sched_yield()
        disk.delay_syncs(0)
        assert program.until_idle() == ["acknowledged 3"]


FILES = """
import os, sys
root = sys.argv[1]
def put(name, text):
    f = os.open(f"{root}/{name}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(f, text); os.fsync(f); os.close(f)
    os.rename(f"{root}/{name}.part", f"{root}/{name}")
if os.path.exists(f"{root}/second"):
    os.unlink(f"{root}/second")
put("kept", b"old")
print("begun", flush=True)
put("kept", b"new")
os.link(f"{root}/kept", f"{root}/second")
os.unlink(f"{root}/second")
print("over", flush=True)
"""
DEATHS = [
    (Op.WRITE, "kept.part", False, {"kept": b"old", "kept.part": b""}),
    (Op.WRITE, "kept.part", True, {"kept": b"old", "kept.part": b"new"}),
    (Op.FSYNC, "*.part", False, {"kept": b"old", "kept.part": b"new"}),
    (Op.FSYNC, "*.part", True, {"kept": b"old", "kept.part": b"new"}),
    (Op.RENAME, "kept", False, {"kept": b"old", "kept.part": b"new"}),
    (Op.RENAME, "kept", True, {"kept": b"new"}),
    (Op.LINK, "sec*", False, {"kept": b"new"}),
    (Op.LINK, "sec*", True, {"kept": b"new", "second": b"new"}),
    (Op.UNLINK, "second", False, {"kept": b"new", "second": b"new"}),
    (Op.UNLINK, "second", True, {"kept": b"new"}),
]


@pytest.mark.parametrize(("op", "pattern", "after", "left"), DEATHS)
def test_a_process_ends_exactly_before_or_after_a_call(disk: FaultDisk, op: Op, pattern: str, after: bool, left: dict[str, bytes]) -> None:
    """The second such call: what is there is what was done up to it.  The next process is not ended."""
    disk.end_at(op, pattern, after=after, times=1 if op in (Op.LINK, Op.UNLINK) else 2)
    command = [sys.executable, "-c", FILES, str(disk.root)]
    environment = {**os.environ, **disk.environment()}
    done = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), disk.deaths()) == (-signal.SIGKILL, ["begun"], 1)
    assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == left
    again = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True)
    assert (again.returncode, again.stdout.split(), disk.deaths()) == (0, ["begun", "over"], 1)


def test_nobody_is_ended_at_what_the_library_does_not_know(disk: FaultDisk) -> None:
    """One sentence each, and nothing is set."""
    with pytest.raises(ValueError, match="nobody is ended at close; wanted one of write, fsync, rename, link, unlink"):
        disk.end_at(Op.CLOSE, "*", after=False)
    with pytest.raises(ValueError, match="longer than 63 bytes"):
        disk.end_at(Op.WRITE, "x" * 64, after=False)
