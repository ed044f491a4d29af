"""Stored messages, read in the process that asks: its own view of the files of each shard, in a thread.

The shards themselves are asked for a cut, which costs them what a small query costs, and for nothing else, however much is read
(shards.view).  Opened with the first question, which may take a second or two where a shard has written much lately.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from actors.asking import NotReached
from actors.inquiry.asking import Asking
from actors.inquiry.stretches import Counted
from actors.reader.shard_side import ShardAway
from actors.reader.views import Seen, Views
from actors.snapshot import settings_in_force
from actors.topology import member_name
from shards.frames import Entry, Reply
from shards.queries import Ask, Told

WITHIN_SECONDS: Final = 5.0
BOUND_EVERY: Final = 32
"""Looks; after so many, what they have counted is held to its bound."""
Result = TypeVar("Result")


class Stored:
    """Life cycle: made -> entered -> left.  To be entered within the Asking that it belongs to."""

    def __init__(self, asking: Asking, scratch: Path | None = None) -> None:
        """scratch: where a directory of our own is made, for a process that may be killed; else where the system has those that go."""
        self.asking = asking
        self.config = settings_in_force(asking.topology)
        self._scratch = tempfile.TemporaryDirectory(prefix="holdfast-look-", dir=scratch)
        self._views: Views | None = None
        self._counted: list[Counted] = []
        """Those that nobody counts in, the one used last at the end."""
        self._looks = 0

    async def __aenter__(self) -> Self:
        topology = self.asking.topology
        paths = [topology.engine_path(shard) for shard in range(topology.n_shards)]
        side = _Side(self.asking, asyncio.get_running_loop())
        self._views = Views(paths, Path(self._scratch.name) / "views", side, within_s=WITHIN_SECONDS)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._views is not None:
            await asyncio.to_thread(self._views.close)
        self._scratch.cleanup()

    async def look(self, shard: int, with_it: Callable[[Seen], Result], missing: dict[str, None]) -> Result | None:
        """What this finds in the store of a shard, as of now; it runs in a thread.  None: the shard is away."""
        views = self._views
        assert views is not None, "looked at before it was entered"

        def looking() -> Result:
            return with_it(views.fresh([shard])[shard])

        try:
            return await asyncio.to_thread(looking)
        except ShardAway:
            missing[member_name("shard", shard)] = None
            return None

    @contextmanager
    def counting(self) -> Iterator[Counted]:
        """What earlier looks have counted, for one look.  Those that look at the same time have one each, so cuts ascend in each."""
        counted = self._counted.pop() if self._counted else Counted()
        # Not given back by a look that was broken off: a thread may still count in it.
        yield counted
        self._looks += 1
        if self._looks % BOUND_EVERY == 0:
            counted.bound()
        self._counted.append(counted)


class _Side:
    """actors.reader.shard_side.ShardSide over links that are there; nothing is written."""

    def __init__(self, asking: Asking, loop: asyncio.AbstractEventLoop) -> None:
        self._asking = asking
        self._loop = loop

    def query(self, shards: Iterable[int], ask: Ask) -> dict[int, Told]:
        return {shard: asyncio.run_coroutine_threadsafe(self._query(shard, ask), self._loop).result() for shard in shards}

    async def _query(self, shard: int, ask: Ask) -> Told:
        missing: dict[str, None] = {}
        told = await self._asking.shard(shard, ask, missing)
        if told is None:
            raise ShardAway(shard, f"shard {shard} does not answer; `holdfast status` says whether it runs")
        return told

    def ask(self, entries: Mapping[int, Entry]) -> dict[int, Reply]:
        raise NotReached("nothing is written by whoever only looks")
