"""Reason strings: what an answer that says no tells people, beside its code, and what a CONNACK that says yes tells of a loss.

A client gets one when it did not ask to be spared (Request Problem Information 0) and the packet with it is not larger than the client
takes [MQTT-3.2.2-19, -3.4.2-2, -3.14.2-3]; else the packet goes without.  What is said is about the client's own packets and connection:
never about another client, and of a refused login nothing, since whoever guesses would learn from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

from gateway.connection import Connection
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Ack, AckKind, Auth, Connack, Disconnect, Suback, Unsuback
from mqtt.reason import ReasonCode

REASON_CHARS_MAX: Final = 200
FAILED: Final = 0x80

WORDS: Final[dict[ReasonCode, str]] = {
    ReasonCode.UNSPECIFIED_ERROR: "it could not be done",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "this client identifier cannot be used",
    ReasonCode.NOT_AUTHORIZED: "not permitted",
    ReasonCode.TOPIC_FILTER_INVALID: "the topic filter is not well formed",
    ReasonCode.TOPIC_NAME_INVALID: "clients may not publish to this topic",
    ReasonCode.PACKET_IDENTIFIER_IN_USE: "the packet identifier is in use",
    ReasonCode.PACKET_IDENTIFIER_NOT_FOUND: "no message is under way with this packet identifier",
    ReasonCode.QUOTA_EXCEEDED: "there is no room for more",
    ReasonCode.PAYLOAD_FORMAT_INVALID: "the payload is said to be UTF-8 text and is not",
    ReasonCode.RETAIN_NOT_SUPPORTED: "retained messages are not kept",
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "shared subscriptions are not for this session",
}
"""What is said of a code when nothing more is known, or is to be said."""
LOST_MESSAGES: Final = "messages of this session were gone before it could get them; `holdfast storage losses` says which"
"""With a CONNACK that lets the client in: its session has a loss record that it was not told of."""
_OF_LOGINS: Final = frozenset(
    (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED, ReasonCode.BANNED, ReasonCode.BAD_AUTHENTICATION_METHOD)
)
"""Why a login was refused, or could not be judged, is for the log; the code has to do."""

Explained: TypeAlias = Ack | Auth | Connack | Disconnect | Suback | Unsuback


def explained(connection: Connection, packet: Explained, why: str) -> bytes:
    """The packet in bytes, with a reason string if the client takes one."""
    if connection.problem and why and connection.version == MQTT_5:
        text = why.encode("unicode_escape").decode()[:REASON_CHARS_MAX]
        data = encode(MQTT_5, replace(packet, properties=replace(packet.properties, reason_string=text)))
        if connection.fits(data):
            return data
    return encode(connection.version, packet)


def cause(connection: Connection, code: ReasonCode, why: str) -> str:
    """What may be said of why a connection is refused or closed."""
    return "" if code in _OF_LOGINS or connection.exchange is not None else why


def refusal(connection: Connection, kind: AckKind, packet_id: int, code: ReasonCode) -> bytes:
    """An acknowledgement that says no."""
    return explained(connection, Ack(kind, packet_id, code), WORDS.get(code, ""))


def answer(connection: Connection, packet: Suback | Unsuback, why: str = "") -> bytes:
    """SUBACK or UNSUBACK; the reason string is about the first filter that was refused, or why all were."""
    if why:
        return explained(connection, packet, why)
    if connection.problem:
        for number, code in enumerate(packet.reasons, 1):
            if code >= FAILED:
                return explained(connection, packet, f"filter {number}: {WORDS.get(code, code.name.lower().replace('_', ' '))}")
    return encode(connection.version, packet)
