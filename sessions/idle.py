"""Subscriptions that get nothing: after a while they ask their shard by themselves, or once more.

Messages are pushed, so there is nothing to find, unless a wake-up got lost.  The cursors of a subscription are looked at once per
interval; when one has not moved since the last look, nothing has come for it, and it polls from its place, not from the end of the feed:
what the feed wrongly left out lies between the two.  One that is behind, and was at the last look, and has not moved since, waits for an
answer that does not come, or for nothing: whoever watches sees whether it may wait, as for a client that does not acknowledge.

Looks come in slots, so that many silent subscriptions wake the process a few times a second, not all the time; and in each
slot so few cursors ask that no shard notices.  What is left over is next in the slot after.  Nothing is done here when a
message comes.

Holds: a subscription that is watched is in exactly one queue, once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sessions.session import HEAD, Cursor, Subscription

SLOT_MS = 250
ASKING_PER_SLOT = 12
"""Per shard; the cursors of one subscription look together, also where that is too many."""
NEVER_MS = 1 << 61


class Watch:
    """One subscription, its interval, and when it is looked at next."""

    __slots__ = ("at_ms", "every_ms", "sub")

    def __init__(self, sub: Subscription, every_ms: int) -> None:
        self.sub: Subscription | None = sub
        """None: it is watched no more; what waits in its queue until its time comes holds no session."""
        self.every_ms = every_ms
        self.at_ms = 0


class Idle:
    def __init__(self, n_shards: int, ask: Callable[[Cursor, int], int], stuck: Callable[[Cursor, int], int]) -> None:
        """Both are told of a cursor that does not move, and since when at least; they say how many questions they have asked.  ask: it is
        at the head, and is to poll from its own place.  stuck: it is behind."""
        self._ask = ask
        self._stuck = stuck
        self._asking_max = ASKING_PER_SLOT * n_shards
        self._queues: dict[int, deque[Watch]] = {}
        """By interval, so that each is in the order of time."""
        self._next_slot_ms = 0

    def watch(self, sub: Subscription, every_ms: int, now_ms: int) -> None:
        self.forget(sub)
        if every_ms < NEVER_MS:
            for cursor in sub.cursors:
                cursor.moved = cursor.behind = False
            sub.watch = watch = Watch(sub, every_ms)
            self._look_later(watch, now_ms)

    def forget(self, sub: Subscription) -> None:
        watch, sub.watch = sub.watch, None
        if watch is not None:
            watch.sub = None

    def turn(self, now_ms: int) -> None:
        if now_ms < self._next_slot_ms:
            return
        asking = 0
        for queue in self._queues.values():
            while queue and queue[0].at_ms <= now_ms:
                if asking >= self._asking_max:
                    self._next_slot_ms = now_ms + SLOT_MS
                    return
                watch = queue.popleft()
                if watch.sub is not None:
                    for cursor in watch.sub.cursors:
                        asking += self._look(cursor, now_ms - watch.every_ms)
                    self._look_later(watch, now_ms)

    def _look(self, cursor: Cursor, before_ms: int) -> int:
        """How many questions are asked."""
        stands, was_behind = not cursor.moved, cursor.behind
        cursor.moved, cursor.behind = False, cursor.doing is not HEAD
        if stands and not cursor.behind:
            return self._ask(cursor, before_ms)
        return self._stuck(cursor, before_ms) if stands and was_behind else 0

    @property
    def next_ms(self) -> int | None:
        due = [queue[0].at_ms for queue in self._queues.values() if queue]
        return max(min(due), self._next_slot_ms) if due else None

    def _look_later(self, watch: Watch, now_ms: int) -> None:
        at_ms = now_ms + watch.every_ms
        if watch.every_ms > SLOT_MS:
            at_ms += -at_ms % SLOT_MS
        queue = self._queues.get(watch.every_ms)
        if queue is None:
            queue = self._queues[watch.every_ms] = deque()
        watch.at_ms = at_ms
        queue.append(watch)

    def check(self) -> None:
        queued = [watch for queue in self._queues.values() for watch in queue if watch.sub is not None]
        assert len(dict.fromkeys(queued)) == len(queued)
        assert all(watch.sub.watch is watch for watch in queued if watch.sub is not None)
