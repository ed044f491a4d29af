"""A packet from a client taken apart into its fields, and put together again with every length right, or one of them wrong.

Reads only what our own encoder wrote, and knows nothing of the decoder that is being tried: the two must not share a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mqtt.properties import KIND_OF, Kind


class Field(Enum):
    """What a part of a packet is; what may be done to it depends on that."""

    FIRST = "first byte"
    U8 = "one byte"
    U16 = "two bytes"
    U32 = "four bytes"
    VARINT = "variable byte integer"
    TEXT = "text"
    TOPIC = "topic"
    DATA = "data"
    PAYLOAD = "payload"
    PROPERTY = "property"
    BLOCK = "several parts"


class Prefix(Enum):
    """How a part's length is written before it."""

    NONE = 0
    U16 = 2
    VARINT = 5


@dataclass(slots=True)
class Part:
    """A field with its bytes, or several parts in their order.  claims: the length that is written instead of the right one."""

    kind: Field
    content: bytes = b""
    parts: list[Part] = field(default_factory=list)
    prefix: Prefix = Prefix.NONE
    claims: int | None = None

    def render(self) -> bytes:
        content = b"".join([part.render() for part in self.parts]) if self.parts else self.content
        if self.prefix is Prefix.NONE:
            return content
        length = len(content) if self.claims is None else self.claims
        if self.prefix is Prefix.U16:
            return (length & 0xFFFF).to_bytes(2, "big") + content
        return varint_of(length) + content

    def flat(self) -> list[Part]:
        """This part and all that are in it, the outer ones first."""
        found = [self]
        for part in self.parts:
            found += part.flat()
        return found


def varint_of(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


class _Cursor:
    """Where we are in the bytes of one packet."""

    def __init__(self, data: bytes, pos: int) -> None:
        self.data = data
        self.pos = pos

    def more(self) -> bool:
        return self.pos < len(self.data)

    def bytes(self, count: int) -> bytes:
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.bytes(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def fixed(self, kind: Field) -> Part:
        return Part(kind, self.bytes({Field.U8: 1, Field.U16: 2, Field.U32: 4}[kind]))

    def string(self, kind: Field) -> Part:
        return Part(kind, self.bytes(int.from_bytes(self.bytes(2), "big")), prefix=Prefix.U16)

    def properties(self) -> Part:
        stop = self.varint()
        stop += self.pos
        block = Part(Field.BLOCK, prefix=Prefix.VARINT)
        while self.pos < stop:
            block.parts.append(self._property())
        return block

    def _property(self) -> Part:
        identifier = self.bytes(1)
        kind = KIND_OF[identifier[0]]
        row = Part(Field.PROPERTY, parts=[Part(Field.U8, identifier)])
        match kind:
            case Kind.U8 | Kind.U16 | Kind.U32:
                row.parts.append(self.fixed({1: Field.U8, 2: Field.U16, 4: Field.U32}[kind.value]))
            case Kind.VARINT:
                row.parts.append(Part(Field.VARINT, varint_of(self.varint())))
            case Kind.PAIR:
                row.parts += [self.string(Field.TEXT), self.string(Field.TEXT)]
            case _:
                row.parts.append(self.string(Field.TEXT if kind is Kind.STRING else Field.DATA))
        return row


CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE = 1, 3, 8, 10
_ACKS = range(4, 8)
_WITH_REASON = (14, 15)


def dissect(packet: bytes, version: int) -> Part:
    """The parts of one whole packet that a client may send."""
    rest = _Cursor(packet, 1)
    rest.varint()
    kind = packet[0] >> 4
    parts = _body(kind, packet[0] & 15, rest, version)
    return Part(Field.BLOCK, parts=[Part(Field.FIRST, packet[:1]), Part(Field.BLOCK, parts=parts, prefix=Prefix.VARINT)])


def _body(kind: int, flags: int, rest: _Cursor, version: int) -> list[Part]:
    if kind == CONNECT:
        return _connect(rest, version)
    if kind == PUBLISH:
        head = [rest.string(Field.TOPIC)]
        if flags & 6:
            head.append(rest.fixed(Field.U16))
        if version == 5:
            head.append(rest.properties())
        return [*head, Part(Field.PAYLOAD, rest.bytes(len(rest.data) - rest.pos))]
    if kind in _ACKS:
        return [rest.fixed(Field.U16), *_reason(rest)]
    if kind in _WITH_REASON:
        return _reason(rest)
    if kind not in (SUBSCRIBE, UNSUBSCRIBE):
        return []
    head = [rest.fixed(Field.U16)]
    if version == 5:
        head.append(rest.properties())
    while rest.more():
        head.append(rest.string(Field.TOPIC))
        if kind == SUBSCRIBE:
            head.append(rest.fixed(Field.U8))
    return head


def _connect(rest: _Cursor, version: int) -> list[Part]:
    parts = [rest.string(Field.TEXT), rest.fixed(Field.U8), rest.fixed(Field.U8), rest.fixed(Field.U16)]
    flags = parts[2].content[0]
    if version == 5:
        parts.append(rest.properties())
    parts.append(rest.string(Field.TEXT))
    if flags & 4:
        if version == 5:
            parts.append(rest.properties())
        parts += [rest.string(Field.TOPIC), rest.string(Field.DATA)]
    if flags & 0x80:
        parts.append(rest.string(Field.TEXT))
    if flags & 0x40:
        parts.append(rest.string(Field.DATA))
    return parts


def _reason(rest: _Cursor) -> list[Part]:
    """A reason code and properties, where they are there."""
    parts: list[Part] = []
    if rest.more():
        parts.append(rest.fixed(Field.U8))
    if rest.more():
        parts.append(rest.properties())
    return parts
