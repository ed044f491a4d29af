"""From the bytes of a connection to packets, with the hot ones in bulk.

One ``Decoder`` per connection and direction.  It buffers what is not yet a whole packet, learns
its version from the CONNECT (or is told), and turns consecutive PUBLISH packets without
properties (or with such as its owner lets join), and consecutive successful acknowledgements of one
kind, into one item each.
Leaves to its owner: topic aliases, receive maximum, filter syntax, keep alive, and that a
client's first packet from the server is a CONNACK.

What always holds:
1. items come in the order of the wire, whatever the pieces the bytes came in;
2. no more is buffered than the one unfinished packet, and that is within ``packet_bytes_max``;
3. nothing but ``DecodeError`` comes out of ``feed``, whatever the bytes; it carries what was
   decoded before the fault in the same call, and after it the decoder takes no more bytes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from mqtt.alike import LEAST, alike
from mqtt.blocks import Known, PropertyBlocks, UnreadBlocks
from mqtt.control import FILTERS_MAX, Bounds, protocol_of, read_connect, read_packet, read_publish
from mqtt.framing import Role, check_first_byte, frame, remaining_length
from mqtt.packets import MQTT_5, NO_PROPERTIES, Ack, AckKind, AckRun, Connect, Item, PacketType, PublishRun
from mqtt.properties import USER_PROPERTIES_MAX
from mqtt.reason import ProtocolError, ReasonCode, malformed
from mqtt.topics import LEVELS_MAX, valid_names
from mqtt.wire import varint

# Acknowledgements are read in windows of this many: long enough to be fast, short enough that a
# buffer in which they alternate with other packets is not gone through again for each of them.
_WINDOW: Final = 64
# Below this many, one after the other is as fast.
_WINDOW_LEAST: Final = 10

# By first byte: 0 not a valid PUBLISH, 1 QoS 0, 2 with a packet id.
_PUBLISH_FORM: Final = [0] * 256
for _flags, _form in {0: 1, 1: 1, 2: 2, 3: 2, 10: 2, 11: 2, 4: 2, 5: 2, 12: 2, 13: 2}.items():
    _PUBLISH_FORM[0x30 | _flags] = _form

# The shortest valid PUBLISH has five bytes, so this never reads past one.
_FIRST_FIVE: Final = Struct(">5B").unpack_from

_ACK_KINDS: Final = {0x40: AckKind.PUBACK, 0x50: AckKind.PUBREC, 0x62: AckKind.PUBREL, 0x70: AckKind.PUBCOMP}
_SWAP: Final = sys.byteorder == "little"


class DecodeError(ProtocolError):
    """The stream is broken from here on; ``items`` is what was decoded before in the same call."""

    def __init__(self, reason: ReasonCode, detail: str, items: Iterable[Item]) -> None:
        super().__init__(reason, detail)
        self.items: list[Item] = list(items)


class Decoder:
    """Bytes in, items out.

    ``version`` None: the stream begins with a CONNECT, and ``version`` is set from it.  When that
    CONNECT is refused, ``version`` is the one to answer in, or None when no answer can be read.
    ``role`` is whose eyes read: ``server`` reads what a client sends.
    ``connect_bytes_max`` is the limit while nobody knows who the peer is.
    ``filters_max`` is how many topic filters one packet may name, ``user_properties_max`` how many
    user properties one from a client may have.
    ``blocks`` keeps the properties that may be in a run; connections share them.
    ``topic_levels_max`` is how many levels a topic name may have.
    """

    __slots__ = (
        "_blocks", "_bounds", "_connect_bytes_max", "_failure", "_held", "_packet_bytes_max", "_role", "_wanted", "version",
    )  # fmt: skip

    def __init__(
        self,
        version: int | None,
        packet_bytes_max: int,
        role: Role = "server",
        connect_bytes_max: int | None = None,
        filters_max: int = FILTERS_MAX,
        user_properties_max: int = USER_PROPERTIES_MAX,
        blocks: PropertyBlocks | UnreadBlocks | None = None,
        topic_levels_max: int = LEVELS_MAX,
    ) -> None:
        if version is None and role == "client":
            raise ValueError("a client knows its version")
        self.version = version
        self._packet_bytes_max = packet_bytes_max
        self._connect_bytes_max = packet_bytes_max if connect_bytes_max is None else min(connect_bytes_max, packet_bytes_max)
        self._bounds = Bounds(filters_max, user_properties_max if role == "server" else None, topic_levels_max)
        self._role: Role = role
        self._blocks = blocks
        self._held = bytearray()
        self._wanted = 0
        self._failure: tuple[ReasonCode, str] | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes buffered of a packet that is not complete."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Item]:
        """Take the next bytes of the stream; return the packets that are complete now."""
        if self._failure is not None:
            raise DecodeError(*self._failure, ())
        held = self._held
        if held:
            held += data
            if len(held) < self._wanted:
                return []
            data = bytes(held)
            held.clear()
        items: list[Item] = []
        try:
            pos = self._read(data, items)
        except ProtocolError as error:
            # Not the error itself: its traceback holds this decoder, and nothing that was refused would go before a collection.
            self._failure = error.reason, error.detail
            raise DecodeError(*self._failure, items) from None
        if pos < len(data):
            held += data[pos:]
        return items

    def _read(self, data: bytes, items: list[Item]) -> int:
        """Decode all whole packets; return where the unfinished one begins, with ``_wanted`` set."""
        pos, size = 0, len(data)
        while pos < size:
            first = data[pos]
            if 0x30 <= first < 0x80 and self.version is not None:
                before = pos
                if first < 0x40:
                    pos = self._read_publishes(data, pos, items)
                elif first in _ACK_KINDS:
                    pos = self._read_acks(data, pos, items)
                if pos != before:
                    continue
            # Not hot, or not plain, or not valid, or not complete: the general way sorts it out.
            version = self.version
            kind = check_first_byte(first, version, self._role)
            bytes_max = self._packet_bytes_max if version is not None else self._connect_bytes_max
            start, end = frame(data, pos, bytes_max, shortest=version == MQTT_5)
            if end > size:
                self._wanted = end - pos
                return pos
            if version is None:
                items.append(self._read_connect(data, pos, start, end))
            elif kind is PacketType.PUBLISH:
                packet = read_publish(version, self._role, first & 15, data, start, end, self._bounds)
                if self._blocks is not None:
                    self._blocks.note(packet)
                items.append(packet)
            else:
                other = read_packet(kind, version, self._role, data, start, end, self._bounds)
                if isinstance(other, Ack) and other.reason is ReasonCode.SUCCESS and other.properties is NO_PROPERTIES:
                    _add_acks(items, other.kind, [other.packet_id])
                else:
                    items.append(other)
            pos = end
        return pos

    def _read_connect(self, data: bytes, pos: int, start: int, end: int) -> Connect:
        self.version, ours, after = protocol_of(data, start, end)
        if not ours or self.version is None:
            raise ProtocolError(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, f"protocol {data[start + 2 : after]!r}")
        if self.version == MQTT_5 and start - pos - 1 > len(varint(end - start)):
            raise malformed("CONNECT with a remaining length of more bytes than it needs")
        return read_connect(self.version, data, after, end, self._bounds)

    def _read_publishes(self, data: bytes, pos: int, items: list[Item]) -> int:
        """Decode PUBLISH packets while they are complete, valid and without properties, or with known ones.

        Stops in front of the first one that is not, whatever the reason; ``_read`` then takes
        that one the general way.  This loop is most of what a gateway does.
        """
        size = len(data)
        is_5 = self.version == MQTT_5
        packet_bytes_max = self._packet_bytes_max
        may_exceed = size - pos > packet_bytes_max
        begin = pos
        users_of: Known = {} if self._blocks is None else self._blocks.known
        users_max = self._bounds.user_properties
        form_of, first_five = _PUBLISH_FORM, _FIRST_FIVE
        flags: list[int] = []
        packet_ids: list[int] = []
        topics: list[bytes] = []
        bodies: list[bytes] = []
        before = -1
        try:
            while pos < size:
                first, length, byte_2, byte_3, byte_4 = first_five(data, pos)
                form = form_of[first]
                if not form:
                    break
                if length < 0x80:
                    topic_start = pos + 4
                    topic_end = topic_start + byte_3
                    if byte_2:
                        topic_end += byte_2 << 8
                    end = pos + 2 + length
                elif 0 < byte_2 < 0x80:
                    topic_start = pos + 5
                    topic_end = topic_start + byte_4
                    if byte_3:
                        topic_end += byte_3 << 8
                    end = pos + 3 + length + (byte_2 << 7) - 0x80
                else:
                    length, at = remaining_length(data, pos + 1, is_5)
                    topic_start = at + 2
                    topic_end = topic_start + (data[at] << 8 | data[at + 1])
                    end = at + length
                if end > size or (may_exceed and end - pos > packet_bytes_max):
                    break
                topic = data[topic_start:topic_end]
                if not topic:
                    break
                packet_id = 0
                if form == 2:
                    packet_id = data[topic_end] << 8 | data[topic_end + 1]
                    if not packet_id:
                        break
                    topic_end += 2
                if is_5:
                    # A topic or an identifier that reaches over the end of the packet ends here too.
                    if topic_end >= end:
                        break
                    size_5 = data[topic_end]
                    if size_5:
                        # A block that is longer than one byte can say, or than the packet, is not known.
                        block_end = topic_end + 1 + size_5
                        users = users_of.get(data[topic_end:block_end])
                        if users is None or block_end > end or (users_max is not None and users > users_max):
                            break
                    bodies.append(data[topic_end:end])
                else:
                    if topic_end > end:
                        break
                    bodies.append(b"\0" + data[topic_end:end])
                flags.append(first & 15)
                packet_ids.append(packet_id)
                topics.append(topic)
                at, pos = pos, end
                if length != before:
                    before = length
                    continue
                # Two of one size may begin a row of them.
                before = -1
                packet_bytes = end - at
                ahead = end + (LEAST - 1) * packet_bytes
                if ahead + packet_bytes > size or data[ahead] != first:
                    continue
                same_end = topic_end + 1 + data[topic_end] if is_5 else topic_end
                more = alike(data, at, topic_start, topic_start + len(topic), topic_end, same_end, end)
                if more is None:
                    continue
                flags += [first & 15] * len(more.topics)
                packet_ids += more.packet_ids
                topics += more.topics
                bodies += more.rests if is_5 else [b"\0" + body for body in more.rests]
                pos += len(more.topics) * packet_bytes
        except (IndexError, StructError, ProtocolError):
            pass  # The general way reads this packet again and says precisely what is wrong with it.
        valid = valid_names(topics, self._bounds.topic_levels)
        if valid < len(topics):
            pos = self._behind(data, begin, valid)
            del flags[valid:], packet_ids[valid:], topics[valid:], bodies[valid:]
        if flags:
            items.append(PublishRun(flags, packet_ids, topics, bodies))
        return pos

    def _behind(self, data: bytes, pos: int, count: int) -> int:
        """Where the packet begins that stands behind so many whole ones."""
        for _ in range(count):
            length, start = remaining_length(data, pos + 1, self.version == MQTT_5)
            pos = start + length
        return pos

    def _read_acks(self, data: bytes, pos: int, items: list[Item]) -> int:
        """Decode acknowledgements of one kind in their four-byte form; stops like ``_read_publishes``."""
        first, size = data[pos], len(data)
        if self._packet_bytes_max < 4:
            return pos
        packet_ids: list[int] = []
        head = data[pos : pos + 2]
        while size - pos >= 4 * _WINDOW_LEAST and data[pos + 4 : pos + 6] == head and head[1] == 2:
            count = min(_WINDOW, (size - pos) // 4)
            run = _ack_window(data[pos : pos + 4 * count], head, packet_ids)
            pos += run * 4
            if run < count:
                break
        # What is left is short, or not a run of this kind; a wrong identifier ends it here too.
        while size - pos >= 4 and data[pos] == first and data[pos + 1] == 2:
            packet_id = data[pos + 2] << 8 | data[pos + 3]
            if not packet_id:
                break
            packet_ids.append(packet_id)
            pos += 4
        if packet_ids:
            _add_acks(items, _ACK_KINDS[first], packet_ids)
        return pos


def _ack_window(window: bytes, head: bytes, packet_ids: list[int]) -> int:
    """Add the identifiers of the four-byte packets with this head that a window begins with; how many."""
    count = len(window) // 4
    run = min(
        count - len(window[::4].lstrip(head[:1])),
        count - len(window[1::4].lstrip(head[1:])),
    )
    numbers = array("H", window[: run * 4])
    if _SWAP:
        numbers.byteswap()
    found = numbers[1::2].tolist()
    if 0 in found:
        run = found.index(0)
        del found[run:]
    packet_ids += found
    return run


def _add_acks(items: list[Item], kind: AckKind, packet_ids: list[int]) -> None:
    """Append acknowledgements, to the run before them when it is of the same kind."""
    last = items[-1] if items else None
    if isinstance(last, AckRun) and last.kind is kind:
        last.packet_ids.extend(packet_ids)
    else:
        items.append(AckRun(kind, packet_ids))
