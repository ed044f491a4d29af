"""A bounded queue in which sources take turns: who comes often waits behind himself, and behind nobody else."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")
SHARE = 10
"""One source has at most one part in so many of the places."""


class Turns(Generic[Item]):
    """Order: of one source as they came; of sources, round."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._count = 0
        self._sources: OrderedDict[str, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def put(self, source: str, item: Item) -> bool:
        """False: it is full, or this source has its part."""
        waiting = self._sources.get(source)
        if self._count >= self.count_max or (waiting is not None and len(waiting) >= max(1, self.count_max // SHARE)):
            return False
        if waiting is None:
            waiting = self._sources[source] = deque()
        waiting.append(item)
        self._count += 1
        return True

    def take(self) -> Item | None:
        if not self._sources:
            return None
        source, waiting = self._sources.popitem(last=False)
        item = waiting.popleft()
        self._count -= 1
        if waiting:
            self._sources[source] = waiting
        return item

    def drop(self, source: str, item: Item) -> None:
        """Take one out that nobody wants any more; it may be gone already."""
        waiting = self._sources.get(source)
        if waiting is None or item not in waiting:
            return
        waiting.remove(item)
        self._count -= 1
        if not waiting:
            del self._sources[source]
