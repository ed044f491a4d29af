"""The record in the making, and home rows as if everything already submitted were on disk.

A tick of the shard collects its ops here.  Home rows (family 0) that were put or deleted are also kept in an overlay until
their record is committed, so that a read in the same tick, or before a replicated record is applied, sees them; rows that are
in bundles (shards.bundles) as long as they are.  Message data is only appended: nobody reads it before the watermark covers it.

Scans are frequent when thousands of sessions end at once, and the overlay is large then, so its keys are kept sorted: they
are brought into order by the first scan after a change, and keys that are committed are swept out when they are the most.

Holds after every call (see check):
1. a key is in the overlay exactly as long as its newest record is not committed, or it is in a bundle;
2. every key of the overlay is among the sorted or the fresh keys.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from shards.bundles import ROWS_MAX, Bundles
from shards.engine import HOME_FAMILY, Engine, Op
from shards.rows import successor

_SORTED_IN = 64
"""So many fresh keys are put into the sorted ones each by itself; more are sorted together with them."""
_BUNDLED = 0
"""In the place of the serial of a record: no commit takes it out of the overlay."""


class Draft:
    """put/delete/get/scan on home rows; `ops` for everything else that belongs into the record."""

    __slots__ = ("_bundled", "_bundles", "_engine", "_fresh", "_keys", "_overlay", "_sealed", "_serial", "_touched", "ops")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ops: list[Op] = []
        self._overlay: dict[bytes, tuple[bytes | None, int]] = {}
        self._fresh: list[bytes] = []
        self._keys: list[bytes] = []
        self._serial = 1
        self._touched: list[bytes] = []
        self._sealed: deque[tuple[int, int, list[bytes]]] = deque()
        self._bundles = Bundles()
        for key, value in self._bundles.restore(engine):
            self._overlay[key] = (value, _BUNDLED)
        self._keys = sorted(self._overlay)
        self._bundled = self._bundles.newest

    def put(self, key: bytes, value: bytes) -> None:
        self._change(key, value)

    def delete(self, key: bytes) -> None:
        self._change(key, None)

    def _change(self, key: bytes, value: bytes | None) -> None:
        if key in self._bundled:
            self.bundle(key, value)
            return
        self.ops.append((HOME_FAMILY, key, value))
        if key not in self._overlay:
            self._fresh.append(key)
        self._overlay[key] = (value, self._serial)
        self._touched.append(key)

    def bundle(self, key: bytes, value: bytes | None) -> None:
        """Put this row, or delete it (None), together with others: the record gets one row for all of them."""
        if key not in self._overlay:
            self._fresh.append(key)
            if self._engine.get(HOME_FAMILY, key) is None:
                self._bundles.never_written(key)
        self._overlay[key] = (value, _BUNDLED)
        self._bundles.put(key, value)

    @property
    def bundled_rows(self) -> int:
        return self._bundles.rows

    @property
    def bundles_full(self) -> bool:
        return self._bundles.rows > ROWS_MAX

    def fold(self, made_ms: int) -> bool:
        """Write rows of the oldest bundle each by itself, if it was made then or earlier, or there are too many. True: there are more."""
        if not self._bundles.wants_fold(made_ms):
            return False
        single, free, ops = self._bundles.fold()
        rows = [(key, self._overlay[key][0]) for key in single]
        self.ops += [(HOME_FAMILY, key, value) for key, value in rows if self._bundles.writes(key, value)]
        self.ops += ops
        for key in free:
            self._overlay[key] = (self._overlay[key][0], self._serial)
        self._touched += free
        return self._bundles.wants_fold(made_ms)

    def close_bundle(self, now_ms: int) -> None:
        """What was put together is one row of this record.  now_ms: of a clock that never goes back."""
        self.ops += self._bundles.close(now_ms)

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
        self._bundles.check()
        bundled = {key for key, (_, serial) in self._overlay.items() if serial == _BUNDLED}
        assert bundled == set(self._bundled)
        assert set(self._overlay) - bundled <= live, set(self._overlay) - bundled - live
        assert self._keys == sorted(self._keys)
        assert set(self._overlay) <= {*self._keys, *self._fresh}
