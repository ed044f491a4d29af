"""The shell of one replica: it carries out what the core wants, on this copy, its links and the register, and reports back.

The log is written on the loop and synced in a thread of its own (actors.syncing).  The data engine is written on the loop too, unsynced;
what blocks on it (SyncData, checkpoints) runs in a second thread, one after the other.  It keeps RocksDB's own write-ahead log, unsynced:
what survives of several families is a prefix of the writes, so the applied row is true of all of them.  Without that log, families would
have to be flushed together every time, and who was killed would apply 64 MiB again.

A full disk: the log says so by itself (Refused, or no acknowledgement).  When the data engine cannot take what is committed, the replica
stands still until it can: it hears nothing and says nothing, others lead, and what it owes is applied first.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import SystemRandom
from typing import Protocol, assert_never

import structlog

from actors.fatal import die, die_of
from actors.replica.copy import Copy
from actors.replica.peers import Peers
from actors.replica.questions import Questions
from actors.replica.transfer import Gone, Transfer
from actors.syncing import Syncing
from shards import committer as commits
from shards.engine import StoreFailed, StoreFull
from shards.replication.applying import applied_in, apply
from shards.replication.bounds import RETAINED, Retained
from shards.replication.configuration import Rid
from shards.replication.events import (
    Apply,
    BeginTransfer,
    ChunkWritten,
    Committed,
    DataSynced,
    Dismissed,
    Effect,
    EraseCheckpoint,
    Event,
    Failed,
    HandOver,
    Install,
    MakeCheckpoint,
    Propose,
    ReadRegister,
    Received,
    Refused,
    Send,
    SendChunk,
    Serve,
    StartSync,
    SteppedDown,
    StoreBroke,
    Submit,
    Superseded,
    SyncData,
    SyncDone,
    SyncStarted,
    Tick,
    TransferFailed,
    WriteChunk,
)  # fmt: skip
from shards.replication.messages import Message, Pull
from shards.replication.register import Register
from shards.replication.replica import Replica

TICK_S = 0.1
FULL_RETRY_S = 0.25
HAND_OVER_S, LOOK_S = 2.0, 0.02

log = structlog.get_logger(__name__)

Told = Serve | Committed | SteppedDown | Dismissed | Superseded


class Owner(Protocol):
    def told(self, effect: Told) -> None:
        """On the loop.  May submit."""


class ReplicaShell:
    """Life cycle: made -> started -> closed.  A replica that fails ends the process."""

    def __init__(
        self, shard: int, copy: Copy, register: Register, key: str, peers: Peers, owner: Owner, retained: Retained = RETAINED,
        took: Callable[[float], None] = lambda seconds: None, stored: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        """key: of this shard in the register.  took, stored: as in actors.syncing."""
        self.copy = copy
        self._shard = shard
        self._owner = owner
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="data")
        self._transfer = Transfer(copy)
        self._questions = Questions(register, key, self.bring)
        self.syncing = Syncing(copy.log.sync, self._log_said, took, stored)
        self._effects: deque[Effect] = deque()
        self._tells: deque[Told] = deque()
        self._carrying = self._telling = self._deferring = self._closed = self._was_full = False
        self.full = ""
        """Why what is committed cannot be applied now."""
        self._refused: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.replica = Replica(copy.rid, copy.log, applied_in(copy.engine), SystemRandom(), retained)

    def start(self) -> None:
        self._tick()

    async def close(self) -> None:
        """Before the copy is closed."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._questions.close()
        await self._peers.stop()
        self.syncing.failed = True
        await asyncio.to_thread(self.syncing.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def hand_over(self) -> None:
        """Before a leader stops: who has the most leads at once, instead of when it has waited long enough."""
        replica, cfg = self.replica, self.replica.cfg
        heirs = [(behind, rid) for rid, behind in replica.behind.items() if cfg is not None and rid in cfg.isr]
        if not heirs:
            return
        self.bring(HandOver(min(heirs)[1]))
        for _ in range(int(HAND_OVER_S / LOOK_S)):
            if replica.role != "leader":
                break
            await asyncio.sleep(LOOK_S)

    # ------------------------------------------------------------------ events

    def received(self, source: Rid, message: Message) -> None:
        if not self.full:
            self.bring(Received(source, message))

    def submit(self, event: Submit) -> str | None:
        """Of the shard that is served.  Why it was refused; None: it was taken."""
        if self.full:
            return self.full
        if self.replica.role != "leader":
            # The owner has not heard yet.
            return "this replica leads no more"
        self._refused, self._deferring = None, True
        self.bring(event)
        self._deferring = False
        return self._refused

    def bring(self, event: Event) -> None:
        if self._closed:
            return
        try:
            effects = self.replica.handle(event)
        except Exception as error:
            die_of(error, type(event).__name__)
        self._effects.extend(effects)
        if not self._carrying and not self.full:
            self._carry_out()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        if not self.full:
            self.bring(Tick(time.monotonic_ns() // 1_000_000))

    def _log_said(self, event: commits.Event) -> None:
        match event:
            case commits.SyncStarted():
                self.bring(SyncStarted())
            case commits.SyncDone():
                self.bring(SyncDone())
            case commits.SyncFailed(reason):
                self.bring(StoreBroke(reason))

    # ------------------------------------------------------------------ effects

    def _carry_out(self) -> None:
        self._carrying = True
        before = self.replica.applied
        try:
            while self._effects:
                self._do(self._effects[0])
                self._effects.popleft()
        except StoreFull as error:
            self._stand_still(str(error))
        except Exception as error:
            die_of(error, type(self._effects[0]).__name__)
        finally:
            self._carrying = False
        if before != self.replica.applied < self.replica.commit:
            # The core applies a bounded part at a time.
            self._loop.call_soon(self.bring, Tick(time.monotonic_ns() // 1_000_000))
        if self._tells:
            if self._deferring:
                # Whoever submits is in the middle of what it does.
                self._loop.call_soon(self._tell)
            else:
                self._tell()

    def _tell(self) -> None:
        if self._telling:
            return
        self._telling = True
        try:
            while self._tells and not self._closed:
                self._owner.told(self._tells.popleft())
        finally:
            self._telling = False

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self._peers.send(to, message)
            case StartSync():
                self.syncing.wanted()
            case Apply():
                self._apply(effect)
            case Serve() | Committed() | SteppedDown() | Dismissed() | Superseded():
                self._tells.append(effect)
            case Refused(_, reason):
                self._refused = reason
            case ReadRegister():
                self._questions.read()
            case Propose(new):
                self._questions.propose(new)
            case SyncData(index):
                self._in_thread(partial(self._sync_data, index))
            case MakeCheckpoint(number):
                applied = applied_in(self.copy.engine)
                self._in_thread(partial(self._make_checkpoint, number, applied.index, applied.epoch))
            case EraseCheckpoint(number):
                self._thread.submit(self._transfer.erase, number)
            case SendChunk(to, pull):
                self._in_thread(partial(self._chunk, to, pull))
            case BeginTransfer(files):
                self._in_thread(partial(self._begin_transfer, files))
            case WriteChunk(file, offset, data):
                self._in_thread(partial(self._write_chunk, file, offset, data))
            case Install():
                self._in_thread(self._install)
            case Failed(reason):
                die("replica.failed", shard=self._shard, rid=self.copy.rid, cause=reason)
            case _ as never:
                assert_never(never)

    def _apply(self, effect: Apply) -> None:
        try:
            apply(self.copy.engine, effect.entries, effect.position)
        except StoreFull:
            raise
        except StoreFailed as error:
            die("replica.failed", shard=self._shard, rid=self.copy.rid, cause=f"apply {effect.entries[0].index}: {error}")
        except Exception as error:
            die_of(error, "applying")

    def _stand_still(self, reason: str) -> None:
        if not self._was_full:
            log.error("replica.disk_full", shard=self._shard, rid=self.copy.rid, cause=reason)
        self.full, self._was_full = f"the disk is full: {reason}", True
        self._loop.call_later(FULL_RETRY_S, self._go_on)

    def _go_on(self) -> None:
        if self._closed:
            return
        self.full = ""
        self._carry_out()
        if not self.full:
            self._was_full = False
            log.warning("replica.disk_has_room", shard=self._shard, rid=self.copy.rid)

    # ------------------------------------------------------------------ in the thread

    def _in_thread(self, work: Callable[[], Event | Send | None]) -> None:
        """What it returns is brought, or sent, on the loop."""
        self._loop.run_in_executor(self._thread, work).add_done_callback(self._worked)

    def _worked(self, done: asyncio.Future[Event | Send | None]) -> None:
        if done.cancelled() or self._closed:
            return
        if (error := done.exception()) is not None:
            assert isinstance(error, Exception)
            die_of(error, "work beside the loop")
        match done.result():
            case None:
                pass
            case Send(to, message):
                self._peers.send(to, message)
            case event:
                self.bring(event)

    def _sync_data(self, index: int) -> Event:
        try:
            self.copy.engine.sync()
        except StoreFailed as error:
            return StoreBroke(f"sync of the data: {error}")
        return DataSynced(index)

    def _make_checkpoint(self, number: int, index: int, epoch: int) -> Event:
        try:
            return self._transfer.make(number, index, epoch)
        except StoreFailed as error:
            return self._given_up("made", error)

    def _chunk(self, to: Rid, pull: Pull) -> Send | None:
        try:
            return Send(to, self._transfer.chunk(pull))
        except Gone:
            return None

    def _begin_transfer(self, files: tuple[tuple[str, int], ...]) -> Event | None:
        try:
            self._transfer.begin(files)
        except StoreFailed as error:
            return self._given_up("begun", error)
        return None

    def _write_chunk(self, file: int, offset: int, data: bytes) -> Event:
        try:
            return ChunkWritten(file, self._transfer.write(file, offset, data))
        except StoreFailed as error:
            return self._given_up("written", error)

    def _install(self) -> Event:
        try:
            self._transfer.complete()
        except StoreFailed as error:
            return self._given_up("completed", error)
        try:
            installed = self._transfer.install()
        except StoreFailed as error:
            return StoreBroke(f"the checkpoint that came is not opened: {error}")
        log.info("copy.replaced", shard=self._shard, rid=self.copy.rid, applied=installed.index)
        return installed

    def _given_up(self, what: str, error: StoreFailed) -> Event:
        log.error("replica.transfer_failed", shard=self._shard, rid=self.copy.rid, cause=f"no checkpoint {what}: {error}")
        return TransferFailed(str(error))
