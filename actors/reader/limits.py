"""How much the reader does at a time: slots for scans, and bytes a second of all of them together.

For threads. Both may be changed while they are in use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST_S = 0.25
"""What may be sent at once after a pause."""


class Slots:
    """At most so many at a time; who comes late waits, for a while."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self.count = count
        self.taken = 0

    def change(self, count: int) -> None:
        with self._changed:
            self.count = count
            self._changed.notify_all()

    def take(self, within_s: float) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self.taken < self.count, within_s):
                return False
            self.taken += 1
            return True

    def give(self) -> None:
        with self._changed:
            self.taken -= 1
            self._changed.notify()


class Pace:
    """Bytes a second, in order of asking. What was sent is paid for before the next is."""

    def __init__(self, bytes_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        """0: unlimited."""
        self._lock = threading.Lock()
        self._clock = clock
        self._free_at = clock()
        self.bytes_per_s = bytes_per_s

    def change(self, bytes_per_s: int) -> None:
        with self._lock:
            self.bytes_per_s = bytes_per_s
            self._free_at = self._clock()

    def wait_for(self, count: int) -> float:
        """Seconds to wait before these bytes may be sent; they count as sent."""
        with self._lock:
            if not self.bytes_per_s:
                return 0.0
            now = self._clock()
            begins = max(self._free_at, now - BURST_S)
            self._free_at = begins + count / self.bytes_per_s
            return max(0.0, begins - now)
