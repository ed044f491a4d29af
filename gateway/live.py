"""Who wants messages live: the subscriptions of connections of this gateway, and the interest of other gateways.

A live subscription is one of
- an ephemeral subscription: every message, at most at its granted QoS;
- one of an online durable session that has no route in any shard, because it was granted QoS 0: every message, at QoS 0;
- one of an online durable session that has a route: only messages that are not stored, at QoS 0; the store brings the others.
  Not stored are those published at QoS 0, unless store_qos0 is on, and those that the persistence filter excludes;
- a member of a shared group, which is an ephemeral subscription to `$share/name/filter`: its share of every message;
- an online member of a durable shared group: its share of the messages that are not stored, at QoS 0.  Durable members are a group of
  their own, in every gateway under the same key (key_of).

One trie of filters holds all kinds of takers, groups under the filter behind their name, and what a topic leads to is kept
per topic, so a message costs one dict lookup.  Sending is the business of gateway.fanout.  Interest is told in numbered steps
by gateway.peers, which asks here what has changed.

Always holds (see check): a filter is in the trie as long as somebody wants it, and what is cached for a topic is what the
trie says.
"""

from __future__ import annotations

from typing import Final

from gateway.connection import Connection
from gateway.groups import Group, is_shared, matched_filter
from gateway.guard import Guard
from mqtt.topics import has_wildcard
from mqtt.trie import FilterTrie
from sessions.bodies import UPGRADE_QOS

_LOWER: Final = ((0, 0, 0), (0, 1, 1), (0, 1, 2))
_UPGRADED: Final = ((0, 0, 0), (1, 1, 1), (2, 2, 2))
"""QoS at which a message leaves, by the granted one and that of the message."""


class LiveSub:
    """One live subscription of one connection."""

    __slots__ = (
        "connection", "every", "filter", "guard", "identifier", "no_local", "plain", "qos", "retain_as_published", "retain_topics",
        "sent_qos",
    )  # fmt: skip

    def __init__(self, connection: Connection, filter: bytes, qos: int, every: bool, options: int, identifier: int) -> None:
        self.connection = connection
        self.filter = filter
        self.qos = qos
        self.sent_qos = _UPGRADED[qos] if options & UPGRADE_QOS else _LOWER[qos]
        """By the QoS at which a message was published."""
        self.every = every
        """False: only messages that are not stored, which for short are called those of QoS 0 in names here."""
        self.no_local = bool(options & 1)
        self.retain_as_published = bool(options & 2)
        self.identifier = identifier
        self.retain_topics: set[bytes] | None = None
        """While retained messages are being fetched for it: topics for which a newer retained message went out live."""
        self.guard: Guard | None = None
        """Asked for each message; None: its connection may read all that the filter matches."""
        self.plain = False
        """Nothing about it changes the bytes of a QoS 0 message, or keeps one from its connection."""
        self.guarded(connection.guard)

    def guarded(self, guard: Guard | None) -> None:
        """A new one has that of its connection, until somebody has looked at its filter (gateway.permitting)."""
        self.guard = guard
        connection = self.connection
        altered = self.identifier or connection.packet_max or connection.aliases_out is not None
        self.plain = not (self.no_local or self.retain_as_published or altered or guard is not None)


class Targets:
    """Where a topic's messages go: subscriptions, links and groups, for messages that are not stored and for the others."""

    __slots__ = ("groups", "groups_qos0", "peers", "peers_qos0", "subs", "subs_qos0")

    def __init__(
        self, subs: tuple[LiveSub, ...], subs_qos0: tuple[LiveSub, ...], peers: tuple[int, ...], peers_qos0: tuple[int, ...],
        groups: tuple[Group, ...], groups_qos0: tuple[Group, ...],
    ) -> None:  # fmt: skip
        self.subs, self.subs_qos0 = subs, subs_qos0
        self.peers, self.peers_qos0 = peers, peers_qos0
        self.groups, self.groups_qos0 = groups, groups_qos0


_DURABLE: Final = b"$share/\0"
"""In the key of a group of durable members; in no share name is a zero [MQTT-1.5.4-2]."""


def key_of(sub: LiveSub) -> bytes:
    """What names the group that this one is a member of: its whole filter, or that of durable members."""
    return sub.filter if sub.every else _DURABLE + sub.filter.partition(b"/")[2]


def is_durable(group: bytes) -> bool:
    return group.startswith(_DURABLE)


MISSING: Final = Targets((), (), (), (), (), ())
"""Stands for "not cached"; None is cached for a topic that nobody here wants."""

Told = tuple[list[bytes], list[bytes], list[bytes], list[bytes], list[tuple[bytes, int]]]
"""What an Interest says, as its fields."""


