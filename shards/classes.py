"""Retention classes: which topics are kept for how long. A map from filters to classes, one row on disk.

Every class has its own row of generations in the store (shards.generations), which also decides when a new map comes into force: at a roll
of all classes. Which generations go when is decided above.

Always holds: a topic is in exactly one class; it is the first whose filter matches the topic, and DEFAULT_CLASS when none does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, is_shared, matches
from shards.rows import META, pack_row, unpack_row

DEFAULT_CLASS = "default"
CLASSES_MAX = 8
CLASSES_ROW = META + b"classes"
_NAME = re.compile(r"[a-z0-9_-]{1,32}")


class ClassMapInvalid(ValueError):
    """This cannot be a map of classes. One sentence."""


@dataclass(frozen=True, slots=True)
class RetentionClass:
    """period_ms: how long a sealed generation of the class is kept."""

    name: str
    filter: bytes
    period_ms: int


@dataclass(frozen=True, slots=True)
class ClassMap:
    """The classes beside DEFAULT_CLASS, in the order in which their filters are asked. Raises ClassMapInvalid."""

    classes: tuple[RetentionClass, ...] = ()

    def __post_init__(self) -> None:
        if len(self.classes) > CLASSES_MAX:
            raise ClassMapInvalid(f"there are {len(self.classes)} retention classes, at most {CLASSES_MAX} are allowed beside the default")
        seen: set[str] = set()
        for each in self.classes:
            _check(each)
            if each.name in seen:
                raise ClassMapInvalid(f"two retention classes have the name {each.name!r}")
            seen.add(each.name)

    @property
    def names(self) -> tuple[str, ...]:
        """All classes there are, the default first."""
        return (DEFAULT_CLASS, *(each.name for each in self.classes))

    def class_of(self, topic: bytes) -> str:
        for each in self.classes:
            if matches(each.filter, topic):
                return each.name
        return DEFAULT_CLASS

    def period_ms(self, name: str) -> int | None:
        """None for the default, whose period is a setting of its own, and for a class that is not here."""
        return next((each.period_ms for each in self.classes if each.name == name), None)

    def sorts_as(self, other: ClassMap) -> bool:
        """Whether every topic is in the class of the same name in both. Periods may differ: they say when a generation goes, not what
        is in it."""
        return [(each.name, each.filter) for each in self.classes] == [(each.name, each.filter) for each in other.classes]

    def may_hold(self, klass: str, topic_filter: bytes) -> bool:
        """Whether a topic that matches this filter can be in a class. Never false where one can be; a class that is not here may hold
        anything."""
        for each in self.classes:
            if each.name == klass:
                return overlap(each.filter, topic_filter)
            if covers(each.filter, topic_filter):
                return klass not in self.names
        return True

    def encode(self, since: int) -> bytes | None:
        """The value of the row; None without classes: then there is no row, as in a store from before there were any.

        since: the position from which on this map decides.
        """
        if not self.classes:
            return None
        return pack_row(([(each.name, each.filter, each.period_ms) for each in self.classes], since))

    @staticmethod
    def decode(value: bytes | None) -> tuple[ClassMap, int]:
        if value is None:
            return NO_CLASSES, 0
        classes, since = unpack_row(value)
        return ClassMap(tuple(RetentionClass(*each) for each in classes)), since


NO_CLASSES = ClassMap()


def overlap(one: bytes, other: bytes) -> bool:
    """Whether some topic matches both filters."""
    left, right = one.split(b"/"), other.split(b"/")
    if any(a[0] in (b"+", b"#") and b[0].startswith(b"$") for a, b in ((left, right), (right, left))):
        return False
    for depth in range(max(len(left), len(right)) + 1):
        a, b = left[depth : depth + 1], right[depth : depth + 1]
        if a == [b"#"] or b == [b"#"]:
            return True
        if not a or not b:
            return a == b
        if a != b and b"+" not in a + b:
            return False
    raise AssertionError("the last round finds both at their end")


def covers(wide: bytes, narrow: bytes) -> bool:
    """Whether every topic that matches the second filter matches the first."""
    if wide == b"+/#":
        # The same, as every topic has a first level; further down it is not.
        wide = b"#"
    left, right = wide.split(b"/"), narrow.split(b"/")
    if left[0] in (b"+", b"#") and right[0].startswith(b"$"):
        return False
    for depth in range(max(len(left), len(right)) + 1):
        a, b = left[depth : depth + 1], right[depth : depth + 1]
        if a == [b"#"]:
            return True
        if not a or not b:
            return a == b
        if a != b and (a != [b"+"] or b == [b"#"]):
            return False
    raise AssertionError("the last round finds both at their end")


def _check(each: RetentionClass) -> None:
    if not _NAME.fullmatch(each.name):
        raise ClassMapInvalid(f"the retention class {each.name!r} has no valid name: 1 to 32 of a-z, 0-9, _ and - are allowed")
    if each.name == DEFAULT_CLASS:
        raise ClassMapInvalid(f"no retention class can have the name {DEFAULT_CLASS!r}: it is that of all topics that no filter matches")
    if each.period_ms < 1:
        raise ClassMapInvalid(f"the retention class {each.name!r} has the period {each.period_ms} ms, at least 1 ms is wanted")
    if is_shared(each.filter):
        raise ClassMapInvalid(f"the retention class {each.name!r} has a filter that begins with $share: name the topics themselves")
    try:
        check_topic_filter(each.filter)
    except ProtocolError as error:
        raise ClassMapInvalid(f"the retention class {each.name!r} has no valid topic filter: {error}") from None
