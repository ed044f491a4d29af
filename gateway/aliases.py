"""Topic aliases that we give to one client: a number in place of a topic name that it has been told.

An alias means something from the packet that brings it with its topic, so one is given only to what is written at once: a message that
waits for a window may be dropped, and what comes behind it would have no topic.  First come, first served: when the client takes no more
aliases, or we give no more, further topics go by their names.  Nothing is taken away again, because a client that subscribes to many
topics would be told each of them again and again.

    made with the connection -> filled -> gone with it; never seen by another connection of the client [MQTT-3.3.2-7]

Always holds: an alias is between 1 and `most`, and stands for one topic for ever [MQTT-3.3.2-9, -10].
"""

from __future__ import annotations

from typing import Final

from mqtt.body import with_topic_alias
from mqtt.encode import PublishTemplate
from mqtt.packets import MQTT_5

_TOPIC_BYTES_MIN: Final = 4
"""The alias takes three bytes in each packet: for a shorter topic it would be no gain."""


class AliasesOut:
    __slots__ = ("_given", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._given: dict[bytes, int] = {}

    def shorten(self, template: PublishTemplate, packet_max: int, first_byte: int) -> PublishTemplate:
        """The message as it is written now, by its alias if its topic has one or gets one."""
        topic = template.topic
        alias = self._given.get(topic)
        if alias is not None:
            return PublishTemplate(b"", with_topic_alias(template.body, alias))
        if len(self._given) >= self.most or len(topic) < _TOPIC_BYTES_MIN:
            return template
        alias = len(self._given) + 1
        told = PublishTemplate(topic, with_topic_alias(template.body, alias))
        if packet_max and told.packet_bytes(MQTT_5, first_byte) > packet_max:
            return template
        self._given[topic] = alias
        return told
