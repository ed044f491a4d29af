"""Who wants messages live: the subscriptions of connections of this gateway, and the interest of other gateways.

A live subscription is one of
- an ephemeral subscription: every message, at most at its granted QoS;
- one of an online durable session granted QoS 0: every message, at QoS 0 (it has no route in any shard);
- one of an online durable session granted QoS 1 or 2: only messages published at QoS 0; the store brings the others.

One trie of filters holds both kinds of takers, and what a topic leads to is kept per topic, so a message costs one dict
lookup.  Sending is the business of gateway.fanout.  Interest is told in numbered steps by gateway.peers, which asks here
what has changed.

Always holds (see check): a filter is in the trie as long as somebody wants it, and what is cached for a topic is what the
trie says.
"""

from __future__ import annotations

from typing import Final

from gateway.connection import Connection
from mqtt.topics import has_wildcard
from mqtt.trie import FilterTrie


class LiveSub:
    """One live subscription of one connection."""

    __slots__ = ("connection", "every", "filter", "identifier", "no_local", "plain", "qos", "retain_as_published", "retain_topics")

    def __init__(self, connection: Connection, filter: bytes, qos: int, every: bool, options: int, identifier: int) -> None:
        self.connection = connection
        self.filter = filter
        self.qos = qos
        self.every = every
        """False: only messages published at QoS 0."""
        self.no_local = bool(options & 1)
        self.retain_as_published = bool(options & 2)
        self.identifier = identifier
        self.retain_topics: set[bytes] | None = None
        """While retained messages are being fetched for it: topics for which a newer retained message went out live."""
        self.plain = not (options or identifier or connection.packet_max)
        """Nothing about it changes the bytes of a QoS 0 message."""


class Targets:
    """Where a topic's messages go: subscriptions and links, for messages published at QoS 0 and for the others."""

    __slots__ = ("peers", "peers_qos0", "subs", "subs_qos0")

    def __init__(
        self, subs: tuple[LiveSub, ...], subs_qos0: tuple[LiveSub, ...], peers: tuple[int, ...], peers_qos0: tuple[int, ...]
    ) -> None:
        self.subs, self.subs_qos0 = subs, subs_qos0
        self.peers, self.peers_qos0 = peers, peers_qos0


MISSING: Final = Targets((), (), (), ())
"""Stands for "not cached"; None is cached for a topic that nobody here wants."""


class _Filter:
    """Everybody who wants one filter."""

    __slots__ = ("every", "filter", "peers", "peers_qos0", "subs")

    def __init__(self, filter: bytes) -> None:
        self.filter = filter
        self.subs: dict[Connection, LiveSub] = {}
        self.every = 0
        """How many of the subscriptions want every message."""
        self.peers: dict[int, None] = {}
        self.peers_qos0: dict[int, None] = {}


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

    def __len__(self) -> int:
        return len(self._filters)

    # ---------------------------------------------------------------- asking
    def targets(self, topic: bytes) -> Targets | None:
        found = self.cache.get(topic, MISSING)
        return self.look_up(topic) if found is MISSING else found

    def wanted(self, topic: bytes) -> bool:
        """Whether a message published at QoS 1 or 2 to this topic goes anywhere live."""
        targets = self.targets(topic)
        return targets is not None and bool(targets.subs or targets.peers)

    def look_up(self, topic: bytes) -> Targets | None:
        """For a topic that is not cached."""
        filters = self._trie.match(topic)
        found: Targets | None = None
        if filters:
            subs = tuple([sub for filter in filters for sub in filter.subs.values() if sub.every])
            subs_qos0 = tuple([sub for filter in filters for sub in filter.subs.values()])
            peers = dict.fromkeys([link for filter in filters for link in filter.peers])
            peers_qos0 = peers | dict.fromkeys([link for filter in filters for link in filter.peers_qos0])
            found = Targets(subs, subs_qos0, tuple(peers), tuple(peers_qos0))
        if len(self.cache) >= self._cached_topics_max:
            self.cache.clear()
        self.cache[topic] = found
        return found

    # ---------------------------------------------------------------- subscriptions of this gateway
    def subscribe(self, sub: LiveSub) -> bool:
        """Put a subscription in, in place of an earlier one of the connection to the same filter; whether there was none."""
        node = self._filter(sub.filter)
        old = node.subs.get(sub.connection)
        if old is not None:
            node.every -= old.every
        node.subs[sub.connection] = sub
        node.every += sub.every
        sub.connection.subs[sub.filter] = sub
        self._touch(sub.filter)
        self._changed[sub.filter] = None
        return old is None

    def unsubscribe(self, connection: Connection, filter: bytes) -> bool:
        """Take a subscription out; whether there was one."""
        sub = connection.subs.pop(filter, None)
        if sub is None:
            return False
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
    def changes(self) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
        """What to tell since the last call: add_all, add_qos0, remove_all, remove_qos0."""
        changes: tuple[list[bytes], list[bytes], list[bytes], list[bytes]] = ([], [], [], [])
        for filter in self._changed:
            node = self._filters.get(filter)
            now = bool(node.every) if node is not None and node.subs else None
            told = self._told.get(filter)
            if now is told:
                continue
            if now is not None:
                changes[0 if now else 1].append(filter)
                self._told[filter] = now
            else:
                del self._told[filter]
            if told is not None:
                changes[2 if told else 3].append(filter)
        self._changed.clear()
        return changes

    def told(self) -> tuple[list[bytes], list[bytes]]:
        """All that other gateways were told: (filters that want all, filters that want only QoS 0)."""
        return [filter for filter, every in self._told.items() if every], [filter for filter, every in self._told.items() if not every]

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

    # ---------------------------------------------------------------- within
    def _filter(self, filter: bytes) -> _Filter:
        node = self._filters.get(filter)
        if node is None:
            node = self._filters[filter] = _Filter(filter)
            self._trie.add(filter, node)
        return node

    def _drop_if_empty(self, node: _Filter) -> None:
        if not (node.subs or node.peers or node.peers_qos0):
            del self._filters[node.filter]
            self._trie.remove(node.filter, node)

    def _touch(self, filter: bytes) -> None:
        if has_wildcard(filter):
            self.cache.clear()
        else:
            self.cache.pop(filter, None)

    def check(self) -> None:
        for filter, node in self._filters.items():
            assert node.subs or node.peers or node.peers_qos0, f"{filter!r} is in the table and nobody wants it"
            assert node.every == sum(sub.every for sub in node.subs.values())
            assert all(connection.subs[filter] is sub for connection, sub in node.subs.items())
        assert len(self._trie) == len(self._filters)
        for topic, cached in list(self.cache.items()):
            self.cache.pop(topic)
            fresh = self.look_up(topic)
            shown = [None if found is None else (found.subs, found.subs_qos0, found.peers, found.peers_qos0) for found in (cached, fresh)]
            assert shown[0] == shown[1], f"{topic!r} is cached wrongly"
