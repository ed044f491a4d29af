"""A core that asked to be woken is woken, whatever else happens in the same turn of the loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise

from actors.pump import ASKED_MAX, PATIENCE_S, Pump

EARLY_S = 0.002
"""So much sooner than it was asked for a timer of a loop may come."""


class Ticks:
    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        self.one = asyncio.Event()

    def tick(self) -> None:
        self.count += 1
        self.last = asyncio.get_running_loop().time()
        self.one.set()

    async def until(self, count: int) -> None:
        """There were so many; two may have come in one turn of a loop that was late."""
        async with asyncio.timeout(60):
            while self.count < count:
                self.one.clear()
                await self.one.wait()

    async def come_for(self, asked: Asked) -> None:
        """There was one at this time or after it, once all that was to come by then has come. A loop that is late may have one tick for
        two times."""
        loop = asyncio.get_running_loop()
        had = loop.create_future()
        loop.call_at(asked.latest + EARLY_S, lambda: loop.call_soon(had.set_result, None))
        await had
        assert self.last >= asked.earliest - EARLY_S, f"none since {self.last:.3f}, asked for at {asked.earliest:.3f}"


@dataclass(frozen=True, slots=True)
class Asked:
    """When a wake-up is due, by the loop's time: we may stand still beside asking for it."""

    earliest: float
    latest: float


def within(pump: Pump, after_ms: int) -> Asked:
    loop = asyncio.get_running_loop()
    before = loop.time()
    pump.within(after_ms)
    return Asked(before + after_ms / 1000, loop.time() + after_ms / 1000)


async def test_the_earliest_wake_up_counts() -> None:
    """A later one changes nothing, an earlier one takes its place."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    pump.within(60_000)
    pump.within(1)
    pump.within(60_000)
    await ticks.until(1)
    assert ticks.count == 1
    pump.stop()


async def test_a_wake_up_that_is_asked_for_while_an_earlier_one_is_overdue_is_not_missed() -> None:
    """The turn in which a timer is due may tick before the timer itself has run; what that tick asks for must come all the same.
    It was taken for covered by the overdue timer, and a session actor without other events slept for ever."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    loop = asyncio.get_running_loop()
    pump.within(1)
    until = loop.time() + 0.003
    while loop.time() < until:
        pass  # the loop is busy, so the timer is overdue
    await ticks.come_for(within(pump, 5))
    assert ticks.count <= 2
    pump.stop()


async def test_a_later_wake_up_is_not_covered_by_an_earlier_one() -> None:
    """Who asks in milliseconds may think that the earlier one is over a moment before it comes, and asks for the next only once:
    a gateway whose clients had all gone silent never closed one of them."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    pump.within(1)
    await ticks.come_for(within(pump, 20))
    assert ticks.count <= 2
    pump.stop()


async def test_one_that_waits_behind_an_overdue_one_is_not_missed_for_a_still_later_one() -> None:
    """A turn asks for the time of its core, and then for its next look at everything; between the two an earlier timer becomes overdue.
    The core's was put behind that look, and what a member of a group had when it was lost came to nobody for a minute."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    loop = asyncio.get_running_loop()
    pump.within(1)
    asked = within(pump, 20)
    until = loop.time() + 0.003
    while loop.time() < until:
        pass
    pump.within(600_000)
    await ticks.come_for(asked)
    pump.stop()


async def test_of_several_none_is_missed() -> None:
    """In whatever order they were asked for, and however many looks at everything were asked for between them."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    asked: list[Asked] = []
    for after_ms in (30, 10, 40, 20):
        for _ in range(ASKED_MAX):
            pump.within(600_000)
        asked.append(within(pump, after_ms))
    await asyncio.gather(*map(ticks.come_for, asked))
    pump.stop()


async def test_who_is_asked_after_each_turn_has_one_wake_up() -> None:
    """A shard with nothing to do had sixteen turns where it wanted one: each turn asked for one more, beside those that others had asked
    for, and each of those did the same, for ever."""
    loop = asyncio.get_running_loop()
    ticks, times = Ticks(), list[float]()

    def tick() -> None:
        pump.next_within(40)
        times.append(loop.time())
        ticks.tick()

    pump = Pump(tick)
    for number in range(1, 9):
        pump.soon()
        await ticks.until(number)
        until = loop.time() + 0.003
        while loop.time() < until:
            pass  # so that each asks for another time
    await ticks.until(8 + 3)
    pump.stop()
    assert all(later - earlier > 0.035 for earlier, later in pairwise(times[7:])), "nothing was asked for between these"


async def test_an_earlier_wake_up_takes_the_place_of_a_later_one() -> None:
    """And a later one that of an earlier one, which comes no more."""
    ticks, loop = Ticks(), asyncio.get_running_loop()
    pump = Pump(ticks.tick)
    pump.next_within(60_000)
    pump.next_within(10)
    pump.next_within(60_000)
    pump.next_within(30)
    began = loop.time()
    await ticks.until(1)
    assert loop.time() - began > 0.025
    pump.stop()


async def test_nothing_is_ticked_after_the_end() -> None:
    """Not even what was asked for in the same turn of the loop: a shard that closed its store a moment before fell over it."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    pump.soon()
    pump.within(0)
    pump.stop()
    pump.soon()
    for _ in range(3):
        await asyncio.sleep(0)
    assert ticks.count == 0


async def test_ticks_of_one_turn_are_one() -> None:
    """However often it is asked for."""
    ticks = Ticks()
    pump = Pump(ticks.tick)
    for _ in range(5):
        pump.soon()
    await ticks.until(1)
    await asyncio.sleep(0)
    assert ticks.count == 1
    pump.stop()


async def test_what_can_wait_comes_with_the_next_tick_or_a_little_later() -> None:
    """Asked for twice it is one tick; one for another reason stands for it."""
    ticks, loop = Ticks(), asyncio.get_running_loop()
    pump = Pump(ticks.tick)
    began = loop.time()
    pump.patiently()
    pump.patiently()
    await ticks.until(1)
    assert loop.time() - began >= PATIENCE_S - 0.002
    pump.patiently()
    pump.soon()
    await ticks.until(2)
    pump.within(int(2000 * PATIENCE_S))
    await ticks.until(3)
    assert ticks.count == 3
    pump.patiently()
    pump.stop()
    pump.patiently()
    assert pump._patience is None
