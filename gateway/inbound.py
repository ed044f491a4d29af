"""PUBLISH and PUBREL from clients, and what the home shard answers.

QoS 1 and 2 go to the publisher's home shard and are acknowledged when it has answered; only then live subscribers get them
(PROTOCOLS 9).  QoS 0 goes live at once; with RETAIN, or to be stored for durable sessions, it goes to the shard as well.
Acknowledgements leave in the order of the messages [MQTT-4.6.0-2, -3].

Messages that the persistence filter excludes are marked here, and go the same way otherwise (shards.persistence).

Ids of incoming QoS 2 messages are rows of the home when the session outlives the connection; otherwise they are known here
only, until PUBREL.  What a client may have unanswered: MQTT 5 clients are told a Receive Maximum and closed with 0x93 above
it; a 3.1.1 client is not read while it is over the same bound.  A shard with too much unanswered stops the reading of those
who publish to it.

A message that the store refuses for its quota gets 0x97; 3.1.1 has no such answer, so the connection is closed: an
acknowledgement would be a lie, and silence would keep the client waiting for ever.  A topic that clients may not publish
to gets 0x90, one that the rules keep from this client 0x87; a 3.1.1 client is acknowledged and nothing is done, as its
specification has it.  Of a session that is resumed the home is asked first whether a QoS 2 message that is not permitted is a
repeat of one that was: then it is acknowledged, because its identifier is taken there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import groupby, takewhile

from access.rights import Right
from gateway.bridges import comes_as_bridge
from gateway.closing import Closing
from gateway.connecting import is_as_said, is_reserved
from gateway.connection import AWAITING_ANSWER, AWAITING_PUBREL, OWN_BOUND, SHARD_BOUND, Connection, Phase
from gateway.delaying import is_delayed, read_delays
from gateway.fanout import Fanout
from gateway.live import LiveTable
from gateway.outbox import ShardQueue
from gateway.persisting import says_persist, without_prefix
from gateway.reasons import refusal
from gateway.rights import may_publish, publishing
from gateway.state import State
from mqtt.body import properties_of, strip_properties
from mqtt.encode import acks
from mqtt.packets import MQTT_5, AckKind, Publish, PublishRun
from mqtt.reason import ReasonCode
from shards.frames import NOBODY, NOT_PERMITTED, REFUSED_QUOTA, REFUSED_RULES, REPEATED, STORED, Delay, Published, Release, Released
from shards.frames import Publish as PublishEntry
from shards.persistence import NOT_STORED, Persistence, stored_flags

_AT_ONCE, _KEPT, _QOS1, _QOS2 = 0, 1, 2, 3
"""What the flags of a PUBLISH mean for its way: QoS 0, QoS 0 that goes to the shard as well (with RETAIN, or to be stored for
durable sessions under store_qos0), QoS 1, QoS 2."""
_DOLLAR = 0x24
_NOT_RETAINED = bytes(range(0, 256, 2))
_NO_BODY = b"\0"


class Inbound:
    def __init__(self, state: State, table: LiveTable, fanout: Fanout, closing: Closing, newest_of: Callable[[bytes], int]) -> None:
        """newest_of: the newest connection of a publisher that any gateway has been heard to hold."""
        self._newest_of = newest_of
        self._state = state
        self._table = table
        self._fanout = fanout
        self._closing = closing
        self._persistence = state.options.persistence
        self._ways = _ways(state.options.store_qos0)

    # ---------------------------------------------------------------- PUBLISH
    def publish(self, connection: Connection, packet: Publish) -> None:
        """One PUBLISH with properties: its topic may be an alias."""
        topic = packet.topic
        alias = packet.properties.topic_alias
        if alias is not None:
            if alias > self._state.options.topic_alias_maximum:
                self._closing.violation(connection, f"topic alias {alias}", ReasonCode.TOPIC_ALIAS_INVALID)
                return
            if topic:
                connection.aliases[alias] = topic
            else:
                known = connection.aliases.get(alias)
                if known is None:
                    # [MQTT-3.3.2-12] bounds the number; an alias never given a topic is a protocol error of the client.
                    self._closing.violation(connection, f"topic alias {alias} has no topic")
                    return
                topic = known
        if self._state.options.payload_format_check and not is_as_said(packet.properties, packet.payload):
            self._state.counters.publishes_refused_format += 1
            way = self._ways[packet.flags]
            self._refuse(connection, way, packet.packet_id, connection.sent, ReasonCode.PAYLOAD_FORMAT_INVALID)
            return
        flags = packet.flags | says_persist(packet.properties) if packet.properties.user_properties else packet.flags
        self.publish_run(connection, PublishRun([flags], [packet.packet_id], [topic], [packet.body]))

    def received_run(self, connection: Connection, run: PublishRun) -> None:
        """As it came; one by one where somebody wants to know whether payloads are what their properties say."""
        if not self._state.options.payload_format_check or not any(body[0] for body in run.bodies):
            self.publish_run(connection, run)
            return
        for flags, packet_id, topic, body in zip(run.flags, run.packet_ids, run.topics, run.bodies, strict=True):
            if connection.phase is Phase.ONLINE:
                self.publish(connection, Publish(flags, packet_id, topic, strip_properties(body), properties_of(body), body))

    def publish_run(self, connection: Connection, run: PublishRun) -> None:
        state = self._state
        dollars = _DOLLAR in [topic[0] for topic in run.topics]
        if dollars:
            run = without_prefix(run)
        if self._persistence is not None:
            run = _marked(run, self._persistence)
        flags, topics = run.flags, run.topics
        count = len(flags)
        of_all = bytes(flags)
        state.counters.publishes_received += count
        state.counters.publish_bytes_received += sum(map(len, run.bodies))
        ways = of_all.translate(self._ways)
        if not state.options.retain and of_all.translate(None, _NOT_RETAINED):
            self._closing.violation(connection, "RETAIN, which is not available", ReasonCode.RETAIN_NOT_SUPPORTED)  # [MQTT-3.2.2-14]
            return
        profile = connection.profile
        permitted = profile is None or (profile.publishable.issuperset(topics) and not of_all.translate(None, _NOT_RETAINED))
        if permitted and not dollars:
            if ways.count(_QOS1) == count:
                connection.qos1_unanswered += count
                self._to_shard(connection, count, flags, run.packet_ids, topics, run.bodies)
                return
            if ways.count(_AT_ONCE) == count:
                self._fanout.hand_over(connection.client, connection.conn, flags, topics, run.bodies)
                return
            if ways.count(_KEPT) == count:
                self._fanout.hand_over(connection.client, connection.conn, flags, topics, run.bodies)
                self._to_shard(connection, 0, flags, run.packet_ids, topics, run.bodies)
                return
        delay_max_s = state.options.delayed_max_s
        if not dollars or delay_max_s is None:
            self._mixed(connection, run, ways)
            return
        # Delayed messages go another way, in the order of the connection.
        for delayed, group in groupby(range(count), lambda index: is_delayed(topics[index])):
            part = PublishRun(*_columns(run, list(group)))
            if delayed:
                delays = read_delays(part, delay_max_s)
                self._mixed(connection, delays.run, bytes(part.flags).translate(self._ways), delays.seconds)
            else:
                self._mixed(connection, part, bytes(part.flags).translate(self._ways))

    def _mixed(self, connection: Connection, run: PublishRun, ways: bytes, seconds: list[int] | None = None) -> None:
        """A run that does not go one way as a whole, or of which some may not be permitted.  seconds: by which each is delayed."""
        taken: list[int] = []
        at_once: list[int] = []
        answered_later = 0
        state = self._state
        qos2_in = connection.qos2_in
        profile = connection.profile
        if state.options.await_rel_ms:
            self._await_no_more(connection)
        for index, way in enumerate(ways):
            packet_id = run.packet_ids[index]
            topic = run.topics[index]
            if is_reserved(topic):
                state.counters.publishes_refused_topic += 1
                self._refuse(connection, way, packet_id, connection.sent + answered_later, ReasonCode.TOPIC_NAME_INVALID)
                continue
            # What is under way already was permitted when it came: refused now, its id would be free for the client, and taken here.
            under_way = way == _QOS2 and packet_id in qos2_in
            if profile is not None and not under_way and not may_publish(profile, run.flags[index], topic, seconds is not None):
                if way == _QOS2 and connection.present:
                    run = _not_permitted(run, index)  # Its home knows whether it was taken over a former connection.
                else:
                    self._denied(connection, publishing(run.flags[index], seconds is not None), topic)
                    self._refuse(connection, way, packet_id, connection.sent + answered_later, ReasonCode.NOT_AUTHORIZED)
                    continue
            if way <= _KEPT:
                if seconds is None:
                    at_once.append(index)
                if way == _KEPT or seconds is not None:
                    taken.append(index)
                continue
            if way == _QOS1:
                connection.qos1_unanswered += 1
            elif packet_id in qos2_in and not connection.durable:
                # Known by its id, never by the DUP flag [MQTT-4.3.3-10]; before the first answer one PUBREC will serve both.
                state.counters.publishes_repeated += 1
                if qos2_in[packet_id] == AWAITING_PUBREL:
                    answer = acks(connection.version, AckKind.PUBREC, [packet_id])
                    self._answer_in_turn(connection, connection.sent + answered_later, answer)
                continue
            else:
                qos2_in[packet_id] = AWAITING_ANSWER
                if state.options.await_rel_ms:
                    connection.qos2_since.setdefault(packet_id, state.now_ms)
            taken.append(index)
            answered_later += 1
        if at_once:
            flags, _, topics, bodies = _columns(run, at_once)
            self._fanout.hand_over(connection.client, connection.conn, flags, topics, bodies)
        if taken:
            delays = [seconds[index] for index in taken] if seconds is not None else None
            self._to_shard(connection, answered_later, *_columns(run, taken), delays)

    def _to_shard(
        self, connection: Connection, answered_later: int, flags: list[int], packet_ids: list[int], topics: list[bytes],
        bodies: list[bytes], seconds: list[int] | None = None,
    ) -> None:  # fmt: skip
        state = self._state
        options = state.options
        connection.sent += answered_later
        if len(connection.qos2_in) > options.awaiting_rel_max and not comes_as_bridge(connection):
            self._closing.violation(connection, "too many messages without PUBREL", ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
            return
        if connection.version == MQTT_5:
            if connection.qos1_unanswered + len(connection.qos2_in) > connection.receive_max_in:
                self._closing.violation(connection, "more unanswered messages than announced", ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
                return
        elif connection.sent - connection.answered > connection.receive_max_in:
            state.outbox.pause(connection, OWN_BOUND)
        if seconds is None:
            queue = state.outbox.publish(connection, flags, packet_ids, topics, bodies)
        else:
            queue = state.outbox.delay(connection, flags, packet_ids, seconds, topics, bodies)
        if queue.messages > options.shard_messages_max or queue.bytes > options.shard_bytes_max:
            state.outbox.pause(connection, SHARD_BOUND)
            queue.paused[connection] = None

    def _denied(self, connection: Connection, right: Right, topic: bytes) -> None:
        self._state.counters.publishes_denied += 1
        self._state.denials.note(connection.client, right, topic)

    def _refuse(self, connection: Connection, way: int, packet_id: int, after: int, code: ReasonCode) -> None:
        if way <= _KEPT:
            return
        kind = AckKind.PUBACK if way == _QOS1 else AckKind.PUBREC
        self._answer_in_turn(connection, after, refusal(connection, kind, packet_id, code))

    def _answer_in_turn(self, connection: Connection, after: int, data: bytes) -> None:
        """An answer that needs no shard goes out when the first `after` messages of the connection have theirs."""
        if connection.answered >= after and not connection.deferred:
            self._state.outbox.write(connection, data)
        elif connection.deferred is None:
            connection.deferred = deque([(after, data)])
        else:
            connection.deferred.append((after, data))

    # ---------------------------------------------------------------- the shard's answer to PUBLISH
    def published(self, connection: Connection, entry: PublishEntry, reply: Published) -> None:
        if reply.stale:
            self._closing.superseded(connection)
            return
        ways = entry.flags.translate(self._ways)
        codes = reply.codes
        count = len(ways)
        one_way = ways.count(_QOS1) == count
        nobody = codes.count(NOBODY)
        taken = not codes or nobody + codes.count(STORED) == count
        self._state.counters.publishes_not_stored += nobody
        if connection.phase is Phase.ONLINE:
            if one_way and taken and not connection.deferred and not (nobody and self._some_unheard(connection, entry, codes)):
                connection.answered += count
                connection.qos1_unanswered -= count
                self._state.outbox.write(connection, acks(connection.version, AckKind.PUBACK, entry.packet_ids), count)
            else:
                self._answer(connection, entry, ways, codes)
            self._read_again(connection)
        if not len(self._table):
            return
        if entry.conn < self._newest_of(entry.client):
            # This gateway stood still while its publisher went on at another one, whose messages are delivered: these would
            # come behind newer ones.  They are stored and acknowledged; live subscribers may miss what was in flight.
            self._state.counters.forwards_stale += count
            return
        if one_way and taken:
            self._fanout.hand_over(entry.client, entry.conn, entry.flags, entry.topics, entry.bodies)
            return
        wanted = [i for i in range(count) if ways[i] > _KEPT and (not codes or codes[i] in (STORED, NOBODY))]
        self._fanout.hand_over(
            entry.client,
            entry.conn,
            bytes([entry.flags[i] for i in wanted]),
            [entry.topics[i] for i in wanted],
            [entry.bodies[i] for i in wanted],
        )

    def delayed(self, connection: Connection, entry: Delay, reply: Published) -> None:
        """What waits in the store is acknowledged; nobody gets it yet."""
        if reply.stale:
            self._closing.superseded(connection)
        elif connection.phase is Phase.ONLINE:
            self._answer(connection, entry, entry.flags.translate(self._ways), reply.codes)
            self._read_again(connection)

    def _some_unheard(self, connection: Connection, entry: PublishEntry, codes: bytes) -> bool:
        """Whether the client is to be told, for one message at least, that nobody wants it."""
        if connection.version != MQTT_5:
            return False
        wanted = self._table.wanted
        rows = zip(codes, entry.flags, entry.topics, strict=True)
        return any(code == NOBODY and not wanted(topic, not flags & NOT_STORED) for code, flags, topic in rows)

    def _answer(self, connection: Connection, entry: PublishEntry | Delay, ways: bytes, codes: bytes) -> None:
        """Acknowledge message by message, joining what is equal: some are QoS 2, or not all were stored."""
        state = self._state
        is_5 = connection.version == MQTT_5
        joined: list[int] = []
        joined_kind = AckKind.PUBACK
        for index, way in enumerate(ways):
            if way <= _KEPT:
                continue
            packet_id = entry.packet_ids[index]
            code = codes[index] if codes else STORED
            reason = ReasonCode.SUCCESS
            if code == NOBODY:
                if is_5 and not self._table.wanted(entry.topics[index], not entry.flags[index] & NOT_STORED):
                    reason = ReasonCode.NO_MATCHING_SUBSCRIBERS
            elif code == REPEATED:
                state.counters.publishes_repeated += 1
            elif code == REFUSED_RULES:
                self._denied(connection, publishing(entry.flags[index], isinstance(entry, Delay)), entry.topics[index])
                if is_5:
                    reason = ReasonCode.NOT_AUTHORIZED
            elif code == REFUSED_QUOTA:
                state.counters.publishes_refused_quota += 1
                if not is_5:
                    self._write_acks(connection, joined_kind, joined)
                    self._closing.close(connection, ReasonCode.QUOTA_EXCEEDED, "the store is over its quota")
                    return
                reason = ReasonCode.QUOTA_EXCEEDED
            if way == _QOS1:
                kind = AckKind.PUBACK
                connection.qos1_unanswered -= 1
            else:
                kind = AckKind.PUBREC
                if code in (REFUSED_QUOTA, REFUSED_RULES):
                    _forget(connection, packet_id)
                elif packet_id in connection.qos2_in:
                    connection.qos2_in[packet_id] = AWAITING_PUBREL
            if reason is ReasonCode.SUCCESS and kind is joined_kind:
                joined.append(packet_id)
            else:
                self._write_acks(connection, joined_kind, joined)
                joined, joined_kind = [], kind
                if reason is ReasonCode.SUCCESS:
                    joined.append(packet_id)
                elif reason is ReasonCode.NO_MATCHING_SUBSCRIBERS:
                    state.outbox.write(connection, _nobody(kind, packet_id))
                else:
                    state.outbox.write(connection, refusal(connection, kind, packet_id, reason))
            connection.answered += 1
            if connection.deferred:
                self._write_acks(connection, joined_kind, joined)
                joined = []
                self._write_deferred(connection)
        self._write_acks(connection, joined_kind, joined)

    def _write_acks(self, connection: Connection, kind: AckKind, packet_ids: list[int]) -> None:
        if packet_ids:
            self._state.outbox.write(connection, acks(connection.version, kind, packet_ids), len(packet_ids))

    def _write_deferred(self, connection: Connection) -> None:
        deferred = connection.deferred
        while deferred and deferred[0][0] <= connection.answered:
            self._state.outbox.write(connection, deferred.popleft()[1])

    def _read_again(self, connection: Connection) -> None:
        if connection.paused & OWN_BOUND and 2 * connection.unanswered <= connection.receive_max_in:
            self._state.resume(connection, OWN_BOUND)

    def shard_answered(self, queue: ShardQueue) -> None:
        """Read again those who were stopped by this shard's bound, once it is at half of it."""
        options = self._state.options
        if queue.paused and 2 * queue.messages <= options.shard_messages_max and 2 * queue.bytes <= options.shard_bytes_max:
            for connection in queue.paused:
                self._state.resume(connection, SHARD_BOUND)
            queue.paused.clear()

    # ---------------------------------------------------------------- PUBREL
    def release(self, connection: Connection, packet_ids: list[int]) -> None:
        if connection.durable:
            self._state.outbox.release(connection, packet_ids)
            return
        if self._state.options.await_rel_ms:
            self._await_no_more(connection)
        # The ids are known here only, and PUBREC has gone out for those that may be released.
        found = bytes([connection.qos2_in.get(packet_id) == AWAITING_PUBREL for packet_id in packet_ids])
        self._complete(connection, packet_ids, found)

    def _await_no_more(self, connection: Connection) -> None:
        """What has waited for its PUBREL too long is not awaited any more.  Of a durable session the home does the same."""
        since_ms = self._state.now_ms - self._state.options.await_rel_ms
        late = list(takewhile(lambda packet_id: connection.qos2_since[packet_id] <= since_ms, connection.qos2_since))
        for packet_id in late:
            if connection.qos2_in[packet_id] == AWAITING_PUBREL:
                _forget(connection, packet_id)
                if not connection.durable:
                    self._state.counters.publishes_await_rel_timed_out += 1

    def released(self, connection: Connection, entry: Release, reply: Released) -> None:
        if reply.stale:
            self._closing.superseded(connection)
        elif connection.phase is Phase.ONLINE:
            self._complete(connection, entry.packet_ids, reply.found)

    def _complete(self, connection: Connection, packet_ids: list[int], found: bytes) -> None:
        for packet_id, known in zip(packet_ids, found, strict=True):
            if known:
                _forget(connection, packet_id)
        if connection.version != MQTT_5 or all(found):
            self._state.outbox.write(connection, acks(connection.version, AckKind.PUBCOMP, packet_ids), len(packet_ids))
            return
        for packet_id, known in zip(packet_ids, found, strict=True):
            if known:
                data = acks(MQTT_5, AckKind.PUBCOMP, [packet_id])
            else:
                data = refusal(connection, AckKind.PUBCOMP, packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            self._state.outbox.write(connection, data)


def _ways(store_qos0: bool) -> bytes:
    """The way of a message by its flags; a table for bytes.translate."""
    stored = stored_flags(store_qos0)
    return bytes(
        [_QOS2 if flags & 4 else _QOS1 if flags & 2 else _KEPT if flags & 1 or stored[flags] else _AT_ONCE for flags in range(256)]
    )


def _marked(run: PublishRun, persistence: Persistence) -> PublishRun:
    """The run with NOT_STORED at the messages that durable sessions do not get from the store."""
    excludes = persistence.excludes
    flags = [flag | NOT_STORED if excludes(flag >> 1 & 3, topic) else flag for flag, topic in zip(run.flags, run.topics, strict=True)]
    return PublishRun(flags, run.packet_ids, run.topics, run.bodies)


def _not_permitted(run: PublishRun, index: int) -> PublishRun:
    """The run with this mark at one message, of which nothing but its identifier matters any more."""
    flags, bodies = list(run.flags), list(run.bodies)
    flags[index] |= NOT_PERMITTED
    bodies[index] = _NO_BODY
    return PublishRun(flags, run.packet_ids, run.topics, bodies)


def _forget(connection: Connection, packet_id: int) -> None:
    """A QoS 2 message of the client is not under way any more."""
    connection.qos2_in.pop(packet_id, None)
    connection.qos2_since.pop(packet_id, None)


def _columns(run: PublishRun, wanted: list[int]) -> tuple[list[int], list[int], list[bytes], list[bytes]]:
    if len(wanted) == len(run.flags):
        return run.flags, run.packet_ids, run.topics, run.bodies
    return (
        [run.flags[i] for i in wanted],
        [run.packet_ids[i] for i in wanted],
        [run.topics[i] for i in wanted],
        [run.bodies[i] for i in wanted],
    )


def _nobody(kind: AckKind, packet_id: int) -> bytes:
    """An MQTT 5 acknowledgement of five bytes: mqtt.encode would build a packet first, and a publisher that nobody
    listens to gets one of these for each message."""
    return b"%c\x03%c%c%c" % (kind << 4, packet_id >> 8, packet_id & 0xFF, ReasonCode.NO_MATCHING_SUBSCRIBERS)
