"""Who was denied what, for the log: each of client, right and topic at once, and then once a minute with how often.

Known are KEYS_MAX of them at a time; what comes beyond is counted together, so that somebody who tries many topics fills no log.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from access.rights import Right

AGAIN_MS: Final = 60_000
KEYS_MAX: Final = 1_000
SHOWN_BYTES_MAX: Final = 256


class Denial(NamedTuple):
    """times: since it was told last.  An empty client stands for all that there was no room for."""

    client: bytes
    right: Right
    topic: bytes
    times: int

    def fields(self) -> dict[str, str | int]:
        """As a log has it."""
        return {"client_id": _shown(self.client), "right": _named(self.right), "topic": _shown(self.topic), "count": self.times}


_Key = tuple[bytes, Right, bytes]


class Denials:
    def __init__(self) -> None:
        self._counts: dict[_Key, int] = {}
        self._fresh: list[_Key] = []
        self._told: deque[tuple[int, _Key]] = deque()
        """When each was told last, the oldest first."""
        self._others = 0
        self._others_told_ms: int | None = None

    def note(self, client: bytes, right: Right, topic: bytes) -> None:
        key = (client, right, topic)
        count = self._counts.get(key)
        if count is not None:
            self._counts[key] = count + 1
        elif len(self._counts) < KEYS_MAX:
            self._counts[key] = 1
            self._fresh.append(key)
        else:
            self._others += 1

    def take(self, now_ms: int) -> list[Denial]:
        """What is to be told now.  Cheap when there is nothing."""
        if not self._counts and not self._others:
            return []
        due, self._fresh = self._fresh, []
        told = self._told
        while told and told[0][0] + AGAIN_MS <= now_ms:
            _, key = told.popleft()
            if self._counts[key]:
                due.append(key)
            else:
                del self._counts[key]
        found = [Denial(*key, self._counts[key]) for key in due]
        for key in due:
            self._counts[key] = 0
            told.append((now_ms, key))
        if self._others and (self._others_told_ms is None or self._others_told_ms + AGAIN_MS <= now_ms):
            found.append(Denial(b"", Right(0), b"", self._others))
            self._others, self._others_told_ms = 0, now_ms
        return found


def _shown(name: bytes) -> str:
    """From outside: cut, and escaped."""
    return name[:SHOWN_BYTES_MAX].decode(errors="backslashreplace").encode("unicode_escape").decode("ascii")


def _named(right: Right) -> str:
    return " ".join(each.name.lower() for each in Right if each in right and each.name)
