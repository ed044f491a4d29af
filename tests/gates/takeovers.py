"""Clients that take their own sessions over, again and again, and notice everything that is wrong about it.

A ``Taken`` is one client id with a durable session. Its connections go to two gateways in turn: the next CONNECT leaves while the
connection before is open and in use. It keeps what a client has to keep over its connections (the QoS 2 ids that it has received)
and writes what its application gets into a ``History``.  Runs in the process of takeover_load.py and asks nothing of the broker.

What shows that only one connection is alive, however late bytes are read:

1. a message that was published after the newer CONNACK was read never comes on the older connection (its payload says which it is);
2. every seventh delivery is left unanswered until the newer CONNACK is there, and is answered on the older connection then: that
   answer must count for nothing, so the same message comes again on the newer one, under its packet id and with DUP;
3. a message that is published on the older connection then is neither acknowledged nor delivered to anybody;
4. the older connection is told 0x8E (MQTT 5) and closed, within a bound that the gate names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import cast

from tests.broker import wire
from tests.broker.history import Delivery, History, parse_payload
from tests.broker.wire import Version

HOLD_EVERY = 7
STALE_EVERY = 4
TAKEN_OVER = 0x8E
RECEIVE_MAXIMUM = 200
STALE_PACKET_ID = 60_000
KEEP_ALIVE_S = 60


@dataclass(slots=True)
class Findings:
    """What all clients of a run saw."""

    connack_ns: list[int] = field(default_factory=list)
    closed_ns: list[int] = field(default_factory=list)
    """From the newer CONNACK to the end of the older connection; 0 when that had ended before."""
    told: int = 0
    late: int = 0
    """Deliveries that were read on an older connection after the newer CONNACK: they were under way."""
    came_again: int = 0
    stale_sent: int = 0
    wrong: list[str] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """opened → accepted → superseded → closed."""

    def __init__(self, taken: Taken, number: int) -> None:
        self.taken = taken
        self.number = number
        self.sent_ns = self.accepted_ns = self.superseded_ns = self.closed_ns = 0
        self.reason = 0
        self.transport: asyncio.Transport | None = None
        self._packets = wire.Reader()

    def __str__(self) -> str:
        return f"connection {self.number} of {self.taken.client_id}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.sent_ns = time.monotonic_ns()
        taken = self.taken
        self.write(
            wire.connect(
                taken.version,
                taken.client_id,
                clean=False,
                keep_alive_s=KEEP_ALIVE_S,
                expiry_s=wire.EXPIRY_NEVER,
                receive_maximum=RECEIVE_MAXIMUM,
            )
        )

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        for packet in self._packets.feed(data):
            self.taken.read(self, packet, now)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed_ns = time.monotonic_ns()
        self.taken.ended(self)


class Taken:
    """One client id. ``newest`` is the connection accepted last; ``coming`` has sent its CONNECT."""

    def __init__(self, client_id: str, ports: tuple[int, ...], version: Version, history: History, findings: Findings) -> None:
        self.client_id = client_id
        self.version = version
        self.newest: Connection | None = None
        self.coming: Connection | None = None
        self.idle = asyncio.Event()
        """No CONNECT is under way."""
        self.idle.set()
        self.owed: dict[int, bytes] = {}
        """Deliveries that were answered too late, by packet id: they have to come again."""
        self._ports = ports
        self._history = history
        self._findings = findings
        self._connections = 0
        self._deliveries = 0
        self._held: dict[int, tuple[int, bytes]] = {}
        self._received: set[int] = set()
        self._suback: asyncio.Future[bytes] | None = None
        self._holds = True
        self._leaving = False

    def take(self) -> Coroutine[None, None, object]:
        """From now on a CONNECT to the next gateway is under way, beside the connection that there is; await what this returns."""
        port = self._ports[self._connections % len(self._ports)]
        self._connections += 1
        self.idle.clear()
        self.coming = coming = Connection(self, self._connections)
        return asyncio.get_running_loop().create_connection(lambda: coming, "127.0.0.1", port)

    async def subscribe(self, topic_filter: str, qos: int, timeout_s: float) -> None:
        assert self.newest is not None
        self._history.subscribed(self.client_id, topic_filter, qos, 2**63)
        self._suback = asyncio.get_running_loop().create_future()
        self.newest.write(wire.subscribe(self.version, 1, topic_filter, qos))
        codes = await asyncio.wait_for(self._suback, timeout_s)
        if codes != bytes([qos]):
            raise ValueError(f"{self.client_id}: SUBACK {codes.hex()} for {topic_filter!r}")

    def leave(self) -> None:
        self._leaving = True
        for connection in (self.newest, self.coming):
            if connection is not None:
                connection.write(wire.disconnect())
                if connection.transport is not None:
                    connection.transport.close()

    def answer_held(self) -> None:
        """Nothing is held back any more, now and from now on: answer on the connection that there is."""
        assert self.newest is not None
        self._holds = False
        for packet_id, (kind, _) in self._held.items():
            self.newest.write(wire.answer(kind, packet_id))
        self._held.clear()

    # ------------------------------------------------------------------- packets

    def read(self, connection: Connection, packet: wire.Packet, now: int) -> None:
        match packet.kind:
            case wire.CONNACK:
                self._accepted(connection, wire.read_connack(self.version, packet.body), now)
            case wire.PUBLISH:
                self._delivered(connection, wire.read_publish(self.version, packet.flags, packet.body))
            case wire.PUBREL if connection is self.newest:
                packet_id, _ = wire.read_answer(packet.body)
                self._received.discard(packet_id)
                connection.write(wire.answer(wire.PUBCOMP, packet_id))
            case wire.SUBACK:
                assert self._suback is not None
                _, codes = wire.read_suback(self.version, packet.body)
                self._history.sessions[self.client_id].since_ns = now
                self._suback.set_result(codes)
            case wire.DISCONNECT:
                connection.reason = packet.body[0] if packet.body else 0
            case wire.PUBACK:
                self._findings.wrong.append(f"{connection}: a PUBACK for what it published after it had been taken over")
            case _:
                pass

    def _accepted(self, connection: Connection, connack: wire.Connack, now: int) -> None:
        findings = self._findings
        older, self.newest, self.coming = self.newest, connection, None
        connection.accepted_ns = now
        self.idle.set()
        if connack.code:
            findings.wrong.append(f"{connection}: CONNACK {connack.code:#04x}")
            return
        if older is None:
            return
        if not connack.session_present:
            findings.wrong.append(f"{connection}: no session present")
        findings.connack_ns.append(now - connection.sent_ns)
        older.superseded_ns = now
        if older.closed_ns:
            self._closed(older)
        else:
            self._speak_late(older)
        # On this connection they have to come again, whatever the older one said about them.
        self.owed.update((packet_id, payload) for packet_id, (_, payload) in self._held.items())
        self._held.clear()

    def _speak_late(self, older: Connection) -> None:
        for packet_id, (kind, _) in self._held.items():
            older.write(wire.answer(kind, packet_id))
        if older.number % STALE_EVERY == 0:
            self._findings.stale_sent += 1
            payload = f"{self.client_id} {older.number} published too late".encode()
            topic = self._history.sessions[self.client_id].filter.replace("+", "0")
            older.write(wire.publish(self.version, topic, payload, 1, STALE_PACKET_ID))

    def _delivered(self, connection: Connection, message: wire.Publish) -> None:
        findings = self._findings
        if connection is not self.newest:
            self._late_delivery(connection, message)
            return
        kind = wire.PUBACK if message.qos == 1 else wire.PUBREC
        packet_id = message.packet_id
        new = message.qos == 1 or packet_id not in self._received
        if message.qos == 2:
            self._received.add(packet_id)
        if new:
            self._history.delivered(self.client_id, Delivery(message.topic, message.payload, message.qos, message.dup))
        if packet_id in self.owed:
            findings.came_again += 1
            if self.owed.pop(packet_id) != message.payload:
                findings.wrong.append(f"{connection}: packet id {packet_id} came with another message; a late answer had counted")
            elif not message.dup:
                findings.wrong.append(f"{connection}: packet id {packet_id} came again without DUP")
        elif new and self._holds:
            self._deliveries += 1
            if self._deliveries % HOLD_EVERY == 0:
                self._held[packet_id] = (kind, message.payload)
                return
        connection.write(wire.answer(kind, packet_id))

    def _late_delivery(self, connection: Connection, message: wire.Publish) -> None:
        findings = self._findings
        findings.late += 1
        key = parse_payload(message.payload)
        sent = self._history.sent.get(key) if key is not None else None
        if not connection.superseded_ns:
            findings.wrong.append(f"{connection}: a message before its CONNACK")
        elif sent is not None and sent.seen_ns > connection.superseded_ns:
            after_ms = (sent.seen_ns - connection.superseded_ns) / 1e6
            findings.wrong.append(f"{connection}: got what was published {after_ms:.1f} ms after the CONNACK of the newer connection")

    # ------------------------------------------------------------------- ends

    def ended(self, connection: Connection) -> None:
        if connection is self.coming:
            self.coming = None
            self.idle.set()
            self._findings.wrong.append(f"{connection}: closed without CONNACK")
        elif connection.superseded_ns:
            self._closed(connection)
        elif connection is self.newest and self.coming is None and not self._leaving:
            self._findings.wrong.append(f"{connection}: closed with {connection.reason:#04x} although nobody had taken it over")

    def _closed(self, older: Connection) -> None:
        findings = self._findings
        findings.closed_ns.append(max(0, older.closed_ns - older.superseded_ns))
        # Who writes to a closed socket may be reset before it has read the last packet.
        if older.reason == TAKEN_OVER:
            findings.told += 1
        elif self.version == 5 and older.number % STALE_EVERY and not older.reason:
            findings.wrong.append(f"{older}: closed without DISCONNECT 0x8E")
        elif older.reason:
            findings.wrong.append(f"{older}: DISCONNECT {older.reason:#04x} instead of 0x8E")
