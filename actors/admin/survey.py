"""Goes over all durable sessions now and then: who is how far behind, and who loses something when. For `/metrics` and the app.

A survey asks the homes page by page, as a command would (actors.inquiry), and counts stored messages in a view of the files that it opens
for itself and closes again. It takes SHARE of a core: with many sessions it takes longer, and nobody feels it. What was counted in one
survey is not counted again in the next.

Always holds: one survey at a time; `last` is one that has ended, also while the next is under way; one that fails leaves it as it is.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Final

import structlog

from actors.admin.pace import Pace
from actors.inquiry.asking import Asking
from actors.inquiry.stretches import Counted
from actors.metrics.of_node import Value
from actors.metrics.of_survey import LAG_BOUNDS, LOSS_BOUNDS, TOLD_MAX, Surveyed, of_survey
from actors.topology import Topology
from config.admin import Admin
from sessions.origins import PREFIX

if TYPE_CHECKING:
    from actors.inquiry.lag import Lag

BRIDGE: Final = PREFIX.decode()
SHARE: Final = 0.1
"""Of one core."""
FIRST_AFTER_S: Final = 10.0
"""The first one begins so soon after the start, or after `survey_interval` when that is less."""

log = structlog.get_logger(__name__)


class Survey:
    """Life cycle: made -> started -> stopped.  last: what the last one has found; None: there was none yet."""

    def __init__(self, topology: Topology, settings: Admin) -> None:
        self.last: Surveyed | None = None
        self._topology = topology
        self._settings = settings
        self._changed = asyncio.Event()
        self._counted = Counted()
        self._pace = Pace(SHARE)
        self._task: asyncio.Task[None] | None = None

    def values(self) -> Iterator[Value]:
        """As metrics."""
        return of_survey(self.last, _now_ms(), self._settings.name_clients)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._pace.ended = True
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def reconfigure(self, settings: Admin) -> None:
        """Another interval counts from the end of the last survey."""
        self._settings = settings
        self._changed.set()

    async def _run(self) -> None:
        ended, first = time.monotonic(), FIRST_AFTER_S
        async with Asking(self._topology) as asking:
            while True:
                await self._until_due(ended, first)
                try:
                    self.last = await self.survey(asking)
                except Exception as error:  # Whatever it was: the next one may succeed, and how old the last one is everybody sees.
                    log.warning("survey.failed", cause=repr(error))
                ended, first = time.monotonic(), float("inf")

    async def _until_due(self, ended: float, at_most_s: float) -> None:
        while True:
            self._changed.clear()
            interval = self._settings.survey_interval
            left = None if interval.is_infinite else ended + min(interval.seconds, at_most_s) - time.monotonic()
            if left is not None and left <= 0:
                return
            try:
                # Not wait_for: with the event set in the turn in which it is cancelled, that goes on.
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def survey(self, asking: Asking) -> Surveyed:
        """One of them. Takes long."""
        # They load RocksDB, which who serves /metrics only does without.
        from actors.inquiry.lag import Lags
        from actors.inquiry.sessions import lags_page
        from actors.inquiry.stored import Stored

        found = _Finding()
        missing: dict[str, None] = {}
        self._pace.begin()
        async with Stored(asking, self._topology.run_dir) as stored:
            lags = Lags(asking, stored, self._counted, self._pace.rest)
            cursor = ""
            while True:
                page = await lags_page(asking, lags, cursor)
                missing.update(dict.fromkeys(page.missing))
                for lag in page.rows:
                    found.add(lag)
                if not page.cursor:
                    break
                await self._pace.pause()
                cursor = page.cursor
        self._counted.bound()
        return found.surveyed(tuple(missing))


class _Finding:
    """What a survey has found so far."""

    def __init__(self) -> None:
        self._began_at_ms = _now_ms()
        self._sessions = self._behind = 0
        self._by_lag = [0] * (len(LAG_BOUNDS) + 1)
        self._by_loss = [0] * (len(LOSS_BOUNDS) + 1)
        self._furthest = _First()
        self._soonest = _First()
        self._oldest_at_ms: int | None = None
        self._bridges: list[Lag] = []

    def add(self, lag: Lag) -> None:
        self._sessions += 1
        self._by_lag[bisect_left(LAG_BOUNDS, lag.messages)] += 1
        if lag.client.startswith(BRIDGE) and lag.subscriptions:
            # Without a subscription it is one inwards: what waits for it, waits elsewhere.
            self._bridges.append(replace(lag, subscriptions=()))
        if not lag.messages:
            return
        self._behind += 1
        self._furthest.add(lag.messages, lag)
        if lag.loss_in_ms is not None:
            self._by_loss[bisect_left(LOSS_BOUNDS, lag.loss_in_ms / 1000)] += 1
            self._soonest.add(-lag.loss_in_ms, lag)
        if lag.oldest_at_ms is not None:
            self._oldest_at_ms = min(lag.oldest_at_ms, self._oldest_at_ms or lag.oldest_at_ms)

    def surveyed(self, missing: tuple[str, ...]) -> Surveyed:
        return Surveyed(
            self._began_at_ms, _now_ms(), self._sessions, self._behind, _summed(self._by_lag), _summed(self._by_loss),
            self._furthest.in_order(), self._soonest.in_order(), self._oldest_at_ms, missing,
            tuple(self._bridges),
        )  # fmt: skip


class _First:
    """The TOLD_MAX with the greatest keys; of equal ones those that came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lag]] = []
        self._came = 0

    def add(self, key: int, lag: Lag) -> None:
        self._came += 1
        if len(self._heap) == TOLD_MAX and key <= self._heap[0][0]:
            return
        # A session may have very many subscriptions: who wants them asks for this session.
        row = key, -self._came, replace(lag, subscriptions=())
        if len(self._heap) < TOLD_MAX:
            heappush(self._heap, row)
        else:
            heapreplace(self._heap, row)

    def in_order(self) -> tuple[Lag, ...]:
        return tuple([lag for _, _, lag in sorted(self._heap, reverse=True)])


def _summed(numbers: list[int]) -> tuple[int, ...]:
    return tuple([sum(numbers[: at + 1]) for at in range(len(numbers))])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
