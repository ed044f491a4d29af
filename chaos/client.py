"""A durable MQTT 5 client as a careful application has it: it comes back by itself, elsewhere if it can, and forgets nothing it owes.

One `Client` is one session of one client id; its connections come and go.  It keeps what the specification tells a client to keep, its
unacknowledged PUBLISH and PUBREL packets and the QoS 2 ids it has received, and sends them again, in order, PUBLISH with DUP, on each new
connection.  What that means is left to whoever listens.

Always holds:
1. a message has one packet id from its first sending to its last answer;
2. a QoS 2 delivery is told once for each time that the broker has released its id;
3. no more is unacknowledged than the window and the broker's receive maximum allow: who publishes waits.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from chaos.addresses import Address, Login
from mqtt.body import properties_of, strip_properties
from mqtt.decode import DecodeError, Decoder
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
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
)
from mqtt.reason import ReasonCode

WINDOW = 32
KEEP_ALIVE_S = 10
SILENT_S = 2 * KEEP_ALIVE_S
"""So long after the last byte a connection is given up, though nobody has closed it."""
CONNECT_S = 5.0
RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
PACKET_BYTES_MAX = 1 << 20
_IDS = 65_535


class NotAccepted(Exception):
    """The broker has refused a CONNECT or a SUBSCRIBE; one sentence."""


class Listener(Protocol):
    """Whoever wants to know what becomes of a client's messages."""

    def sent_again(self, client: Client, number: int, *, as_new: bool) -> None: ...

    def acknowledged(self, client: Client, number: int) -> None:
        """PUBACK, or PUBREC, without an error."""

    def refused(self, client: Client, number: int, reason: ReasonCode) -> None: ...

    def completed(self, client: Client, number: int) -> None:
        """PUBCOMP."""

    def arrived(self, client: Client, message: Publish) -> None: ...

    def forgotten(self, client: Client) -> None:
        """There was a session, and it is not there any more."""


@dataclass(slots=True)
class Outgoing:
    number: int
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    expiry_s: int | None
    written: bool = False
    released: bool = False
    """PUBREC has come: from now on there is only PUBREL."""


