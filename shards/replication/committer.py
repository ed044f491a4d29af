"""The replicated form of the Committer port (shards.committer): what a shard that is served here submits to its replica.

Made anew for each Serve, with the position that was found; over when the replica steps down or fails. The shell hands it what the
replica says.

Always holds: what is committed is on the disk of every replica in sync, at least a majority, and applied here.
"""

from __future__ import annotations

from collections.abc import Callable

from shards.committer import CommitListener, Record
from shards.engine import StoreFailed
from shards.replication.entry import Kind
from shards.replication.events import Committed, Failed, Refused, SteppedDown, Submit


class ReplicatedCommitter:
    """bring: hands an event to the replica and carries out what it wants."""

    __slots__ = ("_bring", "_listener", "_taken", "reason")

    def __init__(self, position: int, listener: CommitListener, bring: Callable[[Submit], None]) -> None:
        self._taken = position
        self._listener = listener
        self._bring = bring
        self.reason: str | None = None
        """Why nothing is committed here any more."""

    def submit(self, record: Record) -> None:
        if self.reason is not None:
            raise StoreFailed(f"record at position {record.position} submitted after {self.reason}")
        assert record.position > self._taken, f"record at position {record.position} submitted after one at {self._taken}"
        self._taken = record.position
        self._bring(Submit(Kind.RECORD, record.encode(), record.position))

    def told(self, effect: Committed | Refused | SteppedDown | Failed) -> None:
        """One of these effects of the replica."""
        match effect:
            case Committed(position):
                self._listener.committed(position)
            case Refused(position, reason):
                # Only this very record may come again under its position.
                self._taken = position - 1
                self._listener.refused(position, reason)
            case SteppedDown(reason) | Failed(reason):
                self.reason = reason
                self._listener.failed(reason)
