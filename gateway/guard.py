"""What a connection may read: asked for each message that leaves for it, by its topic.

A connection has one while there are rules for it (gateway.permitting).  It is asked for everything that a session actor delivers,
since that may be of a subscription that ended long ago, and for what waited for the window of an ephemeral session.  A live
subscription asks it only when the rules do not let all of its filter be read, or when nobody has looked at that yet.  Nothing is asked
about what has left: behind a PUBREC only PUBREL goes out (PROTOCOLS 12).
"""

from __future__ import annotations

from access.profile import Profile
from access.rights import Right
from gateway.asker import Asker
from sessions.frames import Deliver


class Guard:
    __slots__ = ("_asker", "_profile")

    def __init__(self, profile: Profile, asker: Asker | None = None) -> None:
        """asker: where a plugin has the word about some topics."""
        self._profile = profile
        self._asker = asker

    def reads_all(self, frame: Deliver, indexes: list[int]) -> bool:
        """Whether all of these messages are known to be readable; False: each has to be asked for."""
        messages = frame.messages
        return self._profile.readable.issuperset([messages[index][0] for index in indexes])

    def may_read(self, topic: bytes) -> bool:
        profile = self._profile
        return topic in profile.readable or profile.may(Right.SUBSCRIBE, topic)

    def may_replay(self, topic: bytes) -> bool:
        """Of what is history."""
        if not self.may_read(topic):
            return False
        return self._profile.may(Right.REPLAY, topic) or (self._asker is not None and self._asker.leaves_replay(topic))

    def knows_not(self, topic: bytes) -> bool:
        """Whether a plugin has to be asked first."""
        return self._asker is not None and self._asker.unknown((int(Right.SUBSCRIBE), topic))
