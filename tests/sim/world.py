"""A seeded world: virtual time, one queue of what will happen, one source of chance, and a history.

Everything that happens in a simulation is a call that was put into the queue.  Calls that are due at the same microsecond
come in random order.  Whatever crosses a boundary (a frame, bytes of a socket, a sync, a crash) is noted; the digest of all
notes is the history, so one seed and one commit give one digest, whatever the hash seed of the process.

Leaves everything else to the parts.  Nothing here reads a clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

SECOND = 1_000_000
MS = 1_000


class World:
    """`now_us` is the time since the world began; `wall_ms` may step, `boottime_ms` begins again when the machine does.

    keep_all: what is noted can be told; otherwise only its digest stays.
    """

    def __init__(self, seed: int, keep_all: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.chance = self.rng.random
        self.now_us = 0
        self.wall_step_ms = 0
        self.step_counted = False
        """A step of the wall clock came so near to a reboot that a shard took it for time that had passed: nobody can tell."""
        self._boots_us = [0]
        self.boot_id = "0"
        self._booted_ms = 0
        self._steady_base_ms: int | None = None
        self.events = 0
        self._queue: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._digest = blake2b(digest_size=16)
        self._keep_all = keep_all
        self.patient = self.whole_frames = False
        self._notes: list[tuple[int, str, str, Any]] = []

    # ------------------------------------------------------------------ time

    @property
    def now_ms(self) -> int:
        return self.now_us // MS

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_us // MS + self.wall_step_ms

    @property
    def boottime_ms(self) -> int:
        return self.now_us // MS - self._booted_ms

    def reboot(self) -> None:
        steady_ms = self.steady_ms
        self.boot_id = str(len(self._boots_us))
        self._boots_us.append(self.now_us)
        self._booted_ms = self.now_ms
        self.tell_steady(steady_ms)

    @property
    def steady_ms(self) -> int:
        """For processes without a store; of no boot before the present one."""
        return self.wall_ms if self._steady_base_ms is None else self._steady_base_ms + self.boottime_ms

    def tell_steady(self, steady_ms: int) -> None:
        """A shard has found what steady time is now."""
        self._steady_base_ms = steady_ms - self.boottime_ms

    def passed_ms(self, boot_id: str, boottime_ms: int) -> int:
        """Since the moment that had this reading."""
        return self.now_ms - self._boots_us[int(boot_id)] // MS - boottime_ms

    # ------------------------------------------------------------------ what will happen

    def later(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        self._serial += 1
        heappush(self._queue, (self.now_us + delay_us, self.chance(), self._serial, action, args))

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> None:
        """Let everything happen that is due until then, or until `done` says so (asked after every call)."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            self.now_us, _, _, action, args = heappop(queue)
            self.events += 1
            action(*args)
            if done is not None and done():
                return
        self.now_us = max(self.now_us, until_us)

    # ------------------------------------------------------------------ chance

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], cheaper than randint."""
        return low + int(self.chance() * (high - low + 1))

    def happens(self, probability: float) -> bool:
        return self.chance() < probability

    # ------------------------------------------------------------------ history

    def note(self, who: str, what: str, about: Any = "", data: bytes = b"") -> None:
        """`data`, time and name go into the digest; `about` is only shown."""
        self._digest.update(b"%d %s %s %s" % (self.now_us, who.encode(), what.encode(), data))
        if self._keep_all:
            self._notes.append((self.now_us, who, what, about))

    def history(self) -> str:
        """The digest of everything noted so far."""
        return self._digest.hexdigest()

    def tell(self, count: int | None = None, since_us: int = 0) -> list[str]:
        """The newest notes in readable form, oldest first."""
        notes = [note for note in self._notes if note[0] >= since_us]
        return [
            f"{at / SECOND:10.6f} {who:<22} {what:<10} {_shown(about)}"
            for at, who, what, about in (notes if count is None else notes[-count:])
        ]

    def replay_hint(self) -> str:
        return f"SIM_SEED={self.seed} make sim"


def _shown(about: Any) -> str:
    text = about() if callable(about) else about if isinstance(about, str) else repr(about)
    return text if len(text) <= 600 else text[:600] + " ..."
