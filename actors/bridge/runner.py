"""One bridge while it runs: its session at the broker, its core, and the targets of its lanes.

Holds: of each lane at most one call of its target is under way, and a target is closed before the next one of its lane is opened.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from actors.bridge.arriving import NotOurs
from actors.bridge.session import BridgeSession, Refused
from actors.fatal import dies_with
from bridge.core import BridgeCore
from bridge.events import (
    Acknowledge,
    Arrived,
    Buried,
    Bury,
    Close,
    Complete,
    Connected,
    Deliver,
    Delivered,
    Delivery,
    Event,
    Failed,
    NotBuried,
    Open,
    Opened,
    Released,
    Tick,
    Wake,
)
from bridge.lane import Doing
from bridge.options import Options
from bridge.pace import Breaker
from bridge.port import Batch, Context, Message, Misconfigured, Target, Unavailable
from bridge.targets import make_target
from bridge.targets.origins import came_from, passed_store, peer_of
from bridge.transform import transform_of
from config.bridges import Bridge
from mqtt.decode import DecodeError

STATE_DIR = "bridges"
"""In the data directory: a directory for each bridge that has had a session, for files of its target."""
RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
NOT_HERE_S = 0.5
FINISH_S = 2.0
CLOSE_S = 6.0
_WORDS_MAX = 300
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where bridges run.  here: whether the session of a client is served by this site.  store: id of the store, and text
    that changes whenever what its home has said of a bridge may be lost."""

    run_dir: Path
    data_dir: Path
    secret: bytes
    n_gateways: int
    here: Callable[[str], bool]
    store: Callable[[str], tuple[str, str]]
    secrets: Callable[[str], bytes]
    topic_levels_max: int


