"""Who waits for something, and for how long nothing has come: what a soak calls a stall.

Told about once a second who waits: somebody to whom something is due, how many things have come to him so far, since when the oldest
that is due is due, and how long he has been connected. A wait lasts while the count does not change; it is measured from the
latest of these moments. Knows no client and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.gates.gate import GateFailed

STALL_S = 20.0
"""Connected all the time; longer than any process takes to come back, unless it is killed again."""
LAG_S = 90.0
"""Connected now and then."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """``lagging_s``: for how long the oldest of what is due has been due; ``online_s``: 0 while not connected."""

    who: str
    count: int
    lagging_s: float
    online_s: float


class Stalls:
    """Holds the longest wait of somebody who was connected."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_story = ""
        self._still: dict[str, tuple[int, float]] = {}

    def look(self, now_s: float, waiting: Iterable[Waiting]) -> None:
        """Raises for a stall. Whoever is not among them waits for nothing."""
        still: dict[str, tuple[int, float]] = {}
        for each in waiting:
            before = self._still.get(each.who)
            still[each.who] = before if before is not None and before[0] == each.count else (each.count, now_s)
            waited_s = min(now_s - still[each.who][1], each.lagging_s)
            connected_s = min(waited_s, each.online_s)
            if connected_s > self.longest_s:
                self.longest_s, self.longest_story = connected_s, each.who
            if connected_s > STALL_S:
                raise GateFailed(f"stall: {each.who} is connected and gets nothing for {connected_s:.1f} s although something is due")
            if waited_s > LAG_S:
                raise GateFailed(f"stall: {each.who} gets nothing for {waited_s:.1f} s although something is due")
        self._still = still
