"""One connection to a broker, of which a test sends every byte itself and expects every packet in its turn."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import Self

from tests.conformance import packets
from tests.conformance.packets import (
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
    SUBACK,
    UNSUBACK,
    Answer,
    Message,
    Properties,
    Reader,
    Will,
)

PATIENCE_S = 60.0
NO_LOCAL, AS_PUBLISHED, IF_NEW, NO_RETAINED = 4, 8, 0x10, 0x20
"""Bits of subscription options besides QoS."""

_numbers = itertools.count(1)


def fresh(kind: str = "t") -> str:
    """A name that no other test of this run has used."""
    return f"{kind}{next(_numbers)}"


_open: list[asyncio.StreamWriter] = []


def hang_up() -> None:
    """Every connection that is still open is lost; in the loop that they were made in."""
    while _open:
        transport = _open.pop().transport
        if not transport.is_closing():
            transport.abort()


class Closed(Exception):
    """The server closed the connection."""


class Peer:
    def __init__(self, version: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.version = version
        self.client = ""
        self.connack = Answer(0)
        self._reader, self._writer = reader, writer
        _open.append(writer)
        self._packets = Reader()
        self._ready: deque[Answer | Message] = deque()
        self._last_id = 0
        self._heard = 0

    # ---------------------------------------------------------------- its life
    @classmethod
    async def open(cls, port: int, version: int, first: bytes = b"") -> Self:
        """A connection over which only these bytes have gone."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        peer = cls(version, reader, writer)
        peer.send(first)
        return peer

    @classmethod
    async def connect(
        cls,
        port: int,
        version: int,
        client: str | None = None,
        *,
        kept: bool = False,
        clean: bool | None = None,
        expiry_s: int = 3600,
        receive_max: int = 0,
        keep_alive: int = 0,
        properties: Properties = (),
        will: Will | None = None,
    ) -> Self:
        """Connected.  kept: its session outlives the connection; clean, unless said otherwise, is the contrary."""
        client = fresh("c") if client is None else client
        rows = [*properties]
        if kept and version == 5:
            rows.append((SESSION_EXPIRY, expiry_s))
        if receive_max and version == 5:
            rows.append((RECEIVE_MAXIMUM, receive_max))
        clean = not kept if clean is None else clean
        first = packets.connect(version, client, clean=clean, keep_alive=keep_alive, properties_=rows, will=will)
        peer = await cls.open(port, version, first)
        peer.client = client
        peer.connack = await peer.answer(packets.CONNACK)
        assert peer.connack.code == 0, f"CONNACK {peer.connack.code:#04x}"
        return peer

    @property
    def present(self) -> bool:
        return bool(self.connack.flags & 1)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def drop(self) -> None:
        """The connection is lost, without a word."""
        self._writer.transport.abort()

    async def leave(self, reason: int = 0, properties: Properties = ()) -> None:
        """DISCONNECT; returns when the server has closed the connection."""
        self.send(packets.disconnect(self.version, reason, properties))
        await self.closed()

    # ---------------------------------------------------------------- what comes
    async def next(self) -> Answer | Message:
        while not self._ready:
            async with asyncio.timeout(PATIENCE_S):
                try:
                    data = await self._reader.read(65536)
                except ConnectionResetError:
                    data = b""
            if not data:
                raise Closed
            for packet in self._packets.feed(data):
                came = packets.read(self.version, packet)
                assert packet.ends_at == self._heard + came.size, f"{came}: its remaining length takes more bytes than it needs"
                self._heard = packet.ends_at
                self._ready.append(came)
        return self._ready.popleft()

    async def answer(self, kind: int, packet_id: int | None = None) -> Answer:
        """The next packet, which has to be of this kind, and an answer to this identifier."""
        came = await self.next()
        assert isinstance(came, Answer) and came.kind == kind, f"a packet of kind {kind} was expected, {came} came"
        assert packet_id is None or came.packet_id == packet_id, f"an answer to {packet_id} was expected, {came} came"
        return came

    async def message(self) -> Message:
        came = await self.next()
        assert isinstance(came, Message), f"a PUBLISH was expected, {came} came"
        return came

    async def rest(self) -> list[Answer | Message]:
        """Everything until the server closes the connection."""
        came = []
        try:
            while True:
                came.append(await self.next())
        except Closed:
            return came

    async def closed(self, code: int | None = None) -> None:
        """The server closes the connection; of MQTT 5 with a DISCONNECT of this code, if one is named."""
        came = await self.rest()
        wanted = [] if code is None or self.version != 5 else [code]
        assert [packet.code if isinstance(packet, Answer) and packet.kind == packets.DISCONNECT else packet for packet in came] == wanted

    async def refused(self, code: int | None) -> None:
        """The CONNECT is answered with this code, or not at all, and the connection is closed."""
        came = await self.rest()
        if code is None:
            assert came == []
            return
        assert [(packet.kind, packet.code, packet.flags) for packet in came if isinstance(packet, Answer)] == [(packets.CONNACK, code, 0)]
        assert len(came) == 1

    async def alive(self) -> None:
        """The connection is there, and nothing is on its way that the gateway had to send before."""
        self.send(b"\xc0\x00")
        await self.answer(PINGRESP)

    # ---------------------------------------------------------------- messages
    def free_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def publish(self, topic: str, payload: bytes = b"m", qos: int = 1, *, retain: bool = False, properties: Properties = ()) -> int:
        """Publish and complete the exchange; the reason code of the first answer."""
        packet_id = self.free_id() if qos else 0
        self.send(packets.publish(self.version, topic, payload, qos, packet_id, retain=retain, properties_=properties))
        if not qos:
            if retain:
                # Nobody is told when it is stored; what the same client publishes behind it is acknowledged later.
                await self.publish(f"behind/{topic}", b"", retain=True)
            return 0
        code = (await self.answer(PUBACK if qos == 1 else PUBREC, packet_id)).code
        if qos == 2 and code < 0x80:
            self.send(packets.ack(PUBREL, packet_id))
            assert (await self.answer(PUBCOMP, packet_id)).code == 0
        return code

    async def subscribe(self, *rows: tuple[str, int], identifier: int = 0) -> bytes:
        """The codes of the SUBACK, which has to come next."""
        packet_id = self.free_id()
        block = [(packets.SUBSCRIPTION_IDENTIFIER, identifier)] if identifier else []
        self.send(packets.subscribe(self.version, packet_id, *rows, properties_=block))
        return (await self.answer(SUBACK, packet_id)).codes

    async def unsubscribe(self, *filters: str) -> bytes:
        packet_id = self.free_id()
        self.send(packets.unsubscribe(self.version, packet_id, *filters))
        return (await self.answer(UNSUBACK, packet_id)).codes

    def acknowledge(self, kind: int, packet_id: int, reason: int = 0) -> None:
        self.send(packets.ack(kind, packet_id, reason))

    async def take(self) -> Message:
        """The next message, acknowledged to the end."""
        came = await self.message()
        await self.complete(came)
        return came

    async def complete(self, came: Message) -> None:
        if came.qos == 1:
            self.acknowledge(PUBACK, came.packet_id)
        elif came.qos == 2:
            self.acknowledge(PUBREC, came.packet_id)
            await self.released(came.packet_id)
            self.acknowledge(PUBCOMP, came.packet_id)

    async def released(self, packet_id: int) -> None:
        """PUBREL for this one; messages, and answers to something else, that come before it wait for their turn."""
        kept: list[Answer | Message] = []
        while isinstance(came := await self.next(), Message) or came.kind in (SUBACK, UNSUBACK):
            kept.append(came)
        assert (came.kind, came.packet_id, came.code) == (PUBREL, packet_id, 0), f"PUBREL {packet_id} was expected, {came} came"
        self._ready.extendleft(reversed(kept))

    async def take_all(self, count: int) -> list[Message]:
        return [await self.take() for _ in range(count)]

    async def nothing_but(self, publisher: Peer, topic: str, *rest: Peer) -> None:
        """What is published now to this topic is the next thing that comes, to each of these."""
        await publisher.publish(topic, b"the end")
        for peer in (self, *rest):
            came = await peer.take()
            assert came.payload == b"the end", f"{came} came first"
