"""The learned topic structure of one generation: which topics share a stream, and which of their levels vary.

A trie over topic levels. While few distinct values are seen below a state each gets a literal edge; past a threshold every
further value takes the one ``+`` edge there, and becomes a *varying level*. All topics that end in the same state form one
stream; that state's id is their *static key*. Keys, hashes and families belong to the layout, not here.

Always holds:
1. an exact edge wins over ``+``, and nothing is removed: so the static key of a topic never changes while the generation
   lives, which is what keeps the order of a topic;
2. the end of a topic is never generalised: all topics of a stream have the same number of levels;
3. state ids depend on nothing but the edges from the root (and, should two ever collide, on which came first), so replicas
   that apply the same growth agree;
4. a first level beginning with ``$`` has a root of its own, so no filter beginning with a wildcard meets it [MQTT-4.7.2-1].

Growth is reported as rows; whoever writes the topic's first message writes them in the same record, and ``restore``
builds the same trie from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

STATE_BYTES = 8
RESERVED_PREFIX = bytes(7)
"""No learned state id begins with seven zero bytes: the roots do, and layouts may use such keys for rows of their own."""

ROOT = RESERVED_PREFIX + b"\x01"
SPECIAL = RESERVED_PREFIX + b"\x02"

_ROOTS = 2

LITERAL, PLUS, END = b"L", b"P", b"E"

DEFAULT_THRESHOLDS: tuple[int | None, ...] = (100, 10)
"""Literal children of a state before further ones become varying: at depth 0, at depth 1, ...; the last counts below too.
0: always varying. None: never."""

Row = tuple[bytes, bytes]
"""(edge kind + parent state + level, child state)."""


class StructureMismatch(ValueError):
    """A filter and a stream that have nothing to do with each other, or a static key nobody has learned."""


class BadStructure(ValueError):
    """Stored rows that do not form a trie."""


class Leaf(NamedTuple):
    """A stream: its static key, its levels with None where they vary, and whether its topics begin with ``$``."""

    static: bytes
    levels: tuple[bytes | None, ...]
    special: bool


class _State:
    __slots__ = ("end", "id", "literal", "plus")

    def __init__(self, identity: bytes) -> None:
        self.id = identity
        self.literal: dict[bytes, _State] = {}
        self.plus: _State | None = None
        self.end: Leaf | None = None


_Path = tuple[bytes | None, ...]

_Link = tuple[Any, bytes | None] | tuple[()]
"""A path built backwards, (path before, which is one of these, last level): a step costs the same however deep it is. mypyc has no types
that name themselves."""


class TopicStructure:
    """Life cycle: new, restored from rows, or inherited -> learns while its generation is written -> only read when sealed."""

    def __init__(self, thresholds: Sequence[int | None] = DEFAULT_THRESHOLDS, varying_max: int | None = None) -> None:
        """varying_max: a path with so many varying levels gets no more of them, as if its thresholds were None. None: no limit."""
        if not thresholds or any(n is not None and n < 0 for n in thresholds):
            raise ValueError(f"wildcard thresholds {thresholds!r}: one or more of a number >= 0 or None are wanted")
        self._thresholds = tuple(thresholds)
        self._varying_max = varying_max
        self._root = _State(ROOT)
        self._special = _State(SPECIAL)
        self._states: set[bytes] = {ROOT, SPECIAL}
        self._leaves: dict[bytes, Leaf] = {}
        self._growth: list[Row] = []

    # ---- learning

    def learn(self, topic: bytes) -> tuple[Leaf, list[bytes]]:
        """The topic's stream and the values of its varying levels; adds to the structure what is missing."""
        levels = topic.split(b"/")
        state = self._special if topic[:1] == b"$" else self._root
        varying: list[bytes] = []
        for depth, level in enumerate(levels):
            child = state.literal.get(level)
            if child is None:
                child = state.plus
                if child is None:
                    child = self._grow(state, depth, level, len(varying))
                    if child is state.plus:
                        varying.append(level)
                else:
                    varying.append(level)
            state = child
        return state.end or self._end(state, levels), varying

    def lookup(self, topic: bytes) -> tuple[Leaf, list[bytes]] | None:
        """As ``learn``, without learning: None for a topic whose stream is not known."""
        state = self._special if topic[:1] == b"$" else self._root
        varying: list[bytes] = []
        for level in topic.split(b"/"):
            child = state.literal.get(level)
            if child is None:
                child = state.plus
                if child is None:
                    return None
                varying.append(level)
            state = child
        return None if state.end is None else (state.end, varying)

    def take_growth(self) -> list[Row]:
        """The rows learned since the last call, parents first."""
        growth, self._growth = self._growth, []
        return growth

    # ---- reading

    def __len__(self) -> int:
        """The number of streams."""
        return len(self._leaves)

    @property
    def edges(self) -> int:
        """How many rows it has grown by; so it grows with each of them."""
        return len(self._states) - _ROOTS

    def match(self, topic_filter: bytes) -> list[tuple[Leaf, _Path]]:
        """The streams that can hold topics matching the filter, by static key, each with what the filter wants of its
        varying levels: a value, or None for any."""
        levels = topic_filter.split(b"/")
        found: list[tuple[Leaf, _Path]] = []
        start = self._special if topic_filter[:1] == b"$" else self._root
        # An explicit stack: a topic may have thousands of levels, more than Python recurses.
        stack: list[tuple[_State, int, _Link]] = [(start, 0, ())]
        while stack:
            state, depth, wanted = stack.pop()
            if depth == len(levels):
                if state.end is not None:
                    found.append((state.end, _path(wanted)))
                continue
            level = levels[depth]
            if level == b"#":
                if state.end is not None:
                    found.append((state.end, _path(wanted)))
                stack.extend((child, depth, wanted) for child in state.literal.values())
                if state.plus is not None:
                    stack.append((state.plus, depth, (wanted, None)))
            elif level == b"+":
                stack.extend((child, depth + 1, wanted) for child in state.literal.values())
                if state.plus is not None:
                    stack.append((state.plus, depth + 1, (wanted, None)))
            else:
                child = state.literal.get(level)
                if child is not None:
                    stack.append((child, depth + 1, wanted))
                if state.plus is not None:
                    stack.append((state.plus, depth + 1, (wanted, level)))
        found.sort()
        return found

    def leaf(self, static: bytes) -> Leaf:
        """The stream of a static key: the reverse look-up."""
        leaf = self._leaves.get(static)
        if leaf is None:
            raise StructureMismatch(f"static key {static.hex()} is not known among {len(self._leaves)} streams")
        return leaf

    def leaves(self) -> list[Leaf]:
        return sorted(self._leaves.values())

    def compress(self, static: bytes, topic_filter: bytes) -> _Path:
        """What the filter wants of the varying levels of this stream, as ``match`` gives it."""
        _, structure, special = self.leaf(static)
        if special != (topic_filter[:1] == b"$"):
            raise self._mismatch(static, topic_filter)
        levels = topic_filter.split(b"/")
        wanted: list[bytes | None] = []
        for depth, own in enumerate(structure):
            level = levels[depth] if depth < len(levels) else None
            if level == b"#":
                wanted.extend(None for rest in structure[depth:] if rest is None)
                return tuple(wanted)
            if level is None or (own is not None and level not in (own, b"+")):
                raise self._mismatch(static, topic_filter)
            if own is None:
                wanted.append(None if level == b"+" else level)
        if levels[len(structure) :] not in ([], [b"#"]):
            raise self._mismatch(static, topic_filter)
        return tuple(wanted)

    def decompress(self, static: bytes, varying: Sequence[bytes]) -> bytes:
        """The topic of a stream with these varying levels."""
        structure = self.leaf(static).levels
        if sum(level is None for level in structure) != len(varying):
            raise StructureMismatch(f"stream {structure!r} has another number of varying levels than {varying!r}")
        rest = iter(varying)
        return b"/".join(next(rest) if level is None else level for level in structure)

    # ---- keeping

    @classmethod
    def restore(
        cls, rows: Iterable[Row], thresholds: Sequence[int | None] = DEFAULT_THRESHOLDS, varying_max: int | None = None
    ) -> TopicStructure:
        """The trie whose growth these rows were, in any order."""
        structure = cls(thresholds, varying_max)
        children: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {}
        count = 0
        for key, identity in rows:
            kind, parent, level = key[:1], key[1 : 1 + STATE_BYTES], key[1 + STATE_BYTES :]
            if kind not in (LITERAL, PLUS, END) or len(parent) != STATE_BYTES or len(identity) != STATE_BYTES:
                raise BadStructure(f"row {key.hex()} -> {identity.hex()} is no edge of a topic structure")
            children.setdefault(parent, []).append((kind, level, identity))
            count += 1
        stack: list[tuple[_State, _Link, bool]] = [(structure._root, (), False), (structure._special, (), True)]
        while stack:
            state, path, special = stack.pop()
            for kind, level, identity in children.get(state.id, ()):
                count -= 1
                structure._states.add(identity)
                if kind == END:
                    state.end = structure._leaves[identity] = Leaf(identity, _path(path), special)
                    continue
                child = _State(identity)
                if kind == PLUS:
                    state.plus = child
                    stack.append((child, (path, None), special))
                else:
                    state.literal[level] = child
                    stack.append((child, (path, level), special))
        if count:
            raise BadStructure(f"{count} rows of the topic structure hang on no state that a root reaches")
        return structure

    def inherit(self, thresholds: Sequence[int | None] = DEFAULT_THRESHOLDS) -> TopicStructure:
        """The structure the next generation begins with: every path with a varying level in it, so that it need not be
        learned again. Topics of literal levels only are left behind, which is how one-off topics are forgotten."""
        heir = TopicStructure(thresholds, self._varying_max)
        # (state, nearest known ancestor in the heir, levels since then, a + edge among those from the root, path, special):
        # the heir gets states only where a + edge is met.
        stack: list[tuple[_State, _State, _Link, bool, _Link, bool]] = [
            (self._root, heir._root, (), False, (), False),
            (self._special, heir._special, (), False, (), True),
        ]
        while stack:
            state, own, missing, varies, path, special = stack.pop()
            if state.plus is not None or varies:
                for step in _path(missing):
                    own = heir._child(own, step)
                missing = ()
            if varies and state.end is not None:
                heir._end_with(own, _path(path), special)
            if state.plus is not None:
                stack.append((state.plus, heir._child(own, None), (), True, (path, None), special))
            for level, child in state.literal.items():
                stack.append((child, own, (missing, level), varies, (path, level), special))
        return heir

    # ---- within

    def _grow(self, state: _State, depth: int, level: bytes, varying: int) -> _State:
        """varying: how many levels vary on the way to the state."""
        thresholds = self._thresholds
        threshold = thresholds[depth] if depth < len(thresholds) else thresholds[-1]
        if varying == self._varying_max:
            threshold = None
        if threshold == 0:
            return self._child(state, None)
        child = self._child(state, level)
        if threshold is not None and len(state.literal) >= threshold:
            # The next value not seen so far becomes varying.
            self._child(state, None)
        return child

    def _child(self, state: _State, level: bytes | None) -> _State:
        """The child by this edge, None being ``+``; made if it is missing."""
        child = state.plus if level is None else state.literal.get(level)
        if child is not None:
            return child
        child = _State(self._state_id(state.id, PLUS if level is None else LITERAL, level or b""))
        if level is None:
            state.plus = child
        else:
            state.literal[level] = child
        return child

    def _end(self, state: _State, levels: list[bytes]) -> Leaf:
        """The first topic that ends here. Walks again, as the way here did not note which levels took the + edge."""
        special = levels[0][:1] == b"$"
        path: list[bytes | None] = []
        at = self._special if special else self._root
        for level in levels:
            child = at.literal.get(level)
            path.append(level if child is not None else None)
            at = child or at.plus or at
        assert at is state, f"{levels!r} does not lead to the state it just reached"
        return self._end_with(state, tuple(path), special)

    def _end_with(self, state: _State, path: _Path, special: bool) -> Leaf:
        static = self._state_id(state.id, END, b"")
        leaf = state.end = self._leaves[static] = Leaf(static, path, special)
        return leaf

    def _state_id(self, parent: bytes, kind: bytes, level: bytes) -> bytes:
        """A new state id, noted as growth. Deterministic, and never one that is in use."""
        content = kind + parent + level
        identity = blake2b(content, digest_size=STATE_BYTES).digest()
        again = 0
        while identity in self._states or identity.startswith(RESERVED_PREFIX):
            again += 1
            identity = blake2b(content, digest_size=STATE_BYTES, salt=again.to_bytes(16, "little")).digest()
        self._states.add(identity)
        self._growth.append((content, identity))
        return identity

    def _mismatch(self, static: bytes, topic_filter: bytes) -> StructureMismatch:
        return StructureMismatch(f"filter {topic_filter!r} matches nothing in stream {static.hex()} {self._leaves[static].levels!r}")


def _path(link: _Link) -> _Path:
    levels: list[bytes | None] = []
    while link:
        link, level = link
        levels.append(level)
    levels.reverse()
    return tuple(levels)
