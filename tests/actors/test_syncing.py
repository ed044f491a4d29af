"""When a sync begins: `local_write_buffer.flush_interval` and `max_items`, over the real committer and a disk that only counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest

from actors.inlining import SEEN, Inlining
from actors.syncing import Syncing
from shards import committer as commits
from shards.engine import StoreFailed

HOUR_MS = 3_600_000
EARLY_S = 0.005
"""Timers may be this early, by the grain of the loop's clock."""


class Disk:
    def __init__(self, inlining: Inlining | None = None) -> None:
        self.threads: list[int] = []
        self.broken = False
        self.failed = ""
        self.asked: list[float] = []
        """When the loop began each sync; the thread may get the processor later, by as much as a busy machine keeps it waiting."""
        self.began: list[float] = []
        self.stored = 0
        self.committed = -1
        self._news = asyncio.Event()
        self._committer = commits.LocalCommitter()
        self.syncing = Syncing(self._sync, self._tell, lambda _: None, lambda: self.stored, inlining)

    def open(self) -> None:
        self._tell(commits.Opened(0))

    def write(self, position: int, messages: int = 1) -> None:
        self.stored += messages
        self._tell(commits.Submit(commits.Record(position, ())))

    async def until(self, position: int) -> None:
        async with asyncio.timeout(60):
            while self.committed < position:
                self._news.clear()
                await self._news.wait()

    def _sync(self) -> None:
        self.began.append(time.monotonic())
        self.threads.append(threading.get_ident())
        if self.broken:
            raise StoreFailed("the disk is gone")

    def _tell(self, event: commits.Event) -> None:
        if isinstance(event, commits.SyncStarted):
            self.asked.append(time.monotonic())
        for effect in self._committer.handle(event):
            match effect:
                case commits.Write():
                    if self.syncing.put_off:
                        self.syncing.more_written()
                case commits.StartSync():
                    self.syncing.wanted()
                case commits.Committed(position):
                    self.committed = position
                    self._news.set()
                case commits.Failed(reason):
                    self.failed = reason
                    self._news.set()
                case other:
                    raise AssertionError(other)
        self._committer.check()


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    made = Disk()
    yield made
    made.syncing.close()


async def test_without_an_interval_nothing_is_put_off(disk: Disk) -> None:
    """Each record that comes alone has a sync of its own, at the end of its turn."""
    disk.syncing.set_pace(0, 1000)
    disk.open()
    for position in range(1, 6):
        disk.write(position)
        assert not disk.syncing.put_off
        await disk.until(position)
    assert 5 <= len(disk.began) <= 6


async def test_two_syncs_begin_so_long_after_each_other(disk: Disk) -> None:
    """And the first one, after a pause, at once."""
    disk.syncing.set_pace(30, 1000)
    disk.open()
    assert not disk.syncing.put_off
    for position in range(1, 5):
        disk.write(position)
        await disk.until(position)
    assert len(disk.asked) == len(disk.began) >= 4
    assert all(after - before >= 0.030 - EARLY_S for before, after in zip(disk.asked, disk.asked[1:], strict=False))


async def test_what_is_written_meanwhile_shares_the_next_sync(disk: Disk) -> None:
    """It is put off for all of them together, and begins with another interval."""
    disk.syncing.set_pace(HOUR_MS, 1000)
    disk.open()
    await disk.until(0)
    for position in range(1, 100):
        disk.write(position)
        await asyncio.sleep(0)
    assert disk.syncing.put_off and len(disk.began) == 1
    disk.syncing.set_pace(0, 1000)
    await disk.until(99)
    assert len(disk.began) == 2


async def test_enough_messages_end_the_wait(disk: Disk) -> None:
    """Whether they come with one record or with many; what was covered before does not count."""
    disk.syncing.set_pace(HOUR_MS, 10)
    disk.open()
    await disk.until(0)
    for first, sizes in ((1, [10]), (11, [3, 3, 3, 3])):
        for at, messages in enumerate(sizes):
            assert disk.committed < first + at
            disk.write(first + at, messages)
            assert disk.syncing.put_off is (sum(sizes[: at + 1]) < 10)
        await disk.until(first + len(sizes) - 1)
    assert len(disk.began) == 3


