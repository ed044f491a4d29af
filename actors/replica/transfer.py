"""Checkpoints on disk: made, read and written in pieces, put in place.  Everything here blocks, and is for one thread.

What comes lies in new.tmp until all of it is there and synced; then it is renamed to `new`, and from there on it is what this copy has,
whatever ends the process (actors.replica.copy).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from actors.replica.copy import CAME, COMING, DATA, SENT, Copy, swap_in
from shards.engine import StoreFailed
from shards.replication.applying import applied_in
from shards.replication.bounds import CHUNK_BYTES
from shards.replication.events import CheckpointMade, Installed
from shards.replication.log_segment import full_or_failed, sync_directory
from shards.replication.messages import Chunk, Pull

_OF_THE_PROCESS = ("LOCK", "LOG")
"""Files with such names are of whoever has a store open, and no part of it."""


class Gone(Exception):
    """A checkpoint that is asked for is not there any more: whoever asks hears nothing, and asks for another."""


@dataclass(slots=True)
class Transfer:
    copy: Copy
    _sent: tuple[int, tuple[str, ...]] = (0, ())
    _coming: tuple[tuple[str, int], ...] = ()

    # ---- for another copy

    def make(self, number: int, index: int, epoch: int) -> CheckpointMade:
        """index, epoch: what is applied now; the checkpoint may have more.  Raises StoreFailed."""
        path = self.copy.path / f"{SENT}{number}"
        self.erase(number)
        self.copy.engine.checkpoint(str(path))
        try:
            files = tuple(sorted((each.name, each.stat().st_size) for each in os.scandir(path) if _is_part(each)))
        except OSError as error:
            raise full_or_failed(error, str(path)) from error
        self._sent = number, tuple(name for name, _ in files)
        return CheckpointMade(number, index, epoch, files)

    def erase(self, number: int) -> None:
        if self._sent[0] == number:
            self._sent = (0, ())
        shutil.rmtree(self.copy.path / f"{SENT}{number}", ignore_errors=True)

    def chunk(self, pull: Pull) -> Chunk:
        """Raises Gone."""
        number, names = self._sent
        if pull.number != number or pull.file >= len(names):
            raise Gone(f"checkpoint {pull.number}")
        try:
            with open(self.copy.path / f"{SENT}{number}" / names[pull.file], "rb") as file:
                file.seek(pull.offset)
                return Chunk.of(pull, file.read(CHUNK_BYTES))
        except OSError as error:
            raise Gone(f"checkpoint {pull.number}: {error}") from error

    # ---- from another copy

    def begin(self, files: tuple[tuple[str, int], ...]) -> None:
        """Raises StoreFailed."""
        coming = self.copy.path / COMING
        try:
            shutil.rmtree(coming, ignore_errors=True)
            coming.mkdir(mode=0o700)
            for name, _ in files:
                (coming / name).touch(mode=0o600, exist_ok=False)
        except OSError as error:
            raise full_or_failed(error, str(coming)) from error
        self._coming = files

    def write(self, file: int, offset: int, data: bytes) -> int:
        """Where the file ends now.  Raises StoreFailed."""
        path = self.copy.path / COMING / self._coming[file][0]
        try:
            with open(path, "r+b") as opened:
                opened.seek(offset)
                opened.write(data)
        except OSError as error:
            raise full_or_failed(error, str(path)) from error
        return offset + len(data)

    def complete(self) -> None:
        """All of it is on the disk, under the name under which it counts.  Raises StoreFailed: the copy is as it was."""
        coming = self.copy.path / COMING
        try:
            for name, size in self._coming:
                descriptor = os.open(coming / name, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                    if (found := os.fstat(descriptor).st_size) != size:
                        raise StoreFailed(f"{coming / name} has {found} bytes and should have {size}")
                finally:
                    os.close(descriptor)
            sync_directory(str(coming))
            os.rename(coming, self.copy.path / CAME)
            sync_directory(str(self.copy.path))
        except OSError as error:
            raise full_or_failed(error, str(coming)) from error

    def install(self) -> Installed:
        """What came is opened in the place of the data.  Raises StoreFailed: then the process ends, and the next one opens it."""
        copy = self.copy
        copy.engine.close()
        swap_in(copy.path)
        copy.engine = copy.open_engine(str(copy.path / DATA))
        applied = applied_in(copy.engine)
        return Installed(applied.index, applied.epoch, applied.position)

    def give_up(self) -> None:
        shutil.rmtree(self.copy.path / COMING, ignore_errors=True)


def _is_part(each: os.DirEntry[str]) -> bool:
    return each.is_file(follow_symlinks=False) and not each.name.startswith(_OF_THE_PROCESS)
