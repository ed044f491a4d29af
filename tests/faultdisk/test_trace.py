"""The log's reader and the rules of forgetting, on small files written by plain calls."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import Forgotten, forget_unsynced
from tests.faultdisk.trace import RECORD, Flag, Op, events

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]


@pytest.fixture
def disk(tmp_path: Path) -> FaultDisk:
    return FaultDisk(tmp_path / "root", tmp_path)


def run(disk: FaultDisk, body: str, *, sockets: str = "") -> str:
    """Run a few lines of Python in the watched directory; return what they print."""
    environment = {**os.environ, **disk.environment(sockets=sockets)}
    program = "import os, sys, threading, subprocess, shutil, socket\n" + body
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=disk.root, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(disk: FaultDisk, path: str) -> list[tuple[int, int]]:
    return [(e.offset, e.result) for e in disk.trace().of(Op.WRITE) if e.path == path]


def test_offsets_are_those_in_the_file_whichever_call_wrote(disk: FaultDisk) -> None:
    """write, pwrite, writev, append and copies of the descriptor all report where their bytes went."""
    run(
        disk,
        "f = os.open('a', os.O_WRONLY | os.O_CREAT)\n"
        "os.write(f, b'x' * 5); os.pwrite(f, b'y' * 3, 100); os.writev(f, [b'12', b'345'])\n"
        "g = os.dup(f); os.close(f); os.write(g, b'z')\n"
        "h = os.open('a', os.O_WRONLY | os.O_APPEND); os.write(h, b'end')\n",
    )
    assert written(disk, "a") == [(0, 5), (100, 3), (5, 5), (10, 1), (103, 3)]
    assert disk.trace().of(Op.WRITE)[2].prefix == b"12345"


def test_files_elsewhere_and_the_log_itself_are_not_watched(disk: FaultDisk, tmp_path: Path) -> None:
    """Only paths below the root count, also through a symbolic link out of it or a relative path."""
    (disk.root / "away").symlink_to(tmp_path)
    run(disk, "open('away/outside', 'w').write('x'); open('../sibling', 'w').write('x'); open('./in', 'w').write('x')")
    assert {e.path for e in disk.trace().of(Op.WRITE)} == {"in"}


def test_forks_threads_and_programs_started_from_a_watched_one_are_watched(disk: FaultDisk) -> None:
    """A forked child, a thread and an executed program each log under their own ids; inherited descriptors count."""
    printed = run(
        disk,
        "f = os.open('shared', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "child = os.fork()\n"
        "if child == 0: os.write(f, b'child'); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "t = threading.Thread(target=os.write, args=(f, b'thread')); t.start(); t.join()\n"
        "subprocess.run([sys.executable, '-c', 'import os; os.write(1, b\"executed\")'], stdout=f, check=True)\n"
        "os.write(f, b'parent'); print(os.getpid(), child)\n",
    )
    parent, child = map(int, printed.split())
    events = [e for e in disk.trace().of(Op.WRITE) if e.path == "shared"]
    assert [e.prefix for e in events] == [b"child", b"thread", b"executed", b"parent"]
    assert [e.pid for e in events][:2] == [child, parent] and events[3].pid == parent
    assert events[2].pid not in (parent, child)
    assert events[1].tid != parent
    assert [e.offset for e in events] == [0, 5, 11, 19]


def test_starting_many_programs_does_not_make_the_parent_forget_its_files(disk: FaultDisk) -> None:
    """A child of vfork shares the parent's memory: that it closes its copies must not unwatch the parent's."""
    run(
        disk,
        "f = os.open('a', os.O_WRONLY | os.O_CREAT)\n"
        "os.set_inheritable(f, True)\n"
        "for n in range(5):\n"
        "    subprocess.run(['true'], check=True, close_fds=True)\n"
        "    os.write(f, b'x')\n",
    )
    assert written(disk, "a") == [(n, 1) for n in range(5)]


def test_a_descriptor_number_used_again_by_another_file_is_another_file(disk: FaultDisk) -> None:
    """Numbers are reused at once: writes to an unwatched file that got a watched one's number are not logged."""
    run(
        disk,
        "f = os.open('a', os.O_WRONLY | os.O_CREAT); os.close(f)\n"
        "g = os.open('/dev/null', os.O_WRONLY); assert f == g; os.write(g, b'x' * 50); os.close(g)\n"
        "import ctypes; h = os.open('b', os.O_WRONLY | os.O_CREAT); ctypes.CDLL(None).syscall(3, h)\n"
        "i = os.open('/dev/null', os.O_WRONLY); assert i == h; os.write(i, b'x' * 50)\n",
    )
    assert disk.trace().of(Op.WRITE) == []


def test_a_sync_covers_what_was_written_before_it_and_nothing_later(disk: FaultDisk) -> None:
    """After the cut a file has exactly the size it had when its last successful sync began."""
    run(
        disk,
        "f = os.open('a', os.O_WRONLY | os.O_CREAT); os.write(f, b'1' * 10); os.fdatasync(f); os.write(f, b'2' * 7)\n"
        "g = os.open('never', os.O_WRONLY | os.O_CREAT); os.write(g, b'3' * 5)\n"
        "h = os.open('always', os.O_WRONLY | os.O_CREAT | os.O_DSYNC); os.write(h, b'4' * 5)\n",
    )
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("a", 10, 7, 0), Forgotten("never", 0, 5, 0)]
    assert (disk.root / "a").read_bytes() == b"1" * 10
    assert (disk.root / "never").read_bytes() == b""
    assert (disk.root / "always").read_bytes() == b"4" * 5


