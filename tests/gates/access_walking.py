"""Walks all cases of the matrix side by side through one broker: before the rights change, the change, and behind it.

    connect, subscribe -> A is published -> some go away -> the rights change -> a second later: back again, B is published -> judged

The moment of the change is fixed before the first token is made that ends then. What is judged is bytes: whether anything that came to a
reader has the mark of a message that it may not have.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mqtt.packets import Properties, Will
from mqtt.reason import ReasonCode
from tests.access_paths import claims
from tests.access_paths.cases import Case
from tests.access_paths.talking import Talker
from tests.gates.gate import GateFailed

CLIENTS_AT_ONCE = 100
"""So many cases take their step together: what is tested is rights, and no storm."""
WITHIN_S = 1.0
COMES_WITHIN_S = 20.0
SETTLES_S = 1.0
LEAST_S = 8.0
"""From the first client whose token ends with the change to the change; on top of it, as long as the others took."""
PROBED_BEFORE_S, PROBED_BEHIND_S = 0.5, 3.0
LEAVES_S, WILL_DELAY_S = 1.5, 4
"""A client whose will has a delay goes away so long before the change, and its will is due behind it."""
DUE_BEHIND_S = 3
"""So long behind the change a delayed message is due that was published before it."""
_LOOK_S = 0.2
_PROBE_S = 0.1
_REFUSED = 0x80
_NOT_AUTHORIZED = int(ReasonCode.NOT_AUTHORIZED)


class Change(NamedTuple):
    """When the rights went, by the clock of `time.monotonic`."""

    planned: float
    """The tokens end."""
    ruled: float
    """The file of rules was there."""
    late_s: float
    """How late this process itself was at most to see what came."""


@dataclass(slots=True)
class Pair:
    """The clients of one case."""

    case: Case
    reader: Talker
    writer: Talker
    moment: float = math.inf
    """Of the change."""
    first_id: int = 0
    second_id: int = 0
    ends: bool = False
    """A connection that is there ends with its token."""
    wrong: str = ""

    @property
    def subject(self) -> Talker:
        return self.reader if self.case.side == "reader" else self.writer

    @property
    def waits(self) -> bool:
        """Its writer goes away with a will that is due behind the change."""
        case = self.case
        return case.path == "will" and case.side == "writer" and case.when == "revoked while away" and case.version == 5

    async def connect(self, talker: Talker, changed: bool, will: Will | None = None) -> int:
        if self.case.form != "claim" or talker is not self.subject:
            return await talker.connect(will)
        expires = self.case.expires and not changed
        ends_in_s = self.moment - time.monotonic() if expires else claims.LONG_S
        return await talker.connect(will, token=claims.token(talker.client_id, self.case.claim(changed), ends_in_s))

    # ------------------------------------------------------------------ before the change

    async def come(self) -> None:
        case = self.case
        code = await self.connect(self.reader, changed=False)
        if code:
            self.wrong = f"CONNACK {code:#x} for the reader"
            return
        if case.path != "retained":
            await self.reader.subscribe(case.topic_filter, case.qos)
        will = None
        self.writer.keeps = self.waits or (case.before_pubrec and case.side == "writer")
        if case.path == "will":
            delay = Properties(will_delay_interval=WILL_DELAY_S) if self.waits else Properties()
            will = Will(case.topic.encode(), case.mark("B"), 1, False, delay)
        code = await self.connect(self.writer, changed=False, will=will)
        refused = case.path == "will" and case.side == "writer" and case.when == "denied"
        if code != (_NOT_AUTHORIZED if refused else 0):
            self.wrong = f"CONNACK {code:#x} for the writer"
        if case.path in ("offline", "memory"):
            await self.reader.disconnect()
        self.reader.acknowledges = not (case.path.startswith("resumed") or (case.before_pubrec and case.side == "reader"))
        self.writer.completes = not (case.before_pubrec and case.side == "writer")

    async def first(self) -> None:
        if self.case.path != "will":
            delay_s = math.ceil(self.moment + DUE_BEHIND_S - time.monotonic())
            self.first_id = self._publish("A", delay_s)

    async def go_away(self) -> None:
        """Those who are away while the rights change."""
        case = self.case
        if case.path.startswith("resumed"):
            await self.reader.vanish()
        if case.before_pubrec and case.side == "writer":
            await self.writer.vanish()
        if case.when == "revoked while away":
            if case.side == "reader":
                await self.reader.vanish()
            elif case.path != "will":
                await self.writer.disconnect()

    async def leave(self) -> None:
        """The last thing before the change."""
        if self.waits:
            await self.writer.vanish()
        self.ends = self.case.expires and self.subject.online

    def probe(self) -> None:
        if self.writer.online:
            self._publish("A", 0)

    # ------------------------------------------------------------------ behind it

    async def come_back(self) -> None:
        case = self.case
        subscribes = case.path == "retained" or (
            case.side == "reader" and (case.when == "revoked while away" or (self.ends and not case.stored))
        )
        if not self.reader.online:
            self.reader.acknowledges = True
            await self._connect_again(self.reader)
        else:
            self.reader.acknowledge()
        if subscribes:
            code = await self.reader.subscribe(case.topic_filter, case.qos)
            denied = case.side == "reader" and case.denied(True) and (case.form != "placeholder" or case.path.startswith("shared"))
            if (code >= _REFUSED) != denied:
                self.wrong = self.wrong or f"SUBACK {code:#x} behind the change"
        if not self.writer.online and case.path != "will":
            self.writer.completes = True
            await self._connect_again(self.writer)
            if case.before_pubrec and case.side == "writer":
                self.writer.answers.pop(self.first_id, None)
                self._publish("A", 0, again=self.first_id)

    async def second(self) -> None:
        if self.case.path != "will":
            self.second_id = self._publish("B", 1)
        elif self.writer.online:
            await self.writer.vanish()

    async def _connect_again(self, talker: Talker) -> None:
        code = await self.connect(talker, changed=True)
        if code:
            self.wrong = self.wrong or f"CONNACK {code:#x} behind the change"

    def _publish(self, which: str, delay_s: int, again: int = 0) -> int:
        case = self.case
        topic = f"$delayed/{delay_s}/{case.topic}" if case.path == "delayed" else case.topic
        return self.writer.publish(topic, case.mark(which), case.qos, retain=case.path == "retained", again=again)

    # ------------------------------------------------------------------ what came

    @property
    def complete(self) -> bool:
        return all(self.reader.when(mark) for mark in self.case.wanted())

    def faults(self, change: Change) -> Iterator[str]:
        """In the order of their weight: a leak, a connection that is gone, all else."""
        case, reader = self.case, self.reader
        changed_at = change.planned if case.expires else change.ruled
        for mark in case.never():
            if reader.when(mark):
                yield f"LEAK {case}: {mark.decode()} came"
        for mark in case.not_late():
            late_s = max(reader.when(mark), default=0) - changed_at
            if late_s > WITHIN_S + change.late_s:
                yield f"LEAK {case}: {mark.decode()} came {late_s:.2f} s after the change"
        for talker in (reader, self.writer):
            if talker.closed is not None and not self._may_be_closed(talker):
                yield f"GONE {case}: {talker.client_id} was closed {talker.closed.at - changed_at:.2f} s after the change: {talker.closed}"
        if self.wrong:
            yield f"{case}: {self.wrong}"
        for mark in case.wanted():
            if not reader.when(mark):
                yield f"{case}: {mark.decode()} did not come"
        yield from self._answers()

    def ended(self, change: Change) -> Iterator[str]:
        """What is wrong with the end of a connection whose token has ended.  Before anybody comes back."""
        if not self.ends:
            return
        closed = self.subject.closed
        after_s = closed.at - change.planned if closed is not None else math.inf
        if not after_s <= WITHIN_S + change.late_s:
            yield f"LEAK {self.case}: the connection was there {after_s:.2f} s after the end of its token"
        elif after_s < 0 or (self.case.version == 5 and closed is not None and closed.reason != _NOT_AUTHORIZED):
            yield f"GONE {self.case}: the connection was closed {after_s:.2f} s after the end of its token: {closed}"

    def _may_be_closed(self, talker: Talker) -> bool:
        """A client that left its will, by being refused or by the end of its token, and did not come back."""
        denied = self.case.when == "denied" and self.case.side == "writer"
        return talker is self.writer and self.case.path == "will" and (denied or self.ends)

    def _answers(self) -> Iterator[str]:
        case = self.case
        code = self.writer.answers.get(self.second_id, 0)
        refused = case.side == "writer" and case.denied(True) and case.path != "will" and case.version == 5
        if case.qos and self.second_id and (code == _NOT_AUTHORIZED) != refused:
            yield f"{case}: the publisher was told {code:#x}"
        if not case.before_pubrec:
            return
        if case.side == "writer":
            code = self.writer.answers.get(self.first_id, -1)
            if not 0 <= code < _REFUSED:
                yield f"{case}: what was taken before was answered with {code:#x} when it came again"
            times = len(self.reader.when(case.mark("A")))
            if case.path == "live 2" and times > 1:
                yield f"{case}: A came {times} times"
        elif not self.reader.released and not self.ends:
            yield f"{case}: no PUBREL came for A"


async def each(pairs: Sequence[Pair], step: Callable[[Pair], Awaitable[None]]) -> float:
    """How long it took, in seconds."""
    began = time.monotonic()
    slots = asyncio.Semaphore(CLIENTS_AT_ONCE)

    async def one(pair: Pair) -> None:
        async with slots:
            try:
                await step(pair)
            except (TimeoutError, OSError, AssertionError) as error:
                pair.wrong = pair.wrong or f"{step.__name__}: {type(error).__name__} {error}"

    await asyncio.gather(*[one(pair) for pair in pairs])
    return time.monotonic() - began


async def walk(pairs: Sequence[Pair], change: Callable[[], float]) -> tuple[list[str], Change, float]:
    """change: puts the other rules in force, and says when.  Returns what went wrong, when the rights went, and how long after that the
    last message came that was not denied yet."""
    moment = await _before(pairs)
    probing = asyncio.create_task(_probe([pair for pair in pairs if pair.case.probed], moment))
    await asyncio.sleep(moment - time.monotonic())
    ruled = await asyncio.to_thread(change)
    when = Change(moment, ruled, await probing)
    found = [fault for pair in pairs for fault in pair.ended(when)]
    for step in (Pair.come_back, Pair.second):
        await each(pairs, step)
        await asyncio.sleep(SETTLES_S)
    for _ in range(int(COMES_WITHIN_S / _LOOK_S)):
        if all(pair.complete for pair in pairs):
            break
        await asyncio.sleep(_LOOK_S)
    await asyncio.sleep(max(SETTLES_S, moment + DUE_BEHIND_S + SETTLES_S - time.monotonic()))
    found += [fault for pair in pairs for fault in pair.faults(when)]
    latest = max(max(pair.reader.when(pair.case.mark("A")), default=0) - ruled for pair in pairs if pair.case.probed)
    for pair in pairs:
        await pair.reader.vanish(politely=True)
        await pair.writer.vanish(politely=True)
    return by_weight(found), when, latest


def by_weight(faults: Sequence[str]) -> list[str]:
    """Leaks first, then connections that are gone, which explain what did not come."""
    return sorted(faults, key=lambda fault: (not fault.startswith("LEAK"), not fault.startswith("GONE")))


async def _before(pairs: Sequence[Pair]) -> float:
    """The moment at which the rights are to change; all is done that comes before it."""
    took_s = await each([pair for pair in pairs if not pair.case.expires], Pair.come)
    moment = time.monotonic() + LEAST_S + took_s
    for pair in pairs:
        pair.moment = moment
    await each([pair for pair in pairs if pair.case.expires], Pair.come)
    await each(pairs, Pair.first)
    await asyncio.sleep(SETTLES_S)
    await each(pairs, Pair.go_away)
    late_s = time.monotonic() + LEAVES_S - moment
    if late_s <= 0:
        await asyncio.sleep(-late_s)
        late_s = await each(pairs, Pair.leave) + PROBED_BEFORE_S - LEAVES_S
    if late_s > 0:
        raise GateFailed(f"the machine is too busy: clients were there {late_s:.1f} s later than the {LEAST_S + took_s:.1f} s they had")
    return moment


async def _probe(pairs: Sequence[Pair], moment: float) -> float:
    """One message after the other; how late this process was at most to take its turn, in seconds."""
    await asyncio.sleep(moment - PROBED_BEFORE_S - time.monotonic())
    late_s = 0.0
    while time.monotonic() < moment + PROBED_BEHIND_S:
        began = time.monotonic()
        for pair in pairs:
            pair.probe()
        await asyncio.sleep(_PROBE_S)
        late_s = max(late_s, time.monotonic() - began - _PROBE_S)
    return late_s
