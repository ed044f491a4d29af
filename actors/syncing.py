"""When the log of a shard is synced, and the one thread in which it is.

The committer asks for a sync as soon as something is written that none covers (shards.committer).  It begins at the end of that turn
of the loop; with an interval (`local_write_buffer.flush_interval`) not before so long after the last one began, so that what is
written meanwhile shares it.  As many messages as a record may have end the wait.

Holds: one sync at most is put off or under way; nothing that is written waits longer than the interval for a sync to begin, unless
another one is still under way.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shards import committer as commits


class Syncing:
    def __init__(
        self, sync: Callable[[], None], tell: Callable[[commits.Event], None], took: Callable[[float], None], stored: Callable[[], int]
    ) -> None:
        """tell: the committer, of SyncStarted and of what came of it.  took: is told how many seconds each took.  stored: messages so
        far."""
        self._sync, self._tell, self._took, self._stored = sync, tell, took, stored
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._interval_s = 0.0
        self._messages_max = 0
        self._began = -math.inf
        self._covered = 0
        self._timer: asyncio.TimerHandle | None = None
        self.failed = False
        """Nothing is synced any more."""

    @property
    def put_off(self) -> bool:
        return self._timer is not None

    def set_pace(self, interval_ms: int, messages_max: int) -> None:
        """What is put off begins: its time was that of another interval."""
        self._interval_s, self._messages_max = interval_ms / 1000, messages_max
        if self.put_off:
            self._soon()

    def wanted(self) -> None:
        """Something is written that no sync covers, and none is under way."""
        wait_s = self._began + self._interval_s - time.monotonic() if self._interval_s else 0.0
        if wait_s <= 0 or self._enough():
            self._soon()
        else:
            self._timer = self._loop.call_later(wait_s, self._begin)

    def more_written(self) -> None:
        """While a sync is put off."""
        if self._enough():
            self._soon()

    def close(self) -> None:
        """After the one under way."""
        self._thread.shutdown(wait=True)

    def _enough(self) -> bool:
        return self._stored() - self._covered >= self._messages_max

    def _soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self.failed:
            return
        self._tell(commits.SyncStarted())
        self._began, self._covered = time.monotonic(), self._stored()
        self._loop.run_in_executor(self._thread, self._sync).add_done_callback(self._ended)

    def _ended(self, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if error is None:
            self._took(time.monotonic() - self._began)
            self._tell(commits.SyncDone())
        else:
            self._tell(commits.SyncFailed(str(error)))
