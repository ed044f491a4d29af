"""How a process comes to know the rules in force: it looks for another bundle twenty times a second, and reads it in a thread.

Always holds: before a bundle was read that is valid, a process for which anything is configured has rules that allow nothing; one that
cannot be read later changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from access.bundle import Bundle
from access.rules import CLOSED, OPEN, Access
from actors.access.publishing import NAME, confirm_bundle, read_bundle, wants_access
from actors.snapshot import settings_in_force
from actors.topology import Topology

EVERY_MS: Final = 50
NONE: Final = Bundle(0)
"""Stands for a bundle where there is none."""

Taken = Callable[[Bundle, Access], None]


class AccessWatch:
    """Tells `taken` on the loop what is in force: once within `start`, then whenever there is another version."""

    def __init__(self, run_dir: Path, taken: Taken, every_ms: int = EVERY_MS, *, name: str = "") -> None:
        """name: of a process for which `holdfast reload` waits."""
        self._run_dir = run_dir
        self._name = name
        self._path = run_dir / NAME
        self._taken = taken
        self._every_s = every_ms / 1000
        self._seen: tuple[int, int] | None = None
        self._version = -1
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the process has been told.  Called again, it tells again."""
        self._version = -1
        if not await self._look():
            closed = await asyncio.to_thread(self._is_wanted)
            self._taken(NONE, CLOSED if closed else OPEN)
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if self._signature() != self._seen:
                try:
                    await self._look()
                except Exception:
                    # Whatever it is, rules that come later have to be seen.
                    structlog.get_logger().error("access.not_taken", exc_info=True)

    async def _look(self) -> bool:
        """Whether a bundle was there to be taken."""
        seen = self._signature()
        found = await asyncio.to_thread(self._read)
        if found is None:
            return False
        # Only now: what could not be read is tried again.
        self._seen = seen
        bundle, access = found
        if bundle.version != self._version:
            self._version = bundle.version
            structlog.get_logger().info("access.changed", version=bundle.version)
            self._taken(bundle, access)
            if self._name:
                await asyncio.to_thread(self._confirm, bundle.version)
        return True

    def _read(self) -> tuple[Bundle, Access] | None:
        bundle = read_bundle(self._run_dir)
        if bundle is None:
            return None
        if bundle.version == self._version:
            return bundle, OPEN  # It is the one that was taken; only its problems are others.
        try:
            return bundle, bundle.access()
        except ValueError as error:
            structlog.get_logger().error("access.refused", version=bundle.version, cause=str(error))
            return None

    def _confirm(self, version: int) -> None:
        try:
            confirm_bundle(self._run_dir, self._name, version)
        except OSError as error:
            structlog.get_logger().warning("access.not_confirmed", version=version, cause=str(error))

    def _is_wanted(self) -> bool:
        try:
            topology = Topology.from_json((self._run_dir / "topology.json").read_text(encoding="utf-8"))
            return wants_access(settings_in_force(topology))
        except (OSError, ValueError):
            return True  # Who cannot be told what is wanted takes it that something is.

    def _signature(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns)
