"""Walks all cases of the matrix side by side through one broker: before the rules change, the change, and behind it.

    connect, subscribe -> A is published -> some go away -> the rules change -> a second later: back again, B is published -> judged

What is judged is bytes: whether anything that came to a reader has the mark of a message that it may not have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from mqtt.packets import Properties, Will
from mqtt.reason import ReasonCode
from tests.access_paths.cases import Case
from tests.access_paths.talking import Talker

AT_ONCE = 100
"""So many cases take their step together: what is tested is rights, and no storm."""
WITHIN_S = 1.0
COMES_WITHIN_S = 20.0
SETTLES_S = 1.0
WILL_DELAY_S = 4
_LOOK_S = 0.2
_REFUSED = 0x80
_NOT_AUTHORIZED = int(ReasonCode.NOT_AUTHORIZED)


@dataclass(slots=True)
class Pair:
    """The clients of one case."""

    case: Case
    reader: Talker
    writer: Talker
    granted: int = -1
    """SUBACK, before the change."""
    published: int = 0
    wrong: str = ""

    @property
    def delays(self) -> bool:
        """Its writer goes away with a will that is due behind the change."""
        return self.case.path == "will" and self.case.when == "revoked while away" and self.case.version == 5

    # ------------------------------------------------------------------ before the change

    async def come(self) -> None:
        case = self.case
        await self.reader.connect(clean=False)
        if case.path != "retained":
            self.granted = await self.reader.subscribe(case.topic_filter, case.qos)
        will = None
        if case.path == "will":
            self.writer.keeps = self.delays
            delay = Properties(will_delay_interval=WILL_DELAY_S) if self.delays else Properties()
            will = Will(case.topic.encode(), case.mark("B"), 1, False, delay)
        code = await self.writer.connect(will)
        refused = case.path == "will" and case.side == "writer" and case.when == "denied"
        if code != (_NOT_AUTHORIZED if refused else 0):
            self.wrong = f"CONNACK {code:#x}"
        if case.path == "offline" or case.path == "memory":
            await self.reader.disconnect()
        self.reader.acknowledges = not case.path.startswith("resumed")

    async def first(self) -> None:
        case = self.case
        if case.path != "will":
            self.published = self.writer.publish(case.topic, case.mark("A"), case.qos, retain=case.path == "retained")

    async def go_away(self) -> None:
        """Those who are away while the rules change."""
        case = self.case
        if case.path.startswith("resumed"):
            await self.reader.vanish()
            self.reader.acknowledges = True
        if case.when == "revoked while away":
            if case.side == "reader":
                await self.reader.vanish()
            elif case.path != "will":
                await self.writer.disconnect()
            elif self.delays:
                await self.writer.vanish()

    async def again(self) -> None:
        """While the rules change: one message after the other, to see when the last one comes."""
        if self.case.path == "live 0" and self.case.side == "reader" and self.case.when == "revoked":
            self.writer.publish(self.case.topic, self.case.mark("A"), 0)

    # ------------------------------------------------------------------ behind it

    async def come_back(self) -> None:
        case = self.case
        if not self.reader.online:
            await self.reader.connect()
        if case.path == "retained" or (case.when == "revoked while away" and case.side == "reader"):
            code = await self.reader.subscribe(case.topic_filter, case.qos)
            denied = case.side == "reader" and case.denied(True) and (case.form != "placeholder" or case.path == "shared")
            if (code >= _REFUSED) != denied:
                self.wrong = self.wrong or f"SUBACK {code:#x} behind the change"
        if not self.writer.online and case.path != "will":
            await self.writer.connect()

    async def second(self) -> None:
        case = self.case
        if case.path != "will":
            self.published = self.writer.publish(case.topic, case.mark("B"), case.qos, retain=case.path == "retained")
        elif self.writer.online:
            await self.writer.vanish()

    # ------------------------------------------------------------------ what came

    @property
    def complete(self) -> bool:
        return all(self.reader.when(mark) for mark in self.case.wanted())

    def faults(self, changed_at: float) -> Iterator[str]:
        case, reader = self.case, self.reader
        if self.wrong:
            yield f"{case}: {self.wrong}"
        for mark in case.wanted():
            if not reader.when(mark):
                yield f"{case}: {mark.decode()} did not come"
        for mark in case.never():
            if reader.when(mark):
                yield f"LEAK {case}: {mark.decode()} came"
        for mark in case.not_late():
            late = [at - changed_at for at in reader.when(mark) if at > changed_at + WITHIN_S]
            if late:
                yield f"LEAK {case}: {mark.decode()} came {max(late):.2f} s after the change"
        code = self.writer.answers.get(self.published, 0)
        refused = case.side == "writer" and case.denied(True) and case.path != "will" and case.version == 5
        if case.qos and self.published and (code == _NOT_AUTHORIZED) != refused:
            yield f"{case}: the publisher was told {code:#x}"


async def each(pairs: Sequence[Pair], step: Callable[[Pair], Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(pair: Pair) -> None:
        async with slots:
            try:
                await step(pair)
            except (TimeoutError, OSError, AssertionError) as error:
                pair.wrong = pair.wrong or f"{step.__name__}: {type(error).__name__} {error}"

    await asyncio.gather(*[one(pair) for pair in pairs])


async def walk(pairs: Sequence[Pair], change: Callable[[], float]) -> tuple[list[str], float]:
    """change: puts the other rules in force, and says when.  Returns what went wrong, and how late the last message came that was not
    denied yet."""
    for step in (Pair.come, Pair.first):
        await each(pairs, step)
    await asyncio.sleep(SETTLES_S)
    await each(pairs, Pair.go_away)
    changed_at = await asyncio.to_thread(change)
    while (now := time.monotonic()) < changed_at + WITHIN_S:
        await each(pairs, Pair.again)
        await asyncio.sleep(min(0.05, changed_at + WITHIN_S - now))
    for step in (Pair.come_back, Pair.second):
        await each(pairs, step)
        await asyncio.sleep(SETTLES_S)
    for _ in range(int(COMES_WITHIN_S / _LOOK_S)):
        if all(pair.complete for pair in pairs):
            break
        await asyncio.sleep(_LOOK_S)
    await asyncio.sleep(SETTLES_S)
    found = [fault for pair in pairs for fault in pair.faults(changed_at)]
    latest = [at - changed_at for pair in pairs for mark in pair.case.not_late() for at in pair.reader.when(mark)]
    for pair in pairs:
        await pair.reader.vanish(politely=True)
        await pair.writer.vanish(politely=True)
    return found, max((each for each in latest if each <= WITHIN_S), default=0.0)
