"""How far a long command has come, on standard error: one line that is written over, where somebody looks; else nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from cli.asked import amount

_EVERY_S = 0.2


class Shown:
    """what: has been done with the bytes, such as "copied"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._looked_at = sys.stderr.isatty()
        self._width = 0
        self._told = 0.0

    def done(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._looked_at and (now - self._told >= _EVERY_S or done == total):
            self._told = now
            text = f"{amount(done)} of {amount(total)} {self._what}"
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
