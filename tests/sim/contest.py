"""What one home does when a client id is taken by one connection from another, counted beside the core's own count.

slowed      with takeovers_max of them in the last 30 s the next one does not come within a second of the last one
served      who is told to wait has changed nothing: the connection that is there is still the newest, and is not told otherwise
reported    each wait that begins is told to people in the turn in which it begins
"""

from __future__ import annotations

from typing import Any

from shards.core import ShardCore
from shards.events import Contended
from shards.frames import Connect, Connected

WINDOW_MS = 30_000
WAIT_MS = 1_000


class Contest:
    def __init__(self, core: ShardCore) -> None:
        """Hears every CONNECT of this core from now on, whatever was planted there before."""
        self._homes = core._homes
        self._taken_ms: dict[bytes, list[int]] = {}
        self._waiting: dict[bytes, None] = {}
        """Clients of which somebody was told to wait, and nobody has taken one over since."""
        self._unreported: dict[bytes, None] = {}
        homes: Any = self._homes
        self._connect = homes.connect
        homes.connect = self._watched

    def _watched(self, draft: Any, entry: Connect, gateway: str, age_ms: int, out: Any, *rest: Any) -> Connected:
        homes, client = self._homes, entry.client
        older = homes.live.get(client)
        limit = homes.contention.takeovers_max
        counts = bool(limit) and older is not None and older.gateway not in homes.lost
        reply: Connected = self._connect(draft, entry, gateway, age_ms, out, *rest)
        if not counts or older is None:
            return reply
        if reply.retry_ms:
            told = [conn for each in out.superseded.values() for named, conn in each if named == client]
            assert homes.live.get(client) is older and older.conn not in told, f"{client!r} was to be served while somebody waits"
            if client not in self._waiting:
                self._waiting[client] = self._unreported[client] = None
        elif not reply.refused:
            self._taken(client, age_ms, limit)
        return reply

    def _taken(self, client: bytes, age_ms: int, limit: int) -> None:
        self._waiting.pop(client, None)
        taken_ms = [each for each in self._taken_ms.get(client, []) if each > age_ms - WINDOW_MS]
        if len(taken_ms) >= limit:
            assert age_ms - taken_ms[-1] >= WAIT_MS, (
                f"{client!r} was taken over at {age_ms} ms, and {len(taken_ms)} times before: {taken_ms}"
            )
        self._taken_ms[client] = [*taken_ms, age_ms]

    def reported(self, notice: Contended) -> None:
        assert notice.client in self._unreported, f"{notice.client!r} is told to be contended, and nobody has to wait"
        del self._unreported[notice.client]

    def check(self) -> None:
        """After a turn."""
        assert not self._unreported, f"nobody is told that {list(self._unreported)} are contended"
