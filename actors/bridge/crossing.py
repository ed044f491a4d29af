"""Both connections of a bridge inwards while they stand: to the other broker, and to this one.  They begin and end together.

made -> run -> over

here: CONNECT; there: connect; file: nothing is certain; there: CONNECT; here: forget what is of another session; file: certain;
there: SUBSCRIBE where that is not as it shall be; then messages, until one of them ends
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from actors.bridge.publisher import Publisher
from actors.bridge.standing import Standing, read_standing, write_standing
from bridge.inward import (
    Acknowledge,
    Answered,
    Arrived,
    Bounds,
    Came,
    Complete,
    Completed,
    Event,
    GiveUp,
    InwardCore,
    NotTaken,
    Publish,
    Release,
    Released,
    Tick,
    Wake,
)
from bridge.options import Counters
from bridge.pace import Rate
from bridge.port import Message, Misconfigured, Unavailable
from bridge.sources.mqtt import Source
from config.bridges import Bridge

log = structlog.get_logger(__name__)
GOES_ON_S: Final = 1.0
"""For so long it is waited for what the other broker sends of a session of which nothing is certain."""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Ways:
    """What a crossing does with what: transform as InwardCore; counters and rate live longer than one crossing; works: something was
    acknowledged there; online: it is subscribed, and messages follow."""

    transform: Callable[[Message], Message | None]
    counters: Counters
    rate: Rate
    works: Callable[[], None]
    online: Callable[[], None]


class Crossing:
    def __init__(
        self, settings: Bridge, here: Callable[[Crossing], Publisher], there: Callable[[Crossing, Publisher], Source], standing: Standing,
        state_dir: Path, files: Executor, ways: Ways,
    ) -> None:  # fmt: skip
        """here, there: make the connections.  standing: as it is to be.  files: one thread, for what is in state_dir."""
        self._settings = settings
        self._make_here, self._make_there = here, there
        self._wanted = standing
        self._state_dir = state_dir
        self._files = files
        self._ways = ways
        self.publisher = here(self)
        self.source: Source | None = None
        self.core: InwardCore | None = None
        self.subscribed_there = self._is_written = False
        self._filters: tuple[str, ...] = ()
        """What may be subscribed there."""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_room, self._answered = asyncio.Event(), asyncio.Event()
        self._answered.set()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until one of the connections ends, which it says by an exception.

        Raises HereLost, NotNow, Unavailable, Misconfigured, OSError."""
        settings = self._settings
        await self.publisher.open(clean=False)
        source = self.source = self._make_there(self, self.publisher)
        late = f"no answer from {settings.mqtt.url} within {settings.connect_timeout}"
        known = await self._meet(source, late)
        self.core = InwardCore(self._bounds(), self._ways.transform, self._ways.counters, self._ways.rate)
        self._has_room.set()
        self._is_written = known == self._subscribed_standing()
        if self._is_written and settings.mqtt.version != "5":
            # A SUBSCRIBE more would bring all retained messages again.
            self._online()
        else:
            source.subscribe(settings.filter, [each for each in self._filters if each != settings.filter])
            asyncio.get_running_loop().call_later(settings.connect_timeout.seconds, self._unless_subscribed, late)
        await self._both(source)

    def _subscribed_standing(self) -> Standing:
        return replace(self._wanted, filters=(self._settings.filter,), qos=self._settings.mqtt.qos, certain=True)

    async def _meet(self, source: Source, late: str) -> Standing | None:
        """What is subscribed there; None: the session is a new one, or may be."""
        before = await asyncio.get_running_loop().run_in_executor(self._files, read_standing, self._state_dir)
        if before is not None and not before.same_place(self._wanted):
            before = None
        self._filters = before.filters if before is not None else ()
        try:
            async with asyncio.timeout(self._settings.connect_timeout.seconds):
                await source.reach()
                await self._write((before or self._wanted).uncertain())
                present = await source.greet()
        except TimeoutError:
            raise Unavailable(late) from None
        except (Unavailable, Misconfigured):
            if source.answered and before is not None:
                await self._write(before)
            raise
        if present and before is not None and (before.certain or await source.goes_on(GOES_ON_S)):
            known = replace(before, certain=True)
            await self._write(known)
            return known
        self.publisher.hang_up()
        self.publisher = self._make_here(self)
        await self.publisher.open(clean=True)
        await self._write(replace(before or self._wanted, qos=0, certain=True))
        return None

    def _write(self, standing: Standing) -> asyncio.Future[None]:
        """In one thread, so that they are written in this order whoever is cancelled."""
        return asyncio.get_running_loop().run_in_executor(self._files, write_standing, self._state_dir, standing)

    def _bounds(self) -> Bounds:
        settings = self._settings
        return Bounds(
            settings.inflight_max, int(settings.inflight_bytes_max), self.publisher.receive_max,
            settings.deliver_timeout.ms,
        )  # fmt: skip

    async def _both(self, source: Source) -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(source.run()), loop.create_task(self.publisher.run())]
        try:
            done, _ = await asyncio.wait([*tasks, self._over], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def quiet(self) -> None:
        """Hand nothing more to this broker, and wait for its answers to what it has been handed."""
        if self.core is not None:
            self.core.held_back = True
            await self._answered.wait()

    async def close(self) -> None:
        """Never raises."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._over.cancel():
            self._over.exception()  # It has been told, or something else ended this before.
        self.core = None
        self._answered.set()
        self.publisher.hang_up()
        if self.source is not None:
            await self.source.close()

    # ------------------------------------------------------------------ SourceOwner, PublisherOwner
    async def room(self) -> None:
        await self.publisher.drain()
        await self._has_room.wait()

    def arrived(self, came: Sequence[Came]) -> None:
        self._feed(Arrived(came))

    def released(self, packet_ids: Sequence[int]) -> None:
        self._feed(Released(packet_ids))

    def subscribed(self) -> None:
        if not self._is_written:
            self._write(self._subscribed_standing())
        self._online()

    def answered(self, packet_ids: Sequence[int], refusal: str) -> None:
        self._feed(Answered(packet_ids, refusal))

    def completed(self, packet_ids: Sequence[int]) -> None:
        self._feed(Completed(packet_ids))

    # ------------------------------------------------------------------ the core
    def _online(self) -> None:
        self.subscribed_there = True
        self._ways.online()

    def _unless_subscribed(self, late: str) -> None:
        if not self.subscribed_there:
            self._give_up(late)

    def _feed(self, event: Event) -> None:
        core, source = self.core, self.source
        if core is None or source is None:
            return
        refused: list[Event] = []
        for effect in core.handle(event, now_ms()):
            match effect:
                case Publish():
                    if effect.letter:
                        log.warning("bridge.refused", bridge=self._state_dir.name, topic=effect.message.topic, cause=effect.letter)
                    refusal = self.publisher.publish(effect)
                    if refusal:
                        refused.append(Answered([effect.packet_id], refusal) if effect.qos else NotTaken(effect.message))
                case Release(packet_ids):
                    self.publisher.release(packet_ids)
                case Acknowledge(qos, packet_ids):
                    source.acknowledge(qos, packet_ids)
                    self._ways.works()
                case Complete(packet_ids):
                    source.complete(packet_ids)
                case GiveUp(reason):
                    self._give_up(reason)
                case Wake(at_ms):
                    self._wake(at_ms)
        for each in refused:
            self._feed(each)
        _tell(self._has_room, core.has_room())
        _tell(self._answered, not core.waits_for_answers)

    def _give_up(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_exception(Unavailable(reason))

    def _wake(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(1, at_ms - now_ms()) / 1000, self._ticked)

    def _ticked(self) -> None:
        self._timer = None
        self._feed(Tick())


def _tell(event: asyncio.Event, so: bool) -> None:
    if so:
        event.set()
    else:
        event.clear()
