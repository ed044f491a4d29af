"""Log lines that any peer can cause: LINES_PER_S of a kind, and the next one says how many were left out."""

from __future__ import annotations

from typing import Final

import structlog

log = structlog.get_logger(__name__)

LINES_PER_S: Final = 10


class Sparing:
    """One kind of line; in seconds as its caller's clock has them."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def info(self, now_ms: int, **fields: object) -> None:
        """`left_out` is how many there were since the line before that had to be kept back."""
        second = now_ms // 1_000
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= LINES_PER_S:
            self._left_out += 1
            return
        self._lines += 1
        if self._left_out:
            fields["left_out"] = self._left_out
            self._left_out = 0
        log.info(self._event, **fields)
