"""Deadlines in coarse buckets: thousands of connections, a handful of list operations per second.

A deadline is given as a delay and counts from the next turn of the loop, because only that one tells the time; between
two turns the clock of the core may be old.  Nothing is ever cancelled: whoever takes a token checks whether it still
means something.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

BUCKET_MS = 250


class Wheel(Generic[T]):
    __slots__ = ("_buckets", "_due", "_fresh")

    def __init__(self) -> None:
        self._buckets: dict[int, list[T]] = {}
        self._due: list[int] = []
        self._fresh: list[tuple[int, T]] = []

    def after(self, delay_ms: int, token: T) -> None:
        """Give the token back not earlier than delay_ms after the next turn, and at most one bucket later."""
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
        """The tokens whose time has come, in the order of their deadlines' buckets, then of their making."""
        for delay_ms, token in self._fresh:
            self.at(now_ms + delay_ms, token)
        self._fresh.clear()
        reached: list[T] = []
        while self._due and self._due[0] * BUCKET_MS <= now_ms:
            reached += self._buckets.pop(heappop(self._due))
        return reached

    def next_ms(self) -> int | None:
        """When the next bucket is due, in the clock of `turn`."""
        return self._due[0] * BUCKET_MS if self._due else None
