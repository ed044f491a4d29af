"""One look for all who ask for the same at a time, told again while it is fresh: what is dear is not done twice at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")


class Shared(Generic[Found]):
    """An answer is used for `fresh_s`; up to `kept_s` it is told at once all the same, and a newer one is looked for meanwhile."""

    def __init__(
        self, look: Callable[[], Awaitable[Found]], fresh_s: float, kept_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._fresh_s, self._kept_s = fresh_s, kept_s
        self._clock = clock
        self._kept: tuple[float, Found] | None = None
        """When its look began."""
        self._looking: asyncio.Task[Found] | None = None

    async def get(self) -> Found:
        """Raises what looking raises; then nothing newer is kept."""
        age_s = self._clock() - self._kept[0] if self._kept is not None else 0.0
        if self._kept is not None and age_s <= self._fresh_s:
            return self._kept[1]
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._run())
            self._looking.add_done_callback(self._ended)
        if self._kept is not None and age_s <= self._kept_s:
            return self._kept[1]
        # Whoever asked may go; the others still want it.
        return await asyncio.shield(self._looking)

    async def _run(self) -> Found:
        began = self._clock()
        found = await self._look()
        self._kept = began, found
        return found

    def _ended(self, task: asyncio.Task[Found]) -> None:
        self._looking = None
        # Nobody may have waited.
        if not task.cancelled():
            task.exception()
