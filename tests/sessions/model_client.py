"""An MQTT client as the session core sees it through a gateway: it keeps the receiver's half of QoS 2 and counts its window."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from mqtt.topics import matches
from sessions.frames import PUBACK, PUBCOMP, PUBREC, Acked, Deliver


@dataclass(slots=True, eq=False)
class Received:
    """One PUBLISH that counts as a new message for the application."""

    identifier: int
    qos: int
    topic: bytes
    body: bytes
    retain: bool


@dataclass
class ModelClient:
    name: bytes
    receive_max: int
    conn: int = 0
    former: set[int] = field(default_factory=set)
    link: int = 0
    online: bool = False
    attached: bool = False
    wishes: dict[bytes, None] = field(default_factory=dict)
    """Filters whose SUBACK came, and no UNSUBSCRIBE was sent since."""
    filters_of: dict[int, list[bytes]] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    unreleased: set[int] = field(default_factory=set)
    """QoS 2 ids that were received and got no PUBREL: the session state of a receiver."""
    unanswered: list[tuple[int, int]] = field(default_factory=list)
    """(packet id, QoS) to be acknowledged on this connection."""
    released: list[int] = field(default_factory=list)
    in_flight: dict[int, int] = field(default_factory=dict)
    asked: dict[int, list[tuple[bytes, int]]] = field(default_factory=dict)
    leaving: dict[int, list[bytes]] = field(default_factory=dict)
    refused: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    """(identifier, topic, body) of messages that got a PUBREC with an error: the application has not taken them."""
    waived: dict[bytes, int] = field(default_factory=dict)
    """By filter: messages before this one need not come."""
    message_of: dict[int, Received] = field(default_factory=dict)
    """QoS 2 messages that came once, by id: an error in PUBREC would be the first answer to them."""
    last_packet: int = 0

    def filter_of(self, identifier: int, topic: bytes) -> bytes:
        (found,) = [filter for filter in self.filters_of[identifier] if matches(filter, topic)]
        return found

    def connected(self, conn: int, link: int, fresh: bool) -> None:
        self.former.add(self.conn)
        self.conn, self.link, self.online, self.attached = conn, link, True, False
        self._gone()
        if fresh:
            self.unreleased.clear()
            self.wishes.clear()

    def disconnected(self) -> None:
        self.online = self.attached = False
        self._gone()

    def _gone(self) -> None:
        self.unanswered.clear()
        self.released.clear()
        self.in_flight.clear()
        self.asked.clear()
        self.leaving.clear()

    def deliver(self, frame: Deliver, column: tuple[int, list[int], list[int], bytes, list[int]]) -> None:
        _, indexes, packet_ids, firsts, identifiers = column
        assert len(indexes) == len(packet_ids) == len(firsts) == len(identifiers) > 0
        assert self.attached, "PUBLISH before CONNACK"
        for index, packet_id, first, identifier in zip(indexes, packet_ids, firsts, identifiers, strict=True):
            topic, body, _, _ = frame.messages[index]
            qos, dup = first >> 1 & 3, first & 8
            assert first & 0xF0 == 0x30
            assert (qos == 0) == (packet_id == 0)
            message = Received(identifier, qos, topic, body, bool(first & 1))
            if qos:
                assert packet_id not in self.in_flight, f"packet id {packet_id} is under way twice"
                self.in_flight[packet_id] = qos
                assert len(self.in_flight) <= self.receive_max, "the window is overrun"
                self.unanswered.append((packet_id, qos))
            if qos == 2:
                assert dup or packet_id not in self.unreleased, "a repeat without DUP"
                if packet_id in self.unreleased:
                    self.message_of.pop(packet_id, None)
                    continue
                self.unreleased.add(packet_id)
                self.message_of[packet_id] = message
            self.received.append(message)

    def pubrel(self, packet_ids: list[int]) -> None:
        assert self.attached
        for packet_id in packet_ids:
            assert (packet_id, 2) not in self.unanswered, "PUBREL for a PUBLISH that has no PUBREC"
            self.unreleased.discard(packet_id)
            self.message_of.pop(packet_id, None)
            self.released.append(packet_id)

    def acknowledge(self, rng: Random, everything: bool = False) -> list[Acked]:
        """Some acknowledgements, mostly in order."""
        frames: list[Acked] = []
        count = len(self.unanswered) if everything else rng.randint(0, min(len(self.unanswered), 8))
        for _ in range(count):
            at = 0 if everything or rng.random() < 0.8 else rng.randrange(len(self.unanswered))
            packet_id, qos = self.unanswered.pop(at)
            if qos == 1:
                del self.in_flight[packet_id]
                _join(frames, self.conn, PUBACK, packet_id)
            elif not everything and packet_id in self.message_of and rng.random() < 0.05:
                del self.in_flight[packet_id]
                self.unreleased.discard(packet_id)
                message = self.message_of.pop(packet_id)
                self.received.remove(message)
                self.refused.add((message.identifier, message.topic, message.body))
                frames.append(Acked(self.conn, PUBREC, [packet_id], True))
            else:
                _join(frames, self.conn, PUBREC, packet_id)
        while self.released and (everything or rng.random() < 0.8):
            packet_id = self.released.pop(0 if everything or rng.random() < 0.8 else rng.randrange(len(self.released)))
            self.in_flight.pop(packet_id, None)
            _join(frames, self.conn, PUBCOMP, packet_id)
        return frames


def _join(frames: list[Acked], conn: int, kind: int, packet_id: int) -> None:
    if frames and frames[-1].kind == kind and not frames[-1].failed:
        frames[-1].packet_ids.append(packet_id)
    else:
        frames.append(Acked(conn, kind, [packet_id], False))
