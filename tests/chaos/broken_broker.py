"""A broker of one page in memory that keeps every promise but one, so that the loss oracle is tested on what it is for.

MQTT 5, QoS 1 and 2, durable sessions, shared groups, one retained message for each topic.  `flaw` names the promise that it breaks,
for every `EACH`-th message; "" for none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from mqtt.body import strip_properties
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import (
    MQTT_5,
    Ack,
    AckKind,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
)
from mqtt.reason import ReasonCode
from mqtt.topics import matches

Flaw = Literal["", "lost", "repeated", "twice", "disorder", "stranger", "stale", "forgotten", "silent", "refused"]
EACH = 20


@dataclass(slots=True)
class Session:
    filters: dict[bytes, int] = field(default_factory=dict)
    inflight: OrderedDict[int, Publish | None] = field(default_factory=OrderedDict)
    """By packet id; None: PUBREC has come."""
    waiting: list[Publish] = field(default_factory=list)
    incoming: set[int] = field(default_factory=set)
    writer: asyncio.StreamWriter | None = None
    last_id: int = 0

    def write(self, packet: Item) -> None:
        if self.writer is not None:
            self.writer.write(encode(MQTT_5, packet))

    def give(self, message: Publish) -> None:
        if self.writer is None:
            self.waiting.append(message)
            return
        self.last_id = self.last_id % 65_535 + 1
        found = Publish(message.flags, self.last_id, message.topic, message.payload)
        self.inflight[self.last_id] = found
        self.write(found)

    def resume(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        for packet_id, sent in self.inflight.items():
            again = None if sent is None else Publish(sent.flags | 8, packet_id, sent.topic, sent.payload)
            self.write(again or Ack(AckKind.PUBREL, packet_id))
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            self.give(message)


class BrokenBroker:
    def __init__(self, flaw: Flaw, counted: int = 0) -> None:
        """counted: messages before the first; of every EACH one is chosen to be treated badly."""
        self.flaw = flaw
        self.sessions: dict[str, Session] = {}
        self.retained: dict[bytes, bytes] = {}
        self.connections: set[asyncio.Task[None]] = set()
        self._held: dict[tuple[int, bytes, bytes], Publish] = {}
        self._turns: dict[bytes, int] = {}
        self._count = counted
        self._unheard: set[bytes] = set()
        """What is never answered: if it were when it comes again, it would come behind what was sent after it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        task.add_done_callback(self.connections.discard)
        decoder = Decoder(None, 1 << 20)
        name = ""
        session = Session()
        while data := await _heard(reader):
            for item in decoder.feed(data):
                if isinstance(item, Connect):
                    name, session = item.client_id, self._connect(item, writer)
                elif isinstance(item, Disconnect):
                    writer.close()
                else:
                    self._take(session, item)
        if session.writer is writer:
            session.writer = None
        if session not in self.sessions.values():
            self.sessions.pop(name, None)
        writer.close()

    def _connect(self, connect: Connect, writer: asyncio.StreamWriter) -> Session:
        forgets = self.flaw == "forgotten" and "comer" in connect.client_id
        known = self.sessions.pop(connect.client_id, None)
        kept = None if connect.clean_start or (forgets and known) else known
        session = kept or Session()
        if connect.properties.session_expiry_interval:
            self.sessions[connect.client_id] = session
        writer.write(encode(MQTT_5, Connack(kept is not None)))
        session.resume(writer)
        if forgets and known:
            session.filters = known.filters
        return session

    def _take(self, session: Session, item: Item) -> None:
        match item:
            case Publish():
                self._published(session, item)
            case PublishRun():
                for flags, packet_id, topic, body in zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True):
                    self._published(session, Publish(flags, packet_id, topic, strip_properties(body)))
            case Ack():
                self._answered(session, item.kind, item.packet_id)
            case AckRun():
                for packet_id in item.packet_ids:
                    self._answered(session, item.kind, packet_id)
            case Subscribe():
                (wanted,) = item.subscriptions
                session.filters[wanted.filter] = wanted.qos
                session.write(Suback(item.packet_id, (ReasonCode(wanted.qos),)))
                value = self.retained.get(wanted.filter)
                if value is not None:
                    session.give(Publish(3, 0, wanted.filter, value))
            case Pingreq():
                session.write(Pingresp())

    def _answered(self, session: Session, kind: AckKind, packet_id: int) -> None:
        if kind is AckKind.PUBREL:
            session.incoming.discard(packet_id)
            session.write(Ack(AckKind.PUBCOMP, packet_id))
        elif kind is AckKind.PUBREC:
            session.inflight[packet_id] = None
            session.write(Ack(AckKind.PUBREL, packet_id))
        else:
            session.inflight.pop(packet_id, None)

    def _published(self, session: Session, message: Publish) -> None:
        self._count += not message.retain
        chosen = self._count % EACH == 0 and not message.retain
        if self.flaw == "silent" and (chosen or message.payload in self._unheard):
            self._unheard.add(message.payload)
            return
        kind = AckKind.PUBACK if message.qos == 1 else AckKind.PUBREC
        if chosen and self.flaw == "refused":
            session.write(Ack(kind, message.packet_id, ReasonCode.QUOTA_EXCEEDED))
            return
        new = message.qos == 1 or message.packet_id not in session.incoming
        if message.qos == 2:
            session.incoming.add(message.packet_id)
        if message.retain and message.payload and (self.flaw != "stale" or message.topic not in self.retained):
            self.retained[message.topic] = message.payload
        elif message.retain and not message.payload:
            self.retained.pop(message.topic, None)
        if new:
            self._route(message, chosen)
        session.write(Ack(kind, message.packet_id))

    def _route(self, message: Publish, chosen: bool) -> None:
        for session in list(self.sessions.values()):
            for topic_filter, qos in session.filters.items():
                if not topic_filter.startswith(b"$share/") and matches(topic_filter, message.topic):
                    self._deliver(session, Publish(min(message.qos, qos) << 1, 0, message.topic, message.payload), chosen)
        shared = [(f, s) for s in self.sessions.values() for f in s.filters if f.startswith(b"$share/")]
        members = [session for f, session in shared if matches(f.split(b"/", 2)[2], message.topic)]
        if members:
            turn = self._turns[b""] = self._turns.get(b"", 0) + 1
            members[turn % len(members)].give(Publish(message.qos << 1, 0, message.topic, message.payload))

    def _deliver(self, session: Session, message: Publish, chosen: bool) -> None:
        flow = id(session), message.topic, message.payload.partition(b" ")[0]
        if self.flaw == "disorder" and self._count == EACH:
            # Behind the next one of its publisher, topic and QoS.
            self._held[flow] = message
            return
        if chosen and self.flaw == "lost":
            return
        if chosen and self.flaw == "stranger":
            message = Publish(message.flags, 0, message.topic, b"?" + message.payload)
        session.give(message)
        if chosen and self.flaw == ("repeated" if message.qos == 1 else "twice"):
            session.give(message)
        late = self._held.pop(flow, None)
        if late is not None:
            session.give(late)


async def _heard(reader: asyncio.StreamReader) -> bytes:
    """What came; nothing when the connection has ended, as it may by an error while something is written to it."""
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""
