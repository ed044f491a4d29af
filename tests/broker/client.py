"""A durable MQTT client as a careful application would have it: it reconnects by itself and forgets nothing it owes.

One ``Client`` is one MQTT session of one client id and lives as long as the test; its
connections come and go. It keeps what the specification tells a client to keep (its
unacknowledged PUBLISHes and PUBRELs, the QoS 2 ids it has received) and sends
them again, in order and with DUP, on each new connection. What it sends, what is
acknowledged and what arrives goes into a ``History``; what that means is left to it.

What always holds:
1. a message has one packet id from its first sending to its last answer;
2. a QoS 2 delivery goes into the history once per id that the broker has not released;
3. when the broker says that there is no session where there was one, that is recorded in
   ``sessions_lost``, and what was unacknowledged is published again as new.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field

from tests.broker import wire
from tests.broker.history import Delivery, History, parse_payload, payload_of
from tests.broker.wire import Version

CONNECT_TIMEOUT_S = 15.0
"""Of one attempt; there is always another."""
PATIENCE_S = 60.0
RETRY_S = (0.05, 0.1, 0.2, 0.5)
KEEP_ALIVE_S = 60


class Refused(Exception):
    """The broker answered a SUBSCRIBE or a CONNECT with a refusal."""


@dataclass(slots=True)
class Outgoing:
    """A message under way: published → (received, at QoS 2) → done."""

    number: int
    topic: str
    payload: bytes
    qos: int
    received: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A PUBACK or PUBREC as it came: on which connection, and where in its stream of bytes."""

    number: int
    begins_at: int


@dataclass(slots=True)
class Connection:
    """One connection of the client; accepted_ns is 0 until its CONNACK."""

    local_port: int
    accepted_ns: int = 0
    session_present: bool = False
    acknowledgements: list[Acknowledgement] = field(default_factory=list)


