"""How long a shard's loop stands still, and over what: every call that makes, seals, folds, drops or erases is timed, and a probe
that wants to run every few milliseconds says how late it was.

The calls are wrapped from outside, on the one store of one server; what is shipped knows nothing of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from actors.shard import ShardServer

P = ParamSpec("P")
R = TypeVar("R")

KINDS = ("create_next", "roll", "idle_work", "drop", "erase")
PROBE_S = 0.002


class Watch:
    def __init__(self, server: ShardServer) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = {}
        store = server._store
        for kind in KINDS:
            setattr(store, kind, self._timed(kind, getattr(store, kind)))
        # What of a record is the engine's is told apart from the store's own work.
        engine = server._engine
        engine.create_family = self._timed("create_family", engine.create_family)  # type: ignore[method-assign]
        engine.drop_family = self._timed("drop_family", engine.drop_family)  # type: ignore[method-assign]
        engine.write = self._timed("write", engine.write)  # type: ignore[method-assign]
        server._pump._tick = self._timed("turn", server._pump._tick)
        self._probe = asyncio.get_running_loop().create_task(self._probed())

    def take(self) -> dict[str, dict[str, float]]:
        """Of each kind since the last time: how many, the longest by the clock and by its own CPU, and their median, in ms."""
        found = {}
        for kind, spans in self._spans.items():
            wall = sorted(each[0] for each in spans)
            found[kind] = {
                "count": len(spans),
                "longest_ms": wall[-1],
                "longest_cpu_ms": max(each[1] for each in spans),
                "median_ms": wall[len(wall) // 2],
            }
        self._spans = {}
        return found

    def _timed(self, kind: str, call: Callable[P, R]) -> Callable[P, R]:
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            began, used = time.perf_counter(), time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self._note(kind, time.perf_counter() - began, time.thread_time() - used)

        return timed

    def _note(self, kind: str, wall_s: float, cpu_s: float) -> None:
        self._spans.setdefault(kind, []).append((wall_s * 1000, cpu_s * 1000))

    async def _probed(self) -> None:
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(PROBE_S)
            self._note("probe", time.perf_counter() - began - PROBE_S, time.thread_time() - used)
