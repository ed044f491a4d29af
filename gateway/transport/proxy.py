"""The header that a proxy puts in front of a connection to say who it speaks for (PROXY protocol, version 1 and 2).

Reads only; whether this peer may speak for others is the door's business.

Always holds: no more bytes are asked for than a header may have, and never more than this one has; whatever the pieces, the answer
is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final, Literal

Versions = Literal["v1", "v2", "any"]

V1_BYTES_MAX: Final = 107
V2_BODY_MAX: Final = 2_048

_V1_BEGINS: Final = b"PROXY "
_V1_SHORTEST: Final = len(b"PROXY UNKNOWN\r\n")
_V2_BEGINS: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V2_HEAD: Final = Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP_4, _TCP_6, _UNIX_STREAM = 0x00, 0x11, 0x21, 0x31
_ADDRESS_BYTES: Final = {_UNSPECIFIED: 0, _TCP_4: 12, _TCP_6: 36, _UNIX_STREAM: 216}
_CRC_TYPE: Final = 0x03
_TLV_HEAD: Final = Struct(">BH")


class ProxyError(Exception):
    """No header, or a wrong one: what was found and what was wanted."""


@dataclass(frozen=True, slots=True)
class Found:
    """A header of so many bytes.  address None: the proxy speaks for itself, or does not know for whom."""

    header_bytes: int
    address: str | None
    port: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Ask again when so many bytes are there, counted from the first."""

    count: int


def read_proxy_header(data: bytes, versions: Versions) -> Found | Wanted:
    """What a connection begins with; more may follow.  Raises ProxyError."""
    for name, begins, reads in (("v1", _V1_BEGINS, _read_1), ("v2", _V2_BEGINS, _read_2)):
        if versions in (name, "any") and data.startswith(begins[: len(data)]):
            return reads(data) if len(data) >= len(begins) else Wanted(len(begins))
    raise ProxyError(f"it begins with {data[:12]!r}, a PROXY header {'of either version' if versions == 'any' else versions} is wanted")


# ---------------------------------------------------------------------------------------------- version 1: a line of text


def _read_1(data: bytes) -> Found | Wanted:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyError(f"a line of more than {V1_BYTES_MAX} bytes")
        # It is not known how long it will be: at least as long as the shortest, and longer than what is there.
        return Wanted(max(_V1_SHORTEST, len(data) + 1))
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return Found(end + 2, None)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyError(f"{data[:end]!r}: PROXY, TCP4 or TCP6, two addresses and two ports are wanted")
    kind = IPv4Address if words[1] == b"TCP4" else IPv6Address
    try:
        source, _ = (kind(word.decode("ascii")) for word in words[2:4])
        port, _ = (_port(word) for word in words[4:6])
    except (AddressValueError, ValueError):
        raise ProxyError(f"{data[:end]!r}: an address or a port in it cannot be read") from None
    return Found(end + 2, plain_address(source), port)


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or int(word) > 0xFFFF:
        raise ValueError(word)
    return int(word)


# ---------------------------------------------------------------------------------------------- version 2: bytes


def _read_2(data: bytes) -> Found | Wanted:
    if len(data) < _V2_HEAD.size:
        return Wanted(_V2_HEAD.size)
    _, command, family, length = _V2_HEAD.unpack_from(data)
    if length > V2_BODY_MAX:
        raise ProxyError(f"a header of {length} bytes behind its head, at most {V2_BODY_MAX} are allowed")
    if command not in (_LOCAL, _PROXY):
        raise ProxyError(f"version and command {command:#04x}, {_LOCAL:#04x} or {_PROXY:#04x} is wanted")
    end = _V2_HEAD.size + length
    if len(data) < end:
        return Wanted(end)
    header = data[:end]
    address_bytes = _ADDRESS_BYTES.get(family)
    if command == _PROXY and (address_bytes is None or length < address_bytes):
        raise ProxyError(f"family {family:#04x} with {length} bytes: TCP over IPv4 or IPv6, or nothing, is wanted")
    if address_bytes is not None and length >= address_bytes:
        _check_extensions(header, _V2_HEAD.size + address_bytes)
    if command == _LOCAL or family not in (_TCP_4, _TCP_6):
        return Found(end, None)
    body = header[_V2_HEAD.size :]
    if family == _TCP_4:
        return Found(end, plain_address(IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"))
    return Found(end, plain_address(IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"))


def _check_extensions(header: bytes, pos: int) -> None:
    """What follows the addresses is well formed, and its checksum, when it has one, is right."""
    while pos < len(header):
        if len(header) - pos < _TLV_HEAD.size:
            raise ProxyError("an extension that ends within its head")
        kind, length = _TLV_HEAD.unpack_from(header, pos)
        pos += _TLV_HEAD.size
        if pos + length > len(header):
            raise ProxyError(f"an extension of {length} bytes, and the header has {len(header) - pos} more")
        if kind == _CRC_TYPE:
            if length != 4:
                raise ProxyError(f"a checksum of {length} bytes, 4 are wanted")
            if crc32c(header[:pos] + bytes(4) + header[pos + 4 :]) != int.from_bytes(header[pos : pos + 4], "big"):
                raise ProxyError("a header whose checksum is not that of its bytes")
        pos += length


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE: Final = _crc_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's, as the header wants it; some 2,000 bytes at the most come here."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# ---------------------------------------------------------------------------------------------- addresses


def plain_address(address: IPv4Address | IPv6Address) -> str:
    """As rules and limits know it: one of IPv4 in the clothes of IPv6 is the one of IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
