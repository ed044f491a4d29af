"""The wall clock of a broker of processes is set, and the machine boots with it wrong; the whole table is gate 3.5."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.clock_steps import HOUR_S, MARK_S, TEN_YEARS_S, Queue, stepped

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]


async def test_nothing_goes_early_by_a_wall_clock_that_was_set() -> None:
    """Ten years ahead while it runs, and after a reboot an hour back: that one waits until it is accepted."""
    async with stepped() as it:
        planted, queue = await it.plant("running"), Queue("queue")
        await queue.fill(it.port)
        it.clocks.step(TEN_YEARS_S)
        await it.until_logged("shard.clock_stepped", 0)
        await asyncio.gather(it.kept(planted), it.goes_on("running"), queue.drain())
        planted = await it.plant("reboot")
        await it.restart(step_s=-HOUR_S, reboot=True)
        await asyncio.gather(it.until_alarms_are(2, 2, 1), it.until_suspended_is(True), it.kept(planted, unsure_s=MARK_S + 30))
        await it.waits_until_accepted("reboot")
