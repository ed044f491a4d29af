"""The newest connection of each publisher that was seen: what comes later of an older one is dropped (PROTOCOLS 9).

Bounded: of too many publishers the one not seen for longest is forgotten.  Then a late message of it would be taken.
"""

from __future__ import annotations


class NewestConnections:
    __slots__ = ("_newest", "_publishers_max")

    def __init__(self, publishers_max: int) -> None:
        self._newest: dict[bytes, int] = {}
        self._publishers_max = publishers_max

    def of(self, publisher: bytes) -> int:
        return self._newest.get(publisher, 0)

    def note(self, publisher: bytes, conn: int) -> None:
        newest = self._newest
        newest[publisher] = max(conn, newest.pop(publisher, 0))
        if len(newest) > self._publishers_max:
            del newest[next(iter(newest))]

    def takes(self, publisher: bytes, conn: int) -> bool:
        """Whether a message of this connection may still be taken; then it is noted."""
        if conn < self._newest.get(publisher, 0):
            return False
        self.note(publisher, conn)
        return True
