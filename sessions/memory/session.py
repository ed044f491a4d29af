"""One session in memory: what waits for it, what is under way to its client, and what its client acknowledges.

    QoS 1   waiting -> PUBLISH -> PUBACK: finished
    QoS 2   waiting -> PUBLISH -> PUBREC, then PUBREL -> PUBCOMP: finished
                               -> PUBREC with an error: finished [MQTT-4.3.3]

A packet id stays with its message until it is finished, over any number of connections.  A new connection gets PUBREL for
what was received, then PUBLISH with DUP for what was not acknowledged, in the order in which it was sent first and no more at
once than its Receive Maximum, then what waits [MQTT-4.4.0-1].  Acknowledgements may come in any order; they are judged as
those of durable sessions are (sessions.acks), and count only for what was sent on the present connection.

What waits is bounded in count and bytes: the oldest is dropped, since what is new is worth more to a client that was away, the
order of what remains is the publisher's, and it is counted.  All sessions of the actor together are bounded in bytes as well:
there the message that would have to wait is dropped, because no session is to pay for another that is away for too long.
QoS 0 never waits.

Always holds (see check): a message waits only while the client is away or the window is full; bytes held are those of what
waits and of what is sent and not received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from sessions.frames import PUBACK, PUBREC
from sessions.memory.message import DUP, QOS_BITS, Delivery, Message
from sessions.options import Counters

if TYPE_CHECKING:
    from sessions.memory.retained import Fetch
    from sessions.memory.table import MemorySub

_PACKET_IDS = 65_535


class Sink(Protocol):
    """Where messages for a connection go: the frames for its gateway."""

    def deliver(self, conn: int, message: Message, packet_id: int, first: int, identifier: int) -> None: ...

    def pubrel(self, conn: int, packet_ids: list[int]) -> None: ...

    def pubrel_unknown(self, conn: int, packet_ids: list[int]) -> None: ...


class Held:
    """Bytes that all sessions of the actor hold."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max