def test_content_from_before_the_log_is_durable(disk: FaultDisk) -> None:
    """A file that existed keeps what it had; what was appended without a sync is cut."""
    (disk.root / "old").write_bytes(b"old")
    (disk.root / "moved").write_bytes(b"moved")
    run(disk, "f = open('old', 'ab'); f.write(b'new'); f.close(); os.rename('moved', 'here')")
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("old", 3, 3, 0)]
    assert (disk.root / "here").read_bytes() == b"moved"


def test_buffered_writes_that_the_library_cannot_see_count_once_synced(disk: FaultDisk) -> None:
    """C's stdio writes without a call we wrap: the size at the sync decides, so nothing synced is cut."""
    run(
        disk,
        "import ctypes; c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p\n"
        "f = ctypes.c_void_p(c.fopen(b'stdio', b'w')); c.fputs(b'synced', f); c.fflush(f); c.fsync(c.fileno(f))\n"
        "c.fputs(b'lost', f); c.fflush(f)\n",
    )
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("stdio", 6, 4, 0)]


def test_renaming_replacing_and_truncating_take_effect_at_once(disk: FaultDisk) -> None:
    """Names are durable at once: the synced file keeps its bytes under its new name; a shorter file stays shorter."""
    run(
        disk,
        "f = os.open('t', os.O_WRONLY | os.O_CREAT); os.write(f, b'new' * 4); os.fsync(f); os.close(f)\n"
        "open('t2', 'w').write('unsynced'); os.rename('t', 'current'); os.rename('t2', 'other')\n"
        "g = os.open('cut', os.O_WRONLY | os.O_CREAT); os.write(g, b'x' * 20); os.fsync(g); os.ftruncate(g, 5)\n"
        "os.lseek(g, 5, 0); os.write(g, b'y' * 20)\n",
    )
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("cut", 5, 20, 0), Forgotten("other", 0, 8, 0)]
    assert (disk.root / "current").read_bytes() == b"new" * 4


def test_bytes_written_again_within_the_durable_part_are_counted(disk: FaultDisk) -> None:
    """Overwriting cannot be undone here, so it is reported, until a sync covers it."""
    run(
        disk,
        "f = os.open('a', os.O_WRONLY | os.O_CREAT); os.write(f, b'x' * 20); os.fsync(f); os.pwrite(f, b'y' * 4, 18)\n"
        "g = os.open('b', os.O_WRONLY | os.O_CREAT); os.write(g, b'x' * 20); os.fsync(g); os.pwrite(g, b'y' * 4, 0); os.fsync(g)\n",
    )
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("a", 20, 2, 2)]


def test_forgetting_twice_forgets_nothing_more(disk: FaultDisk) -> None:
    """The log can go on after a cut: what was left then is durable from then on."""
    run(disk, "f = os.open('a', os.O_WRONLY | os.O_CREAT); os.write(f, b'1' * 10); os.fsync(f); os.write(f, b'2' * 5)")
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("a", 10, 5, 0)]
    run(disk, "f = os.open('a', os.O_WRONLY | os.O_APPEND); os.write(f, b'3' * 5)")
    assert forget_unsynced(disk.root, disk.log) == [Forgotten("a", 10, 5, 0)]
    assert forget_unsynced(disk.root, disk.log) == []


def test_sends_on_the_sockets_of_a_port_are_logged_with_their_first_bytes(disk: FaultDisk) -> None:
    """Only sockets whose own port was named; each event says both ports, the bytes asked for and the bytes taken."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    printed = run(
        disk,
        f"l = socket.create_server(('127.0.0.1', {port})); c = socket.create_connection(('127.0.0.1', {port})); s, _ = l.accept()\n"
        "c.send(b'unseen'); s.send(b'\\x40\\x02\\x00\\x01'); os.write(s.fileno(), b'w' * 40); s.sendmsg([b'm', b'n'])\n"
        "print(c.getsockname()[1])\n",
        sockets=str(port),
    )
    sends = disk.trace().of(Op.SEND)
    assert [(e.length, e.result, e.prefix[:4]) for e in sends] == [(4, 4, b"\x40\x02\x00\x01"), (40, 40, b"wwww"), (2, 2, b"mn")]
    assert {e.path for e in sends} == {f"tcp:{port}>{printed.strip()}"}


def test_a_send_that_took_less_than_it_was_given_says_how_much(disk: FaultDisk) -> None:
    """A socket whose buffer is full takes a part, then nothing; the bytes taken add up to what the peer can read."""
    printed = run(
        disk,
        "a, b = socket.socketpair(); a.setblocking(False); first = a.send(b'x' * 10_000_000)\n"
        "try: a.send(b'y' * 10_000_000)\n"
        "except BlockingIOError as e: print(first, e.errno)\n",
        sockets="1",
    )
    first, error = map(int, printed.split())
    assert [(e.length, e.result) for e in disk.trace().of(Op.SEND)] == [(10_000_000, first), (10_000_000, -error)]


def test_a_record_cut_short_at_the_end_is_left_out(disk: FaultDisk) -> None:
    """A writer killed within its last write leaves a log that still reads, without that event."""
    run(disk, "open('a', 'w').write('x'); open('b', 'w').write('x')")
    data = disk.log.read_bytes()
    whole = events(data)
    assert len(whole) >= 4 and whole[0].op is Op.OPEN and Flag.CREATED in whole[0].flags
    assert events(data[: -RECORD.size // 2]) == whole[:-1]
