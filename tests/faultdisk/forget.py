"""Simulates the loss of the page cache: what was not synced is gone.

``forget_unsynced`` is called when every watched process is dead (killed with
SIGKILL, the kernel would still write their data out; a power cut would not).  It
replays the log and cuts every file below the root to the size that was on disk.

What counts as on disk, chosen to be harsh where a real disk may be, and simple:

* A successful fsync or fdatasync makes durable the size that the file had when
  the sync began, and so every byte below it.  A sync under way at the kill, and
  sync_file_range, make nothing durable.  syncfs does it for every file.
* A failed sync drops what it should have written: Linux marks the pages clean, so
  a later successful sync of the same file does not bring them back.  From the first
  byte that was unsynced then, the file can never become durable again.
* What a file held when the log first saw it is durable.
* Creating, renaming, linking, unlinking and truncating count as durable at once,
  with no need to sync the directory.  A file created and never synced is
  therefore still there, empty.  (Losing names as well would be harsher; RocksDB syncs
  its directories, and this choice keeps the question to data.)
* Bytes below the durable size that were written again and not synced stay as
  they are: after a power cut either content is possible.  ``Forgotten.rewritten`` counts
  them, so a test can insist that there were none.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faultdisk.trace import Event, FileId, Flag, Op, Trace, read, reset_record


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A file that lost its end, or would have lost overwritten bytes within it."""

    path: str
    kept_bytes: int
    lost_bytes: int
    rewritten: int


@dataclass(slots=True)
class _Durable:
    """What is known of one file: created → written and synced → unlinked."""

    size: int
    paths: set[str]
    durable: int
    lost_from: int | None = None
    rewritten: list[tuple[int, int]] | None = None

    def sync(self, size: int, begin_ns: int) -> None:
        limit = size if self.lost_from is None else min(size, self.lost_from)
        self.durable = max(self.durable, limit)
        if self.rewritten:
            self.rewritten = [write for write in self.rewritten if write[0] > begin_ns]

    def fail(self, size: int) -> None:
        if size > self.durable and self.lost_from is None:
            self.lost_from = self.durable

    def truncate(self, size: int) -> None:
        self.size = size
        self.durable = min(self.durable, size)
        if self.lost_from is not None and self.lost_from >= size:
            self.lost_from = None

    def write(self, event: Event) -> None:
        end = event.offset + event.result
        self.size = max(self.size, end)
        if Flag.SYNCED in event.flags:
            self.sync(end, event.end_ns)
        elif event.offset < self.durable:
            overlap = min(end, self.durable) - event.offset
            self.rewritten = [*(self.rewritten or []), (event.end_ns, overlap)]


def forget_unsynced(root: Path, log: Path) -> list[Forgotten]:
    """Cut every file below ``root`` to what was synced; return those that lost something, by path.

    Adds a record to the log, so that the same log can go on with the next start of the processes.
    """
    known = replay(read(log))
    forgotten: list[Forgotten] = []
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory) / name
            if path.is_symlink() or not path.is_file():
                continue
            status = path.stat()
            state = known.get(FileId(status.st_ino))
            relative = str(path.relative_to(root))
            # An inode number can come back for a file that the library did not see: the name must agree too.
            if state is None or relative not in state.paths:
                continue
            lost = max(0, status.st_size - state.durable)
            rewritten = sum(count for _, count in state.rewritten or [])
            if lost:
                os.truncate(path, state.durable)
            if lost or rewritten:
                forgotten.append(Forgotten(relative, min(status.st_size, state.durable), lost, rewritten))
    with log.open("ab") as out:
        out.write(reset_record(time.monotonic_ns(), os.getpid()))
    return sorted(forgotten, key=lambda each: each.path)


def replay(trace: Trace) -> dict[FileId, _Durable]:
    """What every file of the log had on disk when the log ended."""
    files: dict[FileId, _Durable] = {}
    # A call's effect is there at its end at the latest, so the order of ends is an order that happened.
    for event in sorted(trace, key=lambda each: each.end_ns):
        _apply(files, event)
    return files


def _apply(files: dict[FileId, _Durable], event: Event) -> None:
    if event.op is Op.RESET:
        files.clear()
        return
    if event.op is Op.SYNCFS:
        if event.ok:
            for state in files.values():
                state.sync(state.size, event.begin_ns)
        return
    if event.op in (Op.SEND, Op.CLOSE, Op.ALLOCATE, Op.SYNC_FILE_RANGE) or Flag.DIRECTORY in event.flags:
        return
    if event.op is Op.UNLINK:
        known = files.get(event.file)
        # Another process may have got the inode number again, and logged that, before this record was written.
        if known is not None and event.path in known.paths:
            known.paths.discard(event.path)
            if Flag.LAST in event.flags:
                del files[event.file]
        return
    created = event.op is Op.OPEN and Flag.CREATED in event.flags
    if event.op in (Op.RENAME, Op.LINK) and event.file not in files:
        return  # written before the log began, so all of it counts as durable
    if created or event.file not in files:
        size = 0 if created else max(0, event.offset) if event.op is Op.WRITE else event.length
        files[event.file] = _Durable(size=size, paths=set(), durable=size)
    state = files[event.file]
    state.paths.add(event.path)
    match event.op:
        case Op.OPEN if Flag.TRUNCATED in event.flags:
            state.truncate(0)
        case Op.RENAME | Op.LINK:
            if event.op is Op.RENAME:
                state.paths = {event.path}
            files.pop(event.other, None)
        case Op.WRITE if event.ok:
            state.write(event)
        case Op.TRUNCATE if event.ok:
            state.truncate(event.length)
        case Op.FSYNC | Op.FDATASYNC:
            if event.ok:
                state.sync(event.length, event.begin_ns)
            else:
                state.fail(event.length)
        case _:
            pass
