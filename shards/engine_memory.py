"""The in-memory twin of the RocksDB engine, with a disk that can forget.

Used by tests and the simulator. It has no thread, clock or randomness, so one seed gives one history. A write goes to the
"page cache": visible at once, survives a kill, lost by a power cut. ``sync`` moves it to the "disk".

Cost: a write is a dict store and an undo entry per op. Each family keeps a sorted key list that is brought up to date by the
first scan after a change: a few changes by bisection (a memmove each), many by one sort of a mostly sorted list. That
suits the sizes of a simulation (10^5 keys), not more.

A power cut undoes the unsynced writes, newest first, down to as many as the caller wants to survive. Families are created
and dropped durably, as RocksDB does it, so undo entries of a dropped family are skipped.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from shards.engine import HOME_FAMILY, Apart, Entries, FamilyMissing, Op, StoreFailed, StoreFull, index_of

_AT_ONCE = 3
"""Of `columns`. Few, so that tests meet the borders."""
_Undo = list[tuple[int, bytes, bytes | None]]


class _Family:
    """One family: the values, and the sorted keys with what changed since they were last sorted."""

    __slots__ = ("_added", "_keys", "_removed", "values")

    def __init__(self, values: dict[bytes, bytes] | None = None) -> None:
        self.values: dict[bytes, bytes] = {} if values is None else values
        self._keys: list[bytes] = sorted(self.values)
        self._added: dict[bytes, None] = {}
        self._removed: dict[bytes, None] = {}

    def put(self, key: bytes, value: bytes) -> bytes | None:
        old = self.values.get(key)
        if old is None:
            # May be in _removed too: settling removes first, then adds.
            self._added[key] = None
        self.values[key] = value
        return old

    def delete(self, key: bytes) -> bytes | None:
        old = self.values.pop(key, None)
        if old is not None:
            if key in self._added:
                del self._added[key]
            else:
                self._removed[key] = None
        return old

    def keys(self) -> list[bytes]:
        if self._added or self._removed:
            self._settle()
        return self._keys

    def _settle(self) -> None:
        keys = self._keys
        few = (len(keys) >> 6) + 1
        if len(self._removed) <= few:
            for key in self._removed:
                del keys[bisect_left(keys, key)]
        else:
            keys = [key for key in keys if key not in self._removed]
        if len(self._added) <= few:
            for key in self._added:
                insort(keys, key)
        else:
            keys.extend(self._added)
            keys.sort()
        self._keys = keys
        self._added = {}
        self._removed = {}


class MemoryCursor:
    __slots__ = ("_at", "_end", "_family", "_keys", "_lower")

    def __init__(self, family: _Family, lower: bytes, upper: bytes) -> None:
        self._family = family
        self._keys = family.keys()
        self._lower = lower
        self._end = bisect_left(self._keys, upper)
        self._at = self._end

    def seek(self, key: bytes) -> None:
        self._at = bisect_left(self._keys, max(key, self._lower))

    def next(self) -> None:
        assert self._at < self._end, "next on a cursor that is not valid"
        self._at += 1

    def valid(self) -> bool:
        return self._at < self._end

    def key(self) -> bytes:
        assert self._at < self._end, "key of a cursor that is not valid"
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._family.values[self.key()]


class MemoryEngine:
    """Life cycle: made empty or from a crash of its forerunner -> used -> closed or crashed; after that every call raises."""

    def __init__(self) -> None:
        self._families: dict[int, _Family] = {HOME_FAMILY: _Family()}
        self._undo: list[_Undo] = []
        self._synced_count = 0
        self._written_count = 0
        self._sequence = 0
        self._sync_fault: str | None = None
        self._write_fault: StoreFailed | None = None
        self._dead: str | None = None
        self.checkpoints: dict[str, dict[int, dict[bytes, bytes]]] = {}

    # ---- the port

    def families(self) -> list[int]:
        return sorted(family for family in self._families if family >= HOME_FAMILY)

    def has_family(self, family: int) -> bool:
        return family in self._families

    def create_family(self, family: int) -> None:
        self._alive()
        if family in self._families:
            raise ValueError(f"family {family} exists already")
        if family < HOME_FAMILY:
            self._family(index_of(family))
        self._families[family] = _Family()

    def drop_family(self, family: int) -> None:
        self._alive()
        if family == HOME_FAMILY:
            raise ValueError("family 0 cannot be dropped")
        self._family(family)
        if family > HOME_FAMILY:
            self._families.pop(index_of(family), None)
        del self._families[family]

    def write(self, ops: Sequence[Op]) -> None:
        self._alive()
        if self._write_fault is not None:
            fault, self._write_fault = self._write_fault, None
            raise fault
        families = self._families
        for op in ops:
            if op[0] not in families:
                raise FamilyMissing(f"family {op[0]} does not exist, only {self.families()}")
        undo: _Undo = []
        for number, key, value in ops:
            family = families[number]
            old = family.delete(key) if value is None else family.put(key, value)
            undo.append((number, key, old))
        self._undo.append(undo)
        self._written_count += 1
        self._sequence += len(undo)

    def sync(self) -> None:
        self.sync_end(self.sync_begin())

    def get(self, family: int, key: bytes) -> bytes | None:
        self._alive()
        return self._family(family).values.get(key)

    def get_many(self, family: int, keys: Sequence[bytes]) -> list[bytes | None]:
        self._alive()
        values = self._family(family).values
        return [values.get(key) for key in keys]

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        self._alive()
        here = self._family(family)
        keys, values = here.keys(), here.values
        first = bisect_left(keys, start)
        last = min(bisect_left(keys, end, first), first + max(limit, 0)) if start < end else first
        found = [(key, values[key]) for key in keys[first:last]]
        if bytes_max is not None:
            total = 0
            for index, (_, value) in enumerate(found):
                total += len(value)
                if total >= bytes_max:
                    return found[: index + 1]
        return found

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        found = self.scan(family, start, end, limit, bytes_max)
        return [key for key, _ in found], [value for _, value in found], sum(len(value) for _, value in found)

    def columns(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> Iterator[Entries]:
        found = self.scan(family, start, end, limit, bytes_max)
        for at in range(0, len(found), _AT_ONCE):
            some = found[at : at + _AT_ONCE]
            yield [key for key, _ in some], [value for _, value in some], [len(value) for _, value in some]

    def cursor(self, family: int, lower: bytes, upper: bytes) -> MemoryCursor:
        self._alive()
        return MemoryCursor(self._family(family), lower, upper)

    def latest_sequence(self) -> int:
        """How many ops were written."""
        return self._sequence

    def checkpoint(self, path: str) -> None:
        """The copy is kept by name in ``checkpoints``: there is no file system here."""
        self._alive()
        if path in self.checkpoints:
            raise StoreFailed(f"checkpoint: {path} exists already")
        self.checkpoints[path] = {number: dict(family.values) for number, family in self._families.items()}

    def copy(self) -> MemoryEngine:
        """Another engine that has read what this one would tell now; nothing of it is on its disk yet."""
        self._alive()
        made = MemoryEngine()
        made._families = {number: _Family(dict(family.values)) for number, family in self._families.items()}
        made._sequence = self._sequence
        return made

    def size_bytes(self) -> int:
        return sum(self.family_bytes(family) for family in self.families())

    def family_bytes(self, family: int) -> int:
        index = self._families.get(index_of(family)) if family else None
        both = (self._family(family), index) if index is not None else (self._family(family),)
        return sum(len(key) + len(value) for each in both for key, value in each.values.items())

    def close(self) -> None:
        self._dead = "closed"

    # ---- the disk's side, for tests and the simulator

    def sync_begin(self) -> int:
        """What a sync that begins now will cover: the number of writes made so far."""
        self._alive()
        return self._written_count

    def sync_end(self, covered: int) -> None:
        """The sync that began at ``covered`` writes has ended; raises if a fault was planted."""
        self._alive()
        if self._sync_fault is not None:
            text = self._sync_fault
            self._dead = f"a sync failed before: {text}"
            raise StoreFailed(f"sync: {text}")
        if covered > self._synced_count:
            del self._undo[: covered - self._synced_count]
            self._synced_count = covered

    @property
    def unsynced_writes(self) -> int:
        return self._written_count - self._synced_count

    def fail_next_sync(self, text: str = "Input/output error") -> None:
        """The next sync fails, once; after it this engine is dead, as a file is whose fsync failed."""
        self._sync_fault = text

    def fail_no_more(self) -> None:
        """What was to fail and has not failed yet will work."""
        self._sync_fault = self._write_fault = None

    def fail_next_write(self, text: str = "No space left on device") -> None:
        """The next write is refused with StoreFull and leaves nothing behind; the one after it works."""
        self._write_fault = StoreFull(f"write: {text}")

    def crash(self, power: bool, survivors: int = 0) -> MemoryEngine:
        """End this engine; return the one a restart would open.

        A kill keeps everything written. A power cut loses what was not synced, except the first ``survivors`` unsynced
        writes: a disk may well have written some of them.
        """
        if power:
            keep = min(survivors, len(self._undo))
            for undo in reversed(self._undo[keep:]):
                self._sequence -= len(undo)
                for number, key, old in reversed(undo):
                    family = self._families.get(number)
                    if family is None:
                        continue
                    if old is None:
                        family.delete(key)
                    else:
                        family.put(key, old)
        after = MemoryEngine()
        after._families = {number: _Family(family.values) for number, family in self._families.items()}
        after._sequence = self._sequence
        # What survived is on the new engine's disk only if it was synced: after a kill the page cache is still volatile.
        if not power:
            after._undo = self._undo
            after._written_count = len(self._undo)
        self._families = {HOME_FAMILY: _Family()}
        self._dead = "crashed"
        return after

    # ---- within

    def _family(self, family: int) -> _Family:
        found = self._families.get(family)
        if found is None:
            raise FamilyMissing(f"family {family} does not exist, only {self.families()}")
        return found

    def _alive(self) -> None:
        if self._dead is not None:
            raise StoreFailed(f"this engine is gone: {self._dead}")