class Client:
    """away -> connecting -> connected -> away -> ..."""

    def __init__(self, client_id: str, login: Login, listener: Listener, *, expiry_s: int, first: int = 0) -> None:
        """expiry_s: of the session, from the end of each connection on.  first: with which address it begins."""
        self.client_id = client_id
        self.connected = asyncio.Event()
        self.connections = 0
        self.last_refusal = ""
        self._login = login
        self._listener = listener
        self._expiry_s = expiry_s
        self._at = first
        self._had_session = False
        self._window = WINDOW
        self._outgoing: OrderedDict[int, Outgoing] = OrderedDict()
        self._incoming: set[int] = set()
        self._subacks: dict[int, asyncio.Future[ReasonCode]] = {}
        self._last_id = 0
        self._room = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Be connected from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name=self.client_id)

    async def leave(self) -> None:
        """DISCONNECT and stay away; the session remains. It comes back at the next address."""
        self._write(Disconnect())
        if self._writer is not None:
            # What was written is sent; whoever hangs up does not wait for that.
            self._writer.close()
            self._writer = None
        await self._end()

    async def erase(self, within_s: float) -> bool:
        """End the session for good, from whichever address answers; whether that was done in time."""
        await self._end()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for failures in range(_IDS):
                    with suppress(OSError, EOFError, NotAccepted, DecodeError):
                        return await self._erased()
                    self._at += 1
                    await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
        return False

    async def _erased(self) -> bool:
        address = self._address
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=self._login.context(address))
        try:
            writer.write(encode(MQTT_5, self._connect(clean_start=True, expiry_s=0)))
            decoder = Decoder(MQTT_5, PACKET_BYTES_MAX, "client")
            while data := await reader.read(65536):
                for item in decoder.feed(data):
                    if isinstance(item, Connack):
                        if item.reason:
                            raise NotAccepted(str(item.reason))
                        writer.write(encode(MQTT_5, Disconnect()))
                        await writer.drain()
                        return True
            raise EOFError
        finally:
            writer.close()

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # Not awaited itself: its cancellation and ours would look the same.
            await asyncio.wait([task])
        self._hang_up()

    def _hang_up(self) -> None:
        self.connected.clear()
        for answer in self._subacks.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the connection ended before the SUBACK"))
        self._subacks.clear()
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    # ------------------------------------------------------------------ publishing and subscribing

    @property
    def unacknowledged(self) -> int:
        """Messages that are not answered to the end."""
        return len(self._outgoing)

    async def answered(self) -> None:
        """Until nothing is unacknowledged."""
        while self._outgoing:
            self._room.clear()
            await self._room.wait()

    async def room(self) -> None:
        """Until one more message may be under way."""
        while len(self._outgoing) >= self._window:
            self._room.clear()
            await self._room.wait()

    def publish(self, number: int, topic: str, payload: bytes, qos: int, *, retain: bool = False, expiry_s: int | None = None) -> None:
        """Now, or on the next connection.  Only when there is room."""
        packet_id = self._free_id()
        message = Outgoing(number, topic.encode(), payload, qos, retain, expiry_s)
        self._outgoing[packet_id] = message
        if self.connected.is_set():
            self._send(packet_id, message)

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        """Returns after the SUBACK. Raises NotAccepted, ConnectionError."""
        if not self.connected.is_set():
            raise ConnectionResetError("not connected")
        packet_id = self._free_id()
        self._subacks[packet_id] = answer = asyncio.get_running_loop().create_future()
        self._write(Subscribe(packet_id, (Subscription(topic_filter.encode(), qos),)))
        reason = await answer
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            raise NotAccepted(f"SUBSCRIBE to {topic_filter} was answered with {reason:#04x} ({reason.name.lower()})")

    def _free_id(self) -> int:
        for _ in range(_IDS):
            self._last_id = self._last_id % _IDS + 1
            if self._last_id not in self._outgoing and self._last_id not in self._subacks:
                return self._last_id
        raise AssertionError("the window is smaller than the number of packet ids")

    def _send(self, packet_id: int, message: Outgoing) -> None:
        if message.released:
            self._write(Ack(AckKind.PUBREL, packet_id))
            return
        flags = message.qos << 1 | message.retain | (8 if message.written else 0)
        message.written = True
        self._write(Publish(flags, packet_id, message.topic, message.payload, Properties(message_expiry_interval=message.expiry_s)))

    def _write(self, packet: Item) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(MQTT_5, packet))

    # ------------------------------------------------------------------ connections

    @property
    def _address(self) -> Address:
        return self._login.addresses[self._at % len(self._login.addresses)]

    async def _live(self) -> None:
        failures = 0
        while True:
            before = self.connections
            try:
                await self._connection()
            except (OSError, EOFError, TimeoutError, NotAccepted, DecodeError) as error:
                self.last_refusal = f"{str(error) or type(error).__name__} ({self._address})"
            finally:
                self._hang_up()
            failures = 0 if self.connections > before else failures + 1
            self._at += 1
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])

    async def _connection(self) -> None:
        address = self._address
        async with asyncio.timeout(CONNECT_S):
            reader, self._writer = await asyncio.open_connection(address.host, address.port, ssl=self._login.context(address))
        self._write(self._connect(clean_start=False, expiry_s=self._expiry_s))
        decoder = Decoder(MQTT_5, PACKET_BYTES_MAX, "client")
        ping = asyncio.create_task(self._ping())
        try:
            while True:
                async with asyncio.timeout(SILENT_S if self.connected.is_set() else CONNECT_S):
                    data = await reader.read(65536)
                if not data:
                    if not self.connected.is_set():
                        raise EOFError("the connection was closed, and nothing was answered")
                    return
                for item in decoder.feed(data):
                    self._take(item)
        finally:
            ping.cancel()

    def _connect(self, *, clean_start: bool, expiry_s: int) -> Connect:
        properties = Properties(session_expiry_interval=expiry_s)
        return Connect(
            MQTT_5, self.client_id, clean_start, KEEP_ALIVE_S, self._login.username, self._login.password, properties=properties
        )  # fmt: skip

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S / 2)
            if self.connected.is_set():
                self._write(Pingreq())

    # ------------------------------------------------------------------ packets

    def _take(self, item: Item) -> None:
        match item:
            case Connack():
                self._accepted(item)
            case Publish():
                self._delivered(item)
            case PublishRun():
                for flags, packet_id, topic, body in zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True):
                    self._delivered(Publish(flags, packet_id, topic, strip_properties(body), properties_of(body)))
            case Ack():
                self._answered(item.kind, item.packet_id, item.reason)
            case AckRun():
                for packet_id in item.packet_ids:
                    self._answered(item.kind, packet_id, ReasonCode.SUCCESS)
            case Suback():
                answer = self._subacks.pop(item.packet_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(item.reasons[0])
            case Disconnect():
                self.last_refusal = f"DISCONNECT {item.reason:#04x} ({item.reason.name.lower()})"
            case Pingresp():
                pass
            case _:
                raise NotAccepted(f"the broker has sent a {type(item).__name__}")

    def _accepted(self, connack: Connack) -> None:
        if connack.reason:
            raise NotAccepted(f"CONNACK {connack.reason:#04x} ({connack.reason.name.lower()})")
        self.connections += 1
        self._window = min(WINDOW, connack.properties.receive_maximum or _IDS)
        if not connack.session_present:
            if self._had_session:
                self._listener.forgotten(self)
            self._incoming.clear()
            for packet_id, message in list(self._outgoing.items()):
                if message.released:
                    self._done(packet_id)  # PUBREC moved it to the broker: sent again, it would be another one
        self._had_session = True
        self.connected.set()
        self._room.set()
        for packet_id, message in self._outgoing.items():
            if message.written and not message.released:
                message.written = connack.session_present
                self._listener.sent_again(self, message.number, as_new=not connack.session_present)
            self._send(packet_id, message)

    def _delivered(self, message: Publish) -> None:
        if message.qos == 1:
            self._write(Ack(AckKind.PUBACK, message.packet_id))
        elif message.qos == 2:
            self._write(Ack(AckKind.PUBREC, message.packet_id))
            if message.packet_id in self._incoming:
                return
            self._incoming.add(message.packet_id)
        self._listener.arrived(self, message)

    def _answered(self, kind: AckKind, packet_id: int, reason: ReasonCode) -> None:
        if kind is AckKind.PUBREL:
            self._incoming.discard(packet_id)
            self._write(Ack(AckKind.PUBCOMP, packet_id))
            return
        message = self._outgoing.get(packet_id)
        if message is None:
            if kind is AckKind.PUBREC:
                self._write(Ack(AckKind.PUBREL, packet_id))
        elif kind is AckKind.PUBCOMP:
            if message.released:
                self._done(packet_id)
                self._listener.completed(self, message.number)
        elif reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._done(packet_id)
            self._listener.refused(self, message.number, reason)
        else:
            if kind is AckKind.PUBACK:
                self._done(packet_id)
            else:
                message.released = True
                self._write(Ack(AckKind.PUBREL, packet_id))
            self._listener.acknowledged(self, message.number)

    def _done(self, packet_id: int) -> None:
        del self._outgoing[packet_id]
        self._room.set()