@dataclass(frozen=True, slots=True)
class Status:
    """How a bridge is, now.  complaint: why there is no session at the broker.  last_error: of its target, while that does not work."""

    online: bool
    complaint: str
    breaker: Breaker
    failures: int
    last_error: str
    inflight: int
    inflight_bytes: int
    connections: int
    delivered: int


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Runner:
    """made -> started -> stopped."""

    def __init__(self, name: str, settings: Bridge, dead_letter_topic: str, place: Place) -> None:
        self.name = name
        self.settings = settings
        self.default_dead_letter_topic = dead_letter_topic
        self._dead_letter_topic = settings.dead_letter_topic or dead_letter_topic
        self._place = place
        self._transform = transform_of(settings.transform)
        self.core = BridgeCore(_options(settings, self._dead_letter_topic), self._made, random.Random())
        self.counters = self.core.counters
        self._peer = peer_of(settings.mqtt.url) if settings.type == "mqtt" else ""
        self._bytes_max = int(settings.inflight_bytes_max)
        self._session: BridgeSession | None = None
        self.online = False
        self.complaint = ""
        """Why there is no session at the broker."""
        self._targets: dict[int, Target] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._closing: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._task: asyncio.Task[None] | None = None
        self._was = ""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        dies_with(self._task, f"the bridge {self.name}")

    async def stop(self) -> None:
        """What the target has been handed is waited for a little, so that nobody has to be asked about it again."""
        self.core.held_back = True
        calls = [task for task in self._calls.values() if not task.done()]
        if calls:
            await asyncio.wait(calls, timeout=FINISH_S)
            await asyncio.sleep(0)
        for task in [self._task, *self._calls.values()]:
            if task is not None:
                task.cancel()
        await asyncio.gather(*[task for task in (self._task, *self._calls.values()) if task is not None], return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        for lane in list(self._targets):
            self._close(lane)
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    # ------------------------------------------------------------------ the session

    async def _run(self) -> None:
        failures = gateway = 0
        while True:
            if not self._place.here(self.name):
                await asyncio.sleep(NOT_HERE_S)
                continue
            settings = self.settings
            self._session = BridgeSession(
                self.name, self._place.run_dir, self._place.secret, gateway, self, topic_filter=settings.filter, start=settings.start,
                inflight_max=settings.inflight_max, dead_letter_topic=self._dead_letter_topic,
            )  # fmt: skip
            try:
                await self._session.run()
            except (OSError, EOFError, TimeoutError, Refused, DecodeError, NotOurs) as error:
                self.complaint = sentence(error)
            failures = 0 if self.online else failures + 1
            self.online = False
            self._session = None
            log.info("bridge.offline", bridge=self.name, cause=self.complaint)
            gateway = (gateway + 1) % self._place.n_gateways
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])

    # SessionOwner

    async def room(self) -> None:
        await self._has_room.wait()

    def connected(self) -> None:
        self.online, self.complaint = True, ""
        (self._place.data_dir / STATE_DIR / self.name).mkdir(parents=True, exist_ok=True)
        log.info("bridge.online", bridge=self.name, filter=self.settings.filter)
        self._feed(Connected())

    def arrived(self, session: int, deliveries: Sequence[Delivery]) -> None:
        self._feed(Arrived(f"{self._place.store(self.name)[1]}.{session}", deliveries))

    def released(self, packet_ids: Sequence[int]) -> None:
        self._feed(Released(packet_ids))

    def buried(self, number: int, *, stored: bool) -> None:
        self._feed(Buried(number) if stored else NotBuried(number))

    # ------------------------------------------------------------------ the core

    def _feed(self, event: Event) -> None:
        for effect in self.core.handle(event, now_ms()):
            match effect:
                case Acknowledge(packet_ids):
                    if self._session is not None:
                        self._session.acknowledge(packet_ids)
                case Complete(packet_ids):
                    if self._session is not None:
                        self._session.complete(packet_ids)
                case Deliver(lane, batch):
                    self._call(lane, self._deliver(lane, batch))
                case Open(lane):
                    self._call(lane, self._open(lane))
                case Close(lane):
                    self._close(lane)
                case Bury():
                    log.warning("bridge.refused", bridge=self.name, topic=effect.message.topic, cause=effect.reason)
                    if self._session is not None:
                        self._session.bury(effect)
                case Wake(at_ms):
                    self._wake(at_ms)
        if self.core.held_bytes < self._bytes_max:
            self._has_room.set()
        else:
            self._has_room.clear()
        self._say_breaker()

    def _made(self, message: Message) -> Message | None:
        """As the target gets it; not at all when it has been carried out of this store before, or was brought in from that very broker."""
        properties = message.user_properties
        if properties:
            store = self._place.store(self.name)[0]
            if passed_store(properties, store) or (self._peer and came_from(properties, self._peer, store)):
                return None
        return self._transform(message)

    def _say_breaker(self) -> None:
        state = "closed" if self.core.breaker(now_ms()) == "closed" else "open"
        if state != self._was:
            if self._was:
                log.warning("bridge.breaker", bridge=self.name, state=state, cause=self.core.last_error if state == "open" else "")
            self._was = state

    def _wake(self, at_ms: int) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(max(1, at_ms - now_ms()) / 1000, self._ticked)

    def _ticked(self) -> None:
        self._timer = None
        self._feed(Tick())

    # ------------------------------------------------------------------ targets

    def _call(self, lane: int, call: Any) -> None:
        self._calls[lane] = asyncio.get_running_loop().create_task(call)

    async def _open(self, lane: int) -> None:
        closing = self._closing.pop(lane, None)
        if closing is not None:
            with suppress(Exception):
                await closing
        settings = self.settings
        try:
            target = make_target(settings, self._context(lane))
            self._targets[lane] = target
            async with asyncio.timeout(settings.connect_timeout.seconds):
                accepted = await target.open()
        except Exception as error:  # Whatever a target does, the bridge goes on.
            self._failed(lane, error, f"no answer within {settings.connect_timeout}")
            return
        log.info("bridge.target_opened", bridge=self.name, lane=lane)
        self._feed(Opened(lane, accepted))

    def _context(self, lane: int) -> Context:
        place = self._place
        return Context(
            self.name, lane, self.settings.parallel, place.store(self.name)[0], place.data_dir, place.data_dir / STATE_DIR / self.name,
            place.secrets,
        )  # fmt: skip

    async def _deliver(self, lane: int, batch: Batch) -> None:
        try:
            async with asyncio.timeout(self.settings.deliver_timeout.seconds):
                outcome = await self._targets[lane].deliver(batch)
        except Exception as error:
            self._failed(lane, error, f"a batch was not accepted within {self.settings.deliver_timeout}")
            return
        self._feed(Delivered(lane, outcome))

    def _failed(self, lane: int, error: Exception, late: str) -> None:
        known = isinstance(error, Unavailable | Misconfigured | TimeoutError)
        reason = late if isinstance(error, TimeoutError) else sentence(error)
        retry_after_s = error.retry_after_s if isinstance(error, Unavailable) and error.retry_after_s else 0.0
        log.warning("bridge.failed", bridge=self.name, lane=lane, cause=reason, exc_info=None if known else error)
        self._feed(Failed(lane, reason, round(retry_after_s * 1000), isinstance(error, Misconfigured)))

    def _close(self, lane: int) -> None:
        target = self._targets.pop(lane, None)
        if target is not None:
            self._closing[lane] = asyncio.get_running_loop().create_task(_closed(target))

    # ------------------------------------------------------------------ what is seen

    def status(self) -> Status:
        core = self.core
        connections = sum([lane.doing in (Doing.IDLE, Doing.BUSY) for lane in core.lanes])
        return Status(
            self.online, self.complaint, core.breaker(now_ms()), core.failures_in_a_row, core.last_error if core.failures_in_a_row else "",
            core.held, core.held_bytes, connections, core.counters.delivered,
        )  # fmt: skip


async def _closed(target: Target) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await target.close()
    except Exception as error:
        log.warning("bridge.not_closed", cause=sentence(error))


def sentence(error: BaseException) -> str:
    return " ".join(str(error).split())[:_WORDS_MAX] or type(error).__name__


def _options(settings: Bridge, dead_letter_topic: str) -> Options:
    return Options(
        inflight_max=settings.inflight_max,
        batch_count_max=settings.batch_count_max,
        batch_bytes_max=int(settings.batch_bytes_max),
        linger_ms=settings.linger.ms,
        lanes=settings.parallel,
        lanes_by=settings.parallel_by,
        rate_max=0 if settings.rate_max.is_infinite else int(settings.rate_max),
        retry_min_ms=settings.retry_min.ms,
        retry_max_ms=settings.retry_max.ms,
        breaker_after=settings.breaker_after,
        dead_letter_topic=dead_letter_topic,
    )
