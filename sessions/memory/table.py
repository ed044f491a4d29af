"""Who of the sessions in memory wants what, and what gateways are told of it.

Plain subscriptions and members of shared groups, under one trie of filters; groups under the filter behind their name.  A
session stays in the table while its client is away.

Of a group the gateways are told how many members are online; if there are only members whose clients are away, that there is
one, so that its messages wait for somebody.  So members that are away take no share from those who are there.

Always holds (see check): a filter is in the trie as long as somebody wants it; a group has members.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from mqtt.topics import is_shared, matched_filter
from mqtt.trie import FilterTrie
from sessions.bodies import NO_LOCAL, RETAIN_AS_PUBLISHED, UPGRADE_QOS
from sessions.memory.message import Message
from sessions.memory.session import MemorySession

MEMBERS_ASKED_MAX: Final = 100
"""So many members are asked for room before one has to make some: a message must not cost more, however large the group."""
_PUBLISH = 0x30


def _firsts(granted: int, options: int) -> bytes:
    """By the kind of a message, the first byte of the PUBLISH that brings it live [MQTT-3.3.1-12, -13]."""
    table = bytearray()
    for kind in range(8):
        qos = granted if options & UPGRADE_QOS else min(granted, kind >> 1)
        table.append(_PUBLISH | qos << 1 | (kind & 1 if options & RETAIN_AS_PUBLISHED else 0))
    return bytes(table)


_FIRSTS: Final = [[_firsts(granted, options) for options in range(16)] for granted in range(3)]


class MemorySub:
    """One subscription of one session.

    retain_topics: while retained messages are fetched for it, topics of which a newer one went out live."""

    __slots__ = ("_firsts", "filter", "identifier", "options", "qos", "retain_topics", "session")

    def __init__(self, session: MemorySession, filter: bytes, qos: int, options: int, identifier: int) -> None:
        self.session = session
        self.filter = filter
        self.qos = qos
        self.options = options
        self._firsts = _FIRSTS[qos][options & (RETAIN_AS_PUBLISHED | UPGRADE_QOS)]
        self.identifier = identifier
        self.retain_topics: set[bytes] | None = None

    def first(self, message: Message) -> int:
        """The first byte of the PUBLISH that brings this subscription a live message."""
        return self._firsts[message.kind]

    def skips(self, publisher: bytes) -> bool:
        return bool(self.options & NO_LOCAL) and publisher == self.session.client


class MemoryGroup:
    """The members of one shared group here; the first of each is next."""

    __slots__ = ("away", "filter", "online")

    def __init__(self, filter: bytes) -> None:
        self.filter = filter
        self.online: OrderedDict[MemorySession, MemorySub] = OrderedDict()
        self.away: OrderedDict[MemorySession, MemorySub] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.online or self.away)

    @property
    def announced(self) -> int:
        return len(self.online) or min(len(self.away), 1)

    def place(self, sub: MemorySub) -> None:
        """A member, in place of its earlier subscription, where its connection says."""
        here, there = (self.online, self.away) if sub.session.attached else (self.away, self.online)
        there.pop(sub.session, None)
        here[sub.session] = sub

    def remove(self, session: MemorySession) -> None:
        self.online.pop(session, None)
        self.away.pop(session, None)

    def next_member(self, size: int) -> MemorySub:
        """The member whose turn it is, of those online that have room, then of those away; if none has any, the next one."""
        for members in (self.online, self.away):
            for _ in range(min(len(members), MEMBERS_ASKED_MAX)):
                sub = _next(members)
                if sub.session.takes(size):
                    return sub
        return _next(self.online or self.away)


def _next(members: OrderedDict[MemorySession, MemorySub]) -> MemorySub:
    session, sub = next(iter(members.items()))
    members.move_to_end(session)
    return sub


class Wanted:
    """Everybody who wants one filter."""

    __slots__ = ("filter", "groups", "subs")

    def __init__(self, filter: bytes) -> None:
        self.filter = filter
        self.subs: dict[MemorySession, MemorySub] = {}
        self.groups: dict[bytes, MemoryGroup] = {}

    def __bool__(self) -> bool:
        return bool(self.subs or self.groups)


class MemoryTable:
    def __init__(self) -> None:
        self.groups: dict[bytes, MemoryGroup] = {}
        self._filters: dict[bytes, Wanted] = {}
        self._trie: FilterTrie[Wanted] = FilterTrie()
        self._changed: dict[bytes, None] = {}
        self._told: dict[bytes, None] = {}
        self._changed_groups: dict[bytes, None] = {}
        self._told_groups: dict[bytes, int] = {}

    def match(self, topic: bytes) -> Sequence[Wanted]:
        return self._trie.match(topic)

    # ---------------------------------------------------------------- subscriptions
    def subscribe(self, sub: MemorySub) -> None:
        """Put a subscription in, in place of an earlier one of the session to the same filter."""
        sub.session.subs[sub.filter] = sub
        if is_shared(sub.filter):
            group = self.groups.get(sub.filter)
            if group is None:
                group = self.groups[sub.filter] = MemoryGroup(sub.filter)
                self._wanted(matched_filter(sub.filter)).groups[sub.filter] = group
            group.place(sub)
            self._changed_groups[sub.filter] = None
            return
        self._wanted(sub.filter).subs[sub.session] = sub
        self._changed[sub.filter] = None

    def unsubscribe(self, session: MemorySession, filter: bytes) -> bool:
        """Take a subscription out; whether there was one."""
        if session.subs.pop(filter, None) is None:
            return False
        if is_shared(filter):
            group = self.groups[filter]
            group.remove(session)
            self._changed_groups[filter] = None
            wanted = self._filters[matched_filter(filter)]
            if not group:
                del self.groups[filter]
                del wanted.groups[filter]
        else:
            wanted = self._filters[filter]
            del wanted.subs[session]
            self._changed[filter] = None
        if not wanted:
            del self._filters[wanted.filter]
            self._trie.remove(wanted.filter, wanted)
        return True

    def leave(self, session: MemorySession) -> None:
        for filter in list(session.subs):
            self.unsubscribe(session, filter)

    def moved(self, session: MemorySession) -> None:
        """The session was attached or detached."""
        for filter, sub in session.subs.items():
            if is_shared(filter):
                self.groups[filter].place(sub)
                self._changed_groups[filter] = None

    def _wanted(self, filter: bytes) -> Wanted:
        wanted = self._filters.get(filter)
        if wanted is None:
            wanted = self._filters[filter] = Wanted(filter)
            self._trie.add(filter, wanted)
        return wanted

    # ---------------------------------------------------------------- what gateways are told
    def changes(self) -> tuple[list[bytes], list[bytes], list[tuple[bytes, int]]]:
        """What to tell since the last call: filters to add, to remove, and members of groups."""
        add: list[bytes] = []
        remove: list[bytes] = []
        for filter in self._changed:
            wanted = self._filters.get(filter)
            wants = wanted is not None and bool(wanted.subs)
            if wants and filter not in self._told:
                add.append(filter)
                self._told[filter] = None
            elif not wants and filter in self._told:
                remove.append(filter)
                del self._told[filter]
        self._changed.clear()
        groups: list[tuple[bytes, int]] = []
        for filter in self._changed_groups:
            group = self.groups.get(filter)
            members = group.announced if group is not None else 0
            if members != self._told_groups.pop(filter, 0):
                groups.append((filter, members))
            if members:
                self._told_groups[filter] = members
        self._changed_groups.clear()
        return add, remove, groups

    def told(self) -> tuple[list[bytes], list[tuple[bytes, int]]]:
        """All that gateways were told: filters, and members of groups."""
        return list(self._told), list(self._told_groups.items())

    def check(self) -> None:
        assert len(self._trie) == len(self._filters)
        for filter, wanted in self._filters.items():
            assert wanted and wanted.filter == filter
            assert all(session.subs[filter] is sub for session, sub in wanted.subs.items())
            assert all(self.groups[name] is group and matched_filter(name) == filter for name, group in wanted.groups.items())
        for filter, group in self.groups.items():
            assert group and self._filters[matched_filter(filter)].groups[filter] is group
            assert all(session.attached and session.subs[filter] is sub for session, sub in group.online.items())
            assert all(not session.attached and session.subs[filter] is sub for session, sub in group.away.items())
