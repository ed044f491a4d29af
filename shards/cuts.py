"""Where a reader of the files may read to: the cut of a shard, for secondaries beside its store.

A reader follows the files of the engine by itself and asks the shard only how far that is safe. It is told the watermark, a number of the
engine by which it sees that its own view is new enough, and how much structure each current generation has learned, so that it reads the
rows of the structure again only when there are more of them.

Holds after every call: what is told of the structures is what the records up to the watermark have written. Sooner would be wrong: a reader
that has loaded as many edges would never look again for those that were learned and not yet written when it was told of them.
"""

from __future__ import annotations

from collections import deque

from shards.engine import Engine
from shards.queries import CutFound
from shards.store import Store


class Cuts:
    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._written = store.edges()
        self._in_flight: deque[tuple[int, list[tuple[int, int]]]] = deque()

    def submitted(self, position: int) -> None:
        """The record of this position is on its way, with all that was learned."""
        edges = self._store.edges()
        if edges != (self._in_flight[-1][1] if self._in_flight else self._written):
            self._in_flight.append((position, edges))

    def committed(self, position: int) -> None:
        while self._in_flight and self._in_flight[0][0] <= position:
            self._written = self._in_flight.popleft()[1]

    def found(self, watermark: int) -> CutFound:
        return CutFound(watermark, self._engine.latest_sequence(), self._written)
