"""From the packets of a bridge's session to its messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bridge.events import Delivery
from bridge.port import Message
from mqtt.body import properties_of, strip_properties
from mqtt.packets import Properties, Publish, PublishRun
from mqtt.properties import USER_PROPERTY
from mqtt.reason import ProtocolError
from mqtt.wire import binary
from sessions.origins import ORIGIN, read_origin

_ORIGIN: Final = ORIGIN.decode()
_FIRST: Final = bytes((USER_PROPERTY,)) + binary(ORIGIN)
_TEXT_AT: Final = 1 + len(_FIRST) + 2
"""In a body that begins with an origin: behind the length of the properties in one byte, and that of the text in two."""
_QOS_2: Final = 2


class NotOurs(Exception):
    """A message that does not say what it is: the broker at the other end is another one than this program knows."""


def deliveries_of(packet: Publish | PublishRun) -> Iterator[tuple[int, Delivery]]:
    """The id of the session that its number counts within, and the delivery, for each message.  Raises NotOurs."""
    if isinstance(packet, Publish):
        yield _delivery(packet.flags, packet.packet_id, packet.topic, packet.body)
        return
    for flags, packet_id, topic, body in zip(packet.flags, packet.packet_ids, packet.topics, packet.bodies, strict=True):
        yield _delivery(flags, packet_id, topic, body)


def _delivery(flags: int, packet_id: int, topic: bytes, body: bytes) -> tuple[int, Delivery]:
    end = 1 + body[0]
    try:
        if flags >> 1 & 3 != _QOS_2:
            raise ValueError
        if body.startswith(_FIRST, 1) and _TEXT_AT + (body[_TEXT_AT - 2] << 8 | body[_TEXT_AT - 1]) == end <= len(body):
            return _with_origin(body[_TEXT_AT:end].decode(), flags, packet_id, topic.decode(), body[end:], ())
        return _with_properties(flags, packet_id, topic, body)
    except (ValueError, ProtocolError):
        raise NotOurs(f"a PUBLISH to {topic[:100]!r} at QoS {flags >> 1 & 3} says not which message it is") from None


def _with_properties(flags: int, packet_id: int, topic: bytes, body: bytes) -> tuple[int, Delivery]:
    """One that has others beside its origin."""
    properties = properties_of(body)
    (name, text), *others = properties.user_properties
    if name != _ORIGIN:
        raise ValueError
    session, (_, plain) = _with_origin(text, flags, packet_id, topic.decode(), strip_properties(body), tuple(others))
    expiry_s = properties.message_expiry_interval
    message = plain._replace(
        content_type=properties.content_type or "",
        response_topic=properties.response_topic or "",
        correlation_data=properties.correlation_data or b"",
        payload_is_text=properties.payload_format_indicator == 1,
        expires_at_ms=0 if expiry_s is None else int(time.time() * 1000) + expiry_s * 1000,
    )
    return session, Delivery(packet_id, message)


def _with_origin(
    text: str, flags: int, packet_id: int, topic: str, payload: bytes, others: tuple[tuple[str, str], ...]
) -> tuple[int, Delivery]:
    session, shard, position, number, published_at_ms, qos, publisher = read_origin(text)
    retain = bool(flags & 1)
    message = Message(number, shard, position, topic, payload, qos, retain, published_at_ms, publisher, others, key=topic)
    return session, Delivery(packet_id, message)


TOPIC, BRIDGE, REASON = "dead-letter-topic", "dead-letter-bridge", "dead-letter-reason"
"""The user properties of a dead letter: the topic it was published to, the bridge whose target refused it, and why."""
_REASON_CHARS_MAX = 500


def dead_letter(packet_id: int, topic: str, bridge: str, message: Message, reason: str) -> Publish:
    """Stored whether somebody has subscribed or not, for the retention period of its topic."""
    said = ((TOPIC, message.topic), (BRIDGE, bridge), (REASON, reason[:_REASON_CHARS_MAX].replace("\0", " ")), ("persist", "true"))
    properties = Properties(
        payload_format_indicator=1 if message.payload_is_text else None,
        content_type=message.content_type or None,
        response_topic=message.response_topic or None,
        correlation_data=message.correlation_data or None,
    )
    properties = replace(properties, user_properties=(*message.user_properties, *said))
    return Publish(1 << 1, packet_id, topic.encode(), message.payload, properties)
