"""The loss oracle: publishers, readers, a group and a retained topic of its own on a broker that serves others, and the judge of them.

    begin: everybody is connected and subscribed; then the publishers publish, each at its pace
    -> whatever is to happen happens
    -> judge: no more is published; all answers and messages are waited for, each as long as something still comes; the ledger is judged
    -> clean_up: the sessions are ended and the retained message erased; what is not reached ends by itself, within ENDS_BY_ITSELF_S

All is below one prefix and has the name of the run in it; the prefix begins with `$` unless somebody says otherwise, so that no
subscription to `#` gets any of it.  What it publishes is stored as everybody's messages are, for as long.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from chaos.addresses import Login
from chaos.client import Client, NotAccepted
from chaos.ledger import Ledger, Reader, payload_of
from chaos.looker import Looker
from chaos.verdict import Verdict, judge
from mqtt.packets import Publish
from mqtt.reason import ReasonCode

PREFIX = "$chaos"
ENDS_BY_ITSELF_S = 900
"""Session expiry and message expiry of what an oracle that is killed leaves behind, on top of what its plan lasts."""
MESSAGES_MAX = 5_000_000
"""What a ledger takes: 200 bytes for each message and reader."""
BEGIN_S = 30.0
CLEAN_UP_S = 10.0
AWAY_S = (1.0, 2.0)
"""How long a reader that comes and goes is there, and away."""
LOOK_EVERY_S = 1.0
LOOK_S = 5.0
MOVE_EVERY_S = 1.0
_TICK_S = 0.05
_COMES_AND_GOES = "comer"
_READERS = (
    ("reader-qos1", 1, False), ("reader-qos2", 2, False), ("comer-qos1", 1, False), ("comer-qos2", 2, False),
    ("member-qos2", 2, True), ("comer-member-qos2", 2, True),
)  # fmt: skip
"""Name, QoS of its subscription, whether it shares."""


class CannotBegin(Exception):
    """The broker does not let the oracle in; one sentence."""


@dataclass(frozen=True, slots=True)
class Plan:
    login: Login
    lasts_s: float
    """How long it will run, roughly."""
    prefix: str = PREFIX
    publishers: int = 2
    """At each QoS."""
    per_second: float = 20.0
    """Messages of each publisher."""
    payload_bytes: int = 64
    settle_s: float = 60.0
    """How long it waits for the next answer or message, when no more is published."""

    @property
    def messages(self) -> float:
        """That will be sent, roughly."""
        return 2 * self.publishers * self.per_second * self.lasts_s

    @property
    def kept_s(self) -> int:
        return int(self.lasts_s) + ENDS_BY_ITSELF_S


class Oracle:
    def __init__(self, plan: Plan) -> None:
        self.run = f"chaos-{secrets.token_hex(4)}"
        self.ledger = Ledger()
        self._plan = plan
        self._base = f"{plan.prefix}/{self.run}"
        self._kept = f"{self._base}/kept"
        self.ledger.retained_topics = frozenset([self._kept])
        self._readers: list[Client] = []
        self._comers: list[Client] = []
        self._publishers: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._retainer: Client | None = None
        self._newest_kept = -1
        self._began = self._ended = 0.0

    # ------------------------------------------------------------------ beginning

    async def begin(self) -> None:
        """Returns when all subscriptions are there and publishing has begun. Raises CannotBegin."""
        for name, qos, shares in _READERS:
            client = self._client(name)
            self._readers.append(client)
            self.ledger.subscribed(Reader(client.client_id, qos, self.run if shares else ""))
            if name.startswith(_COMES_AND_GOES):
                self._comers.append(client)
        self._publishers = [self._client(f"publisher-{n}-qos{qos}") for qos in (1, 2) for n in range(self._plan.publishers)]
        self._retainer = self._client("retainer")
        try:
            async with asyncio.timeout(BEGIN_S):
                await asyncio.gather(
                    *(self._subscribe(client) for client in self._readers), *(self._connect(each) for each in self._writers)
                )
        except TimeoutError:
            lacking = [
                f"{each.client_id}: {each.last_refusal}" for each in self._everybody if not each.connected.is_set() or each.last_refusal
            ]
            raise CannotBegin(
                f"the broker did not let the oracle in within {BEGIN_S:.0f} s ({'; '.join(lacking[:2]) or 'no SUBACK'})"
            ) from None
        except NotAccepted as error:
            raise CannotBegin(f"the broker refuses the oracle: {error}") from None
        self._began = time.monotonic()
        self._tasks = [
            asyncio.create_task(self._publish(client, 1 + n // self._plan.publishers)) for n, client in enumerate(self._publishers)
        ]
        self._tasks.append(asyncio.create_task(self._retain(self._retainer)))
        self._tasks.append(asyncio.create_task(self._look_now_and_then()))
        self._tasks += [asyncio.create_task(self._come_and_go(client)) for client in self._comers]
        if len(self._plan.login.addresses) > 1:
            self._tasks.append(asyncio.create_task(self._move()))

    @property
    def _writers(self) -> list[Client]:
        return [*self._publishers, *([self._retainer] if self._retainer else [])]

    @property
    def _everybody(self) -> list[Client]:
        return [*self._readers, *self._writers]

    def _client(self, name: str, first: int | None = None) -> Client:
        first = len(self._everybody) if first is None else first
        return Client(f"{self.run}-{name}", self._plan.login, self, expiry_s=self._plan.kept_s, first=first)

    async def _connect(self, client: Client) -> None:
        client.start()
        await client.connected.wait()

    async def _subscribe(self, client: Client) -> None:
        reader = self.ledger.readers[client.client_id]
        share = f"$share/{reader.group}/" if reader.group else ""
        while True:
            await self._connect(client)
            with suppress(ConnectionError):
                return await client.subscribe(f"{share}{self._base}/flow/#", reader.qos)

    # ------------------------------------------------------------------ going on

    async def _publish(self, client: Client, qos: int) -> None:
        """What an outage kept it from sending is not made up for."""
        pause = 1 / self._plan.per_second
        own = client.client_id.removeprefix(f"{self.run}-")
        topics = (f"{self._base}/flow/{own}", f"{self._base}/flow/all")
        due = time.monotonic()
        while True:
            due = max(due + pause, time.monotonic() - pause)
            await asyncio.sleep(due - time.monotonic())
            await client.room()
            self._send(client, topics, qos)

    def _send(self, client: Client, topics: tuple[str, ...], qos: int, *, retain: bool = False) -> int:
        now = time.monotonic()
        topic = topics[len(self.ledger.sent) % len(topics)]
        number = self.ledger.publish(client.client_id, topic, qos, now)
        payload = payload_of(client.client_id, number, self._plan.payload_bytes)
        client.publish(number, topic, payload, qos, retain=retain, expiry_s=self._plan.kept_s if retain else None)
        return number

    async def _retain(self, client: Client) -> None:
        """One after the other, so that the newest that is acknowledged is the value."""
        while True:
            self._send(client, (self._kept,), 1, retain=True)
            await asyncio.sleep(1 / self._plan.per_second)
            await client.answered()

    async def _come_and_go(self, client: Client) -> None:
        there_s, away_s = AWAY_S
        while True:
            await asyncio.sleep(there_s)
            await client.leave()
            await asyncio.sleep(away_s)
            await self._connect(client)

    async def _move(self) -> None:
        """Each publisher in turn goes on at another address."""
        for turn in range(MESSAGES_MAX):
            await asyncio.sleep(MOVE_EVERY_S)
            client = self._publishers[turn % len(self._publishers)]
            await client.leave()
            client.start()

    async def _look_now_and_then(self) -> None:
        """As one who subscribes for the first time, each time. While something is broken nothing may come in time."""
        for turn in range(MESSAGES_MAX):
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look(f"looker-{turn}", turn)

    async def _look(self, name: str, first: int) -> tuple[bool, bool]:
        """Whether it was subscribed within LOOK_S, and whether something came."""
        looker = Looker(f"{self.run}-{name}", self._plan.login, self._kept, first)
        try:
            async with asyncio.timeout(LOOK_S):
                payload = await looker.look(lambda: self._newest_kept)
            self.ledger.looked(looker.client.client_id, self._kept, payload, looker.owed)
        except (TimeoutError, NotAccepted, OSError):
            return looker.subscribed, False
        finally:
            await looker.client.leave()
        return True, True

    # ------------------------------------------------------------------ the end

    async def judge(self) -> Verdict:
        """Publish no more, wait for what is still to come, and judge."""
        await self._cease()
        self._ended = time.monotonic()
        for client in self._comers:
            client.start()
        for client in self._writers:
            client.start()
        await self._settled(lambda: sum(each.unacknowledged for each in self._writers))
        await self._settled(lambda: sum(self.ledger.owed().values()))
        settled_s = time.monotonic() - self._ended
        silence = self.ledger.longest_silence(time.monotonic())
        absent = {each.client_id: each.last_refusal for each in self._everybody if not each.connected.is_set()}
        # What is owed to one who is not there may be waiting for him.
        excused = {*absent, *(f"group {each.group}" for each in self.ledger.readers.values() if each.group and each.name in absent)}
        self.ledger.lose([name for name in self.ledger.owed() if name not in excused])
        if self._newest_kept >= 0:
            subscribed, came = await self._look("looker", 0)
            if subscribed and not came:
                self.ledger.looked(f"{self.run}-looker", self._kept, None, self._newest_kept)
            elif not subscribed:
                absent[f"{self.run}-looker"] = f"no SUBACK within {LOOK_S:.0f} s"
        return judge(
            self.ledger, run=self.run, seconds=self._ended - self._began, settled_s=settled_s,
            reconnects=sum(max(0, each.connections - 1) for each in self._everybody), silence=silence,
            absent=tuple(f"{name}: {why}" for name, why in absent.items()),
        )  # fmt: skip

    async def _settled(self, left: Callable[[], int]) -> None:
        """Until nothing is left, or nothing has come for settle_s."""
        before, since = left(), time.monotonic()
        while before and time.monotonic() - since < self._plan.settle_s:
            await asyncio.sleep(_TICK_S)
            now = left()
            if now != before:
                before, since = now, time.monotonic()

    async def _cease(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                raise error

    async def clean_up(self, verdict: Verdict | None = None) -> Verdict | None:
        """Leave nothing behind. The verdict with what could not be erased in it."""
        with suppress(Exception):
            await self._cease()
        left: list[str] = []
        if self._retainer is not None and self._newest_kept >= 0:
            self._retainer.publish(-1, self._kept, b"", 1, retain=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEAN_UP_S):
                    await self._retainer.answered()
            if self._retainer.unacknowledged:
                left.append(f"retained {self._kept}")
        done = await asyncio.gather(*(each.erase(CLEAN_UP_S) for each in self._everybody))
        left += [f"session {client.client_id}" for client, erased in zip(self._everybody, done, strict=True) if not erased]
        return None if verdict is None else replace(verdict, left_behind=tuple(left))

    # ------------------------------------------------------------------ Listener

    def sent_again(self, client: Client, number: int, *, as_new: bool) -> None:
        if number >= 0:
            self.ledger.sent_again(client.client_id, number, as_new=as_new)

    def acknowledged(self, client: Client, number: int) -> None:
        if number >= 0:
            self.ledger.acknowledged(client.client_id, number, time.monotonic())
            if client is self._retainer:
                self._newest_kept = number

    def refused(self, client: Client, number: int, reason: ReasonCode) -> None:
        if number >= 0:
            self.ledger.refused(client.client_id, number, time.monotonic())

    def completed(self, client: Client, number: int) -> None:
        self.ledger.completed += 1

    def arrived(self, client: Client, message: Publish) -> None:
        self.ledger.arrived(client.client_id, message.topic.decode(), message.payload, message.qos, message.dup)

    def forgotten(self, client: Client) -> None:
        self.ledger.forgotten(client.client_id)
