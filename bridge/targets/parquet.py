"""Parquet files as target: each is there as a whole or not at all, and no message is in two of them.

A message is accepted when it is synced into a spool beside the files (`bridge.targets.spool`), which knows how far this lane is.  Once it
is full, or old, it becomes a file: written beside, synced, renamed to a name made of the first and the last number in it, and only then is
the spool begun again.  After a crash between these two the file is there when the spool is opened, which so is begun again then.

    PATH/BRIDGE-LANE-EPOCH-FIRST-LAST.parquet    EPOCH: a digest; numbers of deliveries, with zeros in front, so that names sort by them
    PATH/.holdfast-BRIDGE-LANEofLANES.spool      and its .lock: what is no file yet; readers leave out such names

All that blocks is done in one thread of its own, in order; it holds the lock until the last of it has ended, whoever was cancelled
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Unavailable
from bridge.targets.spool import Broken, Head, Spool, sync_directory
from config.bridge_kinds import Parquet

T = TypeVar("T")
ROW_GROUP_ROWS: Final = 20_000
"""Or a batch more; what is in memory while a file is written."""
ROW_GROUP_BYTES: Final = 32 * 2**20
CLOSE_S: Final = 4.0
_SPOOL = re.compile(r"\.holdfast-(?P<bridge>[A-Za-z0-9_-]+)-(?P<lane>\d+)of(?P<lanes>\d+)\.spool")


class ParquetTarget:
    """made -> opened -> (delivers, finishes files) -> closed."""

    exactly_once: ClassVar[bool] = True

    def __init__(self, settings: Parquet, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._path = context.data_dir / settings.path
        self._thread = ThreadPoolExecutor(1, f"parquet-{context.bridge}-{context.lane}")
        self._files: _Files | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._aged: asyncio.Task[None] | None = None
        self._broken = ""
        self._closed = False

    async def open(self) -> Accepted | None:
        try:
            files = await self._in_thread(lambda: self._open())
        except Broken as error:
            raise Misconfigured(str(error)) from None
        except (NotADirectoryError, FileExistsError, PermissionError) as error:
            raise Misconfigured(f"{self._path} cannot be written: {error.strerror}") from None
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror}") from None
        self._plan()
        last = files.spool.last
        return Accepted(last.epoch, last.number) if last is not None else None

    async def deliver(self, batch: Batch) -> Outcome:
        if self._files is None or self._broken:
            raise Unavailable(self._broken or "the files are closed")
        files = self._files
        await self._guarded(lambda: files.accept(batch))
        self._plan()
        return Outcome(len(batch.messages))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._broken = self._broken or "the files are closed"
        if self._timer is not None:
            self._timer.cancel()
        # Behind whatever the thread still does, which cannot be cancelled.
        ending = asyncio.wrap_future(self._thread.submit(self._release))
        self._thread.shutdown(wait=False)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(ending)

    # ---------------------------------------------------------------- in the thread
    def _open(self) -> _Files:
        files = _Files(self._settings, self._context, self._path)
        self._files = files
        return files

    def _release(self) -> None:
        if self._files is not None:
            self._files.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _guarded(self, work: Callable[[], None]) -> None:
        try:
            await self._in_thread(work)
        except OSError as error:
            # What is in memory may not be what is on disk: only one that is opened again knows.
            self._broken = f"{self._path} cannot be written: {error.strerror or error}"
            raise Unavailable(self._broken) from None

    # ---------------------------------------------------------------- files that are old
    def _plan(self) -> None:
        """A file is finished when it is old, also while nothing comes."""
        assert self._files is not None
        spool = self._files.spool
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if spool.rows and not self._closed:
            left_s = (spool.oldest_ms + self._settings.file_age_max.ms) / 1000 - time.time()
            self._timer = asyncio.get_running_loop().call_later(max(left_s, 0.0), self._start_aging)

    def _start_aging(self) -> None:
        self._aged = asyncio.get_running_loop().create_task(self._age())

    async def _age(self) -> None:
        files = self._files
        if files is None or self._closed or self._broken:
            return
        with contextlib.suppress(Unavailable):  # Said by the next delivery.
            await self._guarded(files.finish_if_old)
            self._plan()


class _Files:
    """The spool and the directory, in the one thread that may touch them."""

    def __init__(self, settings: Parquet, context: Context, path: Path) -> None:
        try:
            # Takes half a second, in this thread.
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise Misconfigured("Parquet files need the package pyarrow, which is not installed (`make env-spark`)") from None
        self._arrow: Any = pyarrow
        self._settings = settings
        self._context = context
        self._path = path
        self._schema = _schema(pyarrow)
        path.mkdir(parents=True, exist_ok=True)
        name = f".holdfast-{context.bridge}-{context.lane}of{context.lanes}"
        self._lock = _locked(path / f"{name}.lock")
        try:
            self.spool = Spool(path / f"{name}.spool")
            self._begin_after_crash(self.spool, context.lane)
            if context.lane == 0:
                self._finish_of_other_lanes()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        self.spool.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def accept(self, batch: Batch) -> None:
        last, now_ms = self.spool.last, time.time_ns() // 1_000_000
        messages: Sequence[Message] = batch.messages
        if last is not None and last.epoch == batch.epoch:
            messages = [message for message in messages if message.number > last.number]
        if not messages:
            return
        head = Head(batch.epoch, messages[-1].number, len(messages), messages[0].number, now_ms)
        self.spool.append(head, self._table(batch.epoch, messages))
        if self.spool.rows >= self._settings.file_rows_max or self.spool.bytes >= self._settings.file_bytes_max:
            self._finish(self.spool, self._context.lane)
        else:
            self.finish_if_old()

    def finish_if_old(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        # A clock that was set back is no reason to wait for it.
        if self.spool.rows and not 0 <= now_ms - self.spool.oldest_ms < self._settings.file_age_max.ms:
            self._finish(self.spool, self._context.lane)

    # ---------------------------------------------------------------- files
    def _finish(self, spool: Spool, lane: int) -> None:
        """All rows of the spool are a file, and the spool is empty."""
        assert spool.last is not None
        beside = self._path / f"_{self._context.bridge}-{lane}.part"
        self._write(spool, beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.rename(beside, self._named(spool, lane))
        sync_directory(self._path)
        spool.begin_again(time.time_ns() // 1_000_000)

    def _named(self, spool: Spool, lane: int) -> Path:
        """The file that the rows of this spool are, or become."""
        assert spool.last is not None
        epoch = hashlib.blake2b(spool.last.epoch.encode(), digest_size=4).hexdigest()
        return self._path / f"{self._context.bridge}-{lane}-{epoch}-{spool.first:020}-{spool.last.number:020}.parquet"

    def _begin_after_crash(self, spool: Spool, lane: int) -> None:
        if spool.rows and self._named(spool, lane).exists():
            sync_directory(self._path)
            spool.begin_again(time.time_ns() // 1_000_000)

    def _write(self, spool: Spool, path: Path) -> None:
        group: list[Any] = []
        rows = size = 0
        compression = self._settings.compression
        with self._arrow.parquet.ParquetWriter(path, self._schema, compression=compression.upper()) as writer:
            for head, data in spool.frames():
                if not head.rows:
                    continue
                group.append(self._arrow.ipc.open_stream(data).read_all())
                rows, size = rows + head.rows, size + len(data)
                if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                    writer.write_table(self._arrow.concat_tables(group))
                    group, rows, size = [], 0, 0
            if group:
                writer.write_table(self._arrow.concat_tables(group))

    def _finish_of_other_lanes(self) -> None:
        """The bridge had another number of connections before: what these have left becomes files."""
        for path in sorted(self._path.iterdir()):
            found = _SPOOL.fullmatch(path.name)
            if found is None or found["bridge"] != self._context.bridge or int(found["lanes"]) == self._context.lanes:
                continue
            lock = _locked(path.with_suffix(".lock"))
            try:
                spool = Spool(path)
                try:
                    self._begin_after_crash(spool, int(found["lane"]))
                    if spool.rows:
                        self._finish(spool, int(found["lane"]))
                finally:
                    spool.close()
                path.unlink()
                path.with_suffix(".lock").unlink()
            finally:
                os.close(lock)

    # ---------------------------------------------------------------- rows
    def _table(self, epoch: str, messages: Sequence[Message]) -> bytes:
        arrow, store = self._arrow, self._context.store
        columns: dict[str, list[object]] = {
            "store": [store] * len(messages),
            "shard": [each.shard for each in messages],
            "position": [each.position for each in messages],
            "topic": [each.topic for each in messages],
            "payload": [each.payload for each in messages],
            "qos": [each.qos for each in messages],
            "retain": [each.retain for each in messages],
            "published_at": [each.published_at_ms for each in messages],
            "publisher": [each.publisher for each in messages],
            "content_type": [each.content_type for each in messages],
            "user_properties": [[{"name": name, "value": value} for name, value in each.user_properties] for each in messages],
            "key": [each.key for each in messages],
            "epoch": [epoch] * len(messages),
            "number": [each.number for each in messages],
        }
        arrays = [arrow.array(columns[field.name], field.type) for field in self._schema]
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self._schema) as writer:
            writer.write_batch(arrow.record_batch(arrays, schema=self._schema))
        return bytes(sink.getvalue())


def _schema(arrow: Any) -> Any:
    pairs = arrow.list_(arrow.struct([("name", arrow.string()), ("value", arrow.string())]))
    return arrow.schema(
        [
            ("store", arrow.string()), ("shard", arrow.int32()), ("position", arrow.int64()), ("topic", arrow.string()),
            ("payload", arrow.binary()), ("qos", arrow.int8()), ("retain", arrow.bool_()),
            ("published_at", arrow.timestamp("ms", tz="UTC")), ("publisher", arrow.string()), ("content_type", arrow.string()),
            ("user_properties", pairs), ("key", arrow.string()), ("epoch", arrow.string()), ("number", arrow.int64()),
        ]
    )  # fmt: skip


def _locked(path: Path) -> int:
    """Held until the file is closed.  Raises OSError, Unavailable."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise Unavailable(f"{path.parent} is being written by another process, or by this bridge before it was opened again") from None
    return file
