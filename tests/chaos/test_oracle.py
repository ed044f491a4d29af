"""The whole loss oracle, over sockets, against a broker that breaks one promise: it says which."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import get_args

import pytest

from chaos.addresses import Address, Login
from chaos.ledger import KINDS
from chaos.oracle import CannotBegin, Oracle, Plan
from chaos.verdict import Verdict
from tests.chaos.broken_broker import BrokenBroker, Flaw

pytestmark = pytest.mark.slow
LASTS_S = 1.6
"""Who comes and goes has gone once, and somebody has looked at the retained message."""
SENT_MIN = 100
SENT_WITHIN_S = 60.0
"""A busy machine takes longer than LASTS_S to send so many."""


async def verdict_of(broker: BrokenBroker, settle_s: float = 1.0) -> Verdict:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plan = Plan(Login((Address("127.0.0.1", port), Address("127.0.0.1", port))), LASTS_S, per_second=50, settle_s=settle_s)
    oracle = Oracle(plan)
    verdict: Verdict | None = None
    try:
        await oracle.begin()
        await going_on(oracle)
        verdict = await oracle.judge()
    finally:
        verdict = await oracle.clean_up(verdict)
        server.close()
        if broker.connections:
            await asyncio.wait(broker.connections)
    assert verdict is not None and verdict.left_behind == () and verdict.sent > SENT_MIN
    return verdict


async def going_on(oracle: Oracle) -> None:
    """For LASTS_S, and until more than SENT_MIN are sent."""
    deadline = time.monotonic() + SENT_WITHIN_S
    await passes(LASTS_S)
    while len(oracle.ledger.sent) <= SENT_MIN and time.monotonic() < deadline:
        await passes(0.05)


async def passes(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


def broken(verdict: Verdict) -> set[str]:
    return {kind for kind, count in verdict.counts.items() if count}


async def test_of_an_honest_broker_nothing_is_said_and_nothing_is_left() -> None:
    """Clients move between its addresses all the time."""
    broker = BrokenBroker("")
    verdict = await verdict_of(broker)
    assert verdict.kept and verdict.complete and verdict.lines()[0].startswith("KEPT: nothing was lost of ")
    assert verdict.acknowledged == verdict.sent and verdict.reconnects > 2 and verdict.looks > 1
    assert broker.sessions == {} and broker.retained == {}


@pytest.mark.parametrize("flaw", [flaw for flaw in get_args(Flaw) if flaw in KINDS])
async def test_a_broken_promise_is_found_and_named(flaw: Flaw) -> None:
    """Each of those that it judges, and no other with it."""
    verdict = await verdict_of(BrokenBroker(flaw))
    assert broken(verdict) >= {flaw} and not verdict.kept
    # What was changed on its way did not come either.
    assert broken(verdict) <= {flaw} | ({"lost"} if flaw in ("stranger", "forgotten") else set())
    assert verdict.lines()[0].startswith("LOST: " if verdict.counts["lost"] else "BROKEN: nothing was lost")


@pytest.mark.parametrize("counted", [0, 3])
async def test_what_gets_no_answer_is_not_proven(counted: int) -> None:
    """Nobody is owed it, and nobody can say that all is well; also when its publisher goes on elsewhere and sends it again."""
    # What a busy machine takes its time to deliver is not lost: it has stood still for 0.3 s in the middle of this.
    verdict = await verdict_of(BrokenBroker("silent", counted), settle_s=3.0)
    assert verdict.kept and not verdict.complete and verdict.unanswered > 0
    assert verdict.lines()[0].startswith("NOT PROVEN: ")


async def test_what_is_refused_is_owed_to_nobody() -> None:
    """It was no secret."""
    verdict = await verdict_of(BrokenBroker("refused"))
    assert verdict.kept and verdict.complete and verdict.refused > 0 and verdict.sent == verdict.acknowledged + verdict.refused


async def test_who_is_not_let_in_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence, after a while."""
    monkeypatch.setattr("chaos.oracle.BEGIN_S", 0.3)
    monkeypatch.setattr("chaos.oracle.CLEAN_UP_S", 0.1)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    oracle = Oracle(Plan(Login((Address("127.0.0.1", server.sockets[0].getsockname()[1]),)), 1.0))
    with pytest.raises(CannotBegin, match=r"did not let the oracle in within 0 s \(.*nothing was answered"):
        await oracle.begin()
    await oracle.clean_up()
    server.close()
