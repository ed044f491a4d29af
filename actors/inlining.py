"""Whether a sync is waited for on the loop itself, and not in the thread of its own that it has otherwise.

Handing a sync to the thread and coming back are two wake-ups, and cost a message that is alone more than a quick disk does.  While
the loop waits nothing else happens in the process; so it waits only where there is little to be kept waiting, by what was seen lately:
- at most MESSAGES_MAX messages are to be synced: more have others behind them;
- the loop has slept since SYNCS_PER_SLEEP_MAX such waits: one that never sleeps has work to do meanwhile.  Not where the last ALONE
  messages had a sync each, and one publisher, who sends the next one when this is acknowledged: there is nobody else;
- of the last SEEN syncs half took at most QUICK_S, and none more than STALL_S: a disk that is slow now and then has the thread.

Always holds: before SEEN syncs were seen, and for SEEN syncs after each that stalled, the thread has them.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable
from typing import Final

MESSAGES_MAX: Final = 4
SYNCS_PER_SLEEP_MAX: Final = 2
"""A message that is delivered is followed by the record of who has been given it."""
ALONE: Final = 16
SEEN: Final = 16
QUICK_S: Final = 0.0005
STALL_S: Final = 0.005


def sleeps() -> int:
    """How often this thread has given its processor back because it had nothing to do."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Inlining:
    """publisher: of the newest message.  slept: of the loop's thread, a number that grows with each sleep."""

    def __init__(self, publisher: Callable[[], bytes], slept: Callable[[], int] = sleeps) -> None:
        self._publisher = publisher
        self._slept = slept
        self._seen_s: deque[float] = deque(maxlen=SEEN)
        self._quick = False
        self._slept_at = -1
        self._since_sleep = 0
        self._alone = 0
        self._alone_of = b""
        """Messages in a row of this publisher, of which each had a sync to itself."""

    def may(self, messages: int) -> bool:
        """Asked when a sync begins, on the loop; messages: that it covers."""
        if messages > 1:
            self._alone = 0
        alone = messages == 1 and self._is_alone()
        if messages > MESSAGES_MAX or not self._quick:
            return False
        if alone:
            return True
        slept = self._slept()
        if slept != self._slept_at:
            self._slept_at, self._since_sleep = slept, 0
        self._since_sleep += 1
        return self._since_sleep <= SYNCS_PER_SLEEP_MAX

    def _is_alone(self) -> bool:
        publisher = self._publisher()
        self._alone = self._alone + 1 if publisher == self._alone_of else 1
        self._alone_of = publisher
        return self._alone > ALONE

    def waited(self) -> None:
        """The loop has waited: what it slept meanwhile was for the disk."""
        self._slept_at = self._slept()

    def took(self, seconds: float) -> None:
        """The disk alone, of any sync."""
        seen = self._seen_s
        seen.append(seconds)
        self._quick = len(seen) == SEEN and max(seen) <= STALL_S and sorted(seen)[SEEN // 2 - 1] <= QUICK_S
