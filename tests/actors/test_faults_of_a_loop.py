"""A fault in a callback, which no caller sees, is in the log."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from actors.fatal import log_faults_of_loop


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
