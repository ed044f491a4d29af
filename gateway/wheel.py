"""Deadlines in coarse buckets: thousands of connections, a handful of list operations per second.

A deadline is given as a delay and counts from the next turn of the loop, because only that one tells the time; between
two turns the clock of the core may be old.  Nothing is ever cancelled: whoever takes a token checks whether it still
means something.

Deadlines of connections that came together are due together: a turn gives TOKENS_MAX of them back, and the next one goes on,
so that a thousand who are late do not hold up those who are not.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

BUCKET_MS = 250
TOKENS_MAX = 32
"""In one turn."""


class Wheel(Generic[T]):
    __slots__ = ("_buckets", "_due", "_fresh", "_reached")

    def __init__(self) -> None:
        self._buckets: dict[int, list[T]] = {}
        self._due: list[int] = []
        self._fresh: list[tuple[int, T]] = []
        self._reached: deque[T] = deque()
        """Due, and not given back yet."""

    def after(self, delay_ms: int, token: T) -> None:
        """Give the token back not earlier than delay_ms after the next turn, and one bucket later, or as soon as those before it are."""
        self._fresh.append((delay_ms, token))

    def at(self, due_ms: int, token: T) -> None:
        """Give the token back not earlier than due_ms, in the clock of `turn`: for those who know what time it is."""
        bucket = -(-due_ms // BUCKET_MS)
        held = self._buckets.get(bucket)
        if held is None:
            self._buckets[bucket] = [token]
            heappush(self._due, bucket)
        else:
            held.append(token)

    def turn(self, now_ms: int) -> list[T]:
        """TOKENS_MAX at most of those whose time has come, in the order of their deadlines' buckets, then of their making."""
        if self._fresh:
            for delay_ms, token in self._fresh:
                self.at(now_ms + delay_ms, token)
            self._fresh.clear()
        due, reached = self._due, self._reached
        while due and due[0] * BUCKET_MS <= now_ms:
            reached += self._buckets.pop(heappop(due))
        return [reached.popleft() for _ in range(min(len(reached), TOKENS_MAX))] if reached else []

    def next_ms(self) -> int | None:
        """When the next token is due, in the clock of `turn`; it may be long ago."""
        if self._reached:
            return 0
        return self._due[0] * BUCKET_MS if self._due else None
