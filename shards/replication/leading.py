"""The engine of a shard that leads: reads go to the data engine, and what changes goes into the log.

Records go through the committer (shards.replication.committer). What else a shard does to its engine is an entry as well, in order with
them: a family is made here at once, because it is read at once, and MAKE is handed in before the record that names it; DROP is handed in,
and the family goes when that entry is applied.

What is opened on it first (shards.store.Store.open) may write and drop too: that is kept (`wanted`), to be handed in by whoever opens, and
when all of it is applied it opens anew and wants nothing more.

Always holds: entries are handed in in their order: while one is refused, what comes behind it is refused too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from shards.committer import Record
from shards.engine import HOME_FAMILY, Apart, Cursor, Engine, Entries, Op
from shards.replication.entry import Kind, of_family
from shards.replication.events import Submit

Hand = Callable[[Submit], str | None]
"""To the replica. Why it was refused, None: it was taken."""


class Handing:
    """Hands in, in order. A MAKE or a DROP that was refused is owed: it goes before the next record, and that is refused while it is."""

    __slots__ = ("_hand", "_owed")

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self._owed: deque[Submit] = deque()

    @property
    def owes(self) -> int:
        return len(self._owed)

    def family(self, kind: Kind, family: int) -> None:
        self._owed.append(Submit(kind, of_family(1, 1, kind, family).payload))
        self._settle()

    def record(self, submit: Submit) -> str | None:
        """Why it was refused; it may come again, if nothing has come behind it."""
        return self._settle() or self._hand(submit)

    def _settle(self) -> str | None:
        while self._owed:
            if (why := self._hand(self._owed[0])) is not None:
                return why
            self._owed.popleft()
        return None


class LeadingEngine:
    """The port of shards.engine. Made for one time of leading; `serve` ends the opening.

    Reads may come from any thread, as they may of the data engine; changes come from one, after the opening that of the replica."""

    def __init__(self, data: Engine, position: int) -> None:
        """position: the highest one that is applied: what is written at the opening goes into a record of it."""
        self._data = data
        self._position = position
        self._handing: Handing | None = None
        self.wanted: list[Submit] = []
        """What the opening asks for, in order."""

    def serve(self, handing: Handing) -> None:
        assert not self.wanted, f"{len(self.wanted)} entries of the opening are not applied"
        self._handing = handing

    # ---- changes

    def create_family(self, family: int) -> None:
        # One of a leader before this one may be there, made and never named; it is as empty as a new one.
        if family not in self._data.families():
            self._data.create_family(family)
        self._change(Kind.MAKE, family)

    def drop_family(self, family: int) -> None:
        if family < HOME_FAMILY:
            # An index, of when this site was alone: no entry names it, and elsewhere it goes with its messages.
            self._data.drop_family(family)
        else:
            self._change(Kind.DROP, family)

    def write(self, ops: Sequence[Op]) -> None:
        assert self._handing is None, "written past the committer"
        self.wanted.append(Submit(Kind.RECORD, Record(self._position, ops).encode(), self._position))

    def sync(self) -> None:
        """What the opening has written is synced in the log, before it is opened anew."""
        assert self._handing is None, "what a leading shard has written is synced in the log"

    def _change(self, kind: Kind, family: int) -> None:
        if self._handing is not None:
            self._handing.family(kind, family)
        else:
            self.wanted.append(Submit(kind, of_family(1, 1, kind, family).payload))

    # ---- reads

    def families(self) -> list[int]:
        return self._data.families()

    def has_family(self, family: int) -> bool:
        return self._data.has_family(family)

    def get(self, family: int, key: bytes) -> bytes | None:
        return self._data.get(family, key)

    def get_many(self, family: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._data.get_many(family, keys)

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        return self._data.scan(family, start, end, limit, bytes_max)

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        return self._data.keys_and_values(family, start, end, limit, bytes_max, goes_on)

    def columns(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> Iterator[Entries]:
        return self._data.columns(family, start, end, limit, bytes_max)

    def cursor(self, family: int, lower: bytes, upper: bytes) -> Cursor:
        return self._data.cursor(family, lower, upper)

    def latest_sequence(self) -> int:
        return self._data.latest_sequence()

    def checkpoint(self, path: str) -> None:
        self._data.checkpoint(path)

    def size_bytes(self) -> int:
        return self._data.size_bytes()

    def family_bytes(self, family: int) -> int:
        return self._data.family_bytes(family)

    def close(self) -> None:
        """The data engine is its replica's."""
