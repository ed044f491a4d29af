"""Gate 1 of issue 7: a durable shared group of 4 at 1,000 messages a second loses nothing, and repeats only what was not acknowledged.

For two minutes a member is killed every 5 s (its socket is cut; it comes back after half a second to 14 s, so some of them after others
were given what they had), then a shard is killed, then the whole broker. At the end, of QoS 1:

    nothing lost   every message that was acknowledged to its publisher came to a member
    repeats        none of a message whose PUBACK had left a member for SURE_S before anything was broken there
    order          by stream: first arrivals of one publisher and topic are in its order, over all members
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from tests.broker import wire
from tests.broker.client import Client
from tests.broker.history import History, parse_payload
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.gates.traffic import Publisher, client_ids, everything_flows, part_of, require_sessions_kept

LIMIT_S = 1800
MEMBERS = 4
PUBLISHERS = 8
MESSAGES_PER_S = 1_000
KILLED_EVERY_S = 5.0
AWAY_S = (0.5, 14.0)
SURE_S = 3.0
"""After so long an acknowledgement has arrived and is committed, on a machine that is busy with all of this, too."""
STILL_S = 60.0
BACK_S = 60.0

Key = tuple[str, int]


@dataclass(slots=True)
class Ledger:
    """arrivals: of each message (when, at whom), in the order in which they came.  broken: when a process was killed."""

    arrivals: dict[Key, list[tuple[float, str]]] = field(default_factory=dict)
    broken: list[float] = field(default_factory=list)
    moved: float = 0.0


class Member(Client):
    """A client that notes when it got what, and when its connections ended."""

    def __init__(self, port: int, name: str, history: History, ledger: Ledger) -> None:
        super().__init__(port, name, history, version=5)
        self.ends: list[float] = []
        self._ledger = ledger

    def _delivered(self, message: wire.Publish) -> None:
        # At QoS 2 what comes under an id that is not released yet is no arrival.
        again = message.qos == 2 and message.packet_id in self._received
        super()._delivered(message)
        key = parse_payload(message.payload)
        if key is not None and not again:
            self._ledger.moved = time.monotonic()
            self._ledger.arrivals.setdefault(key, []).append((self._ledger.moved, self.client_id))

    def _ended(self) -> None:
        super()._ended()
        self.ends.append(time.monotonic())


async def killing(members: list[Member], seconds: float, chance: random.Random) -> int:
    """A member every KILLED_EVERY_S; at least one stays."""
    back: list[asyncio.Task[None]] = []
    away: set[str] = set()
    until = time.monotonic() + seconds
    count = 0

    async def return_after(member: Member, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        await member.start()
        away.discard(member.client_id)

    while time.monotonic() < until:
        await asyncio.sleep(KILLED_EVERY_S)
        there = [member for member in members if member.client_id not in away]
        if len(there) > 1:
            member = chance.choice(there)
            away.add(member.client_id)
            await member.vanish()
            count += 1
            back.append(asyncio.create_task(return_after(member, chance.uniform(*AWAY_S))))
    await asyncio.gather(*back)
    return count


def require_no_repeats(ledger: Ledger, members: dict[str, Member]) -> int:
    """How many repeats there were, each of something that may not have been acknowledged."""
    repeats = 0
    for key, arrivals in ledger.arrivals.items():
        for (at, who), (again, whom) in pairwise(arrivals):
            repeats += 1
            ends = members[who].ends
            end = bisect_left(ends, at)
            broken = min([*ends[end : end + 1], *(each for each in ledger.broken if each >= at)], default=again)
            if min(broken, again) - at > SURE_S:
                raise GateFailed(f"message {key[1]} of {key[0]} was acknowledged by {who}, and came to {whom} {again - at:.1f} s later")
    return repeats


def require_order(ledger: Ledger, history: History) -> None:
    first = sorted((arrivals[0][0], key) for key, arrivals in ledger.arrivals.items())
    newest: dict[tuple[str, str], int] = {}
    for _, (publisher, number) in first:
        line = publisher, history.sent[publisher, number].topic
        if number < newest.get(line, -1):
            raise GateFailed(f"message {number} of {publisher} on {line[1]} came for the first time after {newest[line]}")
        newest[line] = number


async def all_came(ledger: Ledger, history: History, since_ns: int = 0) -> None:
    """Wait for what was acknowledged to its publishers, of what was sent since then."""
    ledger.moved = time.monotonic()
    due = [key for key, sent in history.sent.items() if sent.acknowledged_ns is not None and sent.seen_ns >= since_ns]
    while missing := [key for key in due if key not in ledger.arrivals]:
        if time.monotonic() - ledger.moved > STILL_S:
            raise GateFailed(f"{len(missing)} messages of {history.acknowledged_count()} did not come, the first is {missing[0]}")
        await asyncio.sleep(0.5)


async def run(scale: Scale) -> str:
    prefix, history, ledger, chance = "g71", History(), Ledger(), random.Random(7)
    rate, seconds = scale.of(MESSAGES_PER_S, 200), scale.of(120, 25)
    async with running(settings(2)) as watched:
        port = watched.broker.port
        members = [Member(port, name, history, ledger) for name in client_ids(f"{prefix}-member", MEMBERS, 2)]
        for member in members:
            await member.start()
            await member.subscribe(f"$share/crew/{prefix}/#", 1)
        publishers = [
            Publisher(Client(port, name, history, version=4, window=100), 1, rate / PUBLISHERS, part_of(prefix, at, PUBLISHERS))
            for at, name in enumerate(client_ids(f"{prefix}-pub", PUBLISHERS, 2))
        ]
        try:
            began = time.monotonic()
            for publisher in publishers:
                await publisher.begin()
            killed = await killing(members, seconds, chance)
            steady = len(history.sent) / (time.monotonic() - began)
            pids = {process.name: process.pid for process in (await watched.status()).processes}
            ledger.broken.append(time.monotonic())
            await asyncio.to_thread(watched.broker.kill, pids["shard-1"])
            await everything_flows(publishers, [], history, time.monotonic() + BACK_S)
            # What members acknowledged meanwhile is committed.
            await asyncio.sleep(2 * SURE_S)
            ledger.broken.append(time.monotonic())
            await watched.kill_all()
            await watched.up()
            await asyncio.sleep(5)
            for publisher in publishers:
                await publisher.finish(120)
            await all_came(ledger, history)
            repeats = require_no_repeats(ledger, {member.client_id: member for member in members})
            require_order(ledger, history)
            require_sessions_kept(members)
        finally:
            for publisher in publishers:
                publisher.cease()
            await asyncio.gather(*(each.stop() for each in [*(p.client for p in publishers), *members]), return_exceptions=True)
    return (
        f"{history.acknowledged_count()} acknowledged messages at {steady:.0f}/s to a group of {MEMBERS}, {killed} members, a shard and "
        f"the broker killed: none missing, {repeats} repeats, all of what may not have been acknowledged, in order by stream"
    )
