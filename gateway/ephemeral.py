"""The session of a connection with session expiry 0: it lives in RAM and ends with the connection.

Here is its outgoing half: the window of QoS 1 and 2 messages and the queue before it.  QoS 0 messages do not come here,
they are written at once.  Bytes come in as whole packets cut at the packet id (mqtt.encode.PublishTemplate); whoever calls
decides QoS, RETAIN and properties.

When the queue is full its oldest message is dropped: what is new is worth more to a subscriber that cannot follow, the order
of what remains is the publisher's, and it is counted.  Nothing is ever sent twice, because a session that ends with its
connection has no reconnect.

Always holds (see check): at most `window` packet ids are in flight; a message waits only while the window is full; the queue
is within both bounds.
"""

from __future__ import annotations

from collections import deque

from gateway.options import Counters
from mqtt.body import with_message_expiry
from mqtt.encode import packet_id_bytes
from mqtt.packets import MQTT_5

# What a packet id in flight waits for.
AWAIT_PUBACK, AWAIT_PUBREC, AWAIT_PUBCOMP = 1, 2, 3

Waiting = tuple[int, bytes, bytes, int]
"""QoS, head, tail, and when it stops being worth sending (milliseconds of the wall clock, 0: never)."""


class EphemeralSession:
    __slots__ = ("_bytes_max", "_count_max", "_has_properties", "_next_id", "counters", "inflight", "queue", "queue_bytes", "window")

    def __init__(self, version: int, window: int, count_max: int, bytes_max: int, counters: Counters) -> None:
        self._has_properties = version == MQTT_5
        self.window = window
        self.inflight: dict[int, int] = {}
        self.queue: deque[Waiting] = deque()
        self.queue_bytes = 0
        self.counters = counters
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._next_id = 0

    def offer(self, out: list[bytes], qos: int, head: bytes, tail: bytes, expires_ms: int) -> bool:
        """Send a QoS 1 or 2 message now, appending to `out`, or keep it for later; whether it was sent."""
        if len(self.inflight) < self.window:  # then nothing waits, see check
            out += (head, packet_id_bytes[self._take_id(qos)], tail)
            return True
        self.queue.append((qos, head, tail, expires_ms))
        self.queue_bytes += len(head) + len(tail)
        while len(self.queue) > self._count_max or self.queue_bytes > self._bytes_max:
            _, old_head, old_tail, _ = self.queue.popleft()
            self.queue_bytes -= len(old_head) + len(old_tail)
            self.counters.live_dropped_queue_full += 1
        return False

    def has_room(self) -> bool:
        """Whether retained messages may be added: they are fetched no faster than the client takes them."""
        return 2 * len(self.queue) < self._count_max and 2 * self.queue_bytes < self._bytes_max

    def acknowledge(self, packet_ids: list[int], awaited: int) -> list[int] | None:
        """The client's answer of one kind: the ids that were in flight; None when one waits for another kind of answer."""
        inflight = self.inflight
        known: list[int] = []
        for packet_id in packet_ids:
            state = inflight.get(packet_id)
            if state is None:
                continue
            if state != awaited:
                return None
            known.append(packet_id)
            if awaited == AWAIT_PUBREC:
                inflight[packet_id] = AWAIT_PUBCOMP
            else:
                del inflight[packet_id]
        return known

    def give_up(self, packet_id: int) -> bool:
        """PUBREC with an error: the delivery is over.  False when the id waits for no PUBREC."""
        if self.inflight.get(packet_id) != AWAIT_PUBREC:
            return False
        del self.inflight[packet_id]
        return True

    def refill(self, out: list[bytes], wall_ms: int) -> None:
        """Send what waits, as far as the window allows."""
        queue = self.queue
        while queue and len(self.inflight) < self.window:
            qos, head, tail, expires_ms = queue.popleft()
            self.queue_bytes -= len(head) + len(tail)
            if expires_ms:
                left_ms = expires_ms - wall_ms
                if left_ms <= 0:
                    self.counters.live_dropped_expired += 1
                    continue
                if self._has_properties:
                    # The interval is there already, and four bytes stay four bytes: the head remains right.
                    tail = with_message_expiry(tail, -(-left_ms // 1000))
            out += (head, packet_id_bytes[self._take_id(qos)], tail)

    def _take_id(self, qos: int) -> int:
        """A packet id that is not in flight; the window is smaller than the number of ids, so there is one."""
        packet_id = self._next_id
        while True:
            packet_id = packet_id % 65_535 + 1
            if packet_id not in self.inflight:
                break
        self._next_id = packet_id
        self.inflight[packet_id] = qos  # QoS 1 waits for PUBACK, QoS 2 for PUBREC
        return packet_id

    def check(self) -> None:
        assert len(self.inflight) <= self.window
        assert not self.queue or len(self.inflight) == self.window
        assert len(self.queue) <= self._count_max and self.queue_bytes <= self._bytes_max
        assert self.queue_bytes == sum(len(head) + len(tail) for _, head, tail, _ in self.queue)
