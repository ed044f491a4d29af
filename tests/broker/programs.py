"""A program that is run beside a broker to its end, in a process of its own: a load, a client library, a foreign client.

Always holds: when `run_program` is over, however it ends, the process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tests.needs import ROOT


class NotEnded(Exception):
    """A program took longer than it was given."""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: bytes
    err: bytes

    @property
    def last_words(self) -> str:
        """The end of what it wrote to stderr, in one line."""
        return " ".join(self.err.decode(errors="replace").split())[-300:]


async def run_program(name: str, command: Sequence[str], within_s: float, given: bytes = b"") -> Ran:
    """given: what it reads from stdin. Raises NotEnded."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        out, err = await asyncio.wait_for(process.communicate(given), within_s)
    except TimeoutError:
        raise NotEnded(f"{name} had not ended after {within_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ran(process.returncode, out, err)
