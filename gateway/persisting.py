"""A message that is to be stored though nobody has subscribed: `$persist/topic`, or the user property `persist: true` (docs/replay.md).

Here only what a PUBLISH says of it; its shard stores it (shards.publishing).
"""

from __future__ import annotations

from typing import Final

from mqtt.packets import Properties, PublishRun
from shards.persistence import PERSIST

PERSISTED: Final = b"$persist/"
_PROPERTY: Final = ("persist", "true")


def says_persist(properties: Properties) -> int:
    """What this adds to the flags of a message on its way."""
    return PERSIST if _PROPERTY in properties.user_properties else 0


def joins(properties: Properties) -> bool:
    """Whether a PUBLISH with these may be one of a run: nothing in them decides which way it goes."""
    return not says_persist(properties)


def without_prefix(run: PublishRun) -> PublishRun:
    """The run with the topics behind `$persist/`, and the mark.  Where there is no topic behind it that a client may publish to, the
    name stays what it is, one to which nobody may."""
    flags, topics = list(run.flags), list(run.topics)
    for index, topic in enumerate(topics):
        behind = topic.removeprefix(PERSISTED)
        if behind and behind is not topic and not behind.startswith(b"$"):
            flags[index] |= PERSIST
            topics[index] = behind
    return PublishRun(flags, run.packet_ids, topics, run.bodies)
