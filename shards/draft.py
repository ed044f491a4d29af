"""The record in the making, and home rows as if everything already submitted were on disk.

A tick of the shard collects its ops here.  Home rows (family 0) that were put or deleted are also kept in an overlay until
their record is committed, so that a read in the same tick, or before a replicated record is applied, sees them.  Message
data is only appended: nobody reads it before the watermark covers it.

Scans are frequent when thousands of sessions end at once, and the overlay is large then, so its keys are kept sorted: they
are brought into order by the first scan after a change, and keys that are committed are swept out when they are the most.

Holds after every call (see check):
1. a key is in the overlay exactly as long as its newest record is not committed;
2. every key of the overlay is among the sorted or the fresh keys.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from shards.engine import HOME_FAMILY, Engine, Op
from shards.rows import successor

_SORTED_IN = 64
"""So many fresh keys are put into the sorted ones each by itself; more are sorted together with them."""


class Draft:
    """put/delete/get/scan on home rows; `ops` for everything else that belongs into the record."""

    __slots__ = ("_engine", "_fresh", "_keys", "_overlay", "_sealed", "_serial", "_touched", "ops")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ops: list[Op] = []
        self._overlay: dict[bytes, tuple[bytes | None, int]] = {}
        self._fresh: list[bytes] = []
        self._keys: list[bytes] = []
        self._serial = 1
        self._touched: list[bytes] = []
        self._sealed: deque[tuple[int, int, list[bytes]]] = deque()

    def put(self, key: bytes, value: bytes) -> None:
        self.ops.append((HOME_FAMILY, key, value))
        if key not in self._overlay:
            self._fresh.append(key)
        self._overlay[key] = (value, self._serial)
        self._touched.append(key)

    def delete(self, key: bytes) -> None:
        self.ops.append((HOME_FAMILY, key, None))
        if key not in self._overlay:
            self._fresh.append(key)
        self._overlay[key] = (None, self._serial)
        self._touched.append(key)

    def get(self, key: bytes) -> bytes | None:
        found = self._overlay.get(key)
        return self._engine.get(HOME_FAMILY, key) if found is None else found[0]

    def scan(self, prefix: bytes, limit: int, start: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows whose key begins with the prefix, in key order, from `start` on."""
        return self.scan_range(prefix if start is None else start, successor(prefix), limit)

    def scan_range(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        changed = self._changed(start, end)
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

    def _changed(self, start: bytes, end: bytes) -> dict[bytes, bytes | None]:
        """The rows of the overlay in this range."""
        overlay, keys, fresh = self._overlay, self._keys, self._fresh
        if len(keys) > 2 * len(overlay) + _SORTED_IN:
            self._keys = keys = sorted(overlay)
        elif len(fresh) > _SORTED_IN:
            keys.extend(fresh)
            keys.sort()
        else:
            for key in fresh:
                insort(keys, key)
        fresh.clear()
        changed: dict[bytes, bytes | None] = {}
        for at in range(bisect_left(keys, start), len(keys)):
            key = keys[at]
            if key >= end:
                break
            found = overlay.get(key)
            if found is not None:
                changed[key] = found[0]
        return changed

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
        assert self._keys == sorted(self._keys)
        assert set(self._overlay) <= {*self._keys, *self._fresh}
