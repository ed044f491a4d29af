"""When a connection that has failed may be tried again: later after each failure in a row, and a part of it by chance.

Without a clock: its owner says what time it is.
"""

from __future__ import annotations

from random import Random
from typing import Literal

Breaker = Literal["closed", "open", "trying"]


class Pace:
    """made -> (failed -> ... -> worked)*."""

    def __init__(self, retry_min_ms: int, retry_max_ms: int, breaker_after: int, rng: Random) -> None:
        self._retry_min_ms, self._retry_max_ms = retry_min_ms, retry_max_ms
        self._breaker_after = breaker_after
        self._rng = rng
        self.failures = 0
        """In a row."""
        self.not_before_ms = 0

    def failed(self, now_ms: int, *, retry_after_ms: int = 0, final: bool = False) -> None:
        """final: somebody has to do something, so that the longest wait is soon enough."""
        self.failures += 1
        wait_ms = self._retry_max_ms if final else min(self._retry_max_ms, self._retry_min_ms << min(self.failures - 1, 30))
        self.not_before_ms = now_ms + max(retry_after_ms, round(wait_ms * (0.5 + self._rng.random() / 2)))

    def worked(self) -> None:
        self.failures = self.not_before_ms = 0

    def breaker(self, now_ms: int) -> Breaker:
        if self.failures < self._breaker_after:
            return "closed"
        return "open" if now_ms < self.not_before_ms else "trying"
