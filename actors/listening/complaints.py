"""What many peers may do wrong is logged once a minute for each door and kind, with how often it was."""

from __future__ import annotations

import structlog

log = structlog.get_logger(__name__)

EVERY_MS = 60_000


class Complaints:
    def __init__(self, listener: str) -> None:
        self._listener = listener
        self.counts: dict[str, int] = {}
        """Since the start, by kind."""
        self._said: dict[str, tuple[int, int]] = {}

    def add(self, kind: str, now_ms: int, *, peer: str, cause: str) -> None:
        """peer and cause: of this time, as the example."""
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        said_ms, said_count = self._said.get(kind, (-EVERY_MS, 0))
        if now_ms - said_ms >= EVERY_MS:
            self._said[kind] = (now_ms, count)
            log.info(f"listener.{kind}", listener=self._listener, times=count - said_count, peer=peer, cause=cause)
