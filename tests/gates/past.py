"""Replays at random, and what each has to bring: a selection by hand from everything that is stored."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

from tests.broker.replaying import Message, Replayer

LEVELS = (6, 5)
ENDS_S = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stored(NamedTuple):
    """A message as it lies in the store.  place: shard and position."""

    topic: str
    payload: str
    publisher: str
    qos: int
    published_at_ms: int
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Ask:
    """since_ms None: from the earliest on; until_ms None: up to the moment of asking."""

    filter: str
    since_ms: int | None
    until_ms: int | None
    qos: int
    ephemeral: bool
    resumes: bool
    """The connection is lost half way, and the client goes on from the position of the last message."""
    receive_max: int

    @property
    def properties(self) -> dict[str, str]:
        since = "earliest" if self.since_ms is None else rfc3339(self.since_ms)
        return {"replay_from": since, "replay_until": self.end, "replay_positions": str(self.resumes).lower()}

    @property
    def end(self) -> str:
        return "latest" if self.until_ms is None else rfc3339(self.until_ms)


def rfc3339(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def topic_of(random: Random, prefix: str) -> str:
    return "/".join([prefix, *(str(random.randrange(count)) for count in LEVELS)])


def random_ask(random: Random, prefix: str, stored: Sequence[Stored]) -> Ask:
    """Most times are those of a message, or one millisecond beside it: that is where a bound is wrong, if it is."""

    def moment() -> int:
        return random.choice(stored).published_at_ms + random.choice((-1, 0, 0, 1))

    parts = [random.choice((str(random.randrange(count)), str(random.randrange(count)), "+")) for count in LEVELS]
    topic_filter = "/".join([prefix, *parts])
    if random.random() < 0.4:
        topic_filter = "/".join([prefix, *parts[: random.randrange(len(parts))], "#"])
    since_ms, until_ms = moment(), moment()
    if since_ms > until_ms and random.random() < 0.9:
        since_ms, until_ms = until_ms, since_ms
    ephemeral = random.random() < 0.5
    return Ask(
        topic_filter, None if random.random() < 0.1 else since_ms, None if random.random() < 0.2 else until_ms, random.choice((1, 1, 2)),
        ephemeral, ephemeral and random.random() < 0.3, random.choice((1, 7, 100)),
    )  # fmt: skip


def matches(topic_filter: str, topic: str) -> bool:
    """By hand: nothing of the broker's own is asked."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def selected(ask: Ask, stored: Sequence[Stored]) -> list[Stored]:
    return [
        each
        for each in stored
        if matches(ask.filter, each.topic)
        and (ask.since_ms is None or each.published_at_ms >= ask.since_ms)
        and (ask.until_ms is None or each.published_at_ms < ask.until_ms)
    ]


async def replayed(reader: Replayer, ask: Ask, name: str, port: int, count: int) -> tuple[Replayer, list[Message]]:
    """As many messages as there have to be, and who is to be asked later whether more have come."""
    told = await reader.replay(ask.filter, qos=ask.qos, **ask.properties)
    assert told.codes == bytes([ask.qos]), f"{ask}: SUBACK {told}"
    half = count // 2 if ask.resumes else 0
    found = [await reader.got() for _ in range(half)]
    if half:
        reader.drop()
        reader = await Replayer.connect(port, name, 5, expiry_s=0, receive_max=ask.receive_max)
        told = await reader.replay(ask.filter, qos=ask.qos, replay_from=found[-1].position, replay_until=ask.end)
        assert told.codes == bytes([ask.qos]), f"{ask}, gone on: SUBACK {told}"
    found += [await reader.got() for _ in range(count - half)]
    return reader, found


def differs(ask: Ask, found: Sequence[Message], wanted: Sequence[Stored]) -> str:
    """What is wrong; nothing when what has arrived is what there is, each once and in the order of its publisher and topic."""
    arrived, there = Counter(each.payload for each in found), Counter(each.payload for each in wanted)
    if arrived != there:
        missing, more = list((there - arrived).elements()), list((arrived - there).elements())
        return f"{ask}: {len(missing)} are missing ({missing[:3]}), {len(more)} are too many ({more[:3]}) of {len(wanted)}"
    by_payload = {each.payload: each for each in wanted}
    newest: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (-1, -1))
    for each in found:
        stored = by_payload[each.payload]
        key = (stored.publisher, stored.topic)
        if each.topic != stored.topic or each.qos != min(ask.qos, stored.qos):
            return f"{ask}: {each} is {stored}"
        if stored.place <= newest[key]:
            return f"{ask}: {each.payload} of {key} came late"
        newest[key] = stored.place
    return ""


async def nothing_more(readers: Sequence[tuple[Ask, Replayer]]) -> list[str]:
    """Replays have ended by themselves, and nobody has got more than that."""
    wrong: list[str] = []
    for ask, reader in readers:
        try:
            async with asyncio.timeout(ENDS_S):
                await reader.alive()
        except AssertionError as error:
            wrong.append(f"{ask}: {error}")
        await reader.close()
    return wrong
