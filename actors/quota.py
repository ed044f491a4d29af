"""The quota: how much of the disk the store of a broker may take, measured by each shard in a thread of its own.

What is counted is all files of the stores of all shards, so every shard comes to the same mark; none asks another.  What is done at a
mark is the core's business (shards.events.QuotaChanged): below the hard mark nothing is ever dropped or refused for it, at the hard mark
new messages are refused until it is below `RELEASED` of the quota.  What enters between two looks comes on top.

Always holds: without a quota nothing is measured; a change of level is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.datadir import read_site
from actors.fatal import dies_with
from actors.reserve import stored_bytes
from config.schema import Config

EVERY_SECONDS = 5.0
SOFT, RELEASED, HARD = 90, 95, 100
"""Percent of the quota."""
_MEANS = {
    1: "above the soft mark of storage_quota: leases that do not block hold nothing any more",
    2: "storage_quota is reached: messages that would be stored are refused until there is room again",
}

log = structlog.get_logger(__name__)


def quota_bytes(config: Config, data_dir: Path) -> int | None:
    """None: unlimited."""
    quota = config.storage_quota
    if quota == "unlimited":
        return None
    if quota != "auto":
        return int(quota)
    site = read_site(data_dir)
    return (site.quota_auto_bytes or None) if site is not None else None


def level_of(taken: int, quota: int | None, before: int) -> int:
    """shards.events.QuotaChanged.level.  before: the level of the last look."""
    if quota is None:
        return 0
    percent = taken * 100
    if percent >= quota * (RELEASED if before == 2 else HARD):
        return 2
    return 1 if percent >= quota * SOFT else 0


class Quota:
    """Kept by a shard while it runs.  changed: told of every new level, on the loop.

    relieve: called in the thread after a look at the hard mark, to give back what is not needed; True when it did something.
    """

    def __init__(
        self, stores: Path, run_dir: Path, name: str, quota: int | None, changed: Callable[[int], None], relieve: Callable[[], bool]
    ) -> None:
        self._stores = stores
        self._run_dir = run_dir
        self._name = name
        self._quota = quota
        self._changed = changed
        self._relieve = relieve
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quota")
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.level = 0
        self.taken_bytes = 0

    @property
    def counters(self) -> dict[str, int]:
        """0 where there is no quota."""
        return {"quota_bytes": self._quota or 0, "quota_taken_bytes": self.taken_bytes}

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())
        dies_with(self._task, "watching the quota")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=False)

    def allow(self, quota: int | None) -> None:
        """The configuration was changed."""
        if quota != self._quota:
            self._quota = quota
            self._again.set()

    async def _watch(self) -> None:
        while True:
            self._again.clear()
            await self._measure()
            loop = asyncio.get_running_loop()
            if self.level == 2 and await loop.run_in_executor(self._thread, self._relieve):
                await self._measure()
            try:
                # Not wait_for: with the event set in the turn in which it is cancelled, that goes on.
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._again.wait()
            except TimeoutError:
                continue

    async def _measure(self) -> None:
        if self._quota is not None:
            self.taken_bytes = await asyncio.get_running_loop().run_in_executor(self._thread, stored_bytes, self._stores)
        level = level_of(self.taken_bytes, self._quota, self.level)
        if level == self.level:
            return
        self.level = level
        if level:
            log.error(
                "shard.quota", process=self._name, level=level, taken_bytes=self.taken_bytes, quota_bytes=self._quota, cause=_MEANS[level]
            )
            raise_alarm(self._run_dir, Alarm(self._name, "quota", _MEANS[level]))
        else:
            log.warning("shard.quota_has_room", process=self._name, taken_bytes=self.taken_bytes, quota_bytes=self._quota)
            clear_alarm(self._run_dir, self._name, "quota")
        self._changed(level)
