"""Worlds in which a shard reads what it has written only when it is committed, as where several sites have copies of it.

There the log is synced first and the engine gets what is committed (docs/replication.md, "How a record becomes an entry"); the record in
the making and those on their way are in the RAM of the core (shards.draft).  Here the engine of the core is a copy of what its disk holds
at the opening, and the ops of a record come into it in the moment in which the core is told that it is committed.  Families that are made
are there at once, and those that are dropped go with the next commit.

Every world of tests.sim can be one of these: the option is `Plant.late` (tests.sim.late).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from shards.engine import Apart, Entries, Op
from shards.engine_memory import MemoryCursor, MemoryEngine


class LateEngine:
    """The port of shards.engine, as its shard sees it.  disk: has everything at once, as the log does."""

    def __init__(self, disk: MemoryEngine) -> None:
        self._disk = disk
        self._shown = disk.copy()
        self._coming: deque[tuple[int, Sequence[Op]]] = deque()
        self._going: list[int] = []
        self._serves = False

    # ---- for the part

    def written(self, position: int, ops: Sequence[Op]) -> None:
        self._serves = True
        self._coming.append((position, ops))

    def committed(self, position: int) -> None:
        while self._coming and self._coming[0][0] <= position:
            self._shown.write(self._coming.popleft()[1])
        going, self._going = self._going, []
        for family in going:
            self._shown.drop_family(family)

    # ---- the port

    def families(self) -> list[int]:
        return self._shown.families()

    def has_family(self, family: int) -> bool:
        return self._shown.has_family(family)

    def create_family(self, family: int) -> None:
        self._disk.create_family(family)
        self._shown.create_family(family)

    def drop_family(self, family: int) -> None:
        self._disk.drop_family(family)
        if self._serves:
            self._going.append(family)
        else:
            # A shard is opened when what the opening has dropped is gone.
            self._shown.drop_family(family)

    def write(self, ops: Sequence[Op]) -> None:
        """At the opening only, before any record: whoever serves afterwards hands in records."""
        assert not self._serves, "written past the committer"
        self._disk.write(ops)
        self._shown.write(ops)

    def sync(self) -> None:
        raise AssertionError("a shard syncs through its committer")

    def get(self, family: int, key: bytes) -> bytes | None:
        return self._shown.get(family, key)

    def get_many(self, family: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._shown.get_many(family, keys)

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        return self._shown.scan(family, start, end, limit, bytes_max)

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        return self._shown.keys_and_values(family, start, end, limit, bytes_max, goes_on)

    def columns(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> Iterator[Entries]:
        return self._shown.columns(family, start, end, limit, bytes_max)

    def cursor(self, family: int, lower: bytes, upper: bytes) -> MemoryCursor:
        return self._shown.cursor(family, lower, upper)

    def latest_sequence(self) -> int:
        return self._shown.latest_sequence()

    def checkpoint(self, path: str) -> None:
        self._shown.checkpoint(path)

    def size_bytes(self) -> int:
        return self._shown.size_bytes()

    def family_bytes(self, family: int) -> int:
        return self._shown.family_bytes(family)

    def close(self) -> None:
        self._shown.close()
