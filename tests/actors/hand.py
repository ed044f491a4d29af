"""A client of which a test sends every packet itself: it acknowledges nothing, repeats nothing and expects every packet in its turn.

Bytes are made and read by tests.broker.wire, which knows nothing of the broker's own codec.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass
from typing import Self

from tests.broker import wire
from tests.broker.wire import Packet, Version

PATIENCE_S = 60.0
NO_LOCAL, AS_PUBLISHED, IF_NEW, NO_RETAINED = 4, 8, 0x10, 0x20
"""Bits of subscription options besides QoS."""
_IDENTIFIER = 0x0B


@dataclass(frozen=True, slots=True)
class Got:
    """A PUBLISH as it came."""

    payload: str
    qos: int
    packet_id: int
    dup: bool
    retain: bool
    identifiers: tuple[int, ...]


class Ended(Exception):
    """The broker closed the connection; the text says with which reason."""


class Hand:
    """One connection."""

    KEEP_ALIVE_S = 60

    def __init__(self, version: Version, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.version = version
        self.present = False
        self._reader, self._writer = reader, writer
        self._packets = wire.Reader()
        self._ready: deque[Packet] = deque()
        self._last_id = 0

    # ---------------------------------------------------------------- its life
    @classmethod
    async def connect(
        cls, port: int, client: str, version: Version, *, clean: bool = False, receive_max: int = 1000, expiry_s: int = 3600
    ) -> Self:
        """Of MQTT 3.1.1, a session that outlives the connection unless it is clean."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        hand = cls(version, reader, writer)
        hand.send(wire.connect(version, client, clean=clean, keep_alive_s=cls.KEEP_ALIVE_S, expiry_s=expiry_s, receive_maximum=receive_max))
        connack = wire.read_connack(version, (await hand.next(wire.CONNACK)).body)
        assert connack.code == 0, f"CONNACK {connack.code:#04x}"
        hand.present = connack.session_present
        return hand

    async def close(self) -> None:
        """DISCONNECT."""
        self.send(wire.disconnect())
        self._writer.close()

    def drop(self) -> None:
        """The connection is lost."""
        self._writer.transport.abort()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    # ---------------------------------------------------------------- what comes
    async def packet(self) -> Packet:
        while not self._ready:
            async with asyncio.timeout(PATIENCE_S):
                data = await self._reader.read(65536)
            if not data:
                raise Ended("closed")
            self._ready.extend(self._packets.feed(data))
        packet = self._ready.popleft()
        if packet.kind == wire.DISCONNECT:
            raise Ended(f"DISCONNECT {packet.body[0] if packet.body else 0:#04x}")
        return packet

    def put_back(self, packet: Packet) -> None:
        """It is to come next."""
        self._ready.appendleft(packet)

    async def next(self, kind: int) -> Packet:
        """The next packet, which has to be of this kind."""
        packet = await self.packet()
        assert packet.kind == kind, f"a packet of kind {kind} was expected, {packet} came"
        return packet

    async def answer(self, kind: int, packet_id: int) -> int:
        """The next packet is this answer; its reason code."""
        found, reason = wire.read_answer((await self.next(kind)).body)
        assert found == packet_id, f"an answer to {packet_id} was expected, one to {found} came"
        return reason

    async def message(self) -> Got:
        packet = await self.next(wire.PUBLISH)
        read = wire.read_publish(self.version, packet.flags, packet.body)
        identifiers = _identifiers(packet) if self.version == 5 else ()
        return Got(read.payload.decode(), read.qos, read.packet_id, read.dup, read.retain, identifiers)

    async def messages(self, count: int) -> list[Got]:
        return [await self.message() for _ in range(count)]

    async def alive(self) -> None:
        """Nothing is on its way, and the connection is there."""
        self.send(wire.PINGREQ)
        await self.next(wire.PINGRESP)

    async def ended(self) -> str:
        """The broker ends the connection: how."""
        try:
            while True:
                packet = await self.packet()
                raise AssertionError(f"the end was expected, {packet} came")
        except Ended as end:
            return str(end)
        except ConnectionResetError:
            return "closed"

    # ---------------------------------------------------------------- publishing
    def publish(self, topic: str, payload: str, qos: int, packet_id: int = 0, *, dup: bool = False, retain: bool = False) -> None:
        data = wire.publish(self.version, topic, payload.encode(), qos, packet_id, dup=dup)
        self.send(bytes([data[0] | retain]) + data[1:])

    async def published(self, topic: str, *payloads: str, qos: int = 1, retain: bool = False) -> None:
        """Publish and complete the exchange, one after the other."""
        for payload in payloads:
            self._last_id += 1
            packet_id = 1000 + self._last_id
            self.publish(topic, payload, qos, packet_id if qos else 0, retain=retain)
            if qos == 1:
                assert await self.answer(wire.PUBACK, packet_id) < 0x80
            elif qos == 2:
                assert await self.answer(wire.PUBREC, packet_id) < 0x80
                self.send(wire.answer(wire.PUBREL, packet_id))
                assert await self.answer(wire.PUBCOMP, packet_id) == 0

    # ---------------------------------------------------------------- subscribing
    async def subscribe(self, topic_filter: str, options: int, identifier: int = 0) -> None:
        """Returns at the SUBACK, which has to come next and to grant what was asked for."""
        assert await self.subscribed(self.ask(topic_filter, options, identifier)) == bytes([options & 3])

    def ask(self, topic_filter: str, options: int, identifier: int = 0) -> int:
        self._last_id += 1
        properties = bytes([_IDENTIFIER]) + wire.varint(identifier) if identifier else b""
        head = struct.pack(">H", self._last_id) + (wire.varint(len(properties)) + properties if self.version == 5 else b"")
        self.send(wire.packet(0x82, head + wire.text(topic_filter) + bytes([options])))
        return self._last_id

    async def subscribed(self, packet_id: int) -> bytes:
        found, codes = wire.read_suback(self.version, (await self.next(wire.SUBACK)).body)
        assert found == packet_id
        return codes

    async def unsubscribe(self, topic_filter: str) -> None:
        self._last_id += 1
        head = struct.pack(">H", self._last_id) + (b"\0" if self.version == 5 else b"")
        self.send(wire.packet(0xA2, head + wire.text(topic_filter)))
        packet = await self.next(wire.UNSUBACK)
        assert packet.body[:2] == head[:2] and not any(packet.body[3:])

    # ---------------------------------------------------------------- acknowledging
    def acknowledge(self, kind: int, packet_id: int, reason: int = 0) -> None:
        if reason:
            self.send(bytes([kind << 4 | (2 if kind == wire.PUBREL else 0), 3]) + struct.pack(">HB", packet_id, reason))
        else:
            self.send(wire.answer(kind, packet_id))

    async def complete(self, *messages: Got) -> None:
        """Everything that a careful client answers, one message after the other."""
        for got in messages:
            if got.qos == 1:
                self.acknowledge(wire.PUBACK, got.packet_id)
            elif got.qos == 2:
                self.acknowledge(wire.PUBREC, got.packet_id)
                assert await self.answer(wire.PUBREL, got.packet_id) == 0
                self.acknowledge(wire.PUBCOMP, got.packet_id)

    async def complete_all(self, *messages: Got) -> None:
        """The same for messages that are in the window together: what they make room for may come in between, and waits."""
        for got in messages:
            if got.qos:
                self.acknowledge(wire.PUBACK if got.qos == 1 else wire.PUBREC, got.packet_id)
        released = [got.packet_id for got in messages if got.qos == 2]
        kept: list[Packet] = []
        while released:
            packet = await self.packet()
            if packet.kind != wire.PUBREL:
                kept.append(packet)
                continue
            packet_id, reason = wire.read_answer(packet.body)
            assert packet_id == released.pop(0) and not reason
            self.acknowledge(wire.PUBCOMP, packet_id)
        self._ready.extendleft(reversed(kept))

    async def taken(self) -> Got:
        """The next message, completed."""
        got = await self.message()
        await self.complete_all(got)
        return got


def _identifiers(packet: Packet) -> tuple[int, ...]:
    """The subscription identifiers of a PUBLISH that has no other properties."""
    body = packet.body
    at = 2 + int.from_bytes(body[:2], "big") + (2 if packet.flags & 6 else 0)
    end = at + 1 + body[at]
    at += 1
    found = []
    while at < end:
        assert body[at] == _IDENTIFIER, f"property {body[at]:#04x}"
        value = shift = 0
        while True:
            at += 1
            value |= (body[at] & 0x7F) << shift
            shift += 7
            if body[at] < 0x80:
                break
        at += 1
        found.append(value)
    return tuple(found)
