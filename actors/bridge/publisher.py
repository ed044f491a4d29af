"""Where a bridge inwards publishes: one connection to this broker, over the socket that only processes of this broker can use.

    open -> run -> over

Its client is `$bridge/NAME`, as that of a bridge outwards, with a durable session: what it has sent at QoS 2 this broker knows by its
packet identifier until PUBREL, whatever dies meanwhile.  What is published goes the way of any client's message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from actors.bridge.arriving import dead_letter
from actors.bridge.session import CONNECT_S, PACKET_BYTES_MAX, client_id
from actors.listening.door import unix_path
from actors.settings import BRIDGE_MORE_BYTES, bridge_socket
from bridge.inward import Publish as Asked
from bridge.port import Message
from bridge.targets.mqtt import FOR_GOOD
from gateway.bridges import SUBSCRIBED, token
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import acks, encode
from mqtt.packets import MQTT_5, Ack, AckKind, AckRun, Connack, Connect, Disconnect, Item, Properties, Publish
from mqtt.reason import ReasonCode
from shards.ids import EXPIRY_NEVER

_READ_BYTES: Final = 64 << 10
_IDS: Final = 65_535
MARK_BYTES: Final = 1024
"""So much larger a message may become by the mark of where it came from."""


class HereLost(Exception):
    """This broker has ended the connection, or has refused one; one sentence."""


class NotNow(Exception):
    """This broker does not take a message now, as when its disk is full; one sentence."""


class PublisherOwner(Protocol):
    def answered(self, packet_ids: Sequence[int], refusal: str) -> None:
        """PUBACK or PUBREC.  refusal: why this broker never takes the message; empty: it has it."""

    def completed(self, packet_ids: Sequence[int]) -> None:
        """PUBCOMP."""


class Publisher:
    def __init__(self, name: str, run_dir: Path, secret: bytes, gateway: int, owner: PublisherOwner, dead_letter_topic: str) -> None:
        self._name = name
        self._path = unix_path(str(bridge_socket(run_dir)), gateway)
        self._secret = secret
        self._owner = owner
        self._dead_letter_topic = dead_letter_topic
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._decoder = Decoder(MQTT_5, PACKET_BYTES_MAX, "client")
        self.receive_max = _IDS
        self._packet_bytes_max = PACKET_BYTES_MAX
        self._retains = True

    @property
    def message_bytes_max(self) -> int:
        """Of the packet of a message as it comes: what any client may send.  More is for marks, and for what dead letters say."""
        return self._packet_bytes_max - BRIDGE_MORE_BYTES

    async def open(self, *, clean: bool) -> None:
        """clean: what was sent at QoS 2 before is forgotten here.  Raises HereLost."""
        try:
            async with asyncio.timeout(CONNECT_S):
                self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=2 * _READ_BYTES)
                properties = Properties(session_expiry_interval=EXPIRY_NEVER)
                self._write(Connect(MQTT_5, client_id(self._name), clean, password=token(self._secret), properties=properties))
                (connack, *_) = await self._read()
        except TimeoutError:
            raise HereLost(f"no answer from a gateway of this broker within {CONNECT_S:.0f} s") from None
        except OSError as error:
            raise HereLost(f"no gateway of this broker can be reached: {error}") from None
        if not isinstance(connack, Connack) or connack.reason:
            said = connack.properties.reason_string or connack.reason.name.lower() if isinstance(connack, Connack) else "no CONNACK"
            raise HereLost(f"CONNECT was refused: {said}")
        said_of_us = connack.properties
        if any(name == SUBSCRIBED for name, _ in said_of_us.user_properties):
            raise HereLost(
                f"a bridge {self._name} outwards has its place in the store, and what is kept for it would come back here: end it with "
                f"`holdfast bridge rm`, or give this one another name"
            )
        self.receive_max = said_of_us.receive_maximum or _IDS
        self._packet_bytes_max = said_of_us.maximum_packet_size or PACKET_BYTES_MAX
        self._retains = said_of_us.retain_available != 0

    async def run(self) -> None:
        """Until the connection ends, which it says by an exception.  Raises HereLost, NotNow."""
        while True:
            try:
                items = await self._read()
            except OSError as error:
                raise HereLost(f"the connection to the gateway broke: {error}") from None
            for item in items:
                self._take(item)

    async def _read(self) -> list[Item]:
        """At least one packet."""
        assert self._reader is not None
        while True:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise HereLost("the gateway has closed the connection")
            try:
                items = self._decoder.feed(data)
            except DecodeError as error:
                raise HereLost(f"the gateway sent what is no MQTT: {error.detail}") from None
            if items:
                return items

    def _take(self, item: Item) -> None:
        match item:
            case AckRun(kind=AckKind.PUBACK | AckKind.PUBREC, packet_ids=packet_ids):
                self._owner.answered(packet_ids, "")
            case Ack(kind=AckKind.PUBACK | AckKind.PUBREC, packet_id=packet_id, reason=reason):
                self._judge(packet_id, reason, item.properties.reason_string or reason.name.lower().replace("_", " "))
            case AckRun(kind=AckKind.PUBCOMP, packet_ids=packet_ids):
                self._owner.completed(packet_ids)
            case Ack(kind=AckKind.PUBCOMP, packet_id=packet_id):
                self._owner.completed([packet_id])
            case Disconnect():
                raise HereLost(f"DISCONNECT {item.reason:#04x} ({item.properties.reason_string or item.reason.name.lower()})")
            case _:
                raise HereLost(f"a {type(item).__name__} came")

    def _judge(self, packet_id: int, reason: ReasonCode, said: str) -> None:
        if reason < ReasonCode.UNSPECIFIED_ERROR:
            self._owner.answered([packet_id], "")
        elif reason in FOR_GOOD:
            self._owner.answered([packet_id], f"this broker answered {said} ({reason:#04x})")
        else:
            raise NotNow(f"this broker takes no message now: {said} ({reason:#04x})")

    # ------------------------------------------------------------------ what goes
    def publish(self, asked: Asked) -> str:
        """Why it cannot be sent; empty: it is."""
        if asked.letter:
            letter = dead_letter(asked.packet_id, self._dead_letter_topic, self._name, asked.message, asked.letter)
            packet = replace(letter, flags=asked.qos << 1)
        else:
            packet = _packet_of(asked, self._retains)
        data = encode(MQTT_5, packet)
        bytes_max = self._packet_bytes_max if asked.letter else self.message_bytes_max + MARK_BYTES
        if len(data) > bytes_max:
            return f"its packet has {len(data)} bytes, and this broker takes {bytes_max}"
        self._send(data)
        return ""

    def release(self, packet_ids: Sequence[int]) -> None:
        self._send(acks(MQTT_5, AckKind.PUBREL, packet_ids))

    async def drain(self) -> None:
        """Returns when so much is sent that more may be written."""
        if self._writer is not None:
            try:
                await self._writer.drain()
            except OSError as error:
                raise HereLost(f"the connection to the gateway broke: {error}") from None

    def hang_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.transport.abort()

    def _write(self, packet: Item) -> None:
        self._send(encode(MQTT_5, packet))

    def _send(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)


def _packet_of(asked: Asked, retains: bool) -> Publish:
    message = asked.message
    flags = asked.dup << 3 | asked.qos << 1 | (message.retain and retains)
    return Publish(flags, asked.packet_id, message.topic.encode(), message.payload, _properties(message))


def _properties(message: Message) -> Properties:
    expiry_s = None
    if message.expires_at_ms:
        expiry_s = max(1, (message.expires_at_ms - time.time_ns() // 1_000_000) // 1000)
    return Properties(
        payload_format_indicator=1 if message.payload_is_text else None,
        message_expiry_interval=expiry_s,
        content_type=message.content_type or None,
        response_topic=message.response_topic or None,
        correlation_data=message.correlation_data or None,
        user_properties=message.user_properties,
    )
