"""Reads one control packet between its fixed header and its end, for every version.

Every function takes the buffer and the bounds of the packet, and returns a packet of
``mqtt.packets`` or raises a ``ProtocolError``.  Leaves framing and runs to ``mqtt.decode``, and
filter syntax to the gateway, which answers each filter of a SUBSCRIBE on its own.
What always holds for a packet returned: all bytes were used, and every rule that can be
decided from this packet, its version and its direction alone is kept.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mqtt.body import without_property
from mqtt.framing import Role
from mqtt.packets import (
    MQTT_3_1,
    MQTT_3_1_1,
    MQTT_5,
    NO_PROPERTIES,
    Ack,
    AckKind,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.properties import SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, Place, read_properties, too_many_user_properties
from mqtt.reason import ProtocolError, ReasonCode, malformed, reason_of_return_code, violation
from mqtt.topics import LEVELS_MAX, check_topic_name
from mqtt.wire import read_binary, read_string, read_u8, read_u16, read_utf8, read_varint


def _codes(*values: int) -> dict[int, ReasonCode]:
    return {value: ReasonCode(value) for value in values}


_PUBLISHED = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASED = _codes(0x00, 0x92)
ACK_REASONS: Final = {
    AckKind.PUBACK: _PUBLISHED,
    AckKind.PUBREC: _PUBLISHED,
    AckKind.PUBREL: _RELEASED,
    AckKind.PUBCOMP: _RELEASED,
}
CONNACK_REASONS: Final = _codes(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F)
DISCONNECT_REASONS: Final = _codes(0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3))
SUBACK_REASONS: Final = _codes(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)
SUBACK_REASONS_3: Final = _codes(0x00, 0x01, 0x02, 0x80)
UNSUBACK_REASONS: Final = _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)
AUTH_REASONS: Final = {"server": _codes(0x18, 0x19), "client": _codes(0x00, 0x18)}

_PROTOCOLS: Final = {(b"MQIsdp", 3): MQTT_3_1, (b"MQTT", 4): MQTT_3_1_1, (b"MQTT", 5): MQTT_5}
# Bridges of another broker mark themselves with this bit and come again without it when refused.
_BRIDGE_BIT: Final = 0x80

# Property blocks of PUBLISH packets that were read already.  A memory only: it changes no result.
_BLOCKS: Final[dict[bytes, tuple[Properties, bytes]]] = {}
_BLOCKS_MAX: Final = 4_096
_BLOCK_BYTES_MAX: Final = 128
FILTERS_MAX: Final = 1_024
"""Topic filters of one SUBSCRIBE or UNSUBSCRIBE, unless its owner says otherwise."""


class Bounds(NamedTuple):
    """Of how many parts one packet may be: more end its connection with 0x97.  None: any number."""

    filters: int = FILTERS_MAX
    user_properties: int | None = None
    topic_levels: int = LEVELS_MAX


def protocol_of(data: bytes, pos: int, end: int) -> tuple[int | None, bool, int]:
    """(version to answer in, whether it is one of ours, next pos) of a CONNECT.

    A version that we do not speak is answered in the nearest one that the peer can read; a
    protocol that is not MQTT in none.
    """
    name, pos = read_binary(data, pos, end, "protocol name")
    level, pos = read_u8(data, pos, end, "protocol level")
    version = _PROTOCOLS.get((name, level))
    if version is not None:
        return version, True, pos
    if name not in (b"MQTT", b"MQIsdp"):
        return None, False, pos
    return (MQTT_5 if 5 <= level < _BRIDGE_BIT else MQTT_3_1_1), False, pos


def read_connect(version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Connect:
    """Read a CONNECT from behind its protocol level."""
    flags, pos = read_u8(data, pos, end, "CONNECT flags")
    keep_alive, pos = read_u16(data, pos, end, "keep alive")
    if flags & 1:
        raise malformed("CONNECT flag 0 is reserved and set")  # [MQTT-3.1.2-3]
    has_will, will_qos, will_retain = bool(flags & 4), flags >> 3 & 3, bool(flags & 0x20)
    if will_qos == 3:
        raise malformed("will with QoS 3")  # [MQTT-3.1.2-12]
    if not has_will and (will_qos or will_retain):
        raise malformed("will QoS or will retain without a will")  # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
    has_name, has_password = bool(flags & 0x80), bool(flags & 0x40)
    if has_password and not has_name and version != MQTT_5:
        raise malformed("password without a user name, before MQTT 5")  # 3.1.1 [MQTT-3.1.2-22]
    properties = NO_PROPERTIES
    if version == MQTT_5:
        properties, pos = read_properties(data, pos, end, Place.CONNECT, bounds.user_properties)
    client_id, pos = read_string(data, pos, end, "client id")
    clean_start = bool(flags & 2)
    if not client_id and (version == MQTT_3_1 or (version == MQTT_3_1_1 and not clean_start)):
        raise ProtocolError(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "empty client id with a session to keep, or in 3.1"
        )  # 3.1.1 [MQTT-3.1.3-8]
    will = None
    if has_will:
        will_properties = NO_PROPERTIES
        if version == MQTT_5:
            will_properties, pos = read_properties(data, pos, end, Place.WILL, bounds.user_properties)
        topic, pos = read_binary(data, pos, end, "will topic")
        check_topic_name(topic, bounds.topic_levels)
        payload, pos = read_binary(data, pos, end, "will payload")
        will = Will(topic, payload, will_qos, will_retain, will_properties)
    username = password = None
    if has_name:
        username, pos = read_string(data, pos, end, "user name")
    if has_password:
        password, pos = read_binary(data, pos, end, "password")
    _at_end(pos, end, "CONNECT")
    return Connect(version, client_id, clean_start, keep_alive, username, password, will, properties)


def read_publish(version: int, role: Role, flags: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Publish:
    topic, pos = read_binary(data, pos, end, "topic name")
    packet_id = 0
    if flags & 6:
        packet_id, pos = _packet_id(data, pos, end, "PUBLISH")
    if version != MQTT_5:
        check_topic_name(topic, bounds.topic_levels)
        payload = data[pos:end]
        return Publish(flags, packet_id, topic, payload, body=b"\0" + payload)
    block_length, block_start = read_varint(data, pos, end, "PUBLISH property length")
    block_end = block_start + block_length
    properties, stored = _message_properties(data[pos : min(block_end, end)], bounds.user_properties)
    if topic:
        check_topic_name(topic, bounds.topic_levels)
    elif properties.topic_alias is None:
        raise violation("PUBLISH with neither topic name nor topic alias")
    if properties.subscription_identifiers and role == "server":
        raise violation("subscription identifier in a client's PUBLISH")  # [MQTT-3.3.4-6]
    payload = data[block_end:end]
    return Publish(flags, packet_id, topic, payload, properties, stored + payload)


def _message_properties(block: bytes, user_max: int | None) -> tuple[Properties, bytes]:
    """A PUBLISH's properties, and the block to store: without topic alias and subscription identifiers.

    Most publishers send the same block with every message, and reading one takes several times as long
    as all the rest of the packet; hence the memory of short blocks, bounded and emptied when full.
    """
    known = _BLOCKS.get(block)
    if known is not None:
        if user_max is not None and len(known[0].user_properties) > user_max:
            raise too_many_user_properties(user_max, Place.PUBLISH)
        return known
    properties, _ = read_properties(block, 0, len(block), Place.PUBLISH, user_max)
    stored = block
    if properties.topic_alias is not None:
        stored = without_property(stored, TOPIC_ALIAS)
    if properties.subscription_identifiers:
        stored = without_property(stored, SUBSCRIPTION_IDENTIFIER)
    if len(block) <= _BLOCK_BYTES_MAX:
        if len(_BLOCKS) >= _BLOCKS_MAX:
            _BLOCKS.clear()
        _BLOCKS[block] = properties, stored
    return properties, stored


def read_packet(kind: PacketType, version: int, role: Role, data: bytes, pos: int, end: int, bounds: Bounds) -> Packet:
    """Read any packet but CONNECT and PUBLISH."""
    match kind:
        case PacketType.PUBACK | PacketType.PUBREC | PacketType.PUBREL | PacketType.PUBCOMP:
            return _ack(AckKind(kind), version, data, pos, end, bounds)
        case PacketType.SUBSCRIBE:
            return _subscribe(version, data, pos, end, bounds)
        case PacketType.UNSUBSCRIBE:
            return _unsubscribe(version, data, pos, end, bounds)
        case PacketType.SUBACK:
            return _suback(version, data, pos, end, bounds)
        case PacketType.UNSUBACK:
            return _unsuback(version, data, pos, end, bounds)
        case PacketType.PINGREQ:
            _at_end(pos, end, "PINGREQ")
            return Pingreq()
        case PacketType.PINGRESP:
            _at_end(pos, end, "PINGRESP")
            return Pingresp()
        case PacketType.CONNACK:
            return _connack(version, data, pos, end, bounds)
        case PacketType.DISCONNECT:
            return _disconnect(version, role, data, pos, end, bounds)
        case PacketType.AUTH:
            return _auth(role, data, pos, end, bounds)
        case PacketType.CONNECT | PacketType.PUBLISH:
            raise AssertionError(f"{kind.name} has a reader of its own")


def _ack(kind: AckKind, version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Ack:
    packet_id, pos = _packet_id(data, pos, end, kind.name)
    if version != MQTT_5:
        _at_end(pos, end, kind.name)
        return Ack(kind, packet_id)
    reason, properties = _reason_and_properties(ACK_REASONS[kind], Place.ACK, kind.name, data, pos, end, bounds)
    return Ack(kind, packet_id, reason, properties)


def _subscribe(version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Subscribe:
    packet_id, properties, pos = _id_and_properties(version, Place.SUBSCRIBE, data, pos, end, bounds)
    subscriptions: list[Subscription] = []
    while pos < end:
        if len(subscriptions) == bounds.filters:
            raise _too_many("SUBSCRIBE", packet_id, bounds.filters)
        topic_filter, pos = read_utf8(data, pos, end, "topic filter")
        options, pos = read_u8(data, pos, end, "subscription options")
        subscriptions.append(_subscription(version, topic_filter, options))
    if not subscriptions:
        raise violation(f"SUBSCRIBE {packet_id} without a topic filter")  # [MQTT-3.8.3-2]
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _subscription(version: int, topic_filter: bytes, options: int) -> Subscription:
    if version != MQTT_5:
        if options > 2:
            raise malformed(f"requested QoS byte is {options}, wanted 0 to 2")  # 3.1.1 [MQTT-3-8.3-4]
        return Subscription(topic_filter, options)
    if options & 0xC0:
        raise malformed("reserved subscription options are set")  # [MQTT-3.8.3-5]
    qos, retain_handling = options & 3, options >> 4 & 3
    if qos == 3 or retain_handling == 3:
        raise violation(f"subscription options 0x{options:02x}: QoS or retain handling is 3")
    no_local = bool(options & 4)
    if no_local and topic_filter.startswith(b"$share/"):
        raise violation("no local on a shared subscription")  # [MQTT-3.8.3-4]
    return Subscription(topic_filter, qos, no_local, bool(options & 8), retain_handling)


def _too_many(kind: str, packet_id: int, filters_max: int) -> ProtocolError:
    return ProtocolError(ReasonCode.QUOTA_EXCEEDED, f"{kind} {packet_id} names more than {filters_max} topic filters")


def _unsubscribe(version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Unsubscribe:
    packet_id, properties, pos = _id_and_properties(version, Place.UNSUBSCRIBE, data, pos, end, bounds)
    filters: list[bytes] = []
    while pos < end:
        if len(filters) == bounds.filters:
            raise _too_many("UNSUBSCRIBE", packet_id, bounds.filters)
        topic_filter, pos = read_utf8(data, pos, end, "topic filter")
        filters.append(topic_filter)
    if not filters:
        raise violation(f"UNSUBSCRIBE {packet_id} without a topic filter")  # [MQTT-3.10.3-2]
    return Unsubscribe(packet_id, tuple(filters), properties)


def _suback(version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Suback:
    packet_id, properties, pos = _id_and_properties(version, Place.SUBACK, data, pos, end, bounds)
    table = SUBACK_REASONS if version == MQTT_5 else SUBACK_REASONS_3
    reasons = tuple([_reason(table, code, "SUBACK") for code in data[pos:end]])
    if not reasons:
        raise violation(f"SUBACK {packet_id} without a reason code")
    return Suback(packet_id, reasons, properties)


def _unsuback(version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Unsuback:
    packet_id, properties, pos = _id_and_properties(version, Place.UNSUBACK, data, pos, end, bounds)
    if version != MQTT_5:
        _at_end(pos, end, "UNSUBACK")
        return Unsuback(packet_id)
    reasons = tuple([_reason(UNSUBACK_REASONS, code, "UNSUBACK") for code in data[pos:end]])
    if not reasons:
        raise violation(f"UNSUBACK {packet_id} without a reason code")
    return Unsuback(packet_id, reasons, properties)


def _connack(version: int, data: bytes, pos: int, end: int, bounds: Bounds) -> Connack:
    flags, pos = read_u8(data, pos, end, "CONNACK flags")
    code, pos = read_u8(data, pos, end, "CONNACK reason code")
    if flags > 1:
        raise malformed("reserved CONNACK flags are set")  # [MQTT-3.2.2-1]
    properties = NO_PROPERTIES
    if version == MQTT_5:
        reason = _reason(CONNACK_REASONS, code, "CONNACK")
        properties, pos = read_properties(data, pos, end, Place.CONNACK, bounds.user_properties)
    else:
        reason = reason_of_return_code(code)
    _at_end(pos, end, "CONNACK")
    if flags and reason is not ReasonCode.SUCCESS:
        raise violation("CONNACK with a session present and an error")  # [MQTT-3.2.2-6]
    return Connack(bool(flags), reason, properties)


def _disconnect(version: int, role: Role, data: bytes, pos: int, end: int, bounds: Bounds) -> Disconnect:
    if version != MQTT_5:
        _at_end(pos, end, "DISCONNECT")
        return Disconnect()
    reason, properties = _reason_and_properties(DISCONNECT_REASONS, Place.DISCONNECT, "DISCONNECT", data, pos, end, bounds)
    if role == "client" and properties.session_expiry_interval is not None:
        raise violation("session expiry interval in a server's DISCONNECT")  # [MQTT-3.14.2-2]
    return Disconnect(reason, properties)


def _auth(role: Role, data: bytes, pos: int, end: int, bounds: Bounds) -> Auth:
    empty = pos == end
    reason, properties = _reason_and_properties(AUTH_REASONS[role], Place.AUTH, "AUTH", data, pos, end, bounds)
    # The one AUTH that may leave the method out is the empty one, which means success.
    if properties.authentication_method is None and not empty:
        raise violation("AUTH without an authentication method")
    return Auth(reason, properties)


def _reason_and_properties(
    table: dict[int, ReasonCode], place: Place, what: str, data: bytes, pos: int, end: int, bounds: Bounds
) -> tuple[ReasonCode, Properties]:
    """The two last fields of several packets; what is left out is success and no properties."""
    code, properties = 0, NO_PROPERTIES
    if pos < end:
        code, pos = data[pos], pos + 1
        if pos < end:
            properties, pos = read_properties(data, pos, end, place, bounds.user_properties)
    _at_end(pos, end, what)
    return _reason(table, code, what), properties


def _reason(table: dict[int, ReasonCode], code: int, what: str) -> ReasonCode:
    reason = table.get(code)
    if reason is None:
        raise violation(f"{what} with reason code 0x{code:02x}, which it may not have")
    return reason


def _packet_id(data: bytes, pos: int, end: int, what: str) -> tuple[int, int]:
    packet_id, pos = read_u16(data, pos, end, f"{what} packet id")
    if packet_id == 0:
        raise violation(f"{what} with packet id 0")  # [MQTT-2.2.1-3]
    return packet_id, pos


def _id_and_properties(version: int, place: Place, data: bytes, pos: int, end: int, bounds: Bounds) -> tuple[int, Properties, int]:
    packet_id, pos = _packet_id(data, pos, end, place.value)
    if version != MQTT_5:
        return packet_id, NO_PROPERTIES, pos
    properties, pos = read_properties(data, pos, end, place, bounds.user_properties)
    return packet_id, properties, pos


def _at_end(pos: int, end: int, what: str) -> None:
    if pos != end:
        raise malformed(f"{what} with {end - pos} bytes more than it has fields")