class _Filter:
    """Everybody who wants one filter."""

    __slots__ = ("every", "filter", "groups", "peers", "peers_qos0", "subs")

    def __init__(self, filter: bytes) -> None:
        self.filter = filter
        self.subs: dict[Connection, LiveSub] = {}
        self.every = 0
        """How many of the subscriptions want every message."""
        self.peers: dict[int, None] = {}
        self.peers_qos0: dict[int, None] = {}
        self.groups: dict[bytes, Group] = {}

    def __bool__(self) -> bool:
        return bool(self.subs or self.peers or self.peers_qos0 or self.groups)


class LiveTable:
    def __init__(self, cached_topics_max: int) -> None:
        self.cache: dict[bytes, Targets | None] = {}
        self._cached_topics_max = cached_topics_max
        self._filters: dict[bytes, _Filter] = {}
        # The answers are kept in `cache`, in the form in which they are used: the trie need not keep them too.
        self._trie: FilterTrie[_Filter] = FilterTrie(cache_cost_max=0)
        self._changed: dict[bytes, None] = {}
        self._told: dict[bytes, bool] = {}
        """What other gateways know of this one's interest: filter -> wants every message."""
        self.subscriptions = 0
        """Of connections of this gateway, those to shared groups among them; and how many those are."""
        self.shared = 0
        self._groups: dict[bytes, Group] = {}
        self._changed_groups: dict[bytes, None] = {}
        self._told_groups: dict[bytes, int] = {}
        """What they know of its groups: whole filter -> members."""

    def __len__(self) -> int:
        return len(self._filters)

    # ---------------------------------------------------------------- asking
    def targets(self, topic: bytes) -> Targets | None:
        found = self.cache.get(topic, MISSING)
        return self.look_up(topic) if found is MISSING else found

    def wanted(self, topic: bytes, stored: bool = True) -> bool:
        """Whether a message to this topic goes anywhere live; stored: durable sessions get it from the store."""
        targets = self.targets(topic)
        if targets is None:
            return False
        if stored:
            return bool(targets.subs or targets.peers or targets.groups)
        return bool(targets.subs_qos0 or targets.peers_qos0 or targets.groups_qos0)

    def look_up(self, topic: bytes) -> Targets | None:
        """For a topic that is not cached."""
        filters = self._trie.match(topic)
        found: Targets | None = None
        if filters:
            subs = tuple([sub for filter in filters for sub in filter.subs.values() if sub.every])
            subs_qos0 = tuple([sub for filter in filters for sub in filter.subs.values()])
            peers = dict.fromkeys([link for filter in filters for link in filter.peers])
            peers_qos0 = peers | dict.fromkeys([link for filter in filters for link in filter.peers_qos0])
            groups_qos0 = tuple([group for filter in filters for group in filter.groups.values()])
            groups = tuple([group for group in groups_qos0 if not is_durable(group.filter)])
            found = Targets(subs, subs_qos0, tuple(peers), tuple(peers_qos0), groups, groups_qos0)
        if len(self.cache) >= self._cached_topics_max:
            self.cache.clear()
        self.cache[topic] = found
        return found

    # ---------------------------------------------------------------- subscriptions of this gateway
    def subscribe(self, sub: LiveSub) -> bool:
        """Put a subscription in, in place of an earlier one of the connection to the same filter; whether there was none."""
        if is_shared(sub.filter):
            return self._join(sub)
        node = self._filter(sub.filter)
        old = node.subs.get(sub.connection)
        if old is not None:
            node.every -= old.every
        node.subs[sub.connection] = sub
        node.every += sub.every
        sub.connection.subs[sub.filter] = sub
        self._touch(sub.filter)
        self._changed[sub.filter] = None
        self.subscriptions += old is None
        return old is None

    def unsubscribe(self, connection: Connection, filter: bytes) -> bool:
        """Take a subscription out; whether there was one."""
        sub = connection.subs.pop(filter, None)
        if sub is None:
            return False
        self.subscriptions -= 1
        if is_shared(filter):
            self._leave_group(connection, key_of(sub))
            return True
        node = self._filters[filter]
        del node.subs[connection]
        node.every -= sub.every
        self._drop_if_empty(node)
        self._touch(filter)
        self._changed[filter] = None
        return True

    def leave(self, connection: Connection) -> None:
        for filter in list(connection.subs):
            self.unsubscribe(connection, filter)

    # ---------------------------------------------------------------- what other gateways are told
    def changes(self) -> Told | None:
        """What to tell since the last call: add_all, add_qos0, remove_all, remove_qos0, groups; None: nothing."""
        if not self._changed and not self._changed_groups:
            return None
        add: tuple[list[bytes], list[bytes]] = ([], [])
        remove: tuple[list[bytes], list[bytes]] = ([], [])
        groups: list[tuple[bytes, int]] = []
        for filter in self._changed:
            node = self._filters.get(filter)
            now = bool(node.every) if node is not None and node.subs else None
            told = self._told.get(filter)
            if now is told:
                continue
            if now is not None:
                add[0 if now else 1].append(filter)
                self._told[filter] = now
            else:
                del self._told[filter]
            if told is not None:
                remove[0 if told else 1].append(filter)
        self._changed.clear()
        for filter in self._changed_groups:
            group = self._groups.get(filter)
            members = len(group.members) if group is not None else 0
            if members != self._told_groups.pop(filter, 0):
                groups.append((filter, members))
            if members:
                self._told_groups[filter] = members
        self._changed_groups.clear()
        found: Told = (*add, *remove, groups)
        return found if any(found) else None

    def told(self) -> Told:
        """All that other gateways were told, in the same form."""
        wants_all = [filter for filter, every in self._told.items() if every]
        wants_qos0 = [filter for filter, every in self._told.items() if not every]
        return wants_all, wants_qos0, [], [], list(self._told_groups.items())

    # ---------------------------------------------------------------- the interest of other gateways
    def peer_wants(self, link: int, filter: bytes, every: bool) -> None:
        node = self._filter(filter)
        (node.peers if every else node.peers_qos0)[link] = None
        self._touch(filter)

    def peer_wants_no_more(self, link: int, filter: bytes, every: bool) -> None:
        node = self._filters.get(filter)
        if node is None:
            return
        (node.peers if every else node.peers_qos0).pop(link, None)
        self._drop_if_empty(node)
        self._touch(filter)

    # ---------------------------------------------------------------- groups
    def group(self, filter: bytes) -> Group | None:
        """A group that has members anywhere, by its whole filter."""
        return self._groups.get(filter)

    def peer_has_members(self, link: int, gateway: str, filter: bytes, members: int) -> None:
        if members:
            self._group(filter).members_at(link, gateway, members)
        elif filter in self._groups:
            self._groups[filter].members_at(link, gateway, 0)
            self._drop_group_if_empty(filter)

    def _join(self, sub: LiveSub) -> bool:
        key = key_of(sub)
        group = self._group(key)
        joins = sub.connection not in group.members
        group.join(sub)
        sub.connection.subs[sub.filter] = sub
        self._changed_groups[key] = None
        self.subscriptions += joins
        self.shared += joins
        return joins

    def _leave_group(self, connection: Connection, filter: bytes) -> None:
        self._groups[filter].leave(connection)
        self.shared -= 1
        self._drop_group_if_empty(filter)
        self._changed_groups[filter] = None

    def _group(self, filter: bytes) -> Group:
        group = self._groups.get(filter)
        if group is None:
            group = self._groups[filter] = Group(filter)
            self._filter(matched_filter(filter)).groups[filter] = group
            self._touch(matched_filter(filter))
        return group

    def _drop_group_if_empty(self, filter: bytes) -> None:
        if not self._groups[filter]:
            del self._groups[filter]
            node = self._filters[matched_filter(filter)]
            del node.groups[filter]
            self._drop_if_empty(node)
            self._touch(node.filter)

    # ---------------------------------------------------------------- within
    def _filter(self, filter: bytes) -> _Filter:
        node = self._filters.get(filter)
        if node is None:
            node = self._filters[filter] = _Filter(filter)
            self._trie.add(filter, node)
        return node

    def _drop_if_empty(self, node: _Filter) -> None:
        if not node:
            del self._filters[node.filter]
            self._trie.remove(node.filter, node)

    def _touch(self, filter: bytes) -> None:
        if has_wildcard(filter):
            self.cache.clear()
        else:
            self.cache.pop(filter, None)

    def check(self) -> None:
        for filter, node in self._filters.items():
            assert node, f"{filter!r} is in the table and nobody wants it"
            assert node.every == sum(sub.every for sub in node.subs.values())
            assert all(connection.subs[filter] is sub for connection, sub in node.subs.items())
            assert all(self._groups[whole] is group and matched_filter(whole) == filter for whole, group in node.groups.items())
        for filter, group in self._groups.items():
            group.check()
            assert self._filters[matched_filter(filter)].groups[filter] is group
            assert all(key_of(sub) == filter and connection.subs[sub.filter] is sub for connection, sub in group.members.items())
        assert len(self._trie) == len(self._filters)
        for topic, cached in list(self.cache.items()):
            self.cache.pop(topic)
            fresh = self.look_up(topic)
            assert _shown(cached) == _shown(fresh), f"{topic!r} is cached wrongly"


def _shown(targets: Targets | None) -> list[object]:
    if targets is None:
        return []
    return [targets.subs, targets.subs_qos0, targets.peers, targets.peers_qos0, targets.groups, targets.groups_qos0]
