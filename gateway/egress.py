"""What session actors send to durable connections, and the acknowledgements of all subscribers.

Deliver is the hot path: the bytes of a message are cut once, however many connections get it, and a delivery appends three
slices and a packet id.  Properties, sizes and ages are looked at only when a flag of the message or a limit of the client
says so.  A message that the rules keep from its client, or that is too old, or larger than the client takes [MQTT-3.1.2-24], is
acknowledged to the session actor in the client's place, so the session goes on as if it had been delivered.

Windows and packet ids of durable sessions belong to the session actor; those of ephemeral ones to gateway.ephemeral.
"""

from __future__ import annotations

from functools import partial

from gateway.asker import Asker
from gateway.asking import Asking
from gateway.closing import Closing
from gateway.connection import Connection, Phase
from gateway.ephemeral import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC
from gateway.reasons import refusal
from gateway.second import Row, Second, Seconds
from gateway.state import State
from mqtt.body import message_expiry, with_message_expiry, with_subscription_ids
from mqtt.encode import PublishTemplate, acks, packet_id_bytes, publishes
from mqtt.packets import MQTT_5, Ack, AckKind, AckRun, Item
from mqtt.reason import ReasonCode
from sessions.bodies import REPLAYED
from sessions.frames import PUBREC, Acked, Deliver, Hold
from sessions.window import PLENTY
from shards.messages import PER_DELIVERY

_AWAITED = {AckKind.PUBACK: AWAIT_PUBACK, AckKind.PUBREC: AWAIT_PUBREC, AckKind.PUBCOMP: AWAIT_PUBCOMP}
_LOOKED_AT = PER_DELIVERY | REPLAYED
_FAILED = 0x80
_DUP = 8


