"""Passwords that were right a while ago, so that a client that comes back costs next to nothing.

What is kept is a keyed digest of user, password and entry, with a key of this process: nothing can be tried against it elsewhere, and an
entry that was changed is not remembered.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

COUNT_MAX: Final = 200_000
"""As many as a password file may have entries."""


class Remembered:
    """key: random, of this process."""

    def __init__(self, key: bytes, count_max: int = COUNT_MAX) -> None:
        self._key = key
        self._count_max = count_max
        self._right: OrderedDict[bytes, float] = OrderedDict()

    def knows(self, user: str, password: bytes, entry: str, now_s: float, for_s: float) -> bool:
        """for_s: how long what was right counts."""
        found = self._right.get(self._digest(user, password, entry))
        return found is not None and now_s - found < for_s

    def right(self, user: str, password: bytes, entry: str, now_s: float) -> None:
        digest = self._digest(user, password, entry)
        self._right[digest] = now_s
        self._right.move_to_end(digest)
        if len(self._right) > self._count_max:
            self._right.popitem(last=False)

    def _digest(self, user: str, password: bytes, entry: str) -> bytes:
        # An entry has no line end, and neither has a name, so no two of these texts are the same.
        text = b"\n".join((user.encode(), entry.encode(), password))
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()
