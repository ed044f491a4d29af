"""The PROXY header: read whole however its bytes come, never a byte too many asked for, and refused when it is wrong."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transport.proxy import Found, ProxyError, Versions, Wanted, crc32c, read_proxy_header

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
IPV4 = IPv4Address("192.0.2.7").packed + IPv4Address("192.0.2.1").packed + struct.pack(">HH", 40_000, 1883)
IPV6 = IPv6Address("2001:db8::7").packed + IPv6Address("2001:db8::1").packed + struct.pack(">HH", 40_000, 1883)
MAPPED = IPv6Address("::ffff:192.0.2.7").packed + bytes(16) + struct.pack(">HH", 1, 2)


def v2(family: int, body: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


def with_crc(family: int, body: bytes) -> bytes:
    header = v2(family, body + b"\x03\0\x04" + bytes(4))
    return header[:-4] + struct.pack(">I", crc32c(header))


GOOD = {
    "v1 IPv4": (b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n", "192.0.2.7", 40_000),
    "v1 IPv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n", "2001:db8::7", 40_000),
    "v1 mapped": (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 40000 1883\r\n", "192.0.2.7", 40_000),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", None, 0),
    "v1 unknown with words": (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None, 0),
    "v2 IPv4": (v2(0x11, IPV4), "192.0.2.7", 40_000),
    "v2 IPv6": (v2(0x21, IPV6), "2001:db8::7", 40_000),
    "v2 mapped": (v2(0x21, MAPPED), "192.0.2.7", 1),
    "v2 local": (v2(0x00, b"", 0x20), None, 0),
    "v2 local with an address": (v2(0x11, IPV4, 0x20), None, 0),
    "v2 unspecified": (v2(0x00, b"\x04\0\x02ab"), None, 0),
    "v2 unix": (v2(0x31, bytes(216)), None, 0),
    "v2 with an extension": (v2(0x11, IPV4 + b"\x04\0\x03abc"), "192.0.2.7", 40_000),
    "v2 with a checksum": (with_crc(0x11, IPV4), "192.0.2.7", 40_000),
    "v2 with a checksum behind another": (with_crc(0x21, IPV6 + b"\x02\0\x03abc"), "2001:db8::7", 40_000),
    "v2 as long as may be": (v2(0x11, IPV4 + b"\x04" + struct.pack(">H", 2_033) + bytes(2_033)), "192.0.2.7", 40_000),
}

BAD = {
    "MQTT": bytes.fromhex("100e00044d515454"),
    "TLS": b"\x16\x03\x01\x02\0",
    "HTTP": b"GET /mqtt HTTP/1.1\r\n",
    "v1 without an end": b"PROXY TCP4 " + b"1" * 100,
    "v1 with five words": b"PROXY TCP4 192.0.2.7 192.0.2.1 1883\r\n",
    "v1 with seven words": b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2 3\r\n",
    "v1 with two blanks": b"PROXY TCP4  192.0.2.7 192.0.2.1 1 2\r\n",
    "v1 of another family": b"PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n",
    "v1 with a wrong address": b"PROXY TCP4 192.0.2.256 192.0.2.1 1 2\r\n",
    "v1 with an address of the other family": b"PROXY TCP4 2001:db8::7 192.0.2.1 1 2\r\n",
    "v1 with a name": b"PROXY TCP4 localhost 192.0.2.1 1 2\r\n",
    "v1 with a large port": b"PROXY TCP4 192.0.2.7 192.0.2.1 65536 2\r\n",
    "v1 with a sign": b"PROXY TCP4 192.0.2.7 192.0.2.1 +1 2\r\n",
    "v1 with a zone": b"PROXY TCP6 fe80::1%a\xff ::1 1 2\r\n",
    "v2 too long": SIGNATURE + struct.pack(">BBH", 0x21, 0x11, 2_049),
    "v2 of version 3": v2(0x11, IPV4, 0x31),
    "v2 of another command": v2(0x11, IPV4, 0x22),
    "v2 of UDP": v2(0x12, IPV4),
    "v2 of another family": v2(0x41, IPV4),
    "v2 shorter than its addresses": v2(0x11, IPV4[:-1]),
    "v2 with half an extension": v2(0x11, IPV4 + b"\x04\0"),
    "v2 with an extension beyond its end": v2(0x11, IPV4 + b"\x04\0\x09abc"),
    "v2 with a wrong checksum": with_crc(0x11, IPV4)[:-1] + b"\0",
    "v2 with a short checksum": v2(0x11, IPV4 + b"\x03\0\x02ab"),
    "v2 with a changed address": with_crc(0x11, IPV4).replace(b"\xc0\0\x02\x07", b"\xc0\0\x02\x08"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_header_is_read_however_its_bytes_come_and_what_follows_is_left(name: str) -> None:
    """Each beginning of it asks for more than it has and not for more than the header; whatever follows, the answer is the same."""
    data, address, port = GOOD[name]
    for count in range(len(data)):
        found = read_proxy_header(data[:count], "any")
        assert isinstance(found, Wanted) and count < found.count <= len(data)
    for behind in (b"", b"\x10\x0e", data):
        assert read_proxy_header(data + behind, "any") == Found(len(data), address, port)


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_header_is_refused(name: str) -> None:
    """At once where its first bytes say so, and never later than when it is whole."""
    with pytest.raises(ProxyError):
        read_proxy_header(BAD[name], "any")


@pytest.mark.parametrize(("versions", "name"), [("v1", "v2 IPv4"), ("v2", "v1 IPv4")])
def test_only_the_version_that_is_configured_is_taken(versions: Versions, name: str) -> None:
    """The other one is like no header."""
    with pytest.raises(ProxyError, match=f"a PROXY header {versions} is wanted"):
        read_proxy_header(GOOD[name][0], versions)
    other: Versions = "v1" if versions == "v2" else "v2"
    assert isinstance(read_proxy_header(GOOD[name][0], other), Found)


def test_the_checksum_is_castagnolis() -> None:
    """The value that is published for these nine digits."""
    assert crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_any_bytes_are_a_header_or_the_beginning_of_one_or_refused(data: bytes, begins: bytes) -> None:
    """Nothing but ProxyError comes out, and no more is asked for than the longest header has."""
    data = begins + data
    try:
        found = read_proxy_header(data, "any")
    except ProxyError:
        return
    if isinstance(found, Wanted):
        assert len(data) < found.count <= 16 + 2_048
    else:
        assert found.header_bytes <= len(data)
