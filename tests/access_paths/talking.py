"""A small MQTT client over the shipped codec: it keeps what comes, with when it came, and acknowledges it, or does not yet."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import NamedTuple

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
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Will,
)

ANSWER_WITHIN_S = 60.0
_PACKET_BYTES_MAX = 1 << 20


class Closed(NamedTuple):
    """A connection that the broker has ended.  reason: of its DISCONNECT; -1: it said nothing."""

    at: float
    reason: int


class Talker:
    """One client id; its connections come and go."""

    def __init__(self, port: int, client_id: str, version: int, keeps: bool = False) -> None:
        """keeps: its session outlives its connections."""
        self.port = port
        self.client_id = client_id
        self.version = version
        self.keeps = keeps
        self.acknowledges = True
        """False: PUBACK and PUBREC are held back, until `acknowledge`."""
        self.completes = True
        """False: PUBREL is."""
        self.closed: Closed | None = None
        """Of its connection, or its last one."""
        self.released: set[int] = set()
        """Packet ids of PUBREL."""
        self.got: list[tuple[float, bytes, bytes]] = []
        """When, payload, and all that came along with it."""
        self.answers: dict[int, int] = {}
        """Packet id -> reason of PUBACK or PUBREC."""
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._expected: asyncio.Future[Item] | None = None
        self._last_id = 0
        self._held: list[Ack] = []

    async def connect(self, will: Will | None = None, clean: bool = False, token: bytes | None = None) -> int:
        """The reason code of CONNACK; -1 when the broker closed without one."""
        await self.vanish(politely=True)
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.closed = None
        self._held.clear()
        expiry = 600 if self.keeps and self.version == MQTT_5 else None
        packet = Connect(
            self.version, self.client_id, clean or not self.keeps, 0, password=token, username="" if token is not None else None, will=will,
            properties=Properties(session_expiry_interval=expiry) if self.version == MQTT_5 else Properties(),
        )  # fmt: skip
        answer = self._expect()
        self._reading = asyncio.create_task(self._read(reader))
        self._send(packet)
        connack = await self._answer(answer)
        return int(connack.reason) if isinstance(connack, Connack) else -1

    @property
    def online(self) -> bool:
        return self._writer is not None and self.closed is None

    async def subscribe(self, topic_filter: str, qos: int) -> int:
        """The code of SUBACK."""
        answer = self._expect()
        self._send(Subscribe(self._next_id(), (Subscription(topic_filter.encode(), qos),)))
        suback = await self._answer(answer)
        assert isinstance(suback, Suback), f"{self.client_id} got {suback}"
        return int(suback.reasons[0])

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False, again: int = 0) -> int:
        """Its packet id; nothing is awaited.  again: the id of the one that this repeats."""
        packet_id = again or (self._next_id() if qos else 0)
        self._send(Publish(bool(again) << 3 | qos << 1 | retain, packet_id, topic.encode(), payload, Properties()))
        return packet_id

    def acknowledge(self) -> None:
        """What was held back, and all that comes."""
        self.acknowledges = True
        for ack in self._held:
            self._send(ack)
        self._held.clear()

    async def disconnect(self) -> None:
        with suppress(OSError, AssertionError):
            self._send(Disconnect())
        await self.vanish(politely=True)

    async def vanish(self, politely: bool = False) -> None:
        """Without a word, as far as the broker can tell."""
        if self._writer is not None:
            if politely:
                self._writer.close()
            else:
                self._writer.transport.abort()
            self._writer = None
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None

    def when(self, mark: bytes) -> list[float]:
        """Each time something with this mark came."""
        return [at for at, _, around in self.got if mark in around]

    # ------------------------------------------------------------------ within

    def _expect(self) -> asyncio.Future[Item]:
        self._expected = asyncio.get_running_loop().create_future()
        return self._expected

    @staticmethod
    async def _answer(answer: asyncio.Future[Item]) -> Item:
        return await asyncio.wait_for(answer, ANSWER_WITHIN_S)

    def _next_id(self) -> int:
        self._last_id = self._last_id % 65_535 + 1
        return self._last_id

    def _send(self, packet: Item) -> None:
        assert self._writer is not None, f"{self.client_id} is not connected"
        self._writer.write(encode(self.version, packet))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder, reason = Decoder(self.version, _PACKET_BYTES_MAX, "client"), -1
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                for item in decoder.feed(data):
                    if isinstance(item, Disconnect):
                        reason = int(item.reason)
                    else:
                        self._take(item)
        self.closed = Closed(time.monotonic(), reason)
        if self._expected is not None and not self._expected.done():
            self._expected.set_result(Disconnect())

    def _take(self, item: Item) -> None:
        match item:
            case PublishRun():
                for flags, packet_id, topic, body in zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True):
                    self._message(flags, packet_id, topic, body)
            case Publish():
                self._message(item.flags, item.packet_id, item.topic, item.payload)
            case AckRun(kind, packet_ids):
                for packet_id in packet_ids:
                    self._acked(kind, packet_id, 0)
            case Ack():
                self._acked(item.kind, item.packet_id, int(item.reason))
            case _:
                if self._expected is not None and not self._expected.done():
                    self._expected.set_result(item)

    def _message(self, flags: int, packet_id: int, topic: bytes, body: bytes) -> None:
        self.got.append((time.monotonic(), body, topic + body))
        if packet_id:
            self._held.append(Ack(AckKind.PUBACK if flags & 2 else AckKind.PUBREC, packet_id))
            if self.acknowledges:
                self.acknowledge()

    def _acked(self, kind: AckKind, packet_id: int, reason: int) -> None:
        if kind is AckKind.PUBREL:
            self.released.add(packet_id)
            self._send(Ack(AckKind.PUBCOMP, packet_id))
            return
        if kind in (AckKind.PUBACK, AckKind.PUBREC):
            self.answers[packet_id] = reason
        if kind is AckKind.PUBREC and reason < 0x80 and self.completes:
            self._send(Ack(AckKind.PUBREL, packet_id))
