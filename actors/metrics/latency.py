"""Times in fixed buckets, and means over the last minutes: cheap enough to be noted on a loop, once for a batch and never for a message."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final

BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds; what takes longer is in a bucket without a bound."""
WINDOW_S: Final = 300.0
STEP_S: Final = 5.0


class Latency:
    """How often something took how long, since the start."""

    __slots__ = ("buckets", "count", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        """Those above the bound before and up to their own."""
        self.sum = 0.0
        self.count = 0

    def note(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds
        self.count += 1


class Recent:
    """The mean of what was noted in the last five minutes, from sums that only grow."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[float, int, float]] = deque()

    def mean(self, now_s: float, count: int, total: float) -> float:
        """count, total: since the start. 0 when there was nothing. To be asked regularly: as often as that, and every STEP_S, it learns."""
        kept = self._kept
        if not kept:
            # What is there already is from before anybody looked, which was at most a second ago.
            kept.append((now_s, 0, 0.0))
        while len(kept) > 1 and now_s - kept[1][0] >= WINDOW_S:
            kept.popleft()
        _, count_then, total_then = kept[0]
        if now_s - kept[-1][0] >= STEP_S:
            kept.append((now_s, count, total))
        return (total - total_then) / (count - count_then) if count > count_then else 0.0
