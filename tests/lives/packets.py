"""The packets of the table that tests.broker.wire has no need of: CONNECT with a will, DISCONNECT with a reason and an expiry.

Independent of the broker's codec, as that module is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.broker.wire import RECEIVE_MAXIMUM, SESSION_EXPIRY, Version, packet, text, varint

WILL_DELAY = 0x18
NORMAL, WITH_WILL = 0x00, 0x04


@dataclass(frozen=True, slots=True)
class WillSent:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int


def connect(
    version: Version, client_id: str, clean: bool, keep_alive_s: int, expiry_s: int, will: WillSent | None, receive_max: int = 0,
    user: str = "",
) -> bytes:  # fmt: skip
    """expiry_s, receive_max: in no packet of 3.1.1; 0 is said by leaving it out.  user: his password is his name; "": nobody."""
    flags = (0x02 if clean else 0) | (0xC0 if user else 0)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
    body = text("MQTT") + bytes([version, flags]) + struct.pack(">H", keep_alive_s)
    if version == 5:
        expiry = struct.pack(">BI", SESSION_EXPIRY, expiry_s) if expiry_s else b""
        body += _properties(expiry + (struct.pack(">BH", RECEIVE_MAXIMUM, receive_max) if receive_max else b""))
    body += text(client_id)
    if will is not None:
        if version == 5:
            body += _properties(struct.pack(">BI", WILL_DELAY, will.delay_s) if will.delay_s else b"")
        body += text(will.topic) + struct.pack(">H", len(will.payload)) + will.payload
    if user:
        body += text(user) + text(user)
    return packet(0x10, body)


def disconnect(version: Version, code: int, expiry_s: int | None) -> bytes:
    if version != 5 or (code == NORMAL and expiry_s is None):
        return b"\xe0\x00"
    return packet(0xE0, bytes([code]) + (b"" if expiry_s is None else _properties(struct.pack(">BI", SESSION_EXPIRY, expiry_s))))


def _properties(data: bytes) -> bytes:
    return varint(len(data)) + data
