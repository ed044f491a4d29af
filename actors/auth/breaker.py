"""A breaker: after FAILURES in a row nothing is asked for OPEN_S; then one is, and what becomes of it decides.

closed ──FAILURES in a row──> open ──OPEN_S──> trying one ──it fails──> open
   ^                                              └──it succeeds──> closed
"""

from __future__ import annotations

from typing import Final

FAILURES: Final = 5
OPEN_S: Final = 10.0


class Breaker:
    def __init__(self) -> None:
        self._failed = 0
        self._until_s: float | None = None
        self._trying = False

    @property
    def is_open(self) -> bool:
        return self._until_s is not None

    def allows(self, now_s: float) -> bool:
        """Whether one may be asked now; who is told so asks, and says what became of it."""
        if self._until_s is None:
            return True
        if self._trying or now_s < self._until_s:
            return False
        self._trying = True
        return True

    def succeeded(self) -> None:
        self._failed, self._until_s, self._trying = 0, None, False

    def failed(self, now_s: float) -> None:
        """Of those that were asked before it opened, nothing more is learned."""
        if self._until_s is not None and not self._trying:
            return
        self._failed += 1
        if self._trying or self._failed >= FAILURES:
            self._until_s, self._trying = now_s + OPEN_S, False
