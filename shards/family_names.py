"""What column families are called: `default` for family 0, `g12` for generation 12, `i12` for its index, and `g12.2` when that is made for
the second time.

Always holds: while a store is open no name is given twice. An opening begins a new manifest, with those that are there and no more, so a
name of before may come again.

Why: RocksDB 9.8, where it reads in one manifest that a family was made, dropped and made again under one name, forgets the first of the two
and goes on pointing at it. Whoever has opened the store for looking is ended by a signal when it first catches up with its owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from shards.engine import HOME_FAMILY, StoreFailed, index_of

HOME_NAME = "default"
_PREFIX, _INDEX_PREFIX = "g", "i"


def name_of(family: int) -> str:
    """The usual name."""
    if family == HOME_FAMILY:
        return HOME_NAME
    return f"{_PREFIX}{family}" if family > 0 else f"{_INDEX_PREFIX}{-family}"


def family_of(path: str, name: str) -> int:
    """path: of the store. Raises StoreFailed for a name that none of ours has."""
    if name == HOME_NAME:
        return HOME_FAMILY
    prefix, (number, *times) = name[:1], name[1:].split(".")
    if prefix in (_PREFIX, _INDEX_PREFIX) and len(times) <= 1 and all(each.isdecimal() for each in (number, *times)) and int(number):
        return int(number) if prefix == _PREFIX else index_of(int(number))
    raise StoreFailed(f"{path} holds a column family {name!r}: it is not a store of this program")


class FamilyNames:
    """Of one opening."""

    def __init__(self, path: str, names: Iterable[str]) -> None:
        """names: of the families that are there. Raises StoreFailed."""
        self._given = set(names)
        self.of = {family_of(path, name): name for name in self._given}
        """The name of each family that is there."""

    def give(self, family: int) -> str:
        """To one that is made."""
        name, times = name_of(family), 1
        while name in self._given:
            times += 1
            name = f"{name_of(family)}.{times}"
        self._given.add(name)
        self.of[family] = name
        return name

    def take(self, family: int) -> str:
        """From one that is dropped."""
        return self.of.pop(family)
