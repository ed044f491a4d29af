"""Threads that check passwords, read files and fetch keys, below everything else in priority: who logs in delays nobody who is there."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

NICE = 10
Found = TypeVar("Found")


class Threads:
    """Runs work; when it was stopped, nobody is told what came of it any more."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._stopped = False
        self._executor = self._made(count)

    def run(self, work: Callable[[], Found], done: Callable[[Found | Exception], None]) -> None:
        def ended(future: Future[Found]) -> None:
            if not future.cancelled() and not self._stopped:
                error = future.exception()
                assert error is None or isinstance(error, Exception), "what ends a process is not raised in its threads"
                self._loop.call_soon_threadsafe(self._tell, done, future.result() if error is None else error)

        self._executor.submit(work).add_done_callback(ended)

    def resize(self, count: int) -> None:
        """What runs, and what waits for a thread, goes on in the former ones."""
        former, self._executor = self._executor, self._made(count)
        former.shutdown(wait=False)

    def stop(self) -> None:
        self._stopped = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _tell(self, done: Callable[[Found | Exception], None], found: Found | Exception) -> None:
        if not self._stopped:
            done(found)

    def _made(self, count: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(count, self._name, yield_to_others)


def yield_to_others() -> None:
    # Linux takes the id of a thread where POSIX has that of a process.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
