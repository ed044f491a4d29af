"""The property block of MQTT 5: which property may stand where, reading it strictly, writing it.

One table holds the rules (MQTT 5, 2.2.2.2); reading, writing and ``mqtt.body`` use no other.
Leaves to ``mqtt.control`` what depends on the direction or on other fields of the packet.
What always holds for a block that was read: each identifier is allowed in its place, none is
there twice except user properties and the subscription identifiers of a PUBLISH, and every
value is in its range.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from mqtt.packets import NO_PROPERTIES, Properties
from mqtt.reason import ProtocolError, ReasonCode, malformed, violation
from mqtt.wire import binary, read_binary, read_string, read_u8, read_u16, read_u32, read_varint, string, varint


class Place(Enum):
    """Where a property block stands."""

    CONNECT = "CONNECT"
    WILL = "will"
    CONNACK = "CONNACK"
    PUBLISH = "PUBLISH"
    ACK = "acknowledgement"
    SUBSCRIBE = "SUBSCRIBE"
    SUBACK = "SUBACK"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    UNSUBACK = "UNSUBACK"
    DISCONNECT = "DISCONNECT"
    AUTH = "AUTH"


class Kind(Enum):
    """The data type of a property's value."""

    U8 = 1
    U16 = 2
    U32 = 4
    VARINT = 5
    STRING = 6
    BINARY = 7
    PAIR = 8


@dataclass(frozen=True, slots=True)
class Rule:
    """One property: its identifier, its field of ``Properties``, its type, range and places."""

    identifier: int
    name: str
    kind: Kind
    places: frozenset[Place]
    least: int = 0
    most: int = 0xFFFF_FFFF
    range_reason: ReasonCode = ReasonCode.PROTOCOL_ERROR
    many: frozenset[Place] = frozenset()


USER_PROPERTY: Final = 0x26
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
TOPIC_ALIAS: Final = 0x23
USER_PROPERTIES_MAX: Final = 256
"""User properties of one packet from a client, unless its owner says otherwise."""
USER_PROPERTY_BYTES_MAX: Final = 65_536
"""All of those together, as they are on the wire."""

_MESSAGE = frozenset({Place.PUBLISH, Place.WILL})
_CONNECTING = frozenset({Place.CONNECT, Place.CONNACK})
_CONNECT = frozenset({Place.CONNECT})
_CONNACK = frozenset({Place.CONNACK})
_AUTHENTICATION = frozenset({Place.CONNECT, Place.CONNACK, Place.AUTH})
_ANSWERS = frozenset({Place.CONNACK, Place.ACK, Place.SUBACK, Place.UNSUBACK, Place.DISCONNECT, Place.AUTH})
_EVERYWHERE = frozenset(Place)

RULES: Final = (
    Rule(0x01, "payload_format_indicator", Kind.U8, _MESSAGE, most=1),
    Rule(MESSAGE_EXPIRY_INTERVAL, "message_expiry_interval", Kind.U32, _MESSAGE),
    Rule(0x03, "content_type", Kind.STRING, _MESSAGE),
    Rule(0x08, "response_topic", Kind.STRING, _MESSAGE),
    Rule(0x09, "correlation_data", Kind.BINARY, _MESSAGE),
    Rule(
        SUBSCRIPTION_IDENTIFIER,
        "subscription_identifiers",
        Kind.VARINT,
        frozenset({Place.PUBLISH, Place.SUBSCRIBE}),
        least=1,
        many=frozenset({Place.PUBLISH}),
    ),
    Rule(0x11, "session_expiry_interval", Kind.U32, frozenset({Place.CONNECT, Place.CONNACK, Place.DISCONNECT})),
    Rule(0x12, "assigned_client_identifier", Kind.STRING, _CONNACK),
    Rule(0x13, "server_keep_alive", Kind.U16, _CONNACK),
    Rule(0x15, "authentication_method", Kind.STRING, _AUTHENTICATION),
    Rule(0x16, "authentication_data", Kind.BINARY, _AUTHENTICATION),
    Rule(0x17, "request_problem_information", Kind.U8, _CONNECT, most=1),
    Rule(0x18, "will_delay_interval", Kind.U32, frozenset({Place.WILL})),
    Rule(0x19, "request_response_information", Kind.U8, _CONNECT, most=1),
    Rule(0x1A, "response_information", Kind.STRING, _CONNACK),
    Rule(0x1C, "server_reference", Kind.STRING, frozenset({Place.CONNACK, Place.DISCONNECT})),
    Rule(0x1F, "reason_string", Kind.STRING, _ANSWERS),
    Rule(0x21, "receive_maximum", Kind.U16, _CONNECTING, least=1),
    Rule(0x22, "topic_alias_maximum", Kind.U16, _CONNECTING),
    Rule(
        TOPIC_ALIAS,
        "topic_alias",
        Kind.U16,
        frozenset({Place.PUBLISH}),
        least=1,
        range_reason=ReasonCode.TOPIC_ALIAS_INVALID,
    ),
    Rule(0x24, "maximum_qos", Kind.U8, _CONNACK, most=1),
    Rule(0x25, "retain_available", Kind.U8, _CONNACK, most=1),
    Rule(USER_PROPERTY, "user_properties", Kind.PAIR, _EVERYWHERE, many=_EVERYWHERE),
    Rule(0x27, "maximum_packet_size", Kind.U32, _CONNECTING, least=1),
    Rule(0x28, "wildcard_subscription_available", Kind.U8, _CONNACK, most=1),
    Rule(0x29, "subscription_identifiers_available", Kind.U8, _CONNACK, most=1),
    Rule(0x2A, "shared_subscription_available", Kind.U8, _CONNACK, most=1),
)
assert [rule.name for rule in RULES] == [field.name for field in fields(Properties)]

