"""What waits to be sent to a session's connection, and how much may be under way.

Batches are columns over the messages of one segment or feed frame; sending cuts slices from them.  They leave strictly in
the order in which they were added: a batch that waits for a commit holds back those behind it, so order per topic needs no
thought anywhere else.  Only what leaves at QoS 0 needs no room and passes messages that wait for some: order is promised per
QoS [MQTT-4.6.0-5], and what waits here when the connection ends is lost at QoS 0.  It does not where messages carry their positions: a
position says that everything up to there has come.

Holds after every call (see check): `unsent` and `unsent_bytes` are the sums over the queue; `inflight` never exceeds `size`
by what was sent here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessions.bodies import QOS1, QOS2, Bodies
from sessions.seqno import Track

_QOS_BITS = QOS1 | QOS2
NO_GATE = 0
PLENTY = 8
"""While so much of a window as one part in so many was under way, nothing waits for the acknowledgement of that."""


class Batch:
    """Columns of equal length, and how much of them is sent (`at`).

    numbers: sequence numbers, 0 at QoS 0.  qos: 1 or 2 when all messages have it, else 0.  gate: the number of the commit
    of this session after which it may leave.  passes: what leaves at QoS 0 passes what waits for room.
    """

    __slots__ = ("at", "bodies", "bytes", "firsts", "gate", "identifier", "indexes", "numbers", "packet_ids", "passes", "qos", "zeros")

    def __init__(
        self, bodies: Bodies, indexes: Sequence[int], firsts: bytes, packet_ids: list[int], numbers: Sequence[int],
        qos: int, identifier: int, gate: int, passes: bool = True,
    ) -> None:  # fmt: skip
        self.bodies = bodies
        self.indexes = indexes
        self.firsts = firsts
        self.packet_ids = packet_ids
        self.numbers = numbers
        self.qos = qos
        self.identifier = identifier
        self.gate = gate
        self.passes = passes
        self.zeros = 0 if qos or not passes else firsts.count(0x30) + firsts.count(0x31)
        """Messages of QoS 0 that pass others."""
        self.at = 0
        whole = len(bodies.messages)
        self.bytes = bodies.bytes if len(firsts) == whole else bodies.bytes * len(firsts) // whole

    def part(self, chosen: Sequence[int]) -> Batch:
        """These of its messages."""
        return Batch(
            self.bodies,
            [self.indexes[at] for at in chosen],
            bytes([self.firsts[at] for at in chosen]),
            [self.packet_ids[at] for at in chosen],
            [self.numbers[at] for at in chosen],
            0,
            self.identifier,
            self.gate,
            self.passes,
        )


class Sink(Protocol):
    """Where slices of batches go: the frame for the gateway of the connection."""

    def deliver(self, conn: int, batch: Batch, start: int, stop: int) -> None: ...


class Window:
    __slots__ = ("inflight", "queue", "size", "unsent", "unsent_bytes", "zeros")

    def __init__(self, size: int) -> None:
        self.size = size
        self.inflight = 0
        self.queue: list[Batch] = []
        self.unsent = 0
        self.unsent_bytes = 0
        self.zeros = 0
        """Messages of QoS 0 in the batches of the queue that pass others."""

    def reconnect(self, size: int) -> None:
        """Another connection, or none: what was not sent is read again from its ranges."""
        self.size = size
        self.inflight = 0
        self.queue.clear()
        self.unsent = 0
        self.unsent_bytes = 0
        self.zeros = 0

    def add(self, batch: Batch) -> None:
        self.queue.append(batch)
        self.unsent += len(batch.firsts)
        self.unsent_bytes += batch.bytes
        self.zeros += batch.zeros

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
            del queue[0]
            self.unsent_bytes -= batch.bytes
            self.zeros -= batch.zeros
        if self.zeros and queue[0].gate <= commits_done:
            sent += self._pass(sink, conn, commits_done)
        self.unsent -= sent
        return sent

    def _pass(self, sink: Sink, conn: int, commits_done: int) -> int:
        """The window is full: send what leaves at QoS 0, as far as no commit is waited for."""
        waiting: list[Batch] = []
        queue, sent = self.queue, 0
        while queue and queue[0].gate <= commits_done:
            batch = queue.pop(0)
            if not batch.zeros:
                waiting.append(batch)
                continue
            left = range(batch.at, len(batch.firsts))
            passing = [at for at in left if not batch.firsts[at] & _QOS_BITS]
            if passing:
                sink.deliver(conn, batch.part(passing), 0, len(passing))
                sent += len(passing)
            self.unsent_bytes -= batch.bytes
            self.zeros -= batch.zeros
            if len(passing) < len(left):
                rest = batch.part([at for at in left if batch.firsts[at] & _QOS_BITS])
                self.unsent_bytes += rest.bytes
                waiting.append(rest)
        queue[:0] = waiting
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

    def discard(self, one: Track, two: Track, zeros: bool) -> int:
        """Take away what is finished without having been sent, and with `zeros` what leaves at QoS 0; how many messages that were."""
        queue, self.queue = self.queue, []
        before, self.unsent, self.unsent_bytes, self.zeros = self.unsent, 0, 0, 0
        for batch in queue:
            left = range(batch.at, len(batch.firsts))
            kept = [at for at in left if _stays(batch, at, one, two, zeros)]
            if kept:
                remaining = batch if len(kept) == len(left) else batch.part(kept)
                self.queue.append(remaining)
                self.unsent += len(kept)
                self.unsent_bytes += remaining.bytes
                self.zeros += remaining.zeros
        return before - self.unsent

    def check(self) -> None:
        assert self.unsent == sum(len(batch.firsts) - batch.at for batch in self.queue)
        assert self.unsent_bytes == sum(batch.bytes for batch in self.queue)
        assert self.zeros == sum(batch.zeros for batch in self.queue)
        assert self.inflight >= 0


def _stays(batch: Batch, at: int, one: Track, two: Track, zeros: bool) -> bool:
    qos = batch.firsts[at] & _QOS_BITS
    if not qos:
        return not zeros
    return not (one if qos == QOS1 else two).is_finished(batch.numbers[at])
