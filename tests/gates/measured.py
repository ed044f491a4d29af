"""Runs a benchmark of our own beside a gate, in a process of its own.

Always holds: when it is over, however it ended, the brokers it started are gone. It is asked to end (SIGTERM), which it does through its
own `finally`, before it is killed; killed at once it would leave them.
"""

from __future__ import annotations

import asyncio
import sys

from tests.needs import ROOT

STOPPING_S = 70


async def measured(module: str, within_s: float, *words: str) -> str:
    """All it wrote, on either stream. Raises TimeoutError; its exit code means nothing here, because gates judge by records."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await asyncio.wait_for(process.communicate(), within_s)
    except TimeoutError:
        raise TimeoutError(f"{module} had not ended after {within_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.communicate(), STOPPING_S)
            except TimeoutError:
                process.kill()
                await process.wait()
    return out.decode(errors="replace")
