"""Which topics must be stored: the durable routes of one shard, and what is stored though no session wants it.

On disk a route is one row per subscription id, never a counter: a repeated addition changes nothing, a removal names the id
it removes.  In RAM literal filters are kept as 64-bit hashes with the number of ids behind them (two filters with one hash
store a message too many, never one too few), wildcard filters in a tree with the number of ids behind each.

Holds: a topic is wanted exactly when a route row present in the log before it, or a filter that is captured, matches it (or shares its
hash).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from mqtt.filter_counts import FilterCounts
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.rows import ROUTE, pack_row, successor, u64, unpack_row


def _hash(topic: bytes) -> int:
    return int.from_bytes(blake2b(topic, digest_size=8).digest(), "big")


def _is_wildcard(topic_filter: bytes) -> bool:
    return b"+" in topic_filter or topic_filter.endswith(b"#")


CAPTURE_OF_SETTINGS = ""
"""The owner of the filters of `durable_storage.messages.capture`."""


class Routes:
    def __init__(self, engine: Engine, capture: Iterable[bytes] = ()) -> None:
        self.generation = 1
        """Changes with every answer of `wanted` that changes, so not with one session more, or less, on a filter."""
        self._literal: dict[int, int] = {}
        self._wild = FilterCounts()
        self._count = 0
        self._captured: dict[str, list[bytes]] = {}
        start, end = ROUTE, successor(ROUTE)
        while rows := engine.scan(HOME_FAMILY, start, end, 4096):
            for _, value in rows:
                self._remember(unpack_row(value)[0])
            start = rows[-1][0] + b"\x00"
        self.capture(CAPTURE_OF_SETTINGS, capture)

    def __len__(self) -> int:
        """Routes of sessions."""
        return self._count

    def capture(self, owner: str, filters: Iterable[bytes]) -> None:
        """From now on topics that match one of these are wanted too, instead of what this owner has named before. Not on disk: who
        wants it says so again after a start."""
        before, wanted = self._captured.get(owner, []), list(filters)
        if before == wanted:
            return
        for topic_filter in before:
            self._withdraw(topic_filter)
        for topic_filter in wanted:
            self._want(topic_filter)
        self._captured[owner] = wanted
        if not wanted:
            del self._captured[owner]

    def add(self, draft: Draft, sub_id: int, topic_filter: bytes, client: bytes = b"") -> None:
        key = ROUTE + u64(sub_id)
        if draft.get(key) is not None:
            return
        draft.put(key, pack_row((topic_filter, client)))
        self._remember(topic_filter)

    def remove(self, draft: Draft, sub_id: int) -> None:
        key = ROUTE + u64(sub_id)
        row = draft.get(key)
        if row is None:
            return
        draft.delete(key)
        topic_filter: bytes = unpack_row(row)[0]
        self._count -= 1
        self._withdraw(topic_filter)

    def page(self, draft: Draft, home: int, after: int, count_max: int) -> list[tuple[int, bytes]]:
        """(sub id, client) of routes whose subscriptions are at home in that shard, after a sub id."""
        first = max(after + 1, home << 56)
        found: list[tuple[int, bytes]] = []
        for key, value in draft.scan_range(ROUTE + u64(first), successor(ROUTE + bytes((home,))), count_max):
            _, client = unpack_row(value)
            found.append((int.from_bytes(key[1:], "big"), client))
        return found

    def wanted(self, topic: bytes) -> bool:
        """Not cached: the shard keeps the answer with the topic and its generation."""
        return self._wild.matches_any(topic) or (bool(self._literal) and _hash(topic) in self._literal)

    def _remember(self, topic_filter: bytes) -> None:
        self._count += 1
        self._want(topic_filter)

    def _want(self, topic_filter: bytes) -> None:
        if _is_wildcard(topic_filter):
            new = self._wild.add(topic_filter)
        else:
            hashed = _hash(topic_filter)
            before = self._literal.get(hashed, 0)
            self._literal[hashed] = before + 1
            new = not before
        self.generation += new

    def _withdraw(self, topic_filter: bytes) -> None:
        if _is_wildcard(topic_filter):
            last = self._wild.remove(topic_filter)
        else:
            hashed = _hash(topic_filter)
            left = self._literal[hashed] - 1
            last = not left
            if left:
                self._literal[hashed] = left
            else:
                del self._literal[hashed]
        self.generation += last
