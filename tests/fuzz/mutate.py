"""What a hostile or broken client does to a packet: one field wrong, or bytes changed without any regard.

`wrong_field` knows the fields: it writes a value that should not be there, a length that is not true, leaves a part out, or says it
twice.  All other lengths are right again, so the one wrong thing is what the decoder has to find.  `raw` knows nothing.
"""

from __future__ import annotations

from random import Random

from tests.fuzz.dissect import Field, Part, Prefix, dissect, varint_of

LENGTHS = (0, 1, 2, 3, 4, 5, 127, 128, 255, 256, 16_383, 16_384, 65_535, 65_536, 2_097_151, 2_097_152, 268_435_455)
U8 = (0, 1, 2, 3, 4, 5, 6, 0x10, 0x18, 0x19, 0x7F, 0x80, 0x82, 0x92, 0xC0, 0xFE, 0xFF)
BYTES_MAX = 4_096
"""Of what is put in; enough to be long, and the run stays fast."""
VARINTS = (b"\x80", b"\x80\x00", b"\x81\x80\x00", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x01", b"\x00", b"\x7f")
TEXTS = (
    b"", b"\0", b"a\0b", b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xef\xbf\xbf", b"\x01",
    b"\xef\xbb\xbf", b"%c", b"%u", b"../..", b"'; --", b"MQTT", b"MQIsdp", b"SCRAM-SHA-256", b"/", b"a" * 300,
)  # fmt: skip
TOPICS = (
    *TEXTS, b"#", b"+", b"a/#/b", b"a#", b"+a", b"#/#", b"/" * 127, b"/" * 128, b"/" * 3000, b"$SYS/x", b"$share", b"$share/", b"$share/g",
    b"$share/g/", b"$share//t", b"$share/+/t", b"$share/g/$share/g/t", b"$delayed", b"$delayed/", b"$delayed/-1/t", b"$delayed/9/", b"$",
)  # fmt: skip
PROPERTIES = bytes(range(0x2C)) + b"\x7f\x80\xff"
"""All identifiers that there are, and some that are none."""


def wrong_field(packet: bytes, version: int, rng: Random) -> bytes:
    """The packet with one thing wrong, or other than it was."""
    whole = dissect(packet, version)
    parts = whole.flat()[1:]
    how = rng.randrange(10)
    if how < 5:
        _another_value(rng.choice([part for part in parts if not part.parts]), rng)
    elif how < 7:
        lengths = [part for part in parts if part.prefix is not Prefix.NONE]
        _another_length(rng.choice(lengths), rng)
    elif how == 7:
        _spoil_properties(parts, rng)
    else:
        _move(rng.choice([part for part in parts if len(part.parts) > 0] or [whole]), rng)
    return whole.render()


def _another_value(part: Part, rng: Random) -> None:
    match part.kind:
        case Field.FIRST:
            part.content = bytes((rng.randrange(256),))
        case Field.U8:
            part.content = bytes((rng.choice(U8) if rng.random() < 0.5 else part.content[0] ^ 1 << rng.randrange(8),))
        case Field.U16:
            part.content = rng.choice((b"\0\0", b"\0\1", b"\xff\xff", rng.randbytes(2)))
        case Field.U32:
            part.content = rng.choice((bytes(4), b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", rng.randbytes(4)))
        case Field.VARINT:
            part.content = rng.choice(VARINTS)
        case Field.TOPIC:
            part.content = rng.choice(TOPICS)
        case Field.TEXT:
            part.content = rng.choice(TEXTS)
        case _:
            part.content = rng.choice((b"", rng.randbytes(rng.randrange(64)), bytes(rng.randrange(BYTES_MAX))))


def _another_length(part: Part, rng: Random) -> None:
    right = len(part.render())
    part.claims = max(0, right + rng.choice((-3, -2, -1, 1, 2, 3))) if rng.random() < 0.5 else rng.choice(LENGTHS)


def _spoil_properties(parts: list[Part], rng: Random) -> None:
    """A property more than there may be, or one that may not be here; without properties, a byte where none belongs."""
    blocks = [part for part in parts if part.kind is Field.BLOCK and part.prefix is Prefix.VARINT]
    block = blocks[-1]
    rows = [part for part in block.parts if part.kind is Field.PROPERTY]
    if rows and rng.random() < 0.5:
        row = rng.choice(rows)
        block.parts += [row] * rng.choice((1, 1, 2, 300))
        return
    value = rng.choice((b"", b"\0", b"\1", b"\0\1", b"\0\0\0\1", b"\0\1a", b"\0\1a\0\1b", rng.randbytes(rng.randrange(9))))
    block.parts.insert(rng.randrange(len(block.parts) + 1), Part(Field.PROPERTY, bytes((rng.choice(PROPERTIES),)) + value))


def _move(block: Part, rng: Random) -> None:
    """A part left out, twice, at another place, or bytes between."""
    at = rng.randrange(len(block.parts))
    match rng.randrange(4):
        case 0:
            del block.parts[at]
        case 1:
            block.parts.insert(at, block.parts[at])
        case 2:
            part = block.parts.pop(at)
            block.parts.insert(rng.randrange(len(block.parts) + 1), part)
        case _:
            block.parts.insert(at, Part(Field.DATA, rng.randbytes(rng.randrange(1, 9))))
    if not block.parts:
        block.content = b""


def raw(packet: bytes, other: bytes, rng: Random) -> bytes:
    """Bytes changed, left out, put in, said twice, or joined with those of another packet; sometimes nothing of the packet is left."""
    data = bytearray(packet)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                data[at:at] = data[at : at + rng.randrange(1, 65)]
            case 5:
                data[at:] = other[rng.randrange(len(other)) :]
            case _ if rng.random() < 0.1:
                data[:] = rng.randbytes(rng.randrange(1, 257))
            case _:
                data[at:at] = varint_of(rng.choice(LENGTHS))
    return bytes(data)
