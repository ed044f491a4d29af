"""Which values belong to the filters that match a topic: the broker's routing table in memory.

Filters without wildcards stand in a dict and cost one lookup; the others in a trie by level,
walked without recursion.  Results are cached per topic.  Checks no syntax: filters and topics
come validated (``mqtt.topics``), shared ones without their ``$share`` part.

What always holds:
1. ``match`` gives each (filter, value) pair that matches once: a value that stands under two
   matching filters comes twice;
2. the order depends on nothing but the calls made before: values of the literal filter first, then
   those of wildcard filters in the order of the walk, within one filter in the order of adding;
3. ``generation`` grows with every change and only then; a result is valid for one generation;
4. no empty node stays behind a removal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# Long topic names are matched anew each time, so that a bound in count is one in bytes too.
_CACHED_TOPIC_BYTES_MAX: Final = 256


class _Node(Generic[T]):
    """One level of the wildcard trie.

    ``values`` belong to filters that end here, ``below`` to those that end here with ``/#``.
    Dicts with None serve as sets that keep the order of adding.
    """

    __slots__ = ("below", "children", "plus", "values")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[T]] = {}
        self.plus: _Node[T] | None = None
        self.values: dict[T, None] = {}
        self.below: dict[T, None] = {}

    def is_empty(self) -> bool:
        return not (self.children or self.plus or self.values or self.below)


class FilterTrie(Generic[T]):
    """A multimap from topic filters to values, asked by topic name.

    ``cache_cost_max`` bounds the cache: a cached topic costs one, and one more for each value found.
    """

    __slots__ = ("_cache", "_cache_cost", "_cache_cost_max", "_count", "_literals", "_root", "generation")

    def __init__(self, cache_cost_max: int = 200_000) -> None:
        self.generation = 0
        self._literals: dict[bytes, dict[T, None]] = {}
        self._root: _Node[T] = _Node()
        self._count = 0
        self._cache: dict[bytes, tuple[T, ...]] = {}
        self._cache_cost = 0
        self._cache_cost_max = cache_cost_max

    def __len__(self) -> int:
        """How many (filter, value) pairs there are."""
        return self._count

    def add(self, topic_filter: bytes, value: T) -> bool:
        """Add the pair; False when it was there already, and then nothing has changed."""
        literal = b"+" not in topic_filter and b"#" not in topic_filter
        values = self._literals.setdefault(topic_filter, {}) if literal else self._grow(topic_filter)
        if value in values:
            return False
        values[value] = None
        self._changed(topic_filter, literal, 1)
        return True

    def remove(self, topic_filter: bytes, value: T) -> bool:
        """Remove the pair; False when it was not there, and then nothing has changed."""
        literal = b"+" not in topic_filter and b"#" not in topic_filter
        values = self._find(topic_filter)
        if values is None or value not in values:
            return False
        del values[value]
        if not values:
            if literal:
                del self._literals[topic_filter]
            else:
                self._prune(topic_filter)
        self._changed(topic_filter, literal, -1)
        return True

    def match(self, topic: bytes) -> tuple[T, ...]:
        """The values of all filters that match ``topic``."""
        found = self._cache.get(topic)
        if found is not None:
            return found
        found = tuple(self._match(topic))
        if len(topic) <= _CACHED_TOPIC_BYTES_MAX:
            self._cache_cost += 1 + len(found)
            if self._cache_cost > self._cache_cost_max:
                self._cache.clear()
                self._cache_cost = 1 + len(found)
            self._cache[topic] = found
        return found

    def matches_any(self, topic: bytes) -> bool:
        """Whether any filter matches ``topic``."""
        return topic in self._literals or bool(self.match(topic))

    def pairs(self) -> Iterator[tuple[bytes, T]]:
        """Every (filter, value) pair; do not change the trie meanwhile."""
        for literal, values in self._literals.items():
            for value in values:
                yield literal, value
        todo: list[tuple[bytes, _Node[T]]] = [(b"", self._root)]
        while todo:
            prefix, node = todo.pop()
            for value in node.values:
                yield prefix[:-1], value
            for value in node.below:
                yield prefix + b"#", value
            if node.plus is not None:
                todo.append((prefix + b"+/", node.plus))
            todo.extend([(prefix + level + b"/", child) for level, child in node.children.items()])

    def _match(self, topic: bytes) -> list[T]:
        found: list[T] = list(self._literals.get(topic, ()))
        levels = topic.split(b"/")
        nodes = [self._root]
        if topic[:1] == b"$":
            # A wildcard in the first level does not match these topics [MQTT-4.7.2-1].
            first = self._root.children.get(levels[0])
            if first is None:
                return found
            nodes = [first]
            del levels[0]
        for level in levels:
            following: list[_Node[T]] = []
            for node in nodes:
                if node.below:
                    found += node.below
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
                if node.plus is not None:
                    following.append(node.plus)
            if not following:
                return found
            nodes = following
        for node in nodes:
            # ``a/#`` matches ``a`` as well.
            if node.below:
                found += node.below
            if node.values:
                found += node.values
        return found

    def _changed(self, topic_filter: bytes, literal: bool, count: int) -> None:
        self._count += count
        self.generation += 1
        if not literal:
            self._cache.clear()
            self._cache_cost = 0
        else:
            # A literal filter matches one topic only; the other results stay right.
            stale = self._cache.pop(topic_filter, None)
            if stale is not None:
                self._cache_cost -= 1 + len(stale)

    def _grow(self, topic_filter: bytes) -> dict[T, None]:
        """The value set of a wildcard filter, with the nodes that lead to it."""
        node = self._root
        for level in topic_filter.split(b"/"):
            if level == b"#":
                return node.below
            if level == b"+":
                if node.plus is None:
                    node.plus = _Node()
                node = node.plus
            else:
                child = node.children.get(level)
                if child is None:
                    child = node.children[level] = _Node()
                node = child
        return node.values

    def _find(self, topic_filter: bytes) -> dict[T, None] | None:
        if b"+" not in topic_filter and b"#" not in topic_filter:
            return self._literals.get(topic_filter)
        path = self._path(topic_filter)
        if path is None:
            return None
        return path[-1].below if topic_filter.endswith(b"#") else path[-1].values

    def _path(self, topic_filter: bytes) -> list[_Node[T]] | None:
        """The nodes of a wildcard filter from the root on, or None when it does not stand here."""
        path = [self._root]
        for level in topic_filter.split(b"/"):
            if level == b"#":
                break
            node = path[-1].plus if level == b"+" else path[-1].children.get(level)
            if node is None:
                return None
            path.append(node)
        return path

    def _prune(self, topic_filter: bytes) -> None:
        path = self._path(topic_filter)
        assert path is not None, f"{topic_filter!r} was found a moment ago"
        levels = topic_filter.split(b"/")
        for depth in range(len(path) - 1, 0, -1):
            if not path[depth].is_empty():
                return
            parent, level = path[depth - 1], levels[depth - 1]
            if level == b"+":
                parent.plus = None
            else:
                del parent.children[level]
