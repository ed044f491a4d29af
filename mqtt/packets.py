"""The control packets of MQTT as values, and the two runs that carry the hot ones in bulk.

One set of classes serves 3.1, 3.1.1 and 5: what a version does not have keeps its default,
and the reason codes are always those of MQTT 5 (the codec translates).  Topic names and
filters are bytes, checked UTF-8: they are compared, hashed and sent on far oftener than shown.
Client ids, user names and what people read are text.

Leaves reading and writing to ``mqtt.decode`` and ``mqtt.encode``, and checks nothing itself.
What always holds for a packet that came out of the decoder: it is valid for its version and
direction.  Packets are values: nobody changes the lists of a run once it has been handed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Final

from mqtt.reason import ReasonCode

MQTT_3_1: Final = 3
MQTT_3_1_1: Final = 4
MQTT_5: Final = 5


class PacketType(IntEnum):
    """The high nibble of the first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class AckKind(IntEnum):
    """The four acknowledgements of PUBLISH, numbered as their packet types."""

    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7


@dataclass(frozen=True, slots=True, repr=False)
class Properties:
    """Every property of MQTT 5; None (or an empty tuple) is absent.

    The order of the fields is that of their identifiers, and ``mqtt.properties`` relies on it.
    """

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifiers_available: int | None = None
    shared_subscription_available: int | None = None

    def __repr__(self) -> str:
        """Only what is there: 27 times None says nothing in a failed test.  No data that may be secret."""
        present = [each.name for each in fields(self) if getattr(self, each.name) not in (None, ())]
        return f"Properties({', '.join([f'{name}={getattr(self, name)!r}' for name in present if name != 'authentication_data'])})"


NO_PROPERTIES: Final = Properties()


@dataclass(frozen=True, slots=True)
class Will:
    """What the server publishes for a client that goes without saying so."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connack:
    session_present: bool
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    """A PUBLISH on its own: one with properties, or one that somebody wants to encode.

    ``flags`` is the low nibble of the first byte: DUP 8, QoS 6, RETAIN 1.  ``body`` is what is
    stored and sent on, ``property length + properties + payload`` without topic alias and
    subscription identifiers; the decoder fills it, the encoder does not look at it.
    """

    flags: int
    packet_id: int
    topic: bytes
    payload: bytes = b""
    properties: Properties = NO_PROPERTIES
    body: bytes = field(default=b"", compare=False, repr=False)

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)


@dataclass(frozen=True, slots=True)
class PublishRun:
    """Consecutive PUBLISH packets without properties, or with such as may be in a run (``mqtt.blocks``), as parallel lists.

    ``packet_ids`` holds 0 for QoS 0.  A body is always in the form of MQTT 5, property length
    first; without properties it begins with a zero byte.
    """

    flags: list[int]
    packet_ids: list[int]
    topics: list[bytes]
    bodies: list[bytes]


@dataclass(frozen=True, slots=True)
class Ack:
    """One PUBACK, PUBREC, PUBREL or PUBCOMP that says more than success."""

    kind: AckKind
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class AckRun:
    """Consecutive acknowledgements of one kind, all of them success without properties."""

    kind: AckKind
    packet_ids: list[int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic filter of a SUBSCRIBE and its options; 3.1.1 has only the QoS."""

    filter: bytes
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    packet_id: int
    reasons: tuple[ReasonCode, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    packet_id: int
    filters: tuple[bytes, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """``reasons`` is empty in 3.1.1, whose UNSUBACK says nothing about each filter."""

    packet_id: int
    reasons: tuple[ReasonCode, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    pass


@dataclass(frozen=True, slots=True)
class Pingresp:
    pass


@dataclass(frozen=True, slots=True)
class Disconnect:
    reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = Connect | Connack | Publish | Ack | Subscribe | Suback | Unsubscribe | Unsuback | Pingreq | Pingresp | Disconnect | Auth

# What the decoder hands out.
Item = Packet | PublishRun | AckRun