_INDEX: Final = {rule.identifier: index for index, rule in enumerate(RULES)}
_ALLOWED: Final[dict[Place, dict[int, Rule]]] = {
    place: {rule.identifier: rule for rule in RULES if place in rule.places} for place in Place
}
KIND_OF: Final[dict[int, Kind]] = {rule.identifier: rule.kind for rule in RULES}
_ABSENT: Final[list[Any]] = [getattr(NO_PROPERTIES, rule.name) for rule in RULES]


def read_properties(data: bytes, pos: int, end: int, place: Place, user_max: int | None = None) -> tuple[Properties, int]:
    """Read a property block: its length at ``pos``, then its properties.  ``user_max``: of user properties, None any number."""
    length, pos = read_varint(data, pos, end, f"{place.value} property length")
    if length == 0:
        return NO_PROPERTIES, pos
    stop = pos + length
    if stop > end:
        raise malformed(f"{place.value} property length {length} with {end - pos} bytes left in the packet")
    allowed = _ALLOWED[place]
    values = _ABSENT.copy()
    # What may come often is collected in lists: a tuple that grows would cost the square of their number.
    several: dict[int, list[Any]] = {}
    seen: set[int] = set()
    user_bytes = 0
    while pos < stop:
        identifier = data[pos]
        rule = allowed.get(identifier)
        if rule is None:
            raise malformed(f"property 0x{identifier:02x} in {place.value}, where it is not allowed")
        began = pos
        value, pos = _read_value(data, pos + 1, stop, rule)
        index = _INDEX[identifier]
        if place in rule.many:
            values_of = several.setdefault(index, [])
            values_of.append(value)
            if user_max is not None and identifier == USER_PROPERTY:
                user_bytes += pos - began
                if len(values_of) > user_max or user_bytes > USER_PROPERTY_BYTES_MAX:
                    raise too_many_user_properties(user_max, place)
            continue
        if identifier in seen:
            raise violation(f"{rule.name} twice in one {place.value}")
        seen.add(identifier)
        # A SUBSCRIBE has at most one subscription identifier; the field is a tuple all the same.
        values[index] = (value,) if identifier == SUBSCRIPTION_IDENTIFIER else value
    for index, found in several.items():
        values[index] = tuple(found)
    properties = Properties(*values)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise violation(f"authentication data without a method in {place.value}")
    response_topic = properties.response_topic
    if response_topic is not None and (not response_topic or "+" in response_topic or "#" in response_topic):
        raise violation(f"response topic in {place.value} is empty or has a wildcard")  # [MQTT-3.3.2-14]
    return properties, stop


def too_many_user_properties(user_max: int, place: Place) -> ProtocolError:
    detail = f"{place.value} with more than {user_max} user properties, or {USER_PROPERTY_BYTES_MAX} bytes of them"
    return ProtocolError(ReasonCode.QUOTA_EXCEEDED, detail)


def _read_value(data: bytes, pos: int, end: int, rule: Rule) -> tuple[Any, int]:
    what = rule.name
    number: int
    match rule.kind:
        case Kind.STRING:
            return read_string(data, pos, end, what)
        case Kind.BINARY:
            return read_binary(data, pos, end, what)
        case Kind.PAIR:
            key, pos = read_string(data, pos, end, what)
            value, pos = read_string(data, pos, end, what)
            return (key, value), pos
        case Kind.U8:
            number, pos = read_u8(data, pos, end, what)
        case Kind.U16:
            number, pos = read_u16(data, pos, end, what)
        case Kind.U32:
            number, pos = read_u32(data, pos, end, what)
        case Kind.VARINT:
            number, pos = read_varint(data, pos, end, what)
    if not rule.least <= number <= rule.most:
        raise ProtocolError(rule.range_reason, f"{what} is {number}, wanted {rule.least} to {rule.most}")
    return number, pos


def encode_properties(properties: Properties, place: Place) -> bytes:
    """The property block with its length.  A property that may not stand in ``place`` is our own bug."""
    if properties is NO_PROPERTIES or properties == NO_PROPERTIES:
        return b"\0"
    out = bytearray()
    for rule, absent in zip(RULES, _ABSENT, strict=True):
        value = getattr(properties, rule.name)
        if value == absent and type(value) is type(absent):
            continue
        if place not in rule.places:
            raise ValueError(f"{rule.name} may not stand in {place.value}")
        several = value if isinstance(value, tuple) else (value,)
        if len(several) > 1 and place not in rule.many:
            raise ValueError(f"{len(several)} values of {rule.name} in one {place.value}, at most one is allowed")
        for one in several:
            out.append(rule.identifier)
            out += _encode_value(one, rule)
    return varint(len(out)) + out


def _encode_value(value: Any, rule: Rule) -> bytes:
    match rule.kind:
        case Kind.STRING:
            return string(value)
        case Kind.BINARY:
            return binary(value)
        case Kind.PAIR:
            return string(value[0]) + string(value[1])
        case Kind.U8 | Kind.U16 | Kind.U32 | Kind.VARINT:
            if not rule.least <= value <= rule.most:
                raise ValueError(f"{rule.name} is {value}, wanted {rule.least} to {rule.most}")
            return varint(value) if rule.kind is Kind.VARINT else int(value).to_bytes(rule.kind.value, "big")
