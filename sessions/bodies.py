"""Stored messages as sessions deliver them: taken apart once, and what a subscription makes of each.

What a subscription makes of a message depends only on the stored bytes, the client and the terms of the range (PROTOCOLS 12):
reading a range again gives every message the same QoS, and the same number.

    no local              a message of the client itself is skipped, and gets no number
    QoS                   the lower of the message's and the granted one; with upgrade QoS always the granted one
    retain as published   keeps the retain flag; without, it is 0 [MQTT-3.3.1-12]; copies of retained messages have it 1
"""

from __future__ import annotations

from collections.abc import Sequence

from mqtt.body import with_user_property
from sessions.origins import ORIGIN, write_origin
from sessions.ranges import Terms
from shards.messages import QOS_MASK, RETAIN, headers

NO_LOCAL, RETAIN_AS_PUBLISHED = 1, 2
UPGRADE_QOS = 8
"""Not of the packet: `mqtt.upgrade_qos` when the subscription was made.  Between them is sessions.frames.ROUTED, which is in no row."""
POSITIONS, HISTORY = 16, 32
"""Messages carry their positions; what a replay brings from before its SUBSCRIBE."""
POSITION = b"replay-position"
"""The user property of a message that says where it stands."""
REPLAYED = 0x0100
"""In the flags of a message on its way to a gateway, not of a stored one: it is history, for which there is a right of its own."""
_AS_RETAINED = 4
_IN_FIRST = RETAIN_AS_PUBLISHED | UPGRADE_QOS

_NEVER_MS = 1 << 62
_PUBLISH = 0x30
DUP = 0x08
QOS1, QOS2 = 0x02, 0x04
_REPEATED = bytes([first | DUP if first & (QOS1 | QOS2) == QOS1 else first for first in range(256)])


def _firsts(granted: int, options: int) -> bytes:
    """The first byte of the PUBLISH packet, by the QoS and retain bits of the stored flags; a table for bytes.translate."""
    table = bytearray(256)
    for kind in range(8):
        qos = granted if options & UPGRADE_QOS else min(kind & QOS_MASK, granted, 2)
        retain = options & _AS_RETAINED or (options & RETAIN_AS_PUBLISHED and kind & RETAIN)
        table[kind] = _PUBLISH | qos << 1 | (1 if retain else 0)
    return bytes(table)


_TABLES = [[_firsts(granted, options) for options in range(16)] for granted in range(3)]


class Bodies:
    """Messages of one segment or one feed frame.

    kinds: the QoS and retain bits of each.  messages: as a Deliver frame carries them.  shared: several sessions may take
    from it, so a Deliver frame has to find out which messages it carries already.
    """

    __slots__ = ("bytes", "kinds", "messages", "publishers", "shared")

    def __init__(self, values: Sequence[bytes], shared: bool = False, options: int = 0) -> None:
        """options: of the terms under which they are delivered, where they are for one subscription."""
        self.messages, self.publishers = headers(values, REPLAYED if options & HISTORY else 0)
        self.kinds = bytes([flags & 7 for _, _, _, flags in self.messages])
        self.bytes = sum(map(len, values))
        self.shared = shared

    def at_places(self, indexes: Sequence[int], places: Sequence[bytes]) -> Bodies:
        """The same messages for one subscription; those at these indexes carry where they stand."""
        own = Bodies(())
        own.messages, own.publishers, own.kinds, own.bytes = list(self.messages), self.publishers, self.kinds, self.bytes
        for index, place in zip(indexes, places, strict=True):
            topic, body, published_at_ms, flags = own.messages[index]
            own.messages[index] = (topic, with_user_property(body, POSITION, place), published_at_ms, flags)
            own.bytes += len(place) + len(POSITION)
        return own

    def at_origins(self, indexes: Sequence[int], session: int, shard: int, positions: Sequence[int], numbers: Sequence[int]) -> Bodies:
        """The same messages for one bridge: those at these indexes carry what they are (sessions.origins)."""
        own = Bodies(())
        own.messages, own.publishers, own.kinds, own.bytes = list(self.messages), self.publishers, self.kinds, self.bytes
        for index, position, number in zip(indexes, positions, numbers, strict=True):
            topic, body, published_at_ms, flags = own.messages[index]
            qos = self.kinds[index] & QOS_MASK
            origin = write_origin(session, shard, position, number, published_at_ms, qos, self.publishers[index])
            own.messages[index] = (topic, with_user_property(body, ORIGIN, origin), published_at_ms, flags)
            own.bytes += len(origin) + len(ORIGIN)
        return own

    def select(self, indexes: Sequence[int], client: bytes, terms: Terms, retained: bool = False) -> tuple[Sequence[int], bytes]:
        """(indexes, first bytes) of the messages that this client gets under these terms, of those at the given indexes."""
        options = terms.options
        if options & NO_LOCAL:
            publishers = self.publishers
            indexes = [index for index in indexes if publishers[index] != client]
        if terms.since_ms or terms.until_ms:
            since_ms, until_ms, messages = terms.since_ms, terms.until_ms or _NEVER_MS, self.messages
            indexes = [index for index in indexes if since_ms <= messages[index][2] < until_ms]
        kinds = self.kinds
        if len(indexes) != len(kinds):
            kinds = bytes([kinds[index] for index in indexes])
        return indexes, kinds.translate(_TABLES[terms.qos][options & _IN_FIRST | (_AS_RETAINED if retained else 0)])


def repeated(firsts: bytes) -> bytes:
    """With DUP at QoS 1.  What leaves at QoS 2 has not been sent before: its number would have been committed."""
    return firsts.translate(_REPEATED)
