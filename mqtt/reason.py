"""The reason codes of MQTT and the error that carries one.

Leaves to others what to do with an error: the gateway turns it into a CONNACK, an
acknowledgement or a DISCONNECT, or closes in silence where the version has no word for it.

What always holds: every fault that a peer's bytes can cause is a ``ProtocolError``, and
its ``reason`` is a code that MQTT 5 knows.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ReasonCode(IntEnum):
    """Every reason code of MQTT 5.  Zero has three names, by the packet it stands in."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class ProtocolError(Exception):
    """The peer broke the protocol, or asks for what this codec must refuse.

    ``detail`` says what was found and what was wanted; it is safe to log and to send as a
    reason string, for it holds no payload and no password.
    """

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(f"{reason.name} (0x{reason:02x}): {detail}")
        self.reason = reason
        self.detail = detail


def malformed(detail: str) -> ProtocolError:
    """The bytes cannot be read as the packet they claim to be: 0x81."""
    return ProtocolError(ReasonCode.MALFORMED_PACKET, detail)


def violation(detail: str) -> ProtocolError:
    """The bytes can be read, and say what the protocol forbids: 0x82."""
    return ProtocolError(ReasonCode.PROTOCOL_ERROR, detail)


# The CONNACK return codes of 3.1 and 3.1.1, by the reason code of MQTT 5 that means the same.
_RETURN_CODES: Final[dict[ReasonCode, int]] = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.UNSPECIFIED_ERROR: 3,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: 3,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.SERVER_SHUTTING_DOWN: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.BAD_AUTHENTICATION_METHOD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
    ReasonCode.TOPIC_NAME_INVALID: 5,
    ReasonCode.QOS_NOT_SUPPORTED: 5,
    ReasonCode.RETAIN_NOT_SUPPORTED: 5,
}

_REASONS_OF_RETURN_CODES: Final[tuple[ReasonCode, ...]] = (
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
)


def connack_return_code(reason: ReasonCode) -> int | None:
    """The 3.1.1 CONNACK return code for ``reason``.

    None: 3.1.1 has no word for it, and the connection is closed without a CONNACK
    [MQTT-3.2.2-6].
    """
    return _RETURN_CODES.get(reason)


def reason_of_return_code(return_code: int) -> ReasonCode:
    """The reason code for a 3.1.1 CONNACK return code (what a client reads)."""
    if return_code >= len(_REASONS_OF_RETURN_CODES):
        raise malformed(f"CONNACK return code {return_code}, wanted 0 to 5")
    return _REASONS_OF_RETURN_CODES[return_code]
