"""What members of shared groups have that are at home here, and what becomes of it (docs/groups.md).

A message of a group is with a client exactly when there is a row for it; so nobody has to be asked twice, and nothing follows from
silence.  The owner of the group's home gives, and hears of everything that changes here, in order, from the Open that it sent last:

    nothing -> Give: l -> the client has finished: j FINISHED        -> the group has committed that (Settle): nothing
                       -> begun at QoS 2: l and j BEGUN -> and away  -> Settle: l and j ORPHANED -> finished: nothing
                       -> session ended, returned, taken back: nothing, and another member may have it
                       with j BEGUN the end of a session is FINISHED: nobody else may have it [MQTT-4.8.2-5]

The owner of the member's sessions says what its client has begun and finished; that something is finished that was taken back comes too
late and means nothing.  That it begins it is refused, because then it must not leave: whoever says that has a connection that is over.

A client that has HELD_BYTES_MAX here is given nothing more, until half of that is gone: all of it has to be loaded at once.

Holds after every call (see check): `_there` is what rows say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mqtt.topics import is_shared
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.fences import RouteFences
from shards.frames import (
    AWAY,
    FULL,
    GONE,
    IS_BACK,
    IS_GIVEN,
    IS_SETTLED,
    OLD_TOKEN,
    TAKEN,
    Give,
    Given,
    GroupEntry,
    GroupNews,
    GroupTaken,
    Open,
    Settle,
    TakeBack,
)
from shards.homes import Homes
from shards.ids import home_of_sub
from shards.rows import (
    ACTIVE,
    BEGUN,
    DELIVERY,
    FINISHED,
    LEAVES,
    MEMBERSHIP,
    NOTHING_YET,
    ORPHANED,
    OUTCOME,
    RETURNED,
    SubscriptionRow,
    client_key,
    delivery_suffix,
    pack_row,
    read_u64,
    split_client_key,
    successor,
    u64,
    unpack_as,
    unpack_row,
)  # fmt: skip

HELD_BYTES_MAX = 16 << 20
_SHARE = b"$share/"
_FILTER_AT_MOST = 8
"""So far from its beginning the filter begins in a row of a subscription."""


@dataclass(slots=True)
class _Opened:
    """Who gives the messages of a group.  The rest is what it is to be told at the end of the turn."""

    filter: bytes
    serial: int
    sender: str
    whole: bool = True
    members: list[tuple[bytes, int]] = field(default_factory=list)
    deliveries: list[tuple[bytes, int, int]] = field(default_factory=list)


class Deliveries:
    def __init__(self, engine: Engine, homes: Homes, fences: RouteFences) -> None:
        self._homes = homes
        self._fences = fences
        self._opened: dict[int, _Opened] = {}
        self._group_of: dict[bytes, int] = {}
        """Filter -> the group that is opened under it."""
        self._news: dict[int, None] = {}
        """Groups of which something is to be told at the end of this turn."""
        self._given: list[Given] = []
        self._subs_of: dict[bytes, dict[int, bytes]] = {}
        """Client -> subscription -> filter; and filter -> clients."""
        self._members_of: dict[bytes, dict[bytes, int]] = {}
        self._there: dict[int, dict[tuple[bytes, int], int]] = {}
        """Group -> (client, number) -> outcome."""
        self._of_client: dict[bytes, dict[tuple[int, int], int]] = {}
        """Client -> (group, number) -> bytes of the row `l`."""
        self._bytes: dict[bytes, int] = {}
        self._full: dict[bytes, None] = {}
        homes.session_ended = self.session_ended
        self._load(engine)

    def _load(self, engine: Engine) -> None:
        for family in (MEMBERSHIP, DELIVERY, OUTCOME):
            start, end = family, successor(family)
            while rows := engine.scan(HOME_FAMILY, start, end, 500):
                for key, value in rows:
                    client, suffix = split_client_key(key)
                    if family == MEMBERSHIP:
                        self._joined(client, read_u64(suffix), unpack_row(value)[0])
                    else:
                        outcome = NOTHING_YET if family == DELIVERY else unpack_row(value)[0]
                        self._set(read_u64(suffix), client, read_u64(suffix, 8), outcome)
                        if family == DELIVERY:
                            self._holds(client, read_u64(suffix), read_u64(suffix, 8), len(value))
                start = rows[-1][0] + b"\x00"

    # ------------------------------------------------------------------ from the owner of a group's home

    def take(self, draft: Draft, entry: GroupEntry, sender: str) -> GroupTaken:
        home = home_of_sub(entry.group)
        if not self._fences.is_newest(home, entry.token):
            return GroupTaken(OLD_TOKEN)
        if isinstance(entry, Open):
            self._fences.raise_to(draft, home, entry.token)
            self._open(entry, sender)
        elif isinstance(entry, Give):
            self._give(draft, entry)
        elif isinstance(entry, TakeBack):
            if entry.client not in self._homes.live:
                for group, number in list(self._of_client.get(entry.client, ())):
                    if group == entry.group and self._there[group][entry.client, number] == NOTHING_YET:
                        self._go_back(draft, group, entry.client, number)
        else:
            assert isinstance(entry, Settle)
            for client, number in entry.deliveries:
                self._settle(draft, entry.group, client, number)
        return GroupTaken(TAKEN)

    def _open(self, entry: Open, sender: str) -> None:
        group, filter = entry.group, entry.filter
        former = self._group_of.get(filter)
        if former is not None and former != group:
            del self._opened[former]
        self._group_of[filter] = group
        self._news[group] = None
        news = self._opened[group] = _Opened(filter, entry.serial, sender)
        news.members = [(client, self._presence(client)) for client in self._members_of.get(filter, ())]
        for (client, number), outcome in self._there.get(group, {}).items():
            news.deliveries.append((client, number, IS_SETTLED if self._is_settled(client, outcome) else IS_GIVEN))

    def _is_settled(self, client: bytes, outcome: int) -> bool:
        """Whether the group need not wait for it: what was begun at QoS 2 stays with its client, which may be away for long."""
        return outcome in (FINISHED, ORPHANED) or (outcome == BEGUN and self._presence(client) == AWAY)

    def _give(self, draft: Draft, entry: Give) -> None:
        group, client = entry.group, entry.client
        there = self._there.get(group, {})
        if client not in self._members_of.get(entry.filter, ()) or self._presence(client) != entry.conn:
            for number in entry.numbers:
                self._tell(group, client, number, IS_BACK)
            return
        fresh = [(number, value) for number, value in zip(entry.numbers, entry.values, strict=True) if (client, number) not in there]
        for number, value in fresh:
            row = pack_row((entry.filter, value))
            draft.put(client_key(DELIVERY, client, delivery_suffix(group, number)), row)
            self._set(group, client, number, NOTHING_YET)
            self._holds(client, group, number, len(row))
        for number in entry.numbers:
            self._tell(group, client, number, IS_GIVEN)
        if fresh:
            self._given.append(Given(client, group, entry.filter, [number for number, _ in fresh], [value for _, value in fresh]))

    def _settle(self, draft: Draft, group: int, client: bytes, number: int) -> None:
        outcome = self._there.get(group, {}).get((client, number))
        if outcome == FINISHED:
            draft.delete(client_key(OUTCOME, client, delivery_suffix(group, number)))
            self._forget(group, client, number)
        elif outcome is not None and outcome != ORPHANED:
            self._put(draft, group, client, number, ORPHANED)

    def group_gone(self, draft: Draft, group: int) -> None:
        """The route of this subscription is removed: if it was that of a group, nobody asks for its deliveries any more."""
        for client, number in list(self._there.get(group, ())):
            self._settle(draft, group, client, number)
        opened = self._opened.pop(group, None)
        if opened is not None:
            del self._group_of[opened.filter]

    # ------------------------------------------------------------------ from the owner of the sessions here

    def may_not_leave(self, client: bytes, puts: Sequence[tuple[bytes, bytes, bytes]]) -> bool:
        """Whether this commit begins what its client has no more."""
        if client not in self._subs_of:
            return False
        begun = [suffix for family, suffix, value in puts if family == OUTCOME and unpack_row(value)[0] in (BEGUN, LEAVES)]
        return any((client, read_u64(suffix, 8)) not in self._there.get(read_u64(suffix), ()) for suffix in begun)

    def outcome(self, draft: Draft, client: bytes, suffix: bytes, value: bytes) -> None:
        """A session has begun or finished a delivery, or does not want it."""
        group, number = read_u64(suffix), read_u64(suffix, 8)
        before = self._there.get(group, {}).get((client, number))
        if before is None or before == FINISHED:
            return
        said = unpack_row(value)[0]
        if said == BEGUN and before == NOTHING_YET:
            self._put(draft, group, client, number, BEGUN)
            if self._presence(client) == AWAY:
                self._tell(group, client, number, IS_SETTLED)
        elif said in (FINISHED, LEAVES) or (said == RETURNED and before == ORPHANED):
            self._erase(draft, group, client, number)
            if before == ORPHANED:
                draft.delete(client_key(OUTCOME, client, suffix))
                self._forget(group, client, number)
                return
            self._put(draft, group, client, number, FINISHED)
            self._tell(group, client, number, IS_SETTLED)
        elif said == RETURNED and before == NOTHING_YET:
            self._go_back(draft, group, client, number)

    def subscribed(self, draft: Draft, client: bytes, suffix: bytes, value: bytes) -> None:
        """A row of a subscription is written; most have nothing to do with groups."""
        if value.find(_SHARE, 0, _FILTER_AT_MOST + len(_SHARE)) < 0:
            return
        row = unpack_as(SubscriptionRow, value)
        sub_id = read_u64(suffix)
        if row.state != ACTIVE or not is_shared(row.filter) or sub_id in self._subs_of.get(client, ()):
            return
        draft.put(client_key(MEMBERSHIP, client, suffix), pack_row((row.filter,)))
        self._joined(client, sub_id, row.filter)
        self._tell_member(row.filter, client, self._presence(client))

    def unsubscribed(self, draft: Draft, client: bytes, suffix: bytes) -> None:
        self._left(draft, client, read_u64(suffix))

    def rows_of(self, draft: Draft, client: bytes) -> list[tuple[bytes, bytes, bytes]]:
        """Those that its session has to know, as in Loaded."""
        found: list[tuple[bytes, bytes, bytes]] = []
        for group, number in self._of_client.get(client, ()):
            suffix = delivery_suffix(group, number)
            value = draft.get(client_key(DELIVERY, client, suffix))
            if value is not None:
                found.append((DELIVERY, suffix, value))
        return sorted(found)

    # ------------------------------------------------------------------ sessions

    def session_ended(self, draft: Draft, client: bytes) -> None:
        for group, number in list(self._of_client.get(client, ())):
            outcome = self._there[group][client, number]
            suffix = delivery_suffix(group, number)
            if outcome == NOTHING_YET:
                self._go_back(draft, group, client, number)
            elif outcome != FINISHED:
                self._erase(draft, group, client, number)
                if outcome == BEGUN:
                    self._put(draft, group, client, number, FINISHED)
                    self._tell(group, client, number, IS_SETTLED)
                else:
                    draft.delete(client_key(OUTCOME, client, suffix))
                    self._forget(group, client, number)
        for sub_id in list(self._subs_of.get(client, ())):
            self._left(draft, client, sub_id)

    def _presence(self, client: bytes) -> int:
        state = self._homes.live.get(client)
        if state is None or not state.session_id:
            return AWAY
        return FULL if client in self._full else state.conn

    # ------------------------------------------------------------------ telling

    @property
    def has_news(self) -> bool:
        return bool(self._homes.moved or self._news or self._given)

    def turn(self) -> tuple[list[Given], list[tuple[str, GroupNews]]]:
        """What is to be told when this turn is committed: to the owner of the sessions here, and to those of groups."""
        for client in self._homes.moved:
            if client in self._subs_of:
                self._tell_presence(client)
            if client in self._of_client and self._presence(client) == AWAY:
                for group, number in self._of_client[client]:
                    if self._there[group][client, number] == BEGUN:
                        self._tell(group, client, number, IS_SETTLED)
        self._homes.moved.clear()
        news: list[tuple[str, GroupNews]] = []
        for group in self._news:
            opened = self._opened.get(group)
            if opened is not None:
                news.append((opened.sender, GroupNews(group, opened.serial, opened.whole, opened.members, opened.deliveries)))
                opened.whole, opened.members, opened.deliveries = False, [], []
        self._news.clear()
        given, self._given = self._given, []
        return given, news

    def _tell(self, group: int, client: bytes, number: int, what: int) -> None:
        opened = self._opened.get(group)
        if opened is not None:
            opened.deliveries.append((client, number, what))
            self._news[group] = None

    def _tell_member(self, filter: bytes, client: bytes, presence: int) -> None:
        group = self._group_of.get(filter)
        if group is not None:
            self._opened[group].members.append((client, presence))
            self._news[group] = None

    def _tell_presence(self, client: bytes) -> None:
        presence = self._presence(client)
        for filter in self._subs_of.get(client, {}).values():
            self._tell_member(filter, client, presence)

    # ------------------------------------------------------------------ rows, and what is known of them

    def _put(self, draft: Draft, group: int, client: bytes, number: int, outcome: int) -> None:
        draft.put(client_key(OUTCOME, client, delivery_suffix(group, number)), pack_row((outcome,)))
        self._set(group, client, number, outcome)

    def _go_back(self, draft: Draft, group: int, client: bytes, number: int) -> None:
        self._erase(draft, group, client, number)
        self._forget(group, client, number)
        self._tell(group, client, number, IS_BACK)

    def _holds(self, client: bytes, group: int, number: int, size: int) -> None:
        self._of_client[client][group, number] = size
        held = self._bytes[client] = self._bytes.get(client, 0) + size
        if held >= HELD_BYTES_MAX and client not in self._full:
            self._full[client] = None
            self._tell_presence(client)

    def _erase(self, draft: Draft, group: int, client: bytes, number: int) -> None:
        """The row `l`."""
        draft.delete(client_key(DELIVERY, client, delivery_suffix(group, number)))
        held = self._bytes.pop(client, 0) - self._of_client[client][group, number]
        self._of_client[client][group, number] = 0
        if held:
            self._bytes[client] = held
        if client in self._full and held <= HELD_BYTES_MAX // 2:
            del self._full[client]
            self._tell_presence(client)

    def _set(self, group: int, client: bytes, number: int, outcome: int) -> None:
        self._there.setdefault(group, {})[client, number] = outcome
        self._of_client.setdefault(client, {}).setdefault((group, number), 0)

    def _forget(self, group: int, client: bytes, number: int) -> None:
        of_group, of_client = self._there[group], self._of_client[client]
        del of_group[client, number], of_client[group, number]
        if not of_group:
            del self._there[group]
        if not of_client:
            del self._of_client[client]

    def _joined(self, client: bytes, sub_id: int, filter: bytes) -> None:
        self._subs_of.setdefault(client, {})[sub_id] = filter
        members = self._members_of.setdefault(filter, {})
        members[client] = members.get(client, 0) + 1

    def _left(self, draft: Draft, client: bytes, sub_id: int) -> None:
        subs = self._subs_of.get(client, {})
        filter = subs.pop(sub_id, None)
        if filter is None:
            return
        if not subs:
            del self._subs_of[client]
        draft.delete(client_key(MEMBERSHIP, client, u64(sub_id)))
        members = self._members_of[filter]
        members[client] -= 1
        if not members[client]:
            del members[client]
            self._tell_member(filter, client, GONE)
            if not members:
                del self._members_of[filter]

    def check(self, draft: Draft) -> None:
        count = sum(map(len, self._there.values()))
        assert sum(map(len, self._of_client.values())) == count
        assert self._bytes == {client: size for client, sizes in self._of_client.items() if (size := sum(sizes.values()))}
        assert all(self._bytes.get(client, 0) > HELD_BYTES_MAX // 2 for client in self._full)
        rows: dict[tuple[int, bytes, int], int] = {}
        for family in (DELIVERY, OUTCOME):
            for key, value in draft.scan(family, 2 * count + 1):
                client, suffix = split_client_key(key)
                rows[read_u64(suffix), client, read_u64(suffix, 8)] = NOTHING_YET if family == DELIVERY else unpack_row(value)[0]
        assert rows == {(group, *of): outcome for group, there in self._there.items() for of, outcome in there.items()}
        memberships = {split_client_key(key)[0] for key, _ in draft.scan(MEMBERSHIP, 10_000)}
        assert memberships == set(self._subs_of), (memberships, self._subs_of)
