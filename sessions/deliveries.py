"""What one session has of shared groups, while a connection is attached.  Who changes it: sessions.given."""

from __future__ import annotations

from collections import deque


class Deliveries:
    """Keys are those of the rows, without family and client."""

    __slots__ = ("asked", "known", "open", "repeats", "values", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[bytes, bytes, bytes]] = deque()
        """(key, filter, stored message) of what has no number yet."""
        self.open: dict[bytes, tuple[int, int]] = {}
        """(QoS, number) of what is under way."""
        self.values: dict[bytes, bytes] = {}
        """Of what was under way before this connection."""
        self.known: dict[bytes, None] = {}
        """All of these, and what is finished as long as that is not committed."""
        self.repeats = 0
        """So many of the first that wait may have been sent by a process of ours that has died."""
        self.asked = False
        """The rows are asked for: what is told until they come is in them, and behind what may be lost."""


NO_DELIVERIES = Deliveries()
"""Of all sessions that have nothing of groups; never changed."""
