"""One lane of a bridge: what waits for its target, and what the target has.

    CLOSED -> OPENING -> IDLE <-> BUSY
    any of them -> CLOSED when it fails: what was under way is the first in the queue again

Holds: an item is in the queue of its lane or under way there while it is WAITING, and nowhere else.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from bridge.port import Accepted, Message


class Doing(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    IDLE = "idle"
    BUSY = "busy"


class Fate(Enum):
    WAITING = "waiting"
    """For its target, or at it."""
    DYING = "dying"
    """Refused; its dead letter is not stored yet."""
    SETTLED = "settled"
    """PUBREC may leave, or has left."""


class Item:
    """A delivery that the broker does not know to be finished.  message: as the target gets it; came: as it came.  Both are let go when it
    is settled."""

    __slots__ = ("came", "fate", "lane", "message", "number", "packet_id", "reason", "since_ms", "size", "tried")

    def __init__(self, number: int, packet_id: int, came: Message | None, message: Message | None, lane: int, since_ms: int) -> None:
        self.number = number
        self.packet_id = packet_id
        self.came = came
        self.message = message
        self.lane = lane
        self.since_ms = since_ms
        self.size = 0 if message is None else size_of(message)
        self.fate = Fate.WAITING
        self.reason = ""
        self.tried = False


def size_of(message: Message) -> int:
    return len(message.payload) + len(message.topic) + 64


class Lane:
    __slots__ = ("accepted", "bytes", "doing", "index", "queue", "under_way")

    def __init__(self, index: int) -> None:
        self.index = index
        self.doing = Doing.CLOSED
        self.queue: deque[Item] = deque()
        self.bytes = 0
        """Of the queue."""
        self.under_way: list[Item] = []
        self.accepted: Accepted | None = None
        """What its target remembered when it was opened."""

    def put(self, item: Item) -> None:
        self.queue.append(item)
        self.bytes += item.size

    def take(self, count_max: int, bytes_max: int) -> list[Item]:
        """The next batch, of one message at least."""
        taken: list[Item] = []
        size = 0
        while self.queue and len(taken) < count_max and (not taken or size + self.queue[0].size <= bytes_max):
            item = self.queue.popleft()
            size += item.size
            taken.append(item)
        self.bytes -= size
        self.under_way = taken
        return taken

    def put_back(self, items: list[Item]) -> None:
        self.queue.extendleft(reversed(items))
        self.bytes += sum([item.size for item in items])

    def drop(self, numbers_upto: int) -> list[Item]:
        """What waits of these numbers is not handed to the target."""
        dropped = [item for item in self.queue if item.number <= numbers_upto]
        if dropped:
            self.queue = deque([item for item in self.queue if item.number > numbers_upto])
            self.bytes -= sum([item.size for item in dropped])
        return dropped

    def clear(self) -> None:
        self.queue.clear()
        self.bytes = 0
        self.under_way = []
