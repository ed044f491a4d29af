"""A client that subscribes to the past: user properties of MQTT 5 in what it sends, and in what it gets."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.actors.hand import Hand
from tests.broker import wire

_FIXED = {0x01: 1, 0x02: 4, 0x23: 2}
_REASON, _PAIR, _IDENTIFIER = 0x1F, 0x26, 0x0B


@dataclass(frozen=True)
class Told:
    """A SUBACK."""

    codes: bytes
    reason: str
    properties: dict[str, str]


@dataclass(frozen=True)
class Message:
    topic: str
    payload: str
    qos: int
    packet_id: int
    dup: bool
    retain: bool
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def position(self) -> str:
        return self.properties["replay-position"]


class Replayer(Hand):
    KEEP_ALIVE_S = 0
    """Who has got all that there was says nothing for as long as others take."""

    async def replay(self, *filters: str, qos: int = 1, **properties: str) -> Told:
        """SUBSCRIBE, with `replay_from` for replay-from; returns at the SUBACK.  What comes before it waits."""
        self._last_id += 1
        block = b"".join(pair(name.replace("_", "-"), value) for name, value in properties.items())
        body = b"".join(wire.text(each) + bytes([qos]) for each in filters)
        self.send(wire.packet(0x82, struct.pack(">H", self._last_id) + wire.varint(len(block)) + block + body))
        early = []
        while (packet := await self.packet()).kind != wire.SUBACK:
            early.append(packet)
        self._ready.extendleft(reversed(early))
        assert int.from_bytes(packet.body[:2], "big") == self._last_id
        found, reason, at = read_properties(packet.body, 2)
        return Told(packet.body[at:], reason, found)

    async def got(self) -> Message:
        """The next message, acknowledged."""
        packet = await self.next(wire.PUBLISH)
        read = wire.read_publish(5, packet.flags, packet.body)
        at = 2 + len(read.topic.encode()) + (2 if read.qos else 0)
        found, _, _ = read_properties(packet.body, at)
        message = Message(read.topic, read.payload.decode(), read.qos, read.packet_id, read.dup, read.retain, found)
        if read.qos == 1:
            self.acknowledge(wire.PUBACK, read.packet_id)
        elif read.qos == 2:
            self.acknowledge(wire.PUBREC, read.packet_id)
            early = []
            while (packet := await self.packet()).kind != wire.PUBREL:
                early.append(packet)
            self._ready.extendleft(reversed(early))
            self.acknowledge(wire.PUBCOMP, read.packet_id)
        return message

    async def payloads(self, count: int) -> list[str]:
        return [(await self.got()).payload for _ in range(count)]

    async def rest(self) -> list[str]:
        """What still comes, until nothing does."""
        found: list[str] = []
        quiet = 0
        while quiet < 3:
            self.send(wire.PINGREQ)
            quiet += 1
            while (packet := await self.packet()).kind != wire.PINGRESP:
                self.put_back(packet)
                found.append((await self.got()).payload)
                quiet = 0
        return found

    async def persist(self, topic: str, payload: str, qos: int, packet_id: int, value: str = "true") -> None:
        block = pair("persist", value)
        body = wire.text(topic) + struct.pack(">H", packet_id) + wire.varint(len(block)) + block + payload.encode()
        self.send(wire.packet(0x30 | qos << 1, body))


def pair(name: str, value: str) -> bytes:
    return bytes([_PAIR]) + wire.text(name) + wire.text(value)


def read_properties(body: bytes, at: int) -> tuple[dict[str, str], str, int]:
    """(user properties, reason string, where the block ends)."""
    size = shift = 0
    while True:
        size |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if body[at - 1] < 0x80:
            break
    end = at + size
    pairs: dict[str, str] = {}
    reason = ""
    while at < end:
        kind = body[at]
        at += 1
        if kind in _FIXED:
            at += _FIXED[kind]
        elif kind == _IDENTIFIER:
            while body[at] & 0x80:
                at += 1
            at += 1
        else:
            name, at = _text(body, at)
            if kind == _PAIR:
                value, at = _text(body, at)
                assert name not in pairs, f"{name} is there twice"
                pairs[name] = value
            else:
                assert kind == _REASON, f"property {kind:#04x}"
                reason = name
    return pairs, reason, at


def _text(body: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", body, at)
    return body[at + 2 : at + 2 + length].decode(), at + 2 + length
