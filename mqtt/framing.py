"""The fixed header: what may come, and where a packet ends.

Answers from the first one to five bytes of a packet, so that nothing is buffered for a packet
that will be refused.  Leaves the bytes in between to ``mqtt.control``.
What always holds: a packet that passed ``check_first_byte`` has a type that this side may
receive in this version, with the flags its type wants; one that passed ``frame`` is within the
size limit.
"""

from __future__ import annotations

from typing import Final, Literal

from mqtt.packets import MQTT_3_1, MQTT_5, PacketType
from mqtt.reason import ProtocolError, ReasonCode, malformed, violation

# Whose eyes the bytes are read with: a server reads what clients send, and the other way round.
Role = Literal["server", "client"]

_FROM_CLIENT_ONLY: Final = frozenset({PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ})
_FROM_SERVER_ONLY: Final = frozenset({PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP})
_FLAGS_ARE_2: Final = frozenset({PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})
_PACKET_TYPES: Final = {int(kind): kind for kind in PacketType}


def check_first_byte(first: int, version: int | None, role: Role) -> PacketType:
    """The packet type, or why this packet may not come now.  ``version`` None: nothing but CONNECT may."""
    kind = _PACKET_TYPES.get(first >> 4)
    flags = first & 15
    if kind is None:
        raise malformed("packet type 0 is reserved")
    if version is None and kind is not PacketType.CONNECT:
        raise violation(f"{kind.name} before CONNECT")  # [MQTT-3.1.0-1]
    if version is not None and kind is PacketType.CONNECT and role == "server":
        raise violation("a second CONNECT")  # [MQTT-3.1.0-2]
    if kind in (_FROM_SERVER_ONLY if role == "server" else _FROM_CLIENT_ONLY):
        raise violation(f"{kind.name} sent to a {role}")
    if version != MQTT_5:
        if kind is PacketType.AUTH:
            raise malformed("packet type 15 is reserved before MQTT 5")
        if kind is PacketType.DISCONNECT and role == "client":
            raise violation("DISCONNECT sent to a client, before MQTT 5")
    if kind is PacketType.PUBLISH:
        if flags & 6 == 6:
            raise malformed("PUBLISH with QoS 3")  # [MQTT-3.3.1-4]
        if flags & 14 == 8:
            raise malformed("PUBLISH with DUP and QoS 0")  # [MQTT-3.3.1-2]
        return kind
    wanted = 2 if kind in _FLAGS_ARE_2 else 0
    if version == MQTT_3_1 and wanted:
        flags &= 7  # 3.1 lets these three be sent again with DUP set; later versions took that back.
    if flags != wanted:
        raise malformed(f"{kind.name} with fixed header flags {flags}, wanted {wanted}")  # [MQTT-2.1.3-1]
    return kind


def remaining_length(data: bytes, pos: int, shortest: bool) -> tuple[int, int]:
    """(remaining length, where the packet's own bytes start); IndexError while bytes of it are missing.

    ``shortest`` refuses a length written with more bytes than it needs, as MQTT 5 demands.
    Before MQTT 5 that was allowed, and small devices with a fixed two-byte length use it.
    """
    value = 0
    for index in range(4):
        byte = data[pos + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if shortest and byte == 0 and index:
                raise malformed(f"remaining length {value} takes {index + 1} bytes, more than it needs")
            return value, pos + index + 1
    raise malformed("remaining length of more than four bytes")


def frame(data: bytes, pos: int, packet_bytes_max: int, shortest: bool) -> tuple[int, int]:
    """(start, end) of the packet's own bytes, the fixed header being at ``pos``.

    ``end`` beyond the data: that much is wanted before the packet can be read.  While the header
    itself is not complete, that is one byte more than there is.  0x95 as soon as the header
    says more than ``packet_bytes_max``, which counts the header too.
    """
    try:
        length, start = remaining_length(data, pos + 1, shortest)
    except IndexError:
        return len(data), len(data) + 1
    end = start + length
    if end - pos > packet_bytes_max:
        raise ProtocolError(ReasonCode.PACKET_TOO_LARGE, f"packet of {end - pos} bytes, at most {packet_bytes_max}")
    return start, end
