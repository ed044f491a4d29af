"""What one connection may do where a plugin has the word beside the rules, and what of it waits for that word.

Life cycle: made with the profile of the connection -> renewed with each other profile -> forgotten at its end.

Always holds: an answer is about what the rules in force leave to the plugin; what waits to be sent is in its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from access.profile import RuledProfile
from access.rights import Extent, Right
from gateway.connection import Connection
from gateway.groups import GroupMessage
from mqtt.topics import is_shared, matched_filter

Key: TypeAlias = tuple[int, bytes]
"""A right and a topic, or FILTER and the filter of a SUBSCRIBE."""
FILTER: Final = 0


class Parcel(NamedTuple):
    """A message that waits to be sent."""

    topic: bytes
    size: int
    send: Callable[[], object]
    of_group: GroupMessage | None = None

    @property
    def key(self) -> Key:
        return int(Right.SUBSCRIBE), self.topic


class Asker:
    """Also the profile of its connection (access.profile.Profile)."""

    __slots__ = (
        "_rules", "answers", "asked", "awaits_in", "awaits_out", "awaits_refill", "awaits_will", "connection", "lost", "number", "outgoing",
        "outgoing_bytes", "publishable", "readable",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.number = 0
        """Of the profile: answers to questions under a former one mean nothing."""
        self.answers: dict[Key, bool] = {}
        self.asked: dict[Key, None] = {}
        self.awaits_in: Key | None = None
        """What the oldest of the packets waits for that are held (Connection.held)."""
        self.awaits_out: Key | None = None
        self.awaits_refill: Key | None = None
        self.awaits_will: Key | None = None
        self.outgoing: deque[Parcel] = deque()
        self.outgoing_bytes = 0
        self.lost: str | None = None
        """Its socket is gone while packets are held: it ends when they are taken."""
        self.renew(None, 0)

    def renew(self, rules: RuledProfile | None, number: int) -> None:
        """rules None: nothing is left to a plugin any more."""
        self._rules = rules
        self.number = number
        self.answers.clear()
        self.asked.clear()
        self.publishable: set[bytes] = rules.publishable if rules is not None else set()
        self.readable: set[bytes] = rules.readable if rules is not None else set()

    @property
    def waits(self) -> bool:
        return (self.awaits_in or self.awaits_out or self.awaits_refill or self.awaits_will) is not None

    def unknown(self, key: Key) -> bool:
        """Whether the plugin has the word, and has not said it lately."""
        if key in self.answers or self._rules is None:
            return False
        right, topic = key
        if right == FILTER:
            return self.leaves_shared(topic) if is_shared(topic) else self._rules.leaves_filter(topic)
        if topic in (self.readable if right == Right.SUBSCRIBE else self.publishable) and right in (Right.SUBSCRIBE, Right.PUBLISH):
            return False
        return self._rules.leaves(Right(right), topic)

    def leaves_shared(self, topic_filter: bytes) -> bool:
        """Whether it is the plugin's to say who is a member of this group."""
        return self._rules is not None and self._rules.leaves_shared(matched_filter(topic_filter))

    def may_join(self, topic_filter: bytes) -> bool:
        """What it has said of this shared subscription."""
        return self.answers.get((FILTER, topic_filter), False)

    def leaves_replay_of(self, topic_filter: bytes) -> bool:
        """What the plugin says of a subscription it says of its past, where nothing else does."""
        return self._rules is not None and self._rules.leaves_filter(topic_filter, Right.REPLAY)

    def leaves_replay(self, topic: bytes) -> bool:
        return self._rules is not None and self._rules.leaves(Right.REPLAY, topic)

    def must_wait(self, topic: bytes) -> bool:
        """Whether a message of this topic cannot be sent now, nor be kept back."""
        return bool(self.outgoing) or self.unknown((int(Right.SUBSCRIBE), topic))

    # ---------------------------------------------------------------- Profile
    def may(self, right: Right, topic: bytes) -> bool:
        return self.answers.get((int(right), topic), False) or (self._rules is not None and self._rules.may(right, topic))

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        """A plugin's yes is SOME: it is asked for each message, too."""
        extent = self._rules.grant(right, topic_filter) if self._rules is not None else Extent.NONE
        if extent is Extent.NONE and right == Right.SUBSCRIBE and self.answers.get((FILTER, topic_filter), False):
            return Extent.SOME
        return extent
