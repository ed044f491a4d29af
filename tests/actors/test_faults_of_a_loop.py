"""A fault in a callback, which no caller sees, is in the log."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

import actors.fatal
from actors.fatal import dies_with, log_faults_of_loop


async def test_what_a_callback_raises_is_logged_with_its_trace() -> None:
    """As an error, once, and the loop goes on."""

    def broken() -> None:
        raise ValueError("a fault of ours")

    loop = asyncio.get_running_loop()
    log_faults_of_loop()
    try:
        with capture_logs() as lines:
            loop.call_soon(broken)
            await asyncio.sleep(0.01)
    finally:
        loop.set_exception_handler(None)
    (line,) = lines
    assert (line["event"], line["log_level"], line["cause"]) == ("loop.fault", "error", "ValueError('a fault of ours')")
    assert "in broken" in line["trace"]


async def test_a_process_does_not_outlive_what_goes_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that raises ends it, with the trace in the log; one that is cancelled, or returns, does not."""
    ends: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(actors.fatal, "die", lambda event, **story: ends.append((event, story)))

    async def broken() -> None:
        raise ValueError("a fault of ours")

    async def done() -> None: ...

    loop = asyncio.get_running_loop()
    falls, returns, waits = loop.create_task(broken()), loop.create_task(done()), loop.create_task(asyncio.Event().wait())
    for task in (falls, returns, waits):
        dies_with(task, "looking")
    await asyncio.wait([falls, returns])
    waits.cancel()
    await asyncio.wait([waits])
    ((event, story),) = ends
    assert (event, story["during"], story["cause"]) == ("process.broken", "looking", "ValueError('a fault of ours')")
    assert "in broken" in str(story["trace"])
