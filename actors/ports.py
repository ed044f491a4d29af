"""What the controller asks of the servers it does not share a process with, and the same over Ray.

A Ray error becomes one of ours here and nowhere else:
- Unavailable: no answer; the server may be starting again, and what was asked may or may not have happened. Ask again.
- Gone: Ray has given the actor up. Only creating it anew helps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, RayError

from actors.topology import Health

Answer = TypeVar("Answer")


class Unavailable(Exception):
    """The server did not answer; it may yet."""


class Gone(Exception):
    """The server will not come back by itself."""


class Member(Protocol):
    """A server elsewhere. Every call may be repeated: each is idempotent."""

    async def begin(self, within: float) -> None:
        """Start it if it has not started; returns when it has."""

    async def stop(self, within: float) -> None: ...

    async def health(self, within: float) -> Health: ...

    async def reconfigure(self, version: int, config: str, within: float) -> int:
        """actors.host.Host.reconfigure."""

    def end(self) -> None:
        """End the process, for good."""


class RayMember:
    """A Member that lives in a Ray actor made by actors.deploy.  part: its name, where it shares the actor with others."""

    def __init__(self, handle: ActorHandle, *part: str) -> None:
        self._handle = handle
        self._part = part

    async def begin(self, within: float) -> None:
        await _answer(self._handle.begin.remote(*self._part), within)

    async def stop(self, within: float) -> None:
        await _answer(self._handle.stop.remote(*self._part), within)

    async def health(self, within: float) -> Health:
        return await _answer(self._handle.health.remote(*self._part), within)

    async def reconfigure(self, version: int, config: str, within: float) -> int:
        return await _answer(self._handle.reconfigure.remote(*self._part, version, config), within)

    def end(self) -> None:
        """End the process, for good, and all parts in it."""
        ray.kill(self._handle, no_restart=True)


async def _answer(call: Awaitable[Answer], within: float) -> Answer:
    try:
        return await asyncio.wait_for(call, within)
    except TimeoutError:
        raise Unavailable(f"no answer within {within} s") from None
    except ActorDiedError as error:
        raise Gone(first_line(error)) from error
    except RayError as error:
        raise Unavailable(first_line(error)) from error


def first_line(error: BaseException) -> str:
    """An error as one sentence: Ray's own run over pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
