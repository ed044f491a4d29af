"""A seeded world: one thread, a clock of its own, and what happens in the order in which it is due."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

NOTES_MAX = 400


class Violation(AssertionError):
    """A promise is broken."""


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"replicas {seed}")
        self.now_ms = 0
        self.healing = False
        self.happened: Counter[str] = Counter()
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
        self._digest = hashlib.blake2b(digest_size=8)
        self._queue: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0

    def later(self, delay_ms: int, action: Callable[..., None], *args: Any) -> None:
        self._serial += 1
        heappush(self._queue, (self.now_ms + delay_ms, self.rng.random(), self._serial, action, args))

    def step(self) -> bool:
        """The next thing that is due, whenever that is."""
        if not self._queue:
            return False
        self.now_ms, _, _, action, args = heappop(self._queue)
        action(*args)
        return True

    def run(self, until_ms: int, done: Callable[[], bool] | None = None) -> bool:
        """Whether `done` said so in time."""
        while self._queue and self._queue[0][0] <= until_ms:
            self.step()
            if done is not None and done():
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return False

    def between(self, low: int, high: int) -> int:
        return low + int(self.rng.random() * (high - low + 1))

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability

    def note(self, who: str, what: str) -> None:
        self._digest.update(f"{self.now_ms} {who} {what}".encode())
        self.notes.append(f"{self.now_ms:>7} {who:<9} {what}")

    def history(self) -> str:
        """A digest of everything noted."""
        return self._digest.hexdigest()
