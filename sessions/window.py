"""What waits to be sent to a session's connection, and how much may be under way.

Batches are columns over the messages of one segment or feed frame; sending cuts slices from them.  They leave strictly in
the order in which they were added: a batch that waits for a commit holds back those behind it, so order per topic needs no
thought anywhere else.

Holds after every call (see check): `unsent` and `unsent_bytes` are the sums over the queue; `inflight` never exceeds `size`
by what was sent here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from sessions.bodies import QOS1, QOS2, Bodies
from sessions.seqno import Track

_QOS_BITS = QOS1 | QOS2
NO_GATE = 0


class Batch:
    """Columns of equal length, and how much of them is sent (`at`).

    numbers: sequence numbers, 0 at QoS 0.  qos: 1 or 2 when all messages have it, else 0.  gate: the number of the commit
    of this session after which it may leave.
    """

    __slots__ = ("at", "bodies", "bytes", "firsts", "gate", "identifier", "indexes", "numbers", "packet_ids", "qos")

    def __init__(
        self, bodies: Bodies, indexes: Sequence[int], firsts: bytes, packet_ids: list[int], numbers: Sequence[int],
        qos: int, identifier: int, gate: int,
    ) -> None:  # fmt: skip
        self.bodies = bodies
        self.indexes = indexes
        self.firsts = firsts
        self.packet_ids = packet_ids
        self.numbers = numbers
        self.qos = qos
        self.identifier = identifier
        self.gate = gate
        self.at = 0
        whole = len(bodies.messages)
        self.bytes = bodies.bytes if len(firsts) == whole else bodies.bytes * len(firsts) // whole


class Sink(Protocol):
    """Where slices of batches go: the frame for the gateway of the connection."""

    def deliver(self, conn: int, batch: Batch, start: int, stop: int) -> None: ...


class Window:
    __slots__ = ("inflight", "queue", "size", "unsent", "unsent_bytes")

    def __init__(self, size: int) -> None:
        self.size = size
        self.inflight = 0
        self.queue: deque[Batch] = deque()
        self.unsent = 0
        self.unsent_bytes = 0

    def reconnect(self, size: int) -> None:
        """Another connection, or none: what was not sent is read again from its ranges."""
        self.size = size
        self.inflight = 0
        self.queue.clear()
        self.unsent = 0
        self.unsent_bytes = 0

    def add(self, batch: Batch) -> None:
        self.queue.append(batch)
        self.unsent += len(batch.firsts)
        self.unsent_bytes += batch.bytes

    def send(self, sink: Sink, conn: int, commits_done: int, one: Track, two: Track) -> int:
        """Send what the window and the gates allow; how many messages that were."""
        queue = self.queue
        sent = 0
        while queue:
            batch = queue[0]
            if batch.gate > commits_done:
                break
            start, end = batch.at, len(batch.firsts)
            if batch.qos:
                stop = min(end, start + self.size - self.inflight)
                if stop <= start:
                    break
                self.inflight += stop - start
                (one if batch.qos == 1 else two).reached(batch.numbers[stop - 1])
            else:
                stop = self._send_mixed(batch, one, two)
                if stop == start:
                    break
            sink.deliver(conn, batch, start, stop)
            batch.at = stop
            sent += stop - start
            if stop < end:
                break
            queue.popleft()
            self.unsent_bytes -= batch.bytes
        self.unsent -= sent
        return sent

    def _send_mixed(self, batch: Batch, one: Track, two: Track) -> int:
        firsts, numbers = batch.firsts, batch.numbers
        stop = batch.at
        for stop in range(batch.at, len(firsts)):
            qos = firsts[stop] & _QOS_BITS
            if qos:
                if self.inflight >= self.size:
                    return stop
                self.inflight += 1
                (one if qos == QOS1 else two).reached(numbers[stop])
        return len(firsts)

    def check(self) -> None:
        assert self.unsent == sum(len(batch.firsts) - batch.at for batch in self.queue)
        assert self.unsent_bytes == sum(batch.bytes for batch in self.queue)
        assert self.inflight >= 0
