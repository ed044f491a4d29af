"""How fast a bridge may go: when what has failed may be tried again, later after each failure in a row and a part of it by chance; and
how many messages may go now.

Without a clock: its owner says what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        if now_ms >= self.not_before_ms:
            # What fails while all wait already was begun before the last failure.
            self.failures += 1
        wait_ms = min(self._retry_max_ms, self._retry_min_ms << min(self.failures - 1, 30)) if self.failures else 0
        if final:
            wait_ms = self._retry_max_ms
        wait_ms = max(retry_after_ms, round(wait_ms * (0.5 + self._rng.random() / 2)))
        self.not_before_ms = max(self.not_before_ms, now_ms + wait_ms)

    def worked(self) -> None:
        self.failures = self.not_before_ms = 0

    def breaker(self, now_ms: int) -> Breaker:
        if self.failures < self._breaker_after:
            return "closed"
        return "open" if now_ms < self.not_before_ms else "trying"


@dataclass(slots=True)
class Rate:
    """Tokens of messages that may go now, at most those of a second.  per_s: 0: as many as come.  tokens: what it begins with."""

    per_s: int
    tokens: float = 0.0
    at_ms: int = 0

    def allowed(self, now_ms: int, most: int) -> int:
        """How many messages may go, of so many."""
        if not self.per_s:
            return most
        self.tokens = min(float(self.per_s), self.tokens + (now_ms - self.at_ms) * self.per_s / 1000)
        self.at_ms = now_ms
        return min(most, int(self.tokens))

    def took(self, count: int) -> None:
        self.tokens -= count

    def next_ms(self, now_ms: int) -> int:
        """When there may be one, where there is none."""
        return now_ms + max(1, -(-1000 // self.per_s))
