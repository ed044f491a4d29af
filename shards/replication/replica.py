"""One replica of one shard: events in, effects out (docs/replication.md).

It follows until it has won a takeover, leads until it hears of a newer epoch, and follows again. What it does in either role is elsewhere
(follower, leader, takeover, catch_up); here is what both share: promises, what is committed and on the own disk is applied, and the log is
trimmed.

Holds after every event (see check):
1. it leads at most one epoch, which is the one it has promised last;
2. applied <= committed and on the own disk; what is applied never changes;
3. an entry leaves the log only when the data engine is on its disk beyond it, and no transfer counts on it.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Literal, assert_never

from shards.engine import StoreDamaged, StoreFailed, StoreFull
from shards.replication.bounds import (
    APPLY_BYTES_MAX,
    APPLY_ENTRIES_MAX,
    RETAINED,
    Retained,
)
from shards.replication.catch_up import Receiving
from shards.replication.configuration import Configuration, Rid
from shards.replication.entry import Entry, Kind
from shards.replication.events import (
    Apply,
    CheckpointMade,
    ChunkWritten,
    DataSynced,
    Dismissed,
    Effect,
    EraseCheckpoint,
    Event,
    Failed,
    HandOver,
    Installed,
    Proposed,
    Received,
    RegisterRead,
    SteppedDown,
    StoreBroke,
    Submit,
    Superseded,
    SyncData,
    SyncDone,
    SyncStarted,
    Tick,
    TransferFailed,
)  # fmt: skip
from shards.replication.follower import Following
from shards.replication.leader import Leading
from shards.replication.membership import is_outside
from shards.replication.messages import Ack, Append, Chunk, Hello, Message, Nak, Offer, Pull, Yield
from shards.replication.own import Applied, Own
from shards.replication.ports import Log
from shards.replication.takeover import TakingOver
from shards.replication.writing import Writing

_MARK_BYTES = 1 << 20


class Replica:
    """applied: the applied row that was found in the data engine."""

    def __init__(self, rid: Rid, log: Log, applied: Applied, rng: Random, retained: Retained = RETAINED) -> None:
        if applied.index < log.first - 1:
            raise StoreDamaged(f"{rid}: the data engine ends at entry {applied.index}, and the log begins at {log.first}")
        if log.epoch_at(applied.index) != applied.epoch:
            # A checkpoint was renamed into its place, and the process ended before its log was begun anew.
            log.reset(applied.index, applied.epoch)
        # What a restart finds in the data engine may be in the page cache only; what the log has let go is on the disk.
        self._own = Own(rid, Writing(log), applied, rng, commit=applied.index, data_synced=log.first - 1)
        self._following = Following(self._own)
        self._taking_over = TakingOver(self._own)
        self._receiving = Receiving(self._own)
        self._leading: Leading | None = None
        self._marks: deque[tuple[int, int]] = deque()
        """(index, bytes written before it), now and then: where the log is how long."""
        self._retained = retained
        self._bytes = 0
        self._unsynced_bytes = 0
        self._synced_ms = 0
        self._asked_to_sync = False
        self._begun_anew: Applied | None = None
        """Where a checkpoint that is installed ends; the log is begun anew behind it as soon as no sync runs."""
        self._started = False

    @property
    def rid(self) -> Rid:
        return self._own.rid

    @property
    def role(self) -> Literal["follower", "leader"]:
        return "follower" if self._leading is None else "leader"

    @property
    def epoch(self) -> int:
        """The one promised last."""
        return self._own.writing.log.promised

    @property
    def commit(self) -> int:
        return self._own.commit

    @property
    def applied(self) -> int:
        return self._own.applied.index

    @property
    def serving(self) -> bool:
        return self._leading is not None and self._leading.serving

    @property
    def quiet(self) -> bool:
        """It leads, and everything there is in its log is applied."""
        return self.serving and self._own.applied.index == self._own.writing.log.last

    @property
    def idle(self) -> bool:
        """Everything written is on the disk."""
        return self._own.writing.idle

    @property
    def cfg(self) -> Configuration | None:
        """The newest register record that it knows."""
        return self._own.cfg if self._leading is None else self._leading.in_sync.cfg

    @property
    def last(self) -> int:
        """The end of its log."""
        return self._own.writing.log.last

    @property
    def last_epoch(self) -> int:
        """Of its last entry."""
        return self._own.writing.log.epoch_at(self.last) or 0

    @property
    def leader(self) -> Rid | None:
        """Of the epoch that is promised, when it is known."""
        if self._leading is not None:
            return self.rid
        cfg = self._own.cfg
        return self._following.leader or (cfg.leader if cfg is not None and cfg.epoch == self.epoch else None)

    @property
    def behind(self) -> dict[Rid, int]:
        """Of a leader: how many entries each other copy has not acknowledged."""
        return {} if self._leading is None else {rid: self.last - peer.match for rid, peer in sorted(self._leading.peers.items())}

    def handle(self, event: Event) -> list[Effect]:
        own = self._own
        out: list[Effect] = []
        own.out = out
        if own.writing.failed:
            return out
        try:
            self._handle(event)
            self._settle()
        except StoreFailed as error:
            self._fail(str(error))
        return out

    def check(self) -> None:
        self._own.check()
        self._following.check()
        if self._leading is not None:
            assert self._leading.epoch == self.epoch, (self._leading.epoch, self.epoch)
            self._leading.check()

    # ---- events

    def _handle(self, event: Event) -> None:
        own = self._own
        match event:
            case Received(source, message):
                self._received(source, message)
            case Submit():
                assert self._leading is not None, f"{own.rid} does not lead, and is given a record at {event.position}"
                self._leading.submit(event)
            case SyncStarted():
                own.writing.sync_started()
            case SyncDone():
                own.writing.sync_done()
            case Tick(now_ms):
                self._tick(now_ms)
            case RegisterRead(now):
                self._read(now)
            case Proposed(new, outcome):
                if self._leading is None:
                    self._begin(self._taking_over.answered(new, outcome))
                elif new.epoch == self._leading.epoch and new in self._leading.in_sync.open:
                    self._leading.in_sync.answered(new, outcome)
            case DataSynced(index):
                self._data_synced(index)
            case CheckpointMade():
                if self._leading is None:
                    own.out.append(EraseCheckpoint(event.number))
                else:
                    self._leading.offering.made(event, self._leading.epoch)
            case ChunkWritten(file, end):
                self._receiving.written(file, end)
            case Installed(index, epoch, position):
                self._begun_anew = Applied(index, epoch, position)
            case TransferFailed():
                self._receiving.failed()
                if self._leading is not None:
                    self._leading.offering.end()
            case HandOver(to):
                if self._leading is not None:
                    self._leading.hand_over(to)
            case StoreBroke(reason):
                self._fail(reason)
            case _ as never:
                assert_never(never)

    def _received(self, source: Rid, message: Message) -> None:
        leading, promised = self._leading, self.epoch
        match message:
            case Append(epoch):
                if epoch < promised:
                    # Whoever leads this epoch may be the one who sent that, long ago: it must not take the hint for a short log.
                    if self._own.writing.stable_epoch == promised:
                        self._own.send(source, Nak(promised, self._own.writing.log.last))
                    return
                if epoch > promised:
                    self._follow(epoch, f"{source} leads epoch {epoch}")
                assert self._leading is None, f"{source} leads epoch {epoch}, and so does {self._own.rid}"
                self._following.take(source, message)
            case Nak(epoch) if epoch > promised:
                self._follow(epoch, f"{source} has promised epoch {epoch}")
            case Ack() if leading is not None:
                leading.acked(source, message)
            case Nak() if leading is not None:
                leading.refused(source, message)
            case Hello() if leading is not None:
                leading.hello(source, message)
            case Pull(epoch) if leading is not None and epoch == leading.epoch:
                leading.offering.pulled(source, message)
            case Yield(epoch) if leading is None and epoch == promised:
                self._taking_over.yielded()
            case Offer(epoch) if leading is None and epoch == promised:
                self._receiving.offered(source, message)
            case Chunk(epoch) if leading is None and epoch == promised:
                self._receiving.arrived(source, message)
            case _:
                pass  # of an epoch that is over, or to a role that is: whoever waits asks again

    def _tick(self, now_ms: int) -> None:
        own = self._own
        own.now_ms = now_ms
        if not self._started:
            self._started = True
            self._following.heard_ms = self._synced_ms = now_ms
        if self._leading is not None:
            self._leading.tick()
            return
        self._receiving.tick()
        cfg = own.cfg
        outside = cfg is not None and is_outside(cfg, own.rid)
        self._taking_over.tick(self._following.heard_ms, outside)
        if cfg is not None and outside:
            own.ask_to_join(cfg)

    def _read(self, now: Configuration | None) -> None:
        own, leading = self._own, self._leading
        if leading is not None:
            if now is not None and now.epoch > leading.epoch:
                own.learn(now)
                self._step_down(f"{now.leader} leads epoch {now.epoch}")
            else:
                leading.in_sync.read(now if now is not None and now.epoch == leading.epoch else None)
            return
        if now is not None and own.is_of_before(now):
            self._taking_over.read(None, self._following.heard_ms)
            own.out.append(Superseded(now.incarnation))
            return
        self._begin(self._taking_over.read(now, self._following.heard_ms))
        if now is not None and own.rid not in now.replicas and not is_outside(now, own.rid):
            own.out.append(Dismissed())

    # ---- roles

    def _begin(self, won: Configuration | None) -> None:
        if won is None:
            return
        self._following.begin()
        self._receiving.end()
        try:
            self._leading = Leading(self._own, won)
        except StoreFull:
            # The promise may be there: then this replica has no part in the epoch but to see that somebody takes it over.
            self._leading = None

    def _follow(self, epoch: int, why: str) -> None:
        self._own.writing.promise(epoch)
        self._step_down(why)
        self._following.begin()
        self._receiving.end()

    def _step_down(self, why: str) -> None:
        if self._leading is not None:
            self._leading.offering.end()
            self._leading = None
            self._following.heard_ms = self._own.now_ms
            self._own.out.append(SteppedDown(why))

    def _fail(self, reason: str) -> None:
        self._own.writing.broke()
        self._own.out.append(Failed(reason))

    # ---- after every event

    def _settle(self) -> None:
        own = self._own
        if self._begun_anew is not None and not own.writing.syncing:
            self._installed(self._begun_anew)
            self._begun_anew = None
        own.out += own.writing.wanted()
        if self._leading is not None:
            self._leading.settle()
        else:
            self._following.settle()
        self._apply()
        if self._leading is not None:
            self._leading.tell()

    def _apply(self) -> None:
        """What is committed and on the own disk."""
        own = self._own
        upto = min(own.commit, own.writing.stable)
        if own.applied.index >= upto or self._receiving.busy:
            return
        room = min(upto - own.applied.index, APPLY_ENTRIES_MAX)
        entries = self._before_drop(own.writing.log.read(own.applied.index + 1, room, APPLY_BYTES_MAX))
        if not entries:
            return
        for entry in entries:
            self._count(entry)
            if entry.kind is Kind.RECORD:
                own.applied.position = max(own.applied.position, entry.position())
        own.applied.index, own.applied.epoch = entries[-1].index, entries[-1].epoch
        own.out.append(Apply(tuple(entries), own.applied.position))
        bounds = self._retained
        if self._unsynced_bytes >= bounds.sync_data_bytes or own.now_ms - self._synced_ms >= bounds.sync_data_ms:
            self._sync_data()

    def _before_drop(self, entries: list[Entry]) -> list[Entry]:
        """A family is dropped when the data engine is on its disk up to there: dropping is durable at once, what was written is not, and a
        restart must not apply again what belongs into a family that is gone."""
        for place, entry in enumerate(entries):
            if entry.kind is Kind.DROP and self._own.data_synced < entry.index - 1:
                if place == 0:
                    self._sync_data()
                return entries[:place]
        return entries

    def _sync_data(self) -> None:
        if not self._asked_to_sync:
            self._asked_to_sync = True
            self._own.out.append(SyncData(self._own.applied.index))

    def _count(self, entry: Entry) -> None:
        self._bytes += len(entry.payload)
        self._unsynced_bytes += len(entry.payload)
        if not self._marks or self._bytes - self._marks[-1][1] >= _MARK_BYTES:
            self._marks.append((entry.index, self._bytes))

    def _data_synced(self, index: int) -> None:
        """The log is needed no more up to here, but for those who are behind."""
        own = self._own
        own.data_synced = max(own.data_synced, index)
        self._asked_to_sync, self._unsynced_bytes, self._synced_ms = False, 0, own.now_ms
        while len(self._marks) > 1 and self._bytes - self._marks[1][1] >= self._retained.bytes:
            self._marks.popleft()
        behind = [] if self._leading is None else [peer.match for peer in self._leading.peers.values()]
        long = bool(self._marks) and self._bytes - self._marks[0][1] >= self._retained.bytes
        retained = max(own.writing.log.last - self._retained.entries, self._marks[0][0] if long else 0)
        upto = min(own.data_synced, max(retained, min(behind, default=retained)))
        pinned = None if self._leading is None else self._leading.offering.pinned
        if pinned is not None:
            upto = min(upto, pinned)
        if upto >= own.writing.log.first:
            own.writing.log.trim(upto)

    def _installed(self, applied: Applied) -> None:
        """The data engine was replaced by a checkpoint; the log begins behind it."""
        own = self._own
        assert applied.index > own.applied.index, f"checkpoint at {applied.index} installed over {own.applied.index}"
        own.writing.reset(applied.index, applied.epoch)
        own.applied = applied
        own.data_synced = applied.index
        own.commit_upto(applied.index)
        self._receiving.failed()
        self._following.installed(applied.index)
