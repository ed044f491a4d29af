"""Shared groups at home here: which there are, and who is a member (docs/groups.md).

A group is a session without a client, under the whole filter `$share/name/filter` in place of a client id; its owner reads and
commits for it as for any other.  The first member makes it, with the positions of its own routes as the beginning, and the last one
that goes ends it.  Members are ids of subscriptions: whoever removes the route of one removes the member.

    no group -> the first Join: group -> the last route of a member is removed: no group

Holds after every call (see check): a group has a member, and a session row; every member is of a group.
"""

from __future__ import annotations

from typing import NamedTuple

from mqtt.topics import matched_filter
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.fences import RouteFences
from shards.frames import OLD_TOKEN, TAKEN, GroupMade, Join, Joined
from shards.homes import Homes, Outcome
from shards.ids import SHARD_BITS, sub_id
from shards.rows import (
    ACTIVE,
    GROUP,
    MEMBER,
    SESSION,
    SUBSCRIPTION,
    SubscriptionRow,
    client_key,
    pack_row,
    successor,
    u64,
    unpack_row,
)  # fmt: skip

_NO_TOKEN = 0xFFFFFFFF
"""In the place of the owner token in the id of a group; owners never come so far."""
_QOS = 2
_AS_PUBLISHED_UPGRADED = 2 | 8
"""Options of its subscription: every message has a number on the track of QoS 2, and keeps its RETAIN."""


class Group(NamedTuple):
    """id: of its subscription, never used again."""

    id: int
    session_id: int


class Groups:
    def __init__(self, engine: Engine, shard: int, homes: Homes, fences: RouteFences) -> None:
        self._shard = shard
        self._homes = homes
        self._fences = fences
        self.here: dict[bytes, Group] = {}
        self._members: dict[int, bytes] = {}
        self._count: dict[bytes, int] = {}
        for key, value in _all(engine, GROUP):
            self.here[key[1:]] = Group(*unpack_row(value))
        for key, value in _all(engine, MEMBER):
            self._remember(int.from_bytes(key[1:], "big"), unpack_row(value)[0])

    def found(self) -> list[tuple[bytes, int, int]]:
        return [(filter, group.id, group.session_id) for filter, group in self.here.items()]

    def join(self, draft: Draft, entry: Join, age_ms: int, out: Outcome) -> tuple[Joined, GroupMade | None]:
        """The answer, and what its owner is to be told if the group was made."""
        if not self._fences.admits(entry.sub_id):
            return Joined(OLD_TOKEN), None
        made = None
        if entry.filter not in self.here:
            group = self.here[entry.filter] = self._make(draft, entry, age_ms, out)
            made = GroupMade(entry.filter, group.id, group.session_id)
        if entry.sub_id not in self._members:
            draft.put(MEMBER + u64(entry.sub_id), pack_row((entry.filter,)))
            self._remember(entry.sub_id, entry.filter)
        return Joined(TAKEN), made

    def leave(self, draft: Draft, member: int, age_ms: int, out: Outcome) -> None:
        """The route of this subscription is removed; most are members of nothing."""
        filter = self._members.pop(member, None)
        if filter is None:
            return
        draft.delete(MEMBER + u64(member))
        self._count[filter] -= 1
        if not self._count[filter]:
            del self._count[filter], self.here[filter]
            draft.delete(GROUP + filter)
            self._homes.end_group(draft, filter, age_ms, out)

    def _make(self, draft: Draft, entry: Join, age_ms: int, out: Outcome) -> Group:
        session_id = self._homes.begin_group(draft, entry.filter, age_ms, out)
        counter = session_id >> SHARD_BITS
        group = Group(sub_id(self._shard, _NO_TOKEN - (counter >> 24), counter), session_id)
        starts = [(shard, position) for shard, position in entry.starts]
        row = SubscriptionRow(matched_filter(entry.filter), _QOS, _AS_PUBLISHED_UPGRADED, 0, ACTIVE, starts)
        draft.put(client_key(SUBSCRIPTION, entry.filter, u64(group.id)), pack_row(row))
        draft.put(GROUP + entry.filter, pack_row(group))
        return group

    def _remember(self, member: int, filter: bytes) -> None:
        self._members[member] = filter
        self._count[filter] = self._count.get(filter, 0) + 1

    def check(self, draft: Draft) -> None:
        assert set(self._count) == set(self.here), (self._count, self.here)
        assert sum(self._count.values()) == len(self._members)
        assert all(draft.get(client_key(SESSION, filter)) is not None for filter in self.here)
        assert {key[1:] for key, _ in draft.scan(GROUP, len(self.here) + 1)} == set(self.here)


def _all(engine: Engine, family: bytes) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    start, end = family, successor(family)
    while rows := engine.scan(HOME_FAMILY, start, end, 2000):
        found += rows
        start = rows[-1][0] + b"\x00"
    return found
