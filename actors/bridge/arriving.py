"""From the packets of a bridge's session to its messages."""

from __future__ import annotations

import time
from dataclasses import replace

from bridge.events import Delivery
from bridge.port import Message
from mqtt.packets import Properties, Publish
from sessions.origins import ORIGIN, read_origin

_ORIGIN = ORIGIN.decode()


class NotOurs(Exception):
    """A message that does not say what it is: the broker at the other end is another one than this program knows."""


def delivery_of(packet: Publish) -> tuple[int, Delivery]:
    """The id of the session that its number counts within, and the delivery.  Raises NotOurs."""
    properties = packet.properties
    try:
        (name, text), *others = properties.user_properties
        if name != _ORIGIN or packet.qos != 2:
            raise ValueError
        origin = read_origin(text)
    except ValueError:
        raise NotOurs(f"a PUBLISH to {packet.topic[:100]!r} at QoS {packet.qos} says not which message it is") from None
    expiry_s = properties.message_expiry_interval
    message = Message(
        number=origin.number,
        shard=origin.shard,
        position=origin.position,
        topic=packet.topic.decode(),
        payload=packet.payload,
        qos=origin.qos,
        retain=packet.retain,
        published_at_ms=origin.published_at_ms,
        publisher=origin.publisher,
        user_properties=tuple(others),
        content_type=properties.content_type or "",
        response_topic=properties.response_topic or "",
        correlation_data=properties.correlation_data or b"",
        payload_is_text=properties.payload_format_indicator == 1,
        expires_at_ms=0 if expiry_s is None else int(time.time() * 1000) + expiry_s * 1000,
    )
    return origin.session, Delivery(packet.packet_id, message)


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
