"""The sending end of a numbered link: frames leave in order, are answered in order, and are sent again after a reconnect.

Leaves the socket and the bytes to its owner.  The receiving end is part of the shard's core, because its numbers and
answers are rows of the record (PROTOCOLS 4).

Holds after every call (see check):
1. numbers are consecutive; every frame is in exactly one place: waiting, unanswered, or answered;
2. at most FRAMES_UNANSWERED_MAX frames are unanswered, so the receiver can reuse an answer's slot 64 frames later;
3. after a refusal nothing is sent until the retry time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shards.frames import FRAMES_UNANSWERED_MAX, Entry, Request


@dataclass(slots=True)
class NumberedSender:
    """One link's outgoing numbered frames.  `send` queues, `ready` says what may be written now."""

    entries_max: int = 100_000
    _next: int = 1
    _waiting: deque[list[Entry]] = field(default_factory=deque)
    _unanswered: deque[Request] = field(default_factory=deque)
    _unwritten: int = 0
    _retry_at_ms: int | None = None
    _connected: bool = False

    @property
    def backlog(self) -> int:
        """Frames that are not answered yet, the waiting ones included."""
        return len(self._waiting) + len(self._unanswered)

    @property
    def connected(self) -> bool:
        return self._connected

    def send(self, entries: list[Entry]) -> None:
        self._waiting.append(entries)

    def linked(self) -> None:
        """A fresh connection: everything unanswered is written again, in order."""
        self._connected = True
        self._unwritten = len(self._unanswered)

    def unlinked(self) -> None:
        self._connected = False

    def refused(self, number: int, retry_at_ms: int) -> None:
        """The receiver took neither this frame nor any behind it; all of them are written again at retry_at_ms."""
        behind = sum(1 for request in self._unanswered if request.number >= number)
        self._unwritten = max(self._unwritten, behind)
        self._retry_at_ms = retry_at_ms

    def ready(self, now_ms: int) -> list[Request]:
        """Frames to be written now, in order."""
        if not self._connected or (self._retry_at_ms is not None and now_ms < self._retry_at_ms):
            return []
        self._retry_at_ms = None
        while self._waiting and len(self._unanswered) < FRAMES_UNANSWERED_MAX:
            self._unanswered.append(Request(self._next, self._waiting.popleft()))
            self._next += 1
            self._unwritten += 1
        if not self._unwritten:
            return []
        start = len(self._unanswered) - self._unwritten
        self._unwritten = 0
        return [self._unanswered[i] for i in range(start, len(self._unanswered))]

    def answered(self, number: int) -> list[Entry] | None:
        """The entries of the frame that was answered; None for an answer that came before (after a reconnect)."""
        if not self._unanswered or number < self._unanswered[0].number:
            return None
        request = self._unanswered[0]
        if number != request.number:
            raise ValueError(f"answer to frame {number} while frame {request.number} is the oldest unanswered")
        self._unanswered.popleft()
        self._unwritten = min(self._unwritten, len(self._unanswered))
        return request.entries

    def check(self) -> None:
        numbers = [request.number for request in self._unanswered]
        assert len(numbers) <= FRAMES_UNANSWERED_MAX
        assert numbers == list(range(self._next - len(numbers), self._next))
        assert self._unwritten <= len(numbers)
