"""How long a shard's loop stands still, and over what: every call that makes, seals, folds, drops or erases is timed, and a probe
that wants to run every few milliseconds says how late it was.

A stop is what the call took by the clock, less what it waited for a core (/proc/thread-self/schedstat): that is the machine's business and
not the call's, and both are told. The calls are wrapped from outside, on the one store of one server; what is shipped knows nothing of it.
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
        self._schedstat = open("/proc/thread-self/schedstat", "rb", buffering=0)  # noqa: SIM115  # read for as long as the process lives
        store = server._store
        for kind in KINDS:
            setattr(store, kind, self._timed(kind, getattr(store, kind)))
        # What of it is the engine's is told apart from the store's own work.
        engine = server._engine
        engine.create_family = self._timed("create_family", engine.create_family)  # type: ignore[method-assign]
        engine.drop_family = self._timed("drop_family", engine.drop_family)  # type: ignore[method-assign]
        engine.write = self._timed("write", engine.write)  # type: ignore[method-assign]
        server._pump._tick = self._timed("turn", server._pump._tick)
        self._probe = asyncio.get_running_loop().create_task(self._probed())

    def take(self) -> dict[str, dict[str, float]]:
        """Of each kind since the last time: how many, the longest and the median stop, and the longest by the clock, in ms."""
        found = {}
        for kind, spans in self._spans.items():
            stops = sorted(each[0] - each[1] for each in spans)
            found[kind] = {
                "count": len(spans),
                "longest_ms": stops[-1] * 1000,
                "median_ms": stops[len(stops) // 2] * 1000,
                "clock_ms": max(each[0] for each in spans) * 1000,
            }
        self._spans = {}
        return found

    def _waited_s(self) -> float:
        """What this thread has waited for a core since it began."""
        self._schedstat.seek(0)
        return int(self._schedstat.read(100).split()[1]) / 1e9

    def _timed(self, kind: str, call: Callable[P, R]) -> Callable[P, R]:
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            waited, began = self._waited_s(), time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._note(kind, time.perf_counter() - began, self._waited_s() - waited)

        return timed

    def _note(self, kind: str, clock_s: float, waited_s: float) -> None:
        self._spans.setdefault(kind, []).append((clock_s, waited_s))

    async def _probed(self) -> None:
        while True:
            waited, began = self._waited_s(), time.perf_counter()
            await asyncio.sleep(PROBE_S)
            self._note("probe", time.perf_counter() - began - PROBE_S, self._waited_s() - waited)
