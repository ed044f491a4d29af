"""A shared group: who its members are, and whose turn it is.

A group is everybody who subscribed to the same `$share/name/filter`; each message goes to one member.  Here are the members of
this gateway, and how many members each other gateway has, and each session actor in its memory; sending is the business of
gateway.sharing.

Two turns make it fair.  Between gateways: each has a place that comes round as often as it has members, reckoned in integers
so that equal events give equal choices.  Every gateway keeps its own turns for what is published there.  Within a gateway:
its members take turns, whoever published.

Always holds (see check): a group has a member somewhere, or it is not in the table; no place waits longer than one round of its
gateway.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from mqtt.topics import is_shared, matched_filter

if TYPE_CHECKING:
    from gateway.connection import Connection
    from gateway.live import LiveSub

_ROUND: Final = 1 << 40
"""A gateway with n members is due every _ROUND // n; large, so that the remainder does not matter."""


class GroupMessage(NamedTuple):
    """A message for one group, whoever of it will get it.  flags as in shards.frames.Publish; body as it was published."""

    group: bytes
    publisher: bytes
    flags: int
    topic: bytes
    body: bytes
    published_at_ms: int
    refusals: int = 0
    """How many members a plugin has said no about; from then on it stays at its gateway."""

    def refused(self) -> GroupMessage:
        return self._replace(refusals=self.refusals + 1)

    @property
    def size(self) -> int:
        return len(self.topic) + len(self.body)


class _Place:
    """One gateway in the round, or a session actor.  gateway: its name, empty for this one."""

    __slots__ = ("due", "gateway", "members")

    def __init__(self, gateway: str) -> None:
        self.gateway = gateway
        self.members = 0
        self.due = 0


class Group:
    __slots__ = ("_here", "_now", "_peers", "filter", "members")

    def __init__(self, filter: bytes) -> None:
        self.filter = filter
        """The whole filter, `$share/name/` included, or the key of durable members (gateway.live): it names the group."""
        self.members: OrderedDict[Connection, LiveSub] = OrderedDict()
        """Of this gateway; the first one is next."""
        self._here = _Place("")
        self._peers: dict[int, _Place] = {}
        self._now = 0

    @property
    def elsewhere(self) -> bool:
        """Whether another gateway has members."""
        return bool(self._peers)

    def __bool__(self) -> bool:
        return bool(self.members or self._peers)

    # ---------------------------------------------------------------- members
    def join(self, sub: LiveSub) -> None:
        """A member, in place of its earlier subscription if it had one: then it keeps its turn."""
        self.members[sub.connection] = sub
        self._count(self._here, len(self.members))

    def leave(self, connection: Connection) -> None:
        del self.members[connection]
        self._count(self._here, len(self.members))

    def members_at(self, link: int, gateway: str, members: int) -> None:
        """Another gateway has so many members now; 0: none."""
        if not members:
            self._peers.pop(link, None)
            return
        place = self._peers.get(link)
        if place is None:
            place = self._peers[link] = _Place(gateway)
        self._count(place, members)

    def _count(self, place: _Place, members: int) -> None:
        joins = not place.members
        place.members = members
        if members:
            latest = self._now + _ROUND // members
            # A newcomer waits for a whole round; who grows waits for no longer than its new one.
            place.due = latest if joins else min(place.due, latest)

    # ---------------------------------------------------------------- turns
    def next_gateway(self) -> int | None:
        """The link of the gateway whose turn it is; None: this one."""
        if not self._peers:
            return None
        link = min(self._peers, key=lambda link: self._peers[link].due)
        if self.members and self._here.due <= self._peers[link].due:
            self._take_turn(self._here)
            return None
        self._take_turn(self._peers[link])
        return link

    def next_other(self) -> int:
        """The link of the other gateway whose turn it is; there must be one."""
        link = min(self._peers, key=lambda link: self._peers[link].due)
        self._take_turn(self._peers[link])
        return link

    def _take_turn(self, place: _Place) -> None:
        self._now = max(self._now, place.due)
        place.due += _ROUND // place.members

    def next_member(self) -> LiveSub:
        """The member of this gateway whose turn it is; there must be one."""
        connection, sub = next(iter(self.members.items()))
        self.members.move_to_end(connection)
        return sub

    def is_first(self, gateway: str) -> bool:
        """Whether this gateway, called so, has the smallest name of all that have members: each of them knows the same."""
        return bool(self.members) and all(gateway < place.gateway for link, place in self._peers.items() if link >= 0)

    @property
    def only_in_memory(self) -> bool:
        """Whether all members are sessions in memory: their links are numbered below zero."""
        return not self.members and all(link < 0 for link in self._peers)

    def check(self) -> None:
        assert self, f"{self.filter!r} is in the table and has no member"
        assert self._here.members == len(self.members)
        for place in (self._here, *self._peers.values()):
            assert not place.members or place.due <= self._now + _ROUND // place.members, f"{place.gateway!r} waits too long"
        assert all(place.members for place in self._peers.values())
        assert all(sub.connection is connection for connection, sub in self.members.items())


__all__ = ["Group", "GroupMessage", "is_shared", "matched_filter"]
