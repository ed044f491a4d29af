"""A committer whose background work moves one step at a time, over a disk that can forget: the shell of the contract suite."""

from __future__ import annotations

from typing import Literal, Protocol, assert_never

from shards.committer import (
    Committed,
    Committer,
    Failed,
    LocalCommitter,
    Opened,
    Record,
    Refused,
    StartSync,
    Submit,
    SyncDone,
    SyncFailed,
    SyncStarted,
    Write,
    WriteRefused,
)
from shards.committer import Effect as CommitEffect
from shards.engine import StoreFailed, StoreFull
from shards.engine_memory import MemoryEngine

Heard = tuple[Literal["committed", "refused", "failed"], int]
"""What the listener was told; failed carries -1."""


class CommitterHarness(Protocol):
    @property
    def committer(self) -> Committer: ...

    @property
    def heard(self) -> list[Heard]: ...

    def step(self) -> bool:
        """Let the background do its next thing; False when there is nothing to do."""

    def fail_next_write(self) -> None:
        """The disk is full for one record."""

    def fail_next_sync(self) -> None: ...

    def crash(self, power: bool, survivors: int = 0) -> list[int]:
        """End it all; return the positions of the records that a restart finds. ``survivors``: unsynced writes the disk kept."""

    def reopen(self, found: list[int]) -> None:
        """Start again on what survived."""


class LocalHarness:
    """The local form: LocalCommitter, and a shell that writes at once and syncs when stepped."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self._engine = MemoryEngine()
        self._asked = False
        self._covering: int | None = None
        self._start(0)

    @property
    def committer(self) -> LocalHarness:
        return self

    def submit(self, record: Record) -> None:
        self._carry_out(self.core.handle(Submit(record)))

    def step(self) -> bool:
        if self.core.state == "failed":
            return False
        if self._asked:
            self._asked = False
            self._covering = self._engine.sync_begin()
            self._carry_out(self.core.handle(SyncStarted()))
            return True
        if self._covering is not None:
            covered, self._covering = self._covering, None
            try:
                self._engine.sync_end(covered)
            except StoreFailed as error:
                self._carry_out(self.core.handle(SyncFailed(str(error))))
            else:
                self._carry_out(self.core.handle(SyncDone()))
            return True
        return False

    def fail_next_write(self) -> None:
        self._engine.fail_next_write()

    def fail_next_sync(self) -> None:
        self._engine.fail_next_sync()

    def crash(self, power: bool, survivors: int = 0) -> list[int]:
        self._engine = self._engine.crash(power, survivors)
        return sorted(int(value) for _, value in self._engine.scan(0, b"", b"\xff", 1 << 30))

    def reopen(self, found: list[int]) -> None:
        self._start(max(found, default=0))

    def _start(self, position: int) -> None:
        self.core = LocalCommitter()
        self._asked = False
        self._covering = None
        self._carry_out(self.core.handle(Opened(position)))

    def _carry_out(self, effects: list[CommitEffect]) -> None:
        self.core.check()
        for effect in effects:
            match effect:
                case Write(record):
                    try:
                        self._engine.write(record.ops)
                    except StoreFull as error:
                        self._carry_out(self.core.handle(WriteRefused(record.position, str(error))))
                case StartSync():
                    assert not self._asked and self._covering is None, "one sync at a time"
                    self._asked = True
                case Committed(position):
                    self.heard.append(("committed", position))
                case Refused(position):
                    self.heard.append(("refused", position))
                case Failed():
                    self.heard.append(("failed", -1))
                case _ as never:
                    assert_never(never)
