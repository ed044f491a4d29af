"""Shared groups at home here: which there are, and who is a member (docs/groups.md).

A group is a session without a client, under the whole filter `$share/name/filter` in place of a client id; its owner reads and
commits for it as for any other.  The first member makes it, with the positions of its own routes as the beginning, and the last one
that goes ends it.  Members are ids of subscriptions: whoever removes the route of one removes the member.

    no group -> the first Join: group -> the last route of a member is removed: no group
    no group -> Declare: declared, and its owner is told to lay routes of its own -> Begin: it has positions -> Drop: no group

A declared one needs no members: its own routes, under the id of its subscription, ask for what it is to get.  They stay until it ends,
also when it is left to its members, and go as those of any subscription.

Holds after every call (see check): a group has a member or is declared, and has a session row; every member is of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mqtt.reason import ProtocolError
from mqtt.topics import is_shared, matched_filter, parse_filter
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.events import GroupDeclared, GroupDropped
from shards.fences import RouteFences
from shards.frames import (
    EARLIEST,
    GROUP_BEGUN,
    GROUP_FORBIDDEN,
    GROUP_HAS_MEMBERS,
    GROUP_OTHERWISE,
    GROUP_SENSELESS,
    GROUP_TAKEN,
    GROUP_UNKNOWN,
    GROUPS_FULL,
    LATEST,
    OLD_TOKEN,
    TAKEN,
    WALL,
    Begin,
    Declare,
    Declared,
    Drop,
    Dropped,
    GroupFound,
    GroupMade,
    GroupRows,
    GroupRowsFound,
    GroupTaken,
    HomeOfGroupEntry,
    Join,
    Joined,
    Reply,
    Rows,
)
from shards.homes import Homes, Outcome
from shards.ids import SHARD_BITS, sub_id
from shards.options import STRATEGIES
from shards.row_pages import rows_found
from shards.rows import (
    ACTIVE,
    GROUP,
    MEMBER,
    SESSION,
    SUBSCRIPTION,
    GroupRow,
    SubscriptionRow,
    client_key,
    pack_group,
    pack_row,
    pack_subscription,
    successor,
    u64,
    unpack_group,
    unpack_row,
)  # fmt: skip

DECLARED_MAX: Final = 1_000
"""Declared groups that are at home in one shard."""
_VALUE_BYTES_MAX: Final = 64 << 10
"""More than a row has, with a position for each shard."""
_WORDS_MAX: Final = 100
_ROLE: Final = "admin"
_NO_TOKEN = 0xFFFFFFFF
"""In the place of the owner token in the id of a group; owners never come so far."""
_QOS = 2
_AS_PUBLISHED_UPGRADED = 2 | 8
"""Options of its subscription: every message has a number on the track of QoS 2, and keeps its RETAIN."""


class Groups:
    def __init__(self, engine: Engine, shard: int, homes: Homes, fences: RouteFences) -> None:
        self._shard = shard
        self._homes = homes
        self._fences = fences
        self.here: dict[bytes, GroupRow] = {}
        self._members: dict[int, bytes] = {}
        self._count: dict[bytes, int] = {}
        for key, value in _all(engine, GROUP):
            self.here[key[1:]] = unpack_group(value)
        for key, value in _all(engine, MEMBER):
            self._remember(int.from_bytes(key[1:], "big"), unpack_row(value)[0])
        self._declared = sum([bool(group.said) for group in self.here.values()])

    def found(self) -> list[GroupFound]:
        return [_found(filter, group) for filter, group in self.here.items()]

    def page(self, draft: Draft, ask: GroupRows, age_ms: int) -> GroupRowsFound:
        """As much as of any rows."""
        told = rows_found(draft, Rows([(GROUP + ask.start, successor(GROUP), max(1, ask.count_max))], _VALUE_BYTES_MAX), age_ms)
        return GroupRowsFound(age_ms, [(key[1:], value, self._count.get(key[1:], 0)) for key, value, _ in told.found[0]], told.whole[0])

    def take(
        self, draft: Draft, entry: HomeOfGroupEntry, role: str, token: int, age_ms: int, out: Outcome
    ) -> tuple[Reply, GroupMade | None]:
        """The answer, and what its owner is to be told.  token: of the owner."""
        match entry:
            case Join():
                return self._join(draft, entry, age_ms, out)
            case Declare():
                declared = self._declare(draft, entry, age_ms, out) if role == _ROLE else Declared(GROUP_FORBIDDEN)
                return declared, self._told(entry.filter) if not declared.code else None
            case Drop():
                dropped = self._drop(draft, entry, age_ms, out) if role == _ROLE else Dropped(GROUP_FORBIDDEN)
                return dropped, self._told(entry.filter) if not dropped.code else None
            case Begin():
                if entry.token != token:
                    return GroupTaken(OLD_TOKEN), None
                begun = self._begin(draft, entry)
                return GroupTaken(TAKEN), self._told(entry.filter) if begun else None

    # ------------------------------------------------------------------ members

    def _join(self, draft: Draft, entry: Join, age_ms: int, out: Outcome) -> tuple[Joined, GroupMade | None]:
        if not self._fences.admits(entry.sub_id):
            return Joined(OLD_TOKEN), None
        made = None
        group = self.here.get(entry.filter)
        if group is None:
            group = self._numbered(draft, entry.filter, age_ms, out)
            self._subscribe(draft, entry.filter, group, entry.starts)
            self._put(draft, entry.filter, group)
            made = self._told(entry.filter)
        elif not group.begun and not group.floor:
            # From here on its member may count on everything, though the group has not begun.
            self._put(draft, entry.filter, group._replace(floor=tuple(entry.starts)))
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
            del self._count[filter]
            if not self.here[filter].said:
                self._end(draft, filter, age_ms, out)

    # ------------------------------------------------------------------ declarations

    def _declare(self, draft: Draft, entry: Declare, age_ms: int, out: Outcome) -> Declared:
        if not _is_sensible(entry):
            return Declared(GROUP_SENSELESS)
        group = self.here.get(entry.filter)
        if group is not None and group.said:
            same = (entry.said, entry.strategy) == (group.said, group.strategy)
            return Declared(GROUP_TAKEN if same else GROUP_OTHERWISE, group.id, group.said, group.strategy)
        if self._declared >= DECLARED_MAX:
            return Declared(GROUPS_FULL)
        if group is not None and entry.since != LATEST:
            return Declared(GROUP_BEGUN, group.id)
        lays = (entry.since, entry.since_value)
        if group is None:
            group = self._numbered(draft, entry.filter, age_ms, out)._replace(begun=False)
            # Without positions; but it is there, so whoever finds its routes knows whose they are.
            self._subscribe(draft, entry.filter, group, ())
        elif group.lays:
            lays = (group.lays[0], group.lays[1])
        self._declared += 1
        group = group._replace(said=entry.said, strategy=entry.strategy, declared_ms=age_ms, lays=lays)
        self._put(draft, entry.filter, group)
        self._homes.note(GroupDeclared(entry.filter, entry.said, entry.strategy, entry.by))
        return Declared(GROUP_TAKEN, group.id, group.said, group.strategy)

    def _begin(self, draft: Draft, entry: Begin) -> bool:
        """Whether that was news: it may have ended meanwhile."""
        group = self.here.get(entry.filter)
        if group is None or group.id != entry.group or not group.lays:
            return False
        if not group.begun:
            floor = dict(group.floor)
            starts = [(shard, min(position, floor.get(shard, position))) for shard, position in entry.starts]
            self._subscribe(draft, entry.filter, group, starts, entry.past)
        self._put(draft, entry.filter, group._replace(begun=True, lays=(), floor=(), kept_ms=entry.kept_ms))
        return True

    def _drop(self, draft: Draft, entry: Drop, age_ms: int, out: Outcome) -> Dropped:
        group = self.here.get(entry.filter)
        if group is None or not group.said or group.id != entry.group:
            return Dropped(GROUP_UNKNOWN)
        members = self._count.get(entry.filter, 0)
        if members and not entry.leave:
            return Dropped(GROUP_HAS_MEMBERS, members)
        self._declared -= 1
        if members:
            self._put(draft, entry.filter, group._replace(said="", strategy="", declared_ms=0, kept_ms=0))
        else:
            self._end(draft, entry.filter, age_ms, out)
        self._homes.note(GroupDropped(entry.filter, members, entry.by))
        return Dropped(GROUP_TAKEN, members)

    # ------------------------------------------------------------------ rows, and what is known of them

    def _numbered(self, draft: Draft, filter: bytes, age_ms: int, out: Outcome) -> GroupRow:
        session_id = self._homes.begin_group(draft, filter, age_ms, out)
        counter = session_id >> SHARD_BITS
        return GroupRow(sub_id(self._shard, _NO_TOKEN - (counter >> 24), counter), session_id)

    def _subscribe(
        self, draft: Draft, filter: bytes, group: GroupRow, starts: Sequence[tuple[int, int]], past: Sequence[Any] = ()
    ) -> None:  # fmt: skip
        row = SubscriptionRow(matched_filter(filter), _QOS, _AS_PUBLISHED_UPGRADED, 0, ACTIVE, list(starts), past)
        draft.put(client_key(SUBSCRIPTION, filter, u64(group.id)), pack_subscription(row))

    def _put(self, draft: Draft, filter: bytes, group: GroupRow) -> None:
        self.here[filter] = group
        draft.put(GROUP + filter, pack_group(group))

    def _end(self, draft: Draft, filter: bytes, age_ms: int, out: Outcome) -> None:
        del self.here[filter]
        draft.delete(GROUP + filter)
        self._homes.end_group(draft, filter, age_ms, out)

    def _told(self, filter: bytes) -> GroupMade | None:
        group = self.here.get(filter)
        return GroupMade(*_found(filter, group)) if group is not None else None

    def _remember(self, member: int, filter: bytes) -> None:
        self._members[member] = filter
        self._count[filter] = self._count.get(filter, 0) + 1

    def check(self, draft: Draft) -> None:
        assert set(self.here) == {*self._count, *(filter for filter, group in self.here.items() if group.said)}, (self._count, self.here)
        assert self._declared == sum([bool(group.said) for group in self.here.values()])
        assert sum(self._count.values()) == len(self._members)
        assert all(draft.get(client_key(SESSION, filter)) is not None for filter in self.here)
        assert all(group.begun or group.lays for group in self.here.values())
        assert {key[1:] for key, _ in draft.scan(GROUP, len(self.here) + 1)} == set(self.here)


def _found(filter: bytes, group: GroupRow) -> GroupFound:
    return GroupFound(filter, group.id, group.session_id, group.strategy, group.begun, group.lays)


def _is_sensible(entry: Declare) -> bool:
    """What the side of people has checked before, in words."""
    try:
        parse_filter(entry.filter)
    except ProtocolError:
        return False
    known = entry.since in (LATEST, EARLIEST) or (entry.since == WALL and entry.since_value >= 0)
    return is_shared(entry.filter) and known and 0 < len(entry.said) <= _WORDS_MAX and (not entry.strategy or entry.strategy in STRATEGIES)


def _all(engine: Engine, family: bytes) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    start, end = family, successor(family)
    while rows := engine.scan(HOME_FAMILY, start, end, 2000):
        found += rows
        start = rows[-1][0] + b"\x00"
    return found