class Client:
    """See the module. Everything runs on the loop that called ``start``."""

    def __init__(
        self,
        port: int,
        client_id: str,
        history: History,
        *,
        version: Version = 4,
        window: int = 20,
        receive_maximum: int = 100,
        reconnect: bool = True,
        retain: bool = False,
    ) -> None:
        self.port = port
        self.client_id = client_id
        self.history = history
        self.version = version
        self.window = window
        self.receive_maximum = receive_maximum
        self.reconnect = reconnect
        self.retain = retain
        self.connections: list[Connection] = []
        self.sessions_lost: list[int] = []
        self.refusals: list[str] = []
        self.connected = asyncio.Event()
        self.seen_not_before_ns = 0  # a gate that has stopped the broker says until when; see Sent.seen_ns
        self._had_session = False
        self._effective_window = window
        self._receive_maximum = wire.PACKET_IDS
        self._outgoing: OrderedDict[int, Outgoing] = OrderedDict()
        self._received: set[int] = set()
        self._suback: dict[int, asyncio.Future[bytes]] = {}
        self._last_id = 0
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------- life

    async def start(self, timeout_s: float = PATIENCE_S) -> Connection:
        """Connect, and stay connected from now on; returns when the first CONNACK is there."""
        self._task = asyncio.create_task(self._live(), name=f"client {self.client_id}")
        await self._until(self.connected, timeout_s, "was not connected")
        return self.connections[-1]

    async def stop(self) -> None:
        """DISCONNECT and stay away; the session remains at the broker, and this object can start again."""
        if self._writer is not None and self.connected.is_set():
            with suppress(OSError):
                self._writer.write(wire.disconnect())
                await self._writer.drain()
        await self._end()

    async def vanish(self) -> None:
        """Stay away without a DISCONNECT, as when the cable is pulled."""
        await self._end()

    def tear(self, port: int | None = None) -> asyncio.StreamWriter | None:
        """Give up the present connection without closing it and connect anew, to another port if one is given.

        Returns the abandoned writer; as long as somebody holds it, the broker sees an open socket.
        """
        self.port = port or self.port
        abandoned, self._writer = self._writer, None
        self.connected.clear()
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._live(), name=f"client {self.client_id}")
        return abandoned

    def inherit(self, other: Client) -> None:
        """Be the same client elsewhere: what the other has received and will receive of unreleased QoS 2 messages is known here too."""
        assert other.client_id == self.client_id
        self._received = other._received

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        self._ended()

    # ---------------------------------------------------------------- publishing

    async def publish(self, topic: str, qos: int, size: int = 0) -> int:
        """Send one message when the window has room; returns its number, does not wait for its acknowledgement."""
        while len(self._outgoing) >= self._effective_window:
            self._room.clear()
            await self._room.wait()
        now = max(time.monotonic_ns(), self.seen_not_before_ns)
        number = self.history.publish(self.client_id, topic, qos, now)
        self.put(Outgoing(number, topic, payload_of(self.client_id, number, size), qos))
        if self._writer is not None and self.connected.is_set():
            with suppress(OSError, RuntimeError):
                await self._writer.drain()
        return number

    def narrow_to(self, window: int) -> None:
        """From now on so many messages at most are unacknowledged."""
        self.window = window
        self._effective_window = min(window, self._receive_maximum)

    def put(self, message: Outgoing) -> None:
        packet_id = self._free_id()
        self._outgoing[packet_id] = message
        self._idle.clear()
        # On a socket that has failed already it waits for the next connection like the others.
        if self._writer is not None and self.connected.is_set() and not self._writer.is_closing():
            self._send(packet_id, message)

    async def acknowledged(self, timeout_s: float) -> None:
        """Wait until nothing is unacknowledged."""
        await self._until(self._idle, timeout_s, f"had {len(self._outgoing)} unacknowledged messages")

    @property
    def unacknowledged(self) -> int:
        return len(self._outgoing)

    def _free_id(self) -> int:
        for _ in range(wire.PACKET_IDS):
            self._last_id = self._last_id % wire.PACKET_IDS + 1
            if self._last_id not in self._outgoing and self._last_id not in self._suback:
                return self._last_id
        raise AssertionError(f"client {self.client_id!r} has no free packet id")

    def _send(self, packet_id: int, message: Outgoing) -> None:
        assert self._writer is not None
        if message.received:
            self._writer.write(wire.answer(wire.PUBREL, packet_id))
            return
        dup, message.written = message.written, True
        self.history.written(self.client_id, message.number)
        self._writer.write(wire.publish(self.version, message.topic, message.payload, message.qos, packet_id, dup=dup, retain=self.retain))

    # --------------------------------------------------------------- subscribing

    async def subscribe(self, topic_filter: str, qos: int, timeout_s: float = PATIENCE_S) -> None:
        """Returns after the SUBACK; from its arrival on, matching messages are due to this session."""
        assert self._writer is not None
        packet_id = self._free_id()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._suback[packet_id] = answer
        # The first messages can come before the SUBACK is handled, so the session is known before.
        self.history.subscribed(self.client_id, topic_filter, qos, 2**63)
        self._writer.write(wire.subscribe(self.version, packet_id, topic_filter, qos))
        try:
            codes = await asyncio.wait_for(answer, timeout_s)
        finally:
            self._suback.pop(packet_id, None)
        if codes != bytes([qos]):
            raise Refused(f"client {self.client_id!r}: SUBACK {codes.hex()} for {topic_filter!r} at QoS {qos}")

    # ---------------------------------------------------------------- connection

    async def _live(self) -> None:
        failures = 0
        while True:
            try:
                await self._connection()
                failures = 0
            except (OSError, EOFError, TimeoutError, Refused) as error:
                failures += 1
                self.refusals.append(f"{type(error).__name__}: {error}")
            self._ended()
            if not self.reconnect:
                return
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])

    async def _connection(self) -> None:
        # timeout() and not wait_for(), which in Python 3.11 can swallow the cancellation of whoever stops this client.
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            plain = writer.get_extra_info("socket")
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(writer.get_extra_info("sockname")[1])
            self._writer = writer
            writer.write(
                wire.connect(
                    self.version,
                    self.client_id,
                    clean=False,
                    keep_alive_s=KEEP_ALIVE_S,
                    expiry_s=wire.EXPIRY_NEVER,
                    receive_maximum=self.receive_maximum,
                )
            )
            packets = wire.Reader()
            ping = asyncio.create_task(self._ping(writer))
            try:
                while True:
                    async with asyncio.timeout(None if self.connected.is_set() else CONNECT_TIMEOUT_S):
                        data = await reader.read(65536)
                    if not data:
                        break
                    now = time.monotonic_ns()
                    for packet in packets.feed(data):
                        self._handle(packet, connection, now)
            finally:
                ping.cancel()
        finally:
            # After ``tear`` the writer belongs to whoever tore it.
            if self._writer is writer:
                writer.transport.abort()

    async def _ping(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S / 2)
            if self.connected.is_set():
                writer.write(wire.PINGREQ)

    def _ended(self) -> None:
        self.connected.clear()
        for answer in self._suback.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(f"client {self.client_id!r}: the connection ended before the SUBACK"))

    # ------------------------------------------------------------------- packets

    def _handle(self, packet: wire.Packet, connection: Connection, now: int) -> None:
        assert self._writer is not None
        match packet.kind:
            case wire.CONNACK:
                self._accepted(wire.read_connack(self.version, packet.body), connection, now)
            case wire.PUBLISH:
                self._delivered(wire.read_publish(self.version, packet.flags, packet.body))
            case wire.PUBACK | wire.PUBREC | wire.PUBCOMP:
                self._answered(packet, connection, now)
            case wire.PUBREL:
                packet_id, _ = wire.read_answer(packet.body)
                self._received.discard(packet_id)
                self._writer.write(wire.answer(wire.PUBCOMP, packet_id))
            case wire.SUBACK:
                packet_id, codes = wire.read_suback(self.version, packet.body)
                answer = self._suback.get(packet_id)
                if answer is not None and not answer.done():
                    # Here, not where it is awaited: a delivery handled in between must find the right moment.
                    self.history.sessions[self.client_id].since_ns = now
                    answer.set_result(codes)
            case wire.DISCONNECT:
                code = packet.body[0] if packet.body else 0
                self.refusals.append(f"DISCONNECT {code:#04x}")
            case _:
                pass

    def _accepted(self, connack: wire.Connack, connection: Connection, now: int) -> None:
        assert self._writer is not None
        if connack.code:
            raise Refused(f"client {self.client_id!r}: CONNACK {connack.code:#04x}")
        connection.accepted_ns = now
        connection.session_present = connack.session_present
        self.connections.append(connection)
        self._receive_maximum = connack.receive_maximum
        self.narrow_to(self.window)
        if not connack.session_present:
            if self._had_session:
                self.sessions_lost.append(len(self.connections))
            self._received.clear()
            for packet_id, message in list(self._outgoing.items()):
                message.written = False
                if message.received:
                    self._done(packet_id)  # PUBREC moved it to the broker; sending it again would make it twice
        self._had_session = True
        self.connected.set()
        for packet_id, message in self._outgoing.items():
            self._send(packet_id, message)

    def _delivered(self, message: wire.Publish) -> None:
        assert self._writer is not None
        if message.qos == 2:
            new = message.packet_id not in self._received
            self._received.add(message.packet_id)
            self._writer.write(wire.answer(wire.PUBREC, message.packet_id))
        else:
            new = True
            if message.qos == 1:
                self._writer.write(wire.answer(wire.PUBACK, message.packet_id))
        if new:
            self.history.delivered(self.client_id, Delivery(message.topic, message.payload, message.qos, message.dup))

    def _answered(self, packet: wire.Packet, connection: Connection, now: int) -> None:
        assert self._writer is not None
        packet_id, reason = wire.read_answer(packet.body)
        message = self._outgoing.get(packet_id)
        if message is None:
            if packet.kind == wire.PUBREC:
                self._writer.write(wire.answer(wire.PUBREL, packet_id))
            return
        if reason >= 0x80:
            # Refused: not acknowledged. The message is given up, as the specification says.
            self.refusals.append(f"reason {reason:#04x} for message {message.number}")
            self._done(packet_id)
            return
        if packet.kind == wire.PUBCOMP:
            if message.received:
                self._done(packet_id)
            return
        self.history.acknowledged(self.client_id, message.number, now)
        connection.acknowledgements.append(Acknowledgement(message.number, packet.ends_at - len(packet.body) - 2))
        if packet.kind == wire.PUBACK:
            self._done(packet_id)
        else:
            message.received = True
            self._writer.write(wire.answer(wire.PUBREL, packet_id))

    def _done(self, packet_id: int) -> None:
        del self._outgoing[packet_id]
        self._room.set()
        if not self._outgoing:
            self._idle.set()

    async def _until(self, event: asyncio.Event, timeout_s: float, story: str) -> None:
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            last = f"; last refusals: {self.refusals[-3:]}" if self.refusals else ""
            raise TimeoutError(f"client {self.client_id!r} {story} after {timeout_s:.0f} s{last}") from None


async def settled(history: History, timeout_s: float) -> None:
    """Wait until every due message has arrived, or until nothing has moved for ``timeout_s``; the checks say what is missing.

    Call it when nobody publishes any more.
    """
    waiting = {name: history.due(name) for name in history.sessions}
    read = dict.fromkeys(waiting, 0)
    moved = time.monotonic()
    while any(waiting.values()) and time.monotonic() - moved < timeout_s:
        await asyncio.sleep(0.2)
        for name, left in waiting.items():
            deliveries = history.sessions[name].deliveries
            fresh = deliveries[read[name] :]
            read[name] = len(deliveries)
            left.difference_update(key for each in fresh if (key := parse_payload(each.payload)) is not None)
            if fresh:
                moved = time.monotonic()
