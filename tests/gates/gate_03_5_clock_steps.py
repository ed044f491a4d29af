"""Gate 5 of issue 3: the wall clock is set by -1 h, +1 h and +10 years: in a boot, over a restart, over a reboot.

Nothing may be dropped or expire early, and time may not stop: sessions with unread messages, messages with a Message Expiry in the
store and in a gateway, retained ones, delayed wills, generations. Steps are told, in the log and by `storage info`. A clock that
nobody can believe after a reboot suspends expiry until `accept-clock`. The processes see moved clocks (tests.clockshim).

An hour ahead over a reboot is what a machine shows that was off for an hour, and nothing can tell the two apart: so it counts as
an hour, and only what had less than that ends. An ordinary reboot suspends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.broker.clock_steps import HOUR_S, MARK_S, TEN_YEARS_S, ClockFault, Planted, Queue, Stepped, stepped
from tests.gates.gate import GateFailed, Scale

LIMIT_S = 900
STEPS_S = {"hour-back": -HOUR_S, "hour-ahead": HOUR_S, "ten-years-ahead": TEN_YEARS_S}
NOT_BELIEVED = ("hour-back", "ten-years-ahead")
RETENTION_S = 90
OF_A_RESTART_S = 60.0
"""Time that does not count after a reboot that is not believed: the machine was off, and nobody knows for how long."""
OFF_S = 60.0


async def run(scale: Scale) -> str:
    cases = 0
    try:
        async with stepped({"durable_sessions.message_retention_period": f"{RETENTION_S}s"}) as it:
            cases += await within_a_boot(it, scale)
        async with stepped({"durable_sessions.message_retention_period": f"{RETENTION_S}s"}) as it:
            cases += await over_reboots(it, scale)
    except ClockFault as fault:
        raise GateFailed(str(fault)) from fault
    return f"{cases} cases: nothing early, nothing stands still, every step told; reboots that are not believed wait for accept-clock"


def named(where: str, steps: Iterable[str], scale: Scale) -> list[tuple[str, int]]:
    """The last of them is enough for development."""
    found = [(f"{where}-{step}", STEPS_S[step]) for step in steps]
    return found[-1:] if scale.quick else found


async def within_a_boot(it: Stepped, scale: Scale) -> int:
    """While it runs, and while it is down; one after the other, so that steps add up."""
    told = 0
    planted: Planted | None = None
    for name, step_s in named("running", STEPS_S, scale):
        planted, queue = await it.plant(name), Queue(f"{name}-queue")
        await queue.fill(it.port)
        it.clocks.step(step_s)
        told += 1
        await it.until_alarms_are(told, told, 0)
        await queue.drain()
        await asyncio.gather(it.kept(planted), it.goes_on(name))
        await it.until_suspended_is(False)
    for name, step_s in named("restart", STEPS_S, scale):
        planted = await it.plant(name)
        await it.restart(step_s=step_s)
        told += 1
        await it.until_alarms_are(told, told, 0)
        await asyncio.gather(it.kept(planted), it.goes_on(name))
        await it.until_suspended_is(False)
    assert planted is not None
    await it.is_dropped(planted, RETENTION_S)
    return told


async def over_reboots(it: Stepped, scale: Scale) -> int:
    """Those that are not believed, then those that are."""
    told = 0
    planted: Planted | None = None
    for name, step_s in named("reboot", NOT_BELIEVED, scale):
        planted = await it.plant(name)
        await it.restart(step_s=step_s, reboot=True)
        told += 1
        kept = it.kept(planted, unsure_s=MARK_S + OF_A_RESTART_S)
        await asyncio.gather(it.until_alarms_are(told, told, told), it.until_suspended_is(True), kept)
        await it.waits_until_accepted(name)
    assert planted is not None
    await it.is_dropped(planted, RETENTION_S, MARK_S + OF_A_RESTART_S)
    await believed(it, told)
    return told + 2


async def believed(it: Stepped, told: int) -> None:
    """The time that the machine was off counts, and nothing is told."""
    long_enough = {"durable_sessions.message_retention_period": "1d"}
    for name, off_s in (("ordinary", OFF_S), ("ahead", float(HOUR_S))):
        planted, over = await it.plant(name), await it.plant(f"{name}-over", int(off_s / 2))
        await it.restart(step_s=off_s, reboot=True, gently=True, settings=long_enough)
        await it.until_suspended_is(False)
        await it.kept(planted, off_s=off_s)
        await it.is_over(over)
        await it.goes_on(name)
        await it.until_alarms_are(told, told, told)