async def test_after_a_failure_nothing_begins(disk: Disk) -> None:
    """Nobody knows what is in that file."""
    disk.syncing.set_pace(HOUR_MS, 1000)
    disk.open()
    await disk.until(0)
    disk.write(1)
    disk.syncing.failed = True
    disk.syncing.set_pace(0, 1000)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(disk.began) == 1


class AlwaysSlept:
    """A loop that sleeps whenever it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


@pytest.fixture
async def quick_disk() -> AsyncIterator[Disk]:
    """Of which so much is known that the loop waits for it."""
    inlining = Inlining(lambda: b"p", AlwaysSlept())
    for _ in range(SEEN):
        inlining.took(0.0001)
    made = Disk(inlining)
    made.syncing.set_pace(0, 1000)
    yield made
    made.syncing.close()


async def test_a_message_that_is_alone_is_synced_on_the_loop(quick_disk: Disk) -> None:
    """In the same order of events as by the thread; not within the call that wrote it, since others of its turn share it."""
    quick_disk.open()
    for position in range(1, 6):
        quick_disk.write(position)
        assert quick_disk.committed < position
        await asyncio.sleep(0)
        await quick_disk.until(position)
    assert set(quick_disk.threads) == {threading.get_ident()}


async def test_many_messages_are_synced_beside_the_loop(quick_disk: Disk) -> None:
    """Others are behind them."""
    quick_disk.open()
    await quick_disk.until(0)
    quick_disk.write(1, messages=500)
    await quick_disk.until(1)
    assert quick_disk.threads[0] == threading.get_ident() != quick_disk.threads[-1]


async def test_a_sync_that_fails_on_the_loop_is_told_as_any(quick_disk: Disk) -> None:
    """Nothing is committed by it."""
    quick_disk.open()
    await quick_disk.until(0)
    quick_disk.broken = True
    quick_disk.write(1)
    async with asyncio.timeout(60):
        while not quick_disk.failed:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert "the disk is gone" in quick_disk.failed and quick_disk.committed == 0


async def test_a_sync_that_fails_in_the_thread_is_told_as_any(disk: Disk) -> None:
    """Nothing is committed by it."""
    disk.syncing.set_pace(0, 1000)
    disk.open()
    await disk.until(0)
    disk.broken = True
    disk.write(1)
    async with asyncio.timeout(60):
        while not disk.failed:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert "the disk is gone" in disk.failed and disk.committed == 0
    assert threading.get_ident() not in disk.threads


def sync_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "sync"}


class HeldDisk:
    """A sync that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.synced = False
        before = sync_threads()
        self.syncing = Syncing(self._sync, lambda _: None, lambda _: None, lambda: 0)
        (self.thread,) = sync_threads() - before

    def _sync(self) -> None:
        self.begun.set()
        assert self.let_go.wait(60)
        self.synced = True


async def test_close_waits_for_the_sync_under_way_and_ends_its_thread() -> None:
    """Whoever closes it closes the store next."""
    disk = HeldDisk()
    disk.syncing.wanted()
    assert await asyncio.to_thread(disk.begun.wait, 60)
    closing = asyncio.ensure_future(asyncio.to_thread(disk.syncing.close))
    closed, _ = await asyncio.wait({closing}, timeout=0.1)
    assert not closed
    disk.let_go.set()
    await closing
    assert disk.synced and not disk.thread.is_alive()


def test_a_thread_whose_loop_is_gone_ends_without_a_word() -> None:
    """Nobody can be told of its sync any more; a traceback would only look like a fault."""

    async def begin() -> HeldDisk:
        disk = HeldDisk()
        disk.syncing.wanted()
        assert await asyncio.to_thread(disk.begun.wait, 60)
        return disk

    disk = asyncio.run(begin())
    disk.let_go.set()
    disk.thread.join(60)
    assert disk.synced and not disk.thread.is_alive()