class Egress:
    def __init__(self, state: State, closing: Closing, asking: Asking, seconds: Seconds) -> None:
        self._state = state
        self._seconds = seconds
        self._closing = closing
        self._asking = asking

    # ---------------------------------------------------------------- from session actors
    def deliver(self, frame: Deliver) -> None:
        state = self._state
        by_conn = state.by_conn.get
        dirty = state.outbox.dirty
        # What several get is put together once.
        shared = sum(len(indexes) for _, indexes, _, _, _ in frame.to) > len(frame.messages)
        templates = _templates(frame) if shared else []
        per_delivery = replayed = False
        size = 0
        for _, body, published_at_ms, flags in frame.messages:
            size += len(body)
            if flags & _LOOKED_AT:
                per_delivery |= flags & PER_DELIVERY != 0 and not _as_published(body, published_at_ms, state.wall_ms)
                replayed |= flags & REPLAYED != 0
        for conn, indexes, packet_ids, firsts, identifiers in frame.to:
            connection = by_conn(conn)
            if connection is None:
                second = state.seconds.get(conn)
                if second is not None:
                    rows = zip(indexes, packet_ids, firsts, identifiers, strict=True)
                    second.waiting += [Row(*frame.messages[index], *row) for index, *row in rows]
                    self._lend(second)
                continue
            if connection.phase is not Phase.ONLINE:
                continue
            numbered = len(packet_ids) - packet_ids.count(0)
            connection.owed += numbered
            handshakes = connection.handshakes
            if handshakes is not None:
                connection.given += numbered - handshakes.given(packet_ids)
            asker = connection.asker
            if asker is not None and any(asker.must_wait(frame.messages[index][0]) for index in indexes):
                self._deliver_later(asker, frame, templates or _templates(frame), indexes, packet_ids, firsts, identifiers)
                continue
            guard = connection.guard
            if (
                (guard is not None and (replayed or not guard.reads_all(frame, indexes)))
                or per_delivery or connection.packet_max or (connection.version == MQTT_5 and any(identifiers))
                or connection.aliases_out is not None or (connection.congested and connection.memory)
            ):  # fmt: skip
                self._deliver_with_care(connection, frame, templates or _templates(frame), indexes, packet_ids, firsts, identifiers)
                continue
            out = connection.out
            if not out:
                dirty.append(connection)
            state.counters.durable_delivered += len(indexes)
            # Mostly a connection gets all of a frame; who gets some of it is counted by the mean.
            state.counters.publish_bytes_sent += size * len(indexes) // len(frame.messages)
            if not shared:
                out += publishes(connection.version, frame.messages, indexes, packet_ids, firsts)
                continue
            is_5 = connection.version == MQTT_5
            for index, packet_id, first in zip(indexes, packet_ids, firsts, strict=True):
                template = templates[index]
                head, tail = template.v5(first) if is_5 else template.v3(first)
                if packet_id:
                    out += (head, packet_id_bytes[packet_id], tail)
                else:
                    out += (head, tail)

    def _deliver_later(
        self, asker: Asker, frame: Deliver, templates: list[PublishTemplate],
        indexes: list[int], packet_ids: list[int], firsts: bytes, identifiers: list[int],
    ) -> None:  # fmt: skip
        """A plugin has the word: one by one, as that comes."""
        for at, index in enumerate(indexes):
            topic, body, _, _ = frame.messages[index]
            end = at + 1
            send = partial(
                self._deliver_with_care, asker.connection, frame, templates,
                indexes[at:end], packet_ids[at:end], firsts[at:end], identifiers[at:end],
            )  # fmt: skip
            self._asking.later(asker, topic, len(topic) + len(body), send, droppable=not packet_ids[at])
        self._asking.drain(asker)

    def _deliver_with_care(
        self, connection: Connection, frame: Deliver, templates: list[PublishTemplate],
        indexes: list[int], packet_ids: list[int], firsts: bytes, identifiers: list[int],
    ) -> None:  # fmt: skip
        state = self._state
        for index, packet_id, first, identifier in zip(indexes, packet_ids, firsts, identifiers, strict=True):
            if not packet_id and connection.congested and connection.memory:
                state.counters.live_dropped_slow += 1
                continue
            row = Row(*frame.messages[index], packet_id, first, identifier)
            if not self._send(connection, row, packet_id, templates[index]):
                self._done_unsent(connection, packet_id, first)

    def _send(self, connection: Connection, row: Row, packet_id: int, template: PublishTemplate) -> bool:
        """False: it may not be read, is too old, or larger than the client takes."""
        state, guard = self._state, connection.guard
        topic, body, published_at_ms, flags, _, first, identifier = row
        if guard is not None and not (guard.may_replay(topic) if flags & REPLAYED else guard.may_read(topic)):
            state.suppressed(connection, topic)
            return False
        if flags & PER_DELIVERY:
            expiry_s = message_expiry(body)
            if expiry_s is not None:
                left_ms = published_at_ms + expiry_s * 1000 - state.wall_ms
                # A message sent before is sent again whatever its age: the client may be waiting for it.
                if left_ms <= 0 and not first & _DUP:
                    state.counters.durable_expired += 1
                    return False
                body = with_message_expiry(body, min(expiry_s, max(1, -(-left_ms // 1000))))
        if identifier and connection.version == MQTT_5:
            body = with_subscription_ids(body, (identifier,))
        if body is not template.body:
            template = PublishTemplate(topic, body)
        if connection.packet_max and template.packet_bytes(connection.version, first) > connection.packet_max:
            state.counters.durable_too_large += 1
            return False
        if connection.aliases_out is not None:
            template = connection.aliases_out.shorten(template, connection.packet_max, first)
        head, tail = template.parts(connection.version, first)
        state.outbox.write(connection, b"".join((head, packet_id_bytes[packet_id] if packet_id else b"", tail)), 0)
        state.counters.publish_bytes_sent += len(tail)
        state.counters.durable_delivered += 1
        return True

    # ---------------------------------------------------------------- from those of second sessions
    def _lend(self, second: Second) -> None:
        """Send what waits of a second session, as far as the window of its connection allows."""
        connection, waiting = second.connection, second.waiting
        session, asker = connection.ephemeral, connection.asker
        if session is None:
            return
        while waiting and (not waiting[0].packet_id or len(session.inflight) < session.window):
            row = waiting.popleft()
            packet_id = self._seconds.lend(second, row)
            if asker is not None and asker.must_wait(row.topic):
                send = partial(self._send_lent, second, row, packet_id)
                self._asking.later(asker, row.topic, len(row.topic) + len(row.body), send, droppable=not packet_id)
            else:
                self._send_lent(second, row, packet_id)
        if asker is not None:
            self._asking.drain(asker)

    def _send_lent(self, second: Second, row: Row, packet_id: int) -> None:
        if not self._send(second.connection, row, packet_id, PublishTemplate(row.topic, row.body)):
            self._seconds.unsent(second, packet_id, row)
            self._refill_own(second.connection)

    def _done_unsent(self, connection: Connection, packet_id: int, first: int) -> None:
        """Acknowledge a delivery in the client's place: PUBACK, or the PUBREC with an error that ends a QoS 2 delivery.

        One that may have been sent before ends by PUBREL and PUBCOMP: the client may hold its identifier from its former connection,
        and would take the next message under it for a repeat [MQTT-4.3.3-10]."""
        if first & 4 and first & _DUP:
            self._acked(connection, AckKind.PUBREC, [packet_id])
        elif first & 4:
            self._failed(connection, packet_id)
        elif packet_id:
            self._acked(connection, AckKind.PUBACK, [packet_id])

    def hold(self, connection: Connection) -> None:
        """It does not read what was written to it, or does so again.  A window of large messages is more than may wait for a client, so
        whoever has the window is told."""
        session = connection.ephemeral
        if session is not None:
            session.congested = connection.congested
            if not connection.congested:
                self.refill(connection)
        self._seconds.hold(connection)
        if connection.attached:
            self._state.outbox.to_session(connection.session, Hold(connection.conn, connection.congested))

    def send_pubrel(self, connection: Connection, packet_ids: list[int], found: bool) -> None:
        if packet_ids:
            if connection.handshakes is not None and found:
                connection.handshakes.released(packet_ids)
            self._pubrels(connection, packet_ids, packet_ids if found else [])

    # ---------------------------------------------------------------- acknowledgements of subscribers
    def may_wait(self, connection: Connection, items: list[Item]) -> bool:
        """Asked before they are taken: only PUBACKs, of one that could be sent plenty before them. Nobody waits for what they bring."""
        if connection.owed * PLENTY > connection.receive_max or connection.phase is not Phase.ONLINE:
            return False
        if connection.ephemeral is not None or connection.asker is not None or connection.pace is not None:
            return False
        return all(type(item) is AckRun and item.kind is AckKind.PUBACK for item in items)

    def acknowledge(self, connection: Connection, kind: AckKind, packet_ids: list[int]) -> None:
        """PUBACK, PUBREC or PUBCOMP without an error."""
        session = connection.ephemeral
        if session is None:
            self._acked(connection, kind, packet_ids)
            return
        second = connection.second
        if second is not None:
            others = self._seconds.acknowledge(second, kind, packet_ids)
            if others is None:
                self._closing.violation(connection, f"{kind.name} for a message that waits for another answer")
                return
            if not others:
                self.refill(connection)
                return
            packet_ids = others
        known = session.acknowledge(packet_ids, _AWAITED[kind])
        if known is None:
            self._closing.violation(connection, f"{kind.name} for a message that waits for another answer")
            return
        if kind is AckKind.PUBREC:
            self._pubrels(connection, packet_ids, known)
        else:
            self.refill(connection)

    def acknowledge_one(self, connection: Connection, packet: Ack) -> None:
        """One acknowledgement with a reason code or properties.  Only for PUBREC does an error change anything."""
        if packet.kind is not AckKind.PUBREC or packet.reason < _FAILED:
            self.acknowledge(connection, packet.kind, [packet.packet_id])
            return
        session = connection.ephemeral
        if session is None:
            self._failed(connection, packet.packet_id)
        elif session.give_up(packet.packet_id):
            if connection.second is not None and packet.packet_id in connection.second.lent:
                self._seconds.give_up(connection.second, packet.packet_id)
            self.refill(connection)
        elif packet.packet_id in session.inflight:
            self._closing.violation(connection, "PUBREC for a message that waits for another answer")

    def _acked(self, connection: Connection, kind: AckKind, packet_ids: list[int]) -> None:
        """To the session actor, if there is one that knows the connection (gateway.moving)."""
        if kind is not AckKind.PUBREC:
            connection.owed -= len(packet_ids)
        handshakes = connection.handshakes
        if handshakes is not None:
            if kind is AckKind.PUBACK:
                connection.answers += len(packet_ids)
            else:
                handshakes.answered(kind, packet_ids, connection.moving)
            if connection.moving:
                return
        self._state.outbox.acked(connection, int(kind), packet_ids)

    def _failed(self, connection: Connection, packet_id: int) -> None:
        if connection.handshakes is not None:
            connection.handshakes.refused(packet_id, connection.moving)
            if connection.moving:
                return
        self._state.outbox.to_session(connection.session, Acked(connection.conn, PUBREC, [packet_id], True))
        connection.ack_kind = 0  # what comes next must not join what stands before this

    def _pubrels(self, connection: Connection, packet_ids: list[int], known: list[int]) -> None:
        """PUBREL for each, with 0x92 for those that were not in flight: the client must be able to end its handshake."""
        outbox = self._state.outbox
        if len(known) == len(packet_ids) or connection.version != MQTT_5:
            outbox.write(connection, acks(connection.version, AckKind.PUBREL, packet_ids), len(packet_ids))
            return
        inflight = dict.fromkeys(known)
        for packet_id in packet_ids:
            if packet_id in inflight:
                outbox.write(connection, acks(MQTT_5, AckKind.PUBREL, [packet_id]))
            else:
                outbox.write(connection, refusal(connection, AckKind.PUBREL, packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))

    def refill(self, connection: Connection) -> None:
        """The window of an ephemeral session has room, or it is known whether what waits may be read."""
        session, second = connection.ephemeral, connection.second
        if connection.asker is not None:
            connection.asker.awaits_refill = None
        if second is not None and session is not None and 2 * len(second.lent) < session.window:
            self._lend(second)
        self._refill_own(connection)
        if second is not None:
            self._lend(second)

    def _refill_own(self, connection: Connection) -> None:
        session, asker = connection.ephemeral, connection.asker
        if session is not None and session.queue:
            if not connection.out:
                self._state.outbox.dirty.append(connection)
            for topic, of_group in session.refill(connection.out, self._state.wall_ms, connection.guard):
                self._state.suppressed(connection, topic)
                if of_group is not None:
                    self._state.orphans.append(of_group if asker is None else of_group.refused())
            if session.stalled and asker is not None:
                self._asking.stalled(asker, session.next_topics())


def _as_published(body: bytes, published_at_ms: int, wall_ms: int) -> bool:
    """Of a message that expires: what is left of its interval, in seconds that have begun, is all of it."""
    return wall_ms - published_at_ms < 1000 and message_expiry(body) != 0


def _templates(frame: Deliver) -> list[PublishTemplate]:
    return [PublishTemplate(topic, body) for topic, body, _, _ in frame.messages]
