"""One bridge inwards while it runs: crossings, one after the other, for as long as it is wanted.

Leaves to actors.bridge.crossing what happens while both brokers can be reached, and to bridge.inward what is decided there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from actors.bridge.crossing import Crossing, Ways, now_ms
from actors.bridge.publisher import HereLost, NotNow, Publisher
from actors.bridge.runner import FINISH_S, NOT_HERE_S, RETRY_S, STATE_DIR, Place, Status, sentence
from actors.bridge.standing import Standing
from actors.fatal import dies_with
from bridge.core import Unfit
from bridge.options import Counters
from bridge.pace import Pace, Rate
from bridge.port import Context, Message, Misconfigured, Unavailable
from bridge.sources.mqtt import Source
from bridge.targets.mqtt import client_id_of
from bridge.targets.origins import ORIGINS_MAX, arrived, passed, was_at
from bridge.transform import transform_of
from config.bridges import Bridge

log = structlog.get_logger(__name__)


class InwardRunner:
    """made -> started -> stopped."""

    def __init__(self, name: str, settings: Bridge, dead_letter_topic: str, place: Place) -> None:
        self.name = name
        self.settings = settings
        self.default_dead_letter_topic = dead_letter_topic
        self._dead_letter_topic = settings.dead_letter_topic or dead_letter_topic
        self._place = place
        self._transform = transform_of(settings.transform)
        self.counters = Counters()
        self._pace = Pace(settings.retry_min.ms, settings.retry_max.ms, settings.breaker_after, random.Random())
        self._rate = Rate(0 if settings.rate_max.is_infinite else int(settings.rate_max), at_ms=now_ms())
        self._files = ThreadPoolExecutor(1, thread_name_prefix=f"bridge-{name}")
        self._crossing: Crossing | None = None
        self._task: asyncio.Task[None] | None = None
        self._steady: asyncio.TimerHandle | None = None
        self.online = False
        self.complaint = ""
        """Why there is no connection to this broker."""
        self.last_error = ""
        """Why there is none to the other."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        dies_with(self._task, f"the bridge {self.name}")

    async def stop(self) -> None:
        """What this broker has been handed is waited for a little, so that it need not come again."""
        crossing = self._crossing
        if crossing is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_S):
                    await crossing.quiet()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._files.shutdown(wait=False)

    async def _run(self) -> None:
        failures = gateway = 0
        while True:
            # Of several sites nobody knows at first which store it is, by which our session there is named.
            if not self._place.here(self.name) or not self._place.store(self.name)[0]:
                await asyncio.sleep(NOT_HERE_S)
                continue
            crossing = self._crossing = self._made_crossing(gateway)
            try:
                await crossing.run()
            except HereLost as error:
                failures = 0 if self.online else failures + 1
                self.complaint = sentence(error)
                gateway = (gateway + 1) % self._place.n_gateways
                log.info("bridge.offline", bridge=self.name, cause=self.complaint)
            except Exception as error:  # Whatever the other broker does, the bridge goes on.
                failures, self.complaint = 0, ""
                self._failed(error)
            finally:
                self.online = False
                if self._steady is not None:
                    self._steady.cancel()
                self._crossing = None
                await crossing.close()
            here_s = RETRY_S[min(failures, len(RETRY_S) - 1)] if self.complaint else 0.0
            await asyncio.sleep(max(here_s, (self._pace.not_before_ms - now_ms()) / 1000))

    def _made_crossing(self, gateway: int) -> Crossing:
        place, settings = self._place, self.settings
        store, epoch = place.store(self.name)
        state_dir = place.data_dir / STATE_DIR / self.name
        context = Context(self.name, 0, 1, store, place.data_dir, state_dir, place.secrets)
        mqtt = settings.mqtt
        standing = Standing(mqtt.url, client_id_of(mqtt, context), mqtt.version, f"{store}.{epoch}")

        def here(owner: Crossing) -> Publisher:
            return Publisher(self.name, place.run_dir, place.secret, gateway, owner, self._dead_letter_topic)

        def source(owner: Crossing, publisher: Publisher) -> Source:
            bytes_max = publisher.message_bytes_max
            return Source(settings.mqtt, context, owner, receive_max=settings.inflight_max, packet_bytes_max=bytes_max)

        ways = Ways(self._made_of(store), self.counters, self._rate, self._works, self._online)
        return Crossing(settings, here, source, standing, state_dir, self._files, ways)

    def _made_of(self, store: str) -> Callable[[Message], Message | None]:
        def made(message: Message) -> Message | None:
            """As it is published; not at all when it has been in this store before."""
            properties = message.user_properties
            if properties and was_at(properties, store):
                return None
            if len(passed(properties)) >= ORIGINS_MAX:
                raise Unfit(f"it has come over {ORIGINS_MAX} bridges, so it goes round in a loop")
            found = self._transform(message)
            if found is None:
                return None
            levels = found.topic.count("/") + 1
            if levels > self._place.topic_levels_max:
                raise Unfit(f"its topic has {levels} levels, and this broker takes {self._place.topic_levels_max}")
            if not self.settings.mqtt.retain:
                found = found._replace(retain=False)
            crossing = self._crossing
            assert crossing is not None and crossing.source is not None
            return found._replace(user_properties=tuple(arrived(found.user_properties, crossing.source.peers, f"{store}/{self.name}")))

        return made

    # ------------------------------------------------------------------ how it goes
    def _online(self) -> None:
        self.online, self.complaint, self.last_error = True, "", ""
        log.info("bridge.online", bridge=self.name, filter=self.settings.filter)
        self._steady = asyncio.get_running_loop().call_later(self.settings.retry_max.seconds, self._works)

    def _works(self) -> None:
        """A message was acknowledged, or the connection stands for as long as we would have waited for it."""
        if self._pace.failures:
            self._pace.worked()

    def _failed(self, error: Exception) -> None:
        known = isinstance(error, Unavailable | Misconfigured | NotNow | OSError)
        self.last_error = sentence(error)
        self.counters.failures += 1
        log.warning("bridge.failed", bridge=self.name, cause=self.last_error, exc_info=None if known else error)
        was = self._pace.breaker(now_ms())
        self._pace.failed(now_ms(), final=isinstance(error, Misconfigured))
        if was == "closed" and self._pace.breaker(now_ms()) != "closed":
            log.warning("bridge.breaker", bridge=self.name, state="open", cause=self.last_error)

    def status(self) -> Status:
        core = self._crossing.core if self._crossing is not None else None
        held, held_bytes = (core.held, core.held_bytes) if core is not None else (0, 0)
        return Status(
            self.online, self.complaint, self._pace.breaker(now_ms()), self._pace.failures, self.last_error, held, held_bytes,
            int(self.online), self.counters.delivered,
        )  # fmt: skip
