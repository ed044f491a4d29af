"""How long this process was kept from running: a test whose matter is a time allows so much more, as it is no fault of the broker."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

LOOK_S = 0.02


class Standing:
    """While the block runs, somebody is to be woken every LOOK_S; `seconds`: how much too late all in all."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self.seconds += max(0.0, time.monotonic() - began - 2 * LOOK_S)
