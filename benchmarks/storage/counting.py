"""An engine that counts what it is asked for: how many places a read goes to, and how many entries it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shards.engine import Apart, Cursor, Engine, Entries, Op


class CountingCursor:
    def __init__(self, cursor: Cursor, engine: CountingEngine) -> None:
        self._cursor = cursor
        self._engine = engine

    def seek(self, key: bytes) -> None:
        self._engine.seeks += 1
        self._cursor.seek(key)

    def next(self) -> None:
        self._engine.entries += 1
        self._cursor.next()

    def valid(self) -> bool:
        return self._cursor.valid()

    def key(self) -> bytes:
        return self._cursor.key()

    def value(self) -> bytes:
        self._engine.entries += 1
        return self._cursor.value()


class CountingEngine:
    """seeks: places that were looked up.  entries: what was read at or behind them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seeks = 0
        self.entries = 0

    def families(self) -> list[int]:
        return self._engine.families()

    def has_family(self, family: int) -> bool:
        return self._engine.has_family(family)

    def create_family(self, family: int) -> None:
        self._engine.create_family(family)

    def drop_family(self, family: int) -> None:
        self._engine.drop_family(family)

    def write(self, ops: Sequence[Op]) -> None:
        self._engine.write(ops)

    def sync(self) -> None:
        self._engine.sync()

    def get(self, family: int, key: bytes) -> bytes | None:
        self.seeks += 1
        return self._engine.get(family, key)

    def get_many(self, family: int, keys: Sequence[bytes]) -> list[bytes | None]:
        self.seeks += len(keys)
        self.entries += len(keys)
        return self._engine.get_many(family, keys)

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        found = self._engine.scan(family, start, end, limit, bytes_max)
        self.seeks += 1
        self.entries += len(found)
        return found

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        keys, values, size = self._engine.keys_and_values(family, start, end, limit, bytes_max, goes_on)
        self.seeks += 1
        self.entries += len(keys)
        return keys, values, size

    def columns(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> Iterator[Entries]:
        self.seeks += 1
        for found in self._engine.columns(family, start, end, limit, bytes_max):
            self.entries += len(found[0])
            yield found

    def cursor(self, family: int, lower: bytes, upper: bytes) -> CountingCursor:
        return CountingCursor(self._engine.cursor(family, lower, upper), self)

    def latest_sequence(self) -> int:
        return self._engine.latest_sequence()

    def checkpoint(self, path: str) -> None:
        self._engine.checkpoint(path)

    def size_bytes(self) -> int:
        return self._engine.size_bytes()

    def family_bytes(self, family: int) -> int:
        return self._engine.family_bytes(family)

    def close(self) -> None:
        self._engine.close()
