"""Whether a topic matches any of very many filters with wildcards, in little memory.

Unlike `mqtt.trie` it does not know who wants a topic, only how often each filter was added: 100,000 subscriptions to one filter are a
number here, and a filter that nobody shares is an entry in a dict.  Checks no syntax.

What always holds:
1. a node is a number when one filter ends there and none goes on: that of `prefix/#` when it is above 0, that of `prefix` when it is below;
2. any other node is a dict by level, in which `#` stands for the number of `prefix/#` and None for that of `prefix`;
3. no number is 0, and no dict but the root is empty;
4. what begins with one of `_prefixes`, and not with `$`, matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, cast

_Node: TypeAlias = int | dict[bytes | None, Any]
_Inner: TypeAlias = dict[bytes | None, Any]
_BELOW, _PLUS = b"#", b"+"
_PREFIXES_MAX = 8
"""Few are enough, since what matches most is few filters, and each is compared with every topic."""


class FilterCounts:
    """A bag of topic filters, asked by topic name."""

    __slots__ = ("_count", "_prefixes", "_root")

    def __init__(self) -> None:
        self._root: _Inner = {}
        self._count = 0
        self._prefixes: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        """Filters, each as often as it was added."""
        return self._count

    def add(self, topic_filter: bytes) -> bool:
        """Whether it was not there yet."""
        *levels, last = topic_filter.split(b"/")
        kind: bytes | None = _BELOW
        if last != _BELOW:
            levels.append(last)
            kind = None
        node, above = self._root, None
        for level in levels:
            if above is not None:
                node = _opened(node, above)
            above = level
        self._count += 1
        if above is None:
            before = node.get(_BELOW, 0)
            node[_BELOW] = before + 1
            return not before
        one = 1 if kind else -1
        there = node.get(above)
        if there is None:
            node[above] = one
            return True
        if isinstance(there, int) and (there > 0) == (one > 0):
            node[above] = there + one
            return False
        inner = _opened(node, above)
        before = inner.get(kind, 0)
        inner[kind] = before + 1
        return not before

    def remove(self, topic_filter: bytes) -> bool:
        """Once. Whether that was the last of it. Raises KeyError when it is not there."""
        *levels, last = topic_filter.split(b"/")
        kind: bytes | None = _BELOW
        if last != _BELOW:
            levels.append(last)
            kind = None
        path: list[tuple[_Inner, bytes | None]] = []
        node: _Node = self._root
        for level in levels:
            if isinstance(node, int) or level not in node:
                raise KeyError(topic_filter)
            path.append((node, level))
            node = node[level]
        if isinstance(node, int):
            if (node > 0) != bool(kind):
                raise KeyError(topic_filter)
            holder, key = path.pop()
        else:
            holder, key = node, kind
            if key not in node:
                raise KeyError(topic_filter)
        holder[key] -= 1 if holder[key] > 0 else -1
        self._count -= 1
        if holder[key]:
            return False
        self._prefixes = ()
        del holder[key]
        while not holder and path:
            holder, key = path.pop()
            del holder[key]
        return True

    def matches_any(self, topic: bytes) -> bool:
        """Whether one of the filters matches this topic."""
        plain = topic[:1] != b"$"
        if plain and topic.startswith(self._prefixes):
            return True
        levels = topic.split(b"/")
        nodes: list[_Node] = [self._root]
        if not plain:
            # A wildcard in the first level does not match these topics [MQTT-4.7.2-1].
            if levels[0] not in self._root:
                return False
            nodes = [self._root[levels.pop(0)]]
        for depth, level in enumerate(levels):
            following: list[_Node] = []
            # As long as `plain`, the first is where one comes to without `+`.
            first = nodes[0]
            for node in nodes:
                if node > 0 if isinstance(node, int) else _BELOW in node:
                    if plain and node is first:
                        self._remember(levels[:depth])
                    return True
                if isinstance(node, int):
                    continue
                if level in node:
                    following.append(node[level])
                if _PLUS in node:
                    following.append(node[_PLUS])
            plain = plain and not isinstance(first, int) and level in first
            if not following:
                return False
            nodes = following
        # `a/#` matches `a` as well.
        return any(isinstance(node, int) or _BELOW in node or None in node for node in nodes)

    def _remember(self, levels: list[bytes]) -> None:
        """That these and `#` are a filter, so that the next topic below is one comparison."""
        if len(self._prefixes) < _PREFIXES_MAX:
            self._prefixes += (b"".join([level + b"/" for level in levels]),)

    def counts(self) -> Iterator[tuple[bytes, int]]:
        """Every filter, and how often it was added; do not change it meanwhile."""
        todo: list[tuple[tuple[bytes, ...], _Node]] = [((), self._root)]
        while todo:
            levels, node = todo.pop()
            if isinstance(node, int):
                yield b"/".join((*levels, _BELOW) if node > 0 else levels), abs(node)
                continue
            for level, below in node.items():
                if level == _BELOW or level is None:
                    yield b"/".join((*levels, _BELOW) if level else levels), below
                else:
                    todo.append(((*levels, level), below))


def _opened(parent: _Inner, level: bytes) -> _Inner:
    """The node below, as a dict to which more can be added."""
    there = parent.get(level)
    if not isinstance(there, dict):
        there = parent[level] = {} if there is None else {_BELOW: there} if there > 0 else {None: -there}
    return cast(_Inner, there)
