"""When the log of a shard is synced, and the one thread in which it is.

The committer asks for a sync as soon as something is written that none covers (shards.committer).  It begins at the end of that turn
of the loop; with an interval (`local_write_buffer.flush_interval`) not before so long after the last one began, so that what is
written meanwhile shares it.  As many messages as a record may have end the wait.  Where it is allowed, one that is short and keeps
nobody waiting is carried out on the loop (actors.inlining).

Holds: one sync at most is put off or under way; nothing that is written waits longer than the interval for a sync to begin, unless
another one is still under way.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread

from actors import heartbeat
from actors.inlining import Inlining
from shards import committer as commits


class Syncing:
    def __init__(
        self,
        sync: Callable[[], None],
        tell: Callable[[commits.Event], None],
        took: Callable[[float], None],
        stored: Callable[[], int],
        inlining: Inlining | None = None,
    ) -> None:
        """tell: the committer, of SyncStarted and of what came of it.  took: is told how many seconds each took.  stored: messages so
        far.  inlining: says which the loop waits for; None: it waits for none."""
        self._sync, self._tell, self._took, self._stored = sync, tell, took, stored
        self._inlining = inlining
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[bool] = SimpleQueue()
        """Of the thread: a sync, or (False) its end."""
        self._thread = Thread(target=self._in_thread, name="sync", daemon=True)
        self._thread.start()
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
        self._asked.put(False)
        self._thread.join()

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
        covered = self._covered
        self._began, self._covered = time.monotonic(), self._stored()
        if self._inlining is not None and self._inlining.may(self._covered - covered):
            self._carry_out(self._inlining)
        else:
            self._asked.put(True)

    def _timed(self) -> float:
        began = time.monotonic()
        self._sync()
        return time.monotonic() - began

    def _carry_out(self, inlining: Inlining) -> None:
        """The loop waits meanwhile."""
        heartbeat.standing_for_disk(True)
        try:
            seconds = self._timed()
        except Exception as error:
            self._tell(commits.SyncFailed(str(error)))
            return
        finally:
            heartbeat.standing_for_disk(False)
        inlining.waited()
        self._done(seconds)

    def _in_thread(self) -> None:
        """What `run_in_executor` would do; with its futures, locks and look-ups each sync takes four times the processor time of this."""
        while self._asked.get():
            then: Callable[[], None]
            try:
                then = partial(self._done, self._timed())
            except Exception as error:
                then = partial(self._tell, commits.SyncFailed(str(error)))
            try:
                self._loop.call_soon_threadsafe(then)
            except RuntimeError:
                return  # The loop is closed, and nobody waits any more.

    def _done(self, seconds: float) -> None:
        """seconds: of the disk alone."""
        if self._inlining is not None:
            self._inlining.took(seconds)
        self._took(time.monotonic() - self._began)
        self._tell(commits.SyncDone())
