"""Lines of JSON in a file: one object for each message, synced before the message counts as accepted.

Each line has the epoch and the number of its delivery, so the file itself says what it has: the last whole line.  What comes again and is
in it is not written again.  A line that was torn by a crash is cut off when the file is opened.

Holds: what is in the files is a prefix of what this lane was given, in order; a file that is full is renamed to PATH.N, N growing, before
the next one is begun, so the newest lines are in PATH or, while that is empty, in the one with the highest N.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Unavailable
from config.bridge_targets import Jsonl

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK = 1 << 16
_SECONDS_MAX = 64
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class JsonlTarget:
    exactly_once: ClassVar[bool] = True

    def __init__(self, settings: Jsonl, context: Context) -> None:
        path = context.data_dir / settings.path
        # Lanes have a file each: two writers of one could not tell what it has.
        self._path = path if context.lanes == 1 else path.with_name(f"{path.name}.lane{context.lane}")
        self._bytes_max = int(settings.file_bytes_max)
        self._file = -1
        self._size = 0
        self._closed = False
        self._thread = ThreadPoolExecutor(1, f"jsonl-{context.bridge}-{context.lane}")
        """Which alone touches the file: what it still does when nobody waits for it any more cannot be cancelled."""

    async def open(self) -> Accepted | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def deliver(self, batch: Batch) -> Outcome:
        if self._closed:
            raise Unavailable(f"{self._path} is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, batch)
        return Outcome(len(batch.messages))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        ending = asyncio.wrap_future(self._thread.submit(self._release))
        self._thread.shutdown(wait=False)
        await asyncio.shield(ending)

    # ---------------------------------------------------------------- in the thread
    def _release(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _open(self) -> Accepted | None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            # Nobody else writes it, a target of ours that is being closed included.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end, last = _last_line(self._file)
            os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
            os.fsync(self._file)
            _sync_directory(self._path.parent)
            self._size = end
            return last if last is not None else self._accepted_before()
        except BlockingIOError:
            raise Unavailable(f"{self._path} is being written by another process, or another bridge") from None
        except (NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise Misconfigured(f"{self._path} cannot be written: {error.strerror}") from error
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be opened: {error.strerror}") from error

    def _accepted_before(self) -> Accepted | None:
        number = self._newest_number()
        if not number:
            return None
        file = os.open(self._path.with_name(f"{self._path.name}.{number}"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _, last = _last_line(file)
        finally:
            os.close(file)
        return last

    def _newest_number(self) -> int:
        """Of the files that are full; 0: there is none."""
        prefix = f"{self._path.name}."
        found = [path.name.removeprefix(prefix) for path in self._path.parent.iterdir() if path.name.startswith(prefix)]
        return max([int(each) for each in found if each.isdecimal()], default=0)

    def _write(self, batch: Batch) -> None:
        data = b"".join([line_of(batch.epoch, message) for message in batch.messages])
        try:
            if self._size and self._size + len(data) > self._bytes_max:
                self._begin_next()
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fdatasync(self._file)
            self._size += len(data)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror}") from error

    def _begin_next(self) -> None:
        os.rename(self._path, self._path.with_name(f"{self._path.name}.{self._newest_number() + 1}"))
        os.close(self._file)
        self._file = -1
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync_directory(self._path.parent)
        self._size = 0


def line_of(epoch: str, message: Message) -> bytes:
    try:
        payload = f'"payload":{_json(message.payload.decode())}'
    except UnicodeDecodeError:
        payload = f'"payload_base64":"{base64.b64encode(message.payload).decode()}"'
    second, ms = divmod(message.published_at_ms, 1_000)
    users = f',"user_properties":{_json(message.user_properties)}' if message.user_properties else ""
    line = (
        f'{{"topic":{_json(message.topic)},{payload},"qos":{message.qos},"retain":{"true" if message.retain else "false"},'
        f'"publisher":{_json(message.publisher)},"published_at":"{_until_second(second)}.{ms:03d}+00:00","key":{_json(message.key)},'
        f'"shard":{message.shard},"position":{message.position},"epoch":{_json(epoch)},"number":{message.number}{users}}}\n'
    )
    return line.encode()


@lru_cache(_SECONDS_MAX)
def _until_second(second: int) -> str:
    """RFC 3339, without what follows the seconds."""
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _last_line(file: int) -> tuple[int, Accepted | None]:
    """Where the last whole line ends, and what it says; None when it is none of ours, or there is none."""
    start, data = os.fstat(file).st_size, b""
    while start > 0 and data.count(b"\n") < 2:
        step = min(_CHUNK, start)
        start -= step
        data = os.pread(file, step, start) + data
    end = data.rfind(b"\n") + 1
    return (start + end, _said(data[data.rfind(b"\n", 0, end - 1) + 1 : end])) if end else (0, None)


def _said(line: bytes) -> Accepted | None:
    try:
        fields = json.loads(line)
        return Accepted(str(fields["epoch"]), int(fields["number"]))
    except (ValueError, KeyError, TypeError):
        return None


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
