"""Durable shared groups: who of a group gets a message, and when another one does (docs/groups.md)."""

from __future__ import annotations

from typing import Literal

from config.fields import Section, Whole, setting
from config.values import Duration


class Groups(Section):
    strategy: Literal["by_stream", "round_robin", "hash_client_id", "hash_topic"] = setting(
        "by_stream",
        "Who of a durable shared group gets a message. by_stream: messages of one publisher and topic go to one member as long as it has "
        "one of them unfinished, and so are in order; all others to who has least. round_robin: in turns, in no order. hash_client_id, "
        "hash_topic: by the publisher, or the topic, always the same member as long as the same ones are online.",
        effect="at once",
    )
    redelivery_after: Duration = setting(
        Duration.parse("10s"),
        "How long a member of a durable shared group may be away before another one gets what it has not acknowledged. When its session "
        "ends that happens at once. What was begun at QoS 2 waits for its client, as MQTT wants it.",
        ge=100,
        le=86_400_000,
        effect="at once",
    )
    member_inflight_max: Whole = setting(
        100,
        "Messages that one member of a durable shared group has at most of it, unfinished. More for members that are far away or "
        "acknowledge in large steps; less spreads a burst over more members.",
        unit="messages",
        ge=1,
        le=1_000,
        effect="at once",
    )
