"""What endpoints ask with: links to every process of the broker, a view of its files, its figures.

Links are made with the first question and stay; the view of the files is opened with the first one that needs it, and closed when nobody
has needed it for a while, since it takes memory.  So who only scrapes pays for neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from actors.admin.errors import too_many
from actors.admin.survey import Survey
from actors.inquiry.asking import Asking
from actors.metrics.scrape import Scrape
from actors.topology import Topology
from config.schema import Config

if TYPE_CHECKING:
    from actors.inquiry.stored import Stored

READS_MAX: Final = 4
"""Requests that read stored messages, at a time."""
IDLE_S: Final = 120.0
"""So long the view stays open after the last of them."""
LOOKS_MAX: Final = 2
"""Threads that look at files, processes and figures."""
Found = TypeVar("Found")


class Broker:
    """For one loop.  Life cycle: made -> closed."""

    def __init__(self, topology: Topology, config: Config) -> None:
        self.topology = topology
        self.config = config
        self.survey = Survey(topology, config.admin)
        self.scrape = Scrape(topology, self.survey.values)
        self._asking: Asking | None = None
        self._stored: Stored | None = None
        self._making = asyncio.Lock()
        self._reads = 0
        self._last_read_s = 0.0
        self._outdated = False
        """The view knows former settings."""
        self._idle: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(LOOKS_MAX, "admin")

    def reconfigure(self, config: Config) -> None:
        self.config = config
        self.survey.reconfigure(config.admin)
        self._outdated = True

    async def asking(self) -> Asking:
        async with self._making:
            if self._asking is None:
                asking = Asking(self.topology)
                await asking.__aenter__()
                self._asking = asking
            return self._asking

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[tuple[Asking, Stored]]:
        """Raises Refused when too many read already."""
        if self._reads >= READS_MAX:
            raise too_many(f"{READS_MAX} requests are reading stored messages")
        asking = await self.asking()
        self._reads += 1
        try:
            yield asking, await self._view(asking)
        finally:
            self._reads -= 1
            self._last_read_s = time.monotonic()

    async def look(self, at: Callable[[], Found]) -> Found:
        """What this finds, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, at)

    async def close(self) -> None:
        await self.survey.stop()
        if self._idle is not None:
            self._idle.cancel()
        await self._close_view()
        if self._asking is not None:
            await self._asking.__aexit__()
            self._asking = None
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ the view

    async def _view(self, asking: Asking) -> Stored:
        from actors.inquiry.stored import Stored  # loads RocksDB

        async with self._making:
            if self._outdated and self._reads == 1:
                await self._close_view()
            if self._stored is None:
                self._outdated = False
                stored = await self.look(lambda: Stored(asking, self.topology.run_dir))
                await stored.__aenter__()
                self._stored = stored
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_task(self._close_when_idle())
            return self._stored

    async def _close_when_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S / 4)
            async with self._making:
                if self._stored is not None and not self._reads and time.monotonic() - self._last_read_s > IDLE_S:
                    await self._close_view()

    async def _close_view(self) -> None:
        stored, self._stored = self._stored, None
        if stored is not None:
            await stored.__aexit__(None, None, None)
