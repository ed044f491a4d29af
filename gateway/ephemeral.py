"""The session of a connection with session expiry 0: it lives in RAM and ends with the connection.

Here is its outgoing half: the window of QoS 1 and 2 messages and the queue before it.  QoS 0 messages do not come here,
they are written at once.  Bytes come in as whole packets cut at the packet id (mqtt.encode.PublishTemplate); whoever calls
decides QoS, RETAIN and properties.

When the queue is full its oldest message is dropped: what is new is worth more to a subscriber that cannot follow, the order
of what remains is the publisher's, and it is counted.  Nothing is ever sent twice, because a session that ends with its
connection has no reconnect.

Messages of shared groups are kept until PUBACK, or PUBLISH if their QoS is 2: when the session ends they go to other members.
What is kept is bounded by the bytes of the queue; a message beyond that is sent all the same and ends with the session.

Always holds (see check): at most `window` packet ids are in flight; a message waits only while the window is full, the session is
stalled, or its client does not read; the queue is within both bounds, and so are the bytes that are kept; what is kept waits for PUBACK.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from gateway.groups import GroupMessage
from gateway.guard import Guard
from gateway.options import Counters
from mqtt.body import with_message_expiry
from mqtt.encode import packet_id_bytes, topic_of_head
from mqtt.packets import MQTT_5

# What a packet id in flight waits for.
AWAIT_PUBACK, AWAIT_PUBREC, AWAIT_PUBCOMP = 1, 2, 3

Waiting = tuple[int, bytes, bytes, int, GroupMessage | None]
"""QoS, head, tail, when it stops being worth sending (milliseconds of the wall clock, 0: never), and of which group it is."""


class EphemeralSession:
    __slots__ = (
        "_bytes_max", "_count_max", "_has_properties", "_last_id", "congested", "counters", "inflight", "kept", "kept_bytes", "queue",
        "queue_bytes", "stalled", "window",
    )  # fmt: skip

    def __init__(self, version: int, window: int, count_max: int, bytes_max: int, counters: Counters) -> None:
        self._has_properties = version == MQTT_5
        self.window = window
        self.inflight: dict[int, int] = {}
        self.queue: deque[Waiting] | tuple[()] = ()
        """A deque once something has to wait: an empty one takes 0.7 kB, and few sessions are ever behind."""
        self.queue_bytes = 0
        self.kept: dict[int, GroupMessage] = {}
        """Messages of groups that wait for PUBACK, by packet id."""
        self.kept_bytes = 0
        self.counters = counters
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._last_id = 0
        self.stalled = False
        """The oldest in the queue waits for a word, whether it may be read (gateway.asking), and those behind it for it."""
        self.congested = False
        """The client does not read what was written to it: nothing more is, however much the window would take."""

    def offer(self, out: list[bytes], qos: int, head: bytes, tail: bytes, expires_ms: int, of_group: GroupMessage | None = None) -> bool:
        """Send a QoS 1 or 2 message now, appending to `out`, or keep it for later; whether it was sent."""
        if self.sends_now():
            packet_id = self.take_id(qos)
            out += (head, packet_id_bytes[packet_id], tail)
            if of_group is not None and qos == 1 and self.kept_bytes + of_group.size <= self._bytes_max:
                self.kept[packet_id] = of_group
                self.kept_bytes += of_group.size
            return True
        queue = self.queue
        if isinstance(queue, tuple):
            queue = self.queue = deque()
        queue.append((qos, head, tail, expires_ms, of_group))
        self.queue_bytes += len(head) + len(tail)
        while len(queue) > self._count_max or self.queue_bytes > self._bytes_max:
            _, old_head, old_tail, _, _ = queue.popleft()
            self.queue_bytes -= len(old_head) + len(old_tail)
            self.counters.live_dropped_queue_full += 1
        return False

    def take_id(self, qos: int) -> int:
        """For a message that leaves now; there is room in the window, so some id is free."""
        packet_id = self._last_id % 65_535 + 1
        while packet_id in self.inflight:
            packet_id = packet_id % 65_535 + 1
        self._last_id = packet_id
        self.inflight[packet_id] = qos  # QoS 1 waits for PUBACK, QoS 2 for PUBREC
        return packet_id

    def sends_now(self) -> bool:
        """Whether what is offered next leaves at once."""
        return len(self.inflight) < self.window and not self.stalled and not self.congested

    def next_topics(self) -> list[bytes]:
        """Of what waits, as far as the window would take it."""
        return [topic_of_head(row[1]) for row in islice(self.queue, self.window - len(self.inflight))]

    def takes(self, size: int) -> bool:
        """Whether a message of a group can be added without dropping another, and be kept."""
        return len(self.queue) < self._count_max and self.queue_bytes + self.kept_bytes + size <= self._bytes_max

    def has_room(self) -> bool:
        """Whether retained messages may be added: they are fetched no faster than the client takes them."""
        return 2 * len(self.queue) < self._count_max and 2 * self.queue_bytes < self._bytes_max

    def acknowledge(self, packet_ids: list[int], awaited: int) -> list[int] | None:
        """The client's answer of one kind: the ids that were in flight; None when one waits for another kind of answer.
        A PUBREC may be repeated: it is one more request for PUBREL."""
        inflight = self.inflight
        known: list[int] = []
        for packet_id in packet_ids:
            state = inflight.get(packet_id)
            if state is None:
                continue
            if state != awaited and (awaited, state) != (AWAIT_PUBREC, AWAIT_PUBCOMP):
                return None
            known.append(packet_id)
            if awaited == AWAIT_PUBREC:
                inflight[packet_id] = AWAIT_PUBCOMP
            else:
                del inflight[packet_id]
        if self.kept and awaited == AWAIT_PUBACK:
            for packet_id in known:
                message = self.kept.pop(packet_id, None)
                if message is not None:
                    self.kept_bytes -= message.size
        return known

    def give_up(self, packet_id: int) -> bool:
        """PUBREC with an error: the delivery is over.  False when the id waits for no PUBREC."""
        if self.inflight.get(packet_id) != AWAIT_PUBREC:
            return False
        del self.inflight[packet_id]
        return True

    def refill(self, out: list[bytes], wall_ms: int, guard: Guard | None = None) -> list[tuple[bytes, GroupMessage | None]]:
        """Send what waits, as far as the window allows.  Returns what may not be read any more, and is not sent: topics, and of which
        group each message is."""
        withheld: list[tuple[bytes, GroupMessage | None]] = []
        queue = self.queue
        self.stalled = False
        while queue and len(self.inflight) < self.window and not self.congested:
            if guard is not None and guard.knows_not(topic_of_head(queue[0][1])):
                self.stalled = True
                break
            qos, head, tail, expires_ms, of_group = queue.popleft()
            self.queue_bytes -= len(head) + len(tail)
            if guard is not None and not guard.may_read(topic_of_head(head)):
                withheld.append((topic_of_head(head), of_group))
                continue
            if expires_ms:
                left_ms = expires_ms - wall_ms
                if left_ms <= 0:
                    self.counters.live_dropped_expired += 1
                    continue
                if self._has_properties:
                    # The interval is there already, and four bytes stay four bytes: the head remains right.
                    tail = with_message_expiry(tail, -(-left_ms // 1000))
            self.offer(out, qos, head, tail, expires_ms, of_group)
        return withheld

    def let_go(self, group: bytes) -> list[GroupMessage]:
        """Its connection is no member of this group any more, against its will: what waits of it is not sent, but returned."""
        messages = [row[4] for row in self.queue if row[4] is not None and row[4].group == group]
        if messages:
            self.queue = deque([row for row in self.queue if row[4] is None or row[4].group != group])
            self.queue_bytes = sum(len(head) + len(tail) for _, head, tail, _, _ in self.queue)
        return messages

    def orphans(self) -> list[GroupMessage]:
        """At the end of the session: what other members of its groups are to get."""
        return [*self.kept.values(), *[of_group for _, _, _, _, of_group in self.queue if of_group is not None]]

    def check(self) -> None:
        assert len(self.inflight) <= self.window
        assert not self.queue or len(self.inflight) == self.window or self.stalled or self.congested
        assert len(self.queue) <= self._count_max and self.queue_bytes <= self._bytes_max
        assert self.queue_bytes == sum(len(head) + len(tail) for _, head, tail, _, _ in self.queue)
        assert all(self.inflight.get(packet_id) == AWAIT_PUBACK for packet_id in self.kept)
        assert self.kept_bytes == sum(message.size for message in self.kept.values()) <= self._bytes_max
