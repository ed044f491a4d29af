"""The record in the making, and home rows as if everything already submitted were on disk.

A tick of the shard collects its ops here.  Home rows (family 0) that were put or deleted are also kept in an overlay until
their record is committed, so that a read in the same tick, or before a replicated record is applied, sees them.  Message
data is only appended: nobody reads it before the watermark covers it.

Holds after every call (see check): a key is in the overlay exactly as long as its newest record is not committed.
"""

from __future__ import annotations

from collections import deque

from shards.engine import HOME_FAMILY, Engine, Op
from shards.rows import successor


class Draft:
    """put/delete/get/scan on home rows; `ops` for everything else that belongs into the record."""

    __slots__ = ("_engine", "_overlay", "_sealed", "_serial", "_touched", "ops")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ops: list[Op] = []
        self._overlay: dict[bytes, tuple[bytes | None, int]] = {}
        self._serial = 1
        self._touched: list[bytes] = []
        self._sealed: deque[tuple[int, int, list[bytes]]] = deque()

    def put(self, key: bytes, value: bytes) -> None:
        self.ops.append((HOME_FAMILY, key, value))
        self._overlay[key] = (value, self._serial)
        self._touched.append(key)

    def delete(self, key: bytes) -> None:
        self.ops.append((HOME_FAMILY, key, None))
        self._overlay[key] = (None, self._serial)
        self._touched.append(key)

    def get(self, key: bytes) -> bytes | None:
        found = self._overlay.get(key)
        return self._engine.get(HOME_FAMILY, key) if found is None else found[0]

    def scan(self, prefix: bytes, limit: int, start: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows whose key begins with the prefix, in key order, from `start` on."""
        return self.scan_range(prefix if start is None else start, successor(prefix), limit)

    def scan_range(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        changed = {key: value for key, (value, _) in self._overlay.items() if start <= key < end}
        if not changed:
            return self._engine.scan(HOME_FAMILY, start, end, limit)
        # Deleted rows may hide others behind them: ask for as many more.
        rows = dict(self._engine.scan(HOME_FAMILY, start, end, limit + len(changed)))
        for key, value in changed.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return sorted(rows.items())[:limit]

    def seal(self, position: int) -> list[Op]:
        """The ops of the record at this position; the next tick starts empty."""
        ops, self.ops = self.ops, []
        if self._touched:
            self._sealed.append((position, self._serial, self._touched))
            self._touched = []
        self._serial += 1
        return ops

    def committed(self, position: int) -> None:
        sealed = self._sealed
        overlay = self._overlay
        while sealed and sealed[0][0] <= position:
            _, serial, keys = sealed.popleft()
            for key in keys:
                found = overlay.get(key)
                if found is not None and found[1] == serial:
                    del overlay[key]

    def check(self) -> None:
        live = {key for _, _, keys in self._sealed for key in keys} | set(self._touched)
        assert set(self._overlay) <= live, set(self._overlay) - live
