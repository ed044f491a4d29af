"""What the rules in force mean for the connections of this gateway: each has its profile and, where there is one, a guard.

The rules of another version count from the event that brings them: for what is received behind it, and for what leaves behind it.
Of many connections RENEWED_PER_TURN have them then, and as many in each turn that follows at once, so that nobody's turn waits for all.
Then everything asks for each message; LOOKED_AT_PER_TURN subscriptions a turn are looked at, fewer where there are many rules about
everybody, and those whose filters may be read as a whole are let off.  Who asks is in the parts: inbound for PUBLISH, subscribing for
SUBSCRIBE, egress, sending and ephemeral for what leaves.

A member that may not read all that its group is given leaves the group in the turn that brings the rules, because what it was given
would be lost to the others; what waits for it goes to them.  Every other subscription stays, and brings what may be read.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from access.profile import Profile
from access.rights import Right
from access.rules import Access
from gateway.asking import Asking
from gateway.bridges import comes_as_bridge
from gateway.connection import Connection, Phase
from gateway.guard import Guard
from gateway.live import LiveSub, LiveTable
from gateway.rights import may_stay, reads_all
from gateway.state import State
from mqtt.topics import is_shared
from sessions.frames import Unsubscribe

RENEWED_PER_TURN: Final = 250
LOOKED_AT_PER_TURN: Final = 500
RULES_PER_TURN: Final = 10_000
"""Those about everybody, once for each subscription that is looked at: a profile that is asked for the first time looks at all of them."""
BY_THE_RULES: Final = 0
"""In place of a packet identifier: nobody has asked for this UNSUBSCRIBE, and nobody is answered."""


class Permitting:
    def __init__(self, state: State, table: LiveTable, asking: Asking) -> None:
        self._state = state
        self._table = table
        self._asking = asking

    def changed(self, access: Access) -> None:
        state = self._state
        state.access = access
        state.unlooked.clear()
        state.outdated = deque([connection for connection in state.by_socket.values() if connection.client])
        self._renew_some()

    def renewed(self, connection: Connection) -> None:
        """Other rules, or another identity of a connection that may have subscriptions."""
        entitle(connection, self._state.access, self._asking)
        if connection.profile is not None:
            self._leave_groups(connection, connection.profile)
            self._state.unlooked += connection.subs.values()

    def subscribed(self, sub: LiveSub) -> None:
        """A subscription is in the table, and asks for each message if its connection has a guard."""
        if sub.guard is not None:
            self._state.unlooked.append(sub)

    def shared_elsewhere(self, connection: Connection, topic_filter: bytes) -> None:
        """Its session, durable or in the memory of a session actor, is a member of a group there."""
        connection.shared_elsewhere[topic_filter] = None
        if connection.profile is not None:
            self._leave_groups(connection, connection.profile)

    def refused(self, connection: Connection, topic_filter: bytes) -> None:
        """A SUBSCRIBE, for this filter."""
        right = Right.SHARE | Right.SUBSCRIBE if is_shared(topic_filter) else Right.SUBSCRIBE
        self._state.counters.subscriptions_denied += 1
        self._state.denials.note(connection.client, right, topic_filter)

    @property
    def busy(self) -> bool:
        """There are connections under former rules, or subscriptions that nobody has looked at."""
        return bool(self._state.outdated or self._state.unlooked)

    def turn(self) -> None:
        if self._state.outdated:
            self._renew_some()
            return
        unlooked = self._state.unlooked
        if not unlooked:
            return
        most = max(1, min(LOOKED_AT_PER_TURN, RULES_PER_TURN // max(1, self._state.access.weight)))
        for _ in range(min(len(unlooked), most)):
            self._look_at(unlooked.popleft())

    def _renew_some(self) -> None:
        outdated = self._state.outdated
        for _ in range(min(len(outdated), RENEWED_PER_TURN)):
            connection = outdated.popleft()
            if connection.phase is not Phase.CLOSED:
                self.renewed(connection)

    def _look_at(self, sub: LiveSub) -> None:
        connection = sub.connection
        profile = connection.profile
        if profile is None or connection.subs.get(sub.filter) is not sub:
            return
        if reads_all(profile, sub.filter):
            sub.guarded(None)

    def _leave_groups(self, connection: Connection, profile: Profile) -> None:
        for topic_filter in [each for each in connection.subs if is_shared(each) and not may_stay(profile, each)]:
            self._table.unsubscribe(connection, topic_filter)
            if connection.ephemeral is not None:
                self._state.orphans += connection.ephemeral.let_go(topic_filter)
        left = [each for each in connection.shared_elsewhere if not may_stay(profile, each)]
        if left:
            for topic_filter in left:
                del connection.shared_elsewhere[topic_filter]
            self._state.outbox.to_session(connection.session, Unsubscribe(connection.conn, BY_THE_RULES, left))


def entitle(connection: Connection, access: Access, asking: Asking) -> None:
    """Give a connection whose client is known what it may do from now on; its subscriptions ask for each message."""
    if comes_as_bridge(connection):
        return
    rules = access.profile(connection.identity, connection.client, connection.listener, connection.address)
    connection.profile = profile = asking.profile(connection, rules)
    connection.guard = Guard(profile, connection.asker) if profile is not None else None
    for sub in connection.subs.values():
        sub.guarded(connection.guard)