class MemorySession:
    __slots__ = (
        "_bytes_max", "_count_max", "_counters", "_held", "_last_id", "_out", "again", "client", "conn", "deadline_ms", "expiry_s",
        "fetching", "held", "home", "inflight", "link", "queries", "queue", "queue_bytes", "session_id", "sink", "subs", "window",
    )  # fmt: skip

    def __init__(self, client: bytes, session_id: int, home: int, count_max: int, bytes_max: int, held: Held, counters: Counters) -> None:
        self.client = client
        self.session_id = session_id
        self.home = home
        # The connection; `conn` stays after it is gone.
        self.conn = 0
        self.link = 0
        self.sink: Sink | None = None
        """None: no connection is attached."""
        self.window = 0
        self.held = False
        """The client does not read what was written to it."""
        self.expiry_s = 0
        self.deadline_ms = 0
        """When it is forgotten unless somebody comes back; 0: not, for now."""
        # Subscriptions, and the retained messages that new ones are still to get.
        self.subs: dict[bytes, MemorySub] = {}
        self.fetching: list[Fetch] = []
        self.queries: dict[int, int] = {}
        # Deliveries.
        self.inflight: dict[int, Delivery] = {}
        """Sent and not finished, by packet id, in the order in which they were sent first."""
        self.again: list[int] = []
        """Packet ids of those that are still to be sent again on this connection."""
        self.queue: deque[Delivery] = deque()
        self.queue_bytes = 0
        self._out = 0
        """How many of those in flight are out on this connection."""
        self._last_id = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._held = held
        self._counters = counters

    @property
    def attached(self) -> bool:
        return self.sink is not None

    # ---------------------------------------------------------------- the connection
    def attach(self, conn: int, link: int, sink: Sink, window: int, wall_ms: int) -> None:
        self.conn, self.link, self.sink, self.window = conn, link, sink, window
        self.held = False
        self.deadline_ms = 0
        received: list[int] = []
        for packet_id, delivery in self.inflight.items():
            if delivery.message is None:
                delivery.out = True
                received.append(packet_id)
            else:
                self.again.append(packet_id)
        self._out = len(received)
        if received:
            sink.pubrel(conn, received)
        self.pump(wall_ms)

    def detach(self) -> None:
        self.sink = None
        self.again.clear()
        self._out = 0
        for delivery in self.inflight.values():
            delivery.out = False

    def hold(self, held: bool, wall_ms: int) -> None:
        self.held = held
        self.pump(wall_ms)

    def _may_send(self) -> bool:
        return self._out < self.window and not self.held

    # ---------------------------------------------------------------- messages
    def offer(self, message: Message, first: int, identifier: int, group: bytes = b"") -> bool:
        """Send a message now, or keep it for later if its QoS is 1 or 2; False: it was dropped.

        Whoever calls has taken out what is over; first: the first byte of its PUBLISH packet."""
        sink = self.sink
        if not first & QOS_BITS:
            if sink is not None:
                sink.deliver(self.conn, message, 0, first, identifier)
            return sink is not None
        delivery = Delivery(message, first, identifier, group)
        self._held.bytes += message.size
        if sink is not None and not self.queue and not self.again and self._may_send():
            self._send(sink, delivery, message)
            return True
        self.queue.append(delivery)
        self.queue_bytes += message.size
        if self._held.bytes > self._held.bytes_max:
            self._drop(self.queue.pop())
            self._counters.memory_dropped_all_full += 1
            return False
        if message.size > self._bytes_max:
            self._drop(self.queue.pop())
            self._counters.memory_dropped_queue_full += 1
            return False
        while len(self.queue) > self._count_max or self.queue_bytes > self._bytes_max:
            self._drop(self.queue.popleft())
            self._counters.memory_dropped_queue_full += 1
        return True

    def takes(self, size: int) -> bool:
        """Whether a message can be added without dropping any."""
        if self.sink is not None and not self.queue and not self.again and self._may_send():
            return True
        fits = len(self.queue) < self._count_max and self.queue_bytes + size <= self._bytes_max
        return fits and self._held.bytes + size <= self._held.bytes_max

    def has_room(self) -> bool:
        """Whether retained messages may be added: they are fetched no faster than the client takes them."""
        return self.sink is not None and 2 * len(self.queue) < self._count_max and 2 * self.queue_bytes < self._bytes_max

    def pump(self, wall_ms: int) -> None:
        """Send again what has to be, then what waits, as far as the window allows."""
        sink = self.sink
        if sink is None:
            return
        while self.again and self._may_send():
            packet_id = self.again.pop(0)
            delivery = self.inflight[packet_id]
            message = delivery.message
            assert message is not None, f"{self.client!r}: packet id {packet_id} is received and to be sent again"
            delivery.out = True
            self._out += 1
            sink.deliver(self.conn, message, packet_id, delivery.first | DUP, delivery.identifier)
            self._counters.sent_again += 1
        while self.queue and not self.again and self._may_send():
            delivery = self.queue.popleft()
            message = delivery.message
            assert message is not None
            if message.is_over(wall_ms):
                self._drop(delivery)
                self._counters.memory_dropped_expired += 1
                continue
            self.queue_bytes -= message.size
            self._send(sink, delivery, message)

    def _send(self, sink: Sink, delivery: Delivery, message: Message) -> None:
        packet_id = self._last_id % _PACKET_IDS + 1
        while packet_id in self.inflight:  # some id is free: those in flight are all out, and fewer than the window
            packet_id = packet_id % _PACKET_IDS + 1
        self._last_id = packet_id
        self.inflight[packet_id] = delivery
        delivery.out = True
        self._out += 1
        sink.deliver(self.conn, message, packet_id, delivery.first, delivery.identifier)

    def _drop(self, delivery: Delivery) -> None:
        """A delivery that has just left the queue is not made."""
        assert delivery.message is not None
        self.queue_bytes -= delivery.message.size
        self._held.bytes -= delivery.message.size

    # ---------------------------------------------------------------- acknowledgements
    def acked(self, kind: int, packet_ids: list[int], failed: bool) -> bool:
        """False: the client broke the protocol, close its connection."""
        if kind == PUBACK:
            return self._puback(packet_ids)
        if kind == PUBREC:
            return self._failed(packet_ids) if failed else self._pubrec(packet_ids)
        return self._pubcomp(packet_ids)

    def _out_now(self, packet_id: int) -> Delivery | None:
        """What was sent under this id on the present connection and is not finished."""
        delivery = self.inflight.get(packet_id)
        if delivery is None or not delivery.out:
            self._counters.acks_unknown += 1
            return None
        return delivery

    def _puback(self, packet_ids: list[int]) -> bool:
        for packet_id in packet_ids:
            delivery = self._out_now(packet_id)
            if delivery is None:
                continue
            if delivery.is_qos2:
                return False
            self._finish(packet_id, delivery)
        return True

    def _pubrec(self, packet_ids: list[int]) -> bool:
        """Each is answered with PUBREL, so that the client can finish; of an unknown one it says so (0x92)."""
        sink = self.sink
        assert sink is not None
        known: list[int] = []
        unknown: list[int] = []
        for packet_id in packet_ids:
            delivery = self._out_now(packet_id)
            if delivery is None:
                unknown.append(packet_id)
                continue
            if not delivery.is_qos2:
                return False
            known.append(packet_id)
            if delivery.message is not None:
                self._held.bytes -= delivery.message.size
                delivery.message = None
        if known:
            sink.pubrel(self.conn, known)
        if unknown:
            sink.pubrel_unknown(self.conn, unknown)
        return True

    def _failed(self, packet_ids: list[int]) -> bool:
        """PUBREC with an error: the client does not take the message, and that is the end of it."""
        for packet_id in packet_ids:
            delivery = self._out_now(packet_id)
            if delivery is None:
                continue
            if not delivery.is_qos2:
                return False
            if delivery.message is not None:
                self._finish(packet_id, delivery)
            else:
                self._counters.acks_unknown += 1
        return True

    def _pubcomp(self, packet_ids: list[int]) -> bool:
        for packet_id in packet_ids:
            delivery = self._out_now(packet_id)
            if delivery is None:
                continue
            if delivery.message is not None:
                return False
            self._finish(packet_id, delivery)
        return True

    def _finish(self, packet_id: int, delivery: Delivery) -> None:
        del self.inflight[packet_id]
        self._out -= 1
        self._counters.acknowledged += 1
        if delivery.message is not None:
            self._held.bytes -= delivery.message.size

    # ---------------------------------------------------------------- the end
    def close(self) -> list[tuple[bytes, Message]]:
        """The session ends.  What other members of its groups are to get: what was not sent, and QoS 1 that was not
        acknowledged.  QoS 2 that was sent goes to nobody else [MQTT-4.8.2-5]."""
        left = [delivery for delivery in self.inflight.values() if not delivery.is_qos2] + list(self.queue)
        orphans = [(delivery.group, delivery.message) for delivery in left if delivery.group and delivery.message is not None]
        self._held.bytes -= sum(message.size for message in self._messages())
        self.detach()
        self.inflight.clear()
        self.queue.clear()
        self.queue_bytes = 0
        return orphans

    @property
    def held_bytes(self) -> int:
        return sum(message.size for message in self._messages())

    def _messages(self) -> Iterator[Message]:
        for deliveries in (self.inflight.values(), self.queue):
            for delivery in deliveries:
                if delivery.message is not None:
                    yield delivery.message

    def check(self) -> None:
        assert self._out == sum(delivery.out for delivery in self.inflight.values())
        assert not self.queue or self.sink is None or self.again or not self._may_send()
        assert not self.again or not self._may_send()
        assert len(self.queue) <= self._count_max and self.queue_bytes <= self._bytes_max
        assert self.queue_bytes == sum(delivery.message.size for delivery in self.queue if delivery.message is not None)
        assert all(not self.inflight[packet_id].out for packet_id in self.again)
        assert self.sink is not None or not self._out
        assert all(sub.session is self and sub.filter == filter for filter, sub in self.subs.items())
