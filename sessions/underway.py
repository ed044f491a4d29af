"""What a session has only while something is under way: what it asks of shards, changes of its subscriptions, what waits for a commit.

Most sessions are idle, and of those every empty list counts.  So an idle session has for each of these the one that all idle sessions
share, which is empty and never changed; it is read like any other.  Who changes something takes one of the session's own
(Session.asks, changes, awaits), and it is let go when it is empty again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessions.retained import RetainedJob
    from sessions.session import Cursor, Reread
    from sessions.subscriptions import Operation


class Asking:
    """What is asked of shards, or is to be (sessions.reading, sessions.retained).

    starving: cursors that are behind and have no poll under way.  rereads: ranges to be read again, before anything new.
    reserved, reserved_bytes: room for the answers that are under way.  queries: what is not answered, as of an Asker.
    """

    __slots__ = ("queries", "rereads", "reserved", "reserved_bytes", "retained", "starving")

    def __init__(self) -> None:
        self.starving: list[Cursor] = []
        self.rereads: list[Reread] = []
        self.retained: list[RetainedJob] = []
        self.queries: dict[int, int] = {}
        self.reserved = 0
        self.reserved_bytes = 0

    @property
    def over(self) -> bool:
        return not (self.queries or self.starving or self.rereads or self.retained)


class Changing:
    """Changes of subscriptions (sessions.subscriptions).

    operations: those that wait for another one.  running: how many do not; busy: their filters.  adding: new subscriptions in them.
    """

    __slots__ = ("adding", "busy", "operations", "running")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.running = 0
        self.busy: dict[bytes, None] = {}
        self.adding = 0

    @property
    def over(self) -> bool:
        return not (self.running or self.operations)


class Awaiting:
    """What waits for a commit, with its number (sessions.committing).

    after_commit: what goes on with the session.  removals: routes to be removed, and losses to be told: also when the session is
    dropped while the commit is under way.  releases: identifiers for which PUBREL may leave.
    """

    __slots__ = ("after_commit", "releases", "removals")

    def __init__(self) -> None:
        self.after_commit: list[tuple[int, Callable[[], None]]] = []
        self.removals: list[tuple[int, Callable[[], None]]] = []
        self.releases: list[tuple[int, list[int]]] = []

    @property
    def over(self) -> bool:
        return not (self.after_commit or self.removals or self.releases)


NOT_ASKING = Asking()
NOT_CHANGING = Changing()
NOT_AWAITING = Awaiting()


def check() -> None:
    assert NOT_ASKING.over and not NOT_ASKING.reserved and not NOT_ASKING.reserved_bytes
    assert NOT_CHANGING.over and not NOT_CHANGING.busy and not NOT_CHANGING.adding
    assert NOT_AWAITING.over
