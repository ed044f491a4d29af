"""What a replica asks the register, in tasks of the loop; every question is answered once, within REGISTER_MS.

The register keeps bytes under versions of its own (shards.replication.register).  A record with version v is proposed on the value in which
the record with v - 1 was read.

Always holds: an answer that comes too late is not heard; what was proposed may be made all the same, and that is what UNKNOWN says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from actors.fatal import die_of
from shards.replication.bounds import REGISTER_MS
from shards.replication.configuration import Configuration, ConfigurationUnreadable
from shards.replication.events import Proposed, RegisterRead
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import Held, Register

log = structlog.get_logger(__name__)


class Questions:
    def __init__(
        self, register: Register, key: str, bring: Callable[[RegisterRead | Proposed], None], within_ms: int = REGISTER_MS
    ) -> None:
        self._register = register
        self._key = key
        self._bring = bring
        self._within_s = within_ms / 1000
        self._seen: tuple[int, int] | None = None
        """(version of the record that was read last, version of its value)."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._said = ""

    def read(self) -> None:
        self._begin(self._read())

    def propose(self, new: Configuration) -> None:
        self._begin(self._propose(new))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    # ---- within

    def _begin(self, asked: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(asked)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            die_of(error, "a question to the register")

    async def _read(self) -> None:
        now: Configuration | None = None
        try:
            async with asyncio.timeout(self._within_s):
                now = await self._found()
            self._said = ""
        except (TimeoutError, RegisterAway, ConfigurationUnreadable) as error:
            self._away(error)
        self._bring(RegisterRead(now))

    async def _propose(self, new: Configuration) -> None:
        outcome = Outcome.UNKNOWN
        try:
            async with asyncio.timeout(self._within_s):
                outcome = await self._proposed(new)
        except (TimeoutError, RegisterAway, ConfigurationUnreadable) as error:
            self._away(error)
        self._bring(Proposed(new, outcome))

    async def _proposed(self, new: Configuration) -> Outcome:
        if self._seen is None or self._seen[0] != new.ver - 1:
            try:
                found = await self._found()
            except RegisterAway as error:
                # Nothing was proposed, but the core knows two answers only, and this one is never wrong.
                self._away(error)
                return Outcome.UNKNOWN
            if found is None or found.ver != new.ver - 1 or self._seen is None:
                return Outcome.CONFLICT
        version = self._seen[1]
        self._seen = None
        return await self._register.cas(self._key, version, new.pack())

    async def _found(self) -> Configuration | None:
        held: Held | None = await self._register.read(self._key)
        if held is None:
            self._seen = None
            return None
        now = Configuration.unpack(held.value)
        self._seen = (now.ver, held.version)
        return now

    def _away(self, error: Exception) -> None:
        said = str(error) or f"the register has not answered within {self._within_s:g} s"
        if said != self._said:
            self._said = said
            log.warning("replica.register_away", key=self._key, cause=said)
