"""What the rules in force mean for the connections of this gateway: each has its profile and, where there is one, a guard.

The rules of another version count from the event that brings them: for what is received behind it, and for what leaves behind it.
Who asks is in the parts: inbound for PUBLISH, subscribing for SUBSCRIBE, egress, sending and fanout for what leaves.
"""

from __future__ import annotations

from access.profile import Profile
from access.rights import Extent, Right
from access.rules import Access
from gateway.connection import Connection
from gateway.guard import Guard
from gateway.state import State
from mqtt.topics import is_shared, matched_filter


class Permitting:
    def __init__(self, state: State) -> None:
        self._state = state

    def changed(self, access: Access) -> None:
        state = self._state
        state.access = access
        for connection in state.by_socket.values():
            if connection.client:
                entitle(connection, access)


def entitle(connection: Connection, access: Access) -> None:
    """Give a connection whose client is known what it may do from now on."""
    profile = access.profile(connection.identity, connection.client, connection.listener, connection.address)
    connection.profile = profile
    connection.guard = Guard(profile) if profile is not None else None
    for sub in connection.subs.values():
        sub.settle()


def may_subscribe(profile: Profile, topic_filter: bytes) -> bool:
    """A shared subscription is covered whole: what its member may not read would be lost to its group."""
    if is_shared(topic_filter):
        return profile.grant(Right.SHARE, matched_filter(topic_filter)) is Extent.ALL
    return profile.grant(Right.SUBSCRIBE, topic_filter) is not Extent.NONE


def may_publish(profile: Profile, flags: int, topic: bytes) -> bool:
    return profile.may(Right.PUBLISH | Right.RETAIN if flags & 1 else Right.PUBLISH, topic)
