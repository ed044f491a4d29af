"""The other end of benchmarks.shard.host: starts the process of a shard, asks it, kills it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from actors.topology import Topology

T = TypeVar("T")


class HostFailed(Exception):
    """The process of the shard ended, or said nothing in time."""


class Host:
    """Life cycle: started -> asked any number of times -> killed, or ended."""

    def __init__(self, topology: Topology, *options: str) -> None:
        self._topology = topology
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, limit_s: float = 60.0) -> float:
        """Returns when the shard answers: the seconds since its process was started."""
        file = self._topology.run_dir / "topology.json"
        file.write_text(self._topology.to_json(), encoding="utf-8")
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.shard.host", str(file), *self._options,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                cwd=Path(__file__).resolve().parents[2],
            )  # fmt: skip
        await self._line(limit_s)
        return time.monotonic() - began

    @property
    def log(self) -> Path:
        return self._topology.data_dir / "host.log"

    async def ask(self, limit_s: float = 60.0) -> dict[str, Any]:
        """Its use of the machine, its counters, its stops since the last time."""
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.write(b"\n")
        return await self._line(limit_s)

    async def during(self, work: Coroutine[None, None, T]) -> T:
        """What this comes to. Raises HostFailed when the process ends before: whoever asks it would wait for ever."""
        assert self._process is not None
        working, living = asyncio.ensure_future(work), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((working, living), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise HostFailed(f"the shard's process ended: {self._last_words()}")
            return working.result()
        finally:
            working.cancel()
            living.cancel()

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-500:]

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def end(self, limit_s: float = 60.0) -> None:
        """As an operator ends it: what it has taken is committed, the store is closed."""
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), limit_s)

    async def _line(self, limit_s: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), limit_s)
        if not line:
            raise HostFailed(f"the shard's process ended: {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found
