"""One replica, event by event: which effects leave, and when."""

from __future__ import annotations

from random import Random

import pytest

from shards.committer import Record
from shards.engine import StoreDamaged
from shards.replication.bounds import ACK_MS, FAILOVER_MS, HEARTBEAT_MS, LOOK_MS, UNCOMMITTED_BYTES_MAX, Retained
from shards.replication.configuration import Rid, first, rid_of, shrunk, taken_over
from shards.replication.entry import Entry, Kind, of_family
from shards.replication.events import (
    Apply,
    BeginTransfer,
    CheckpointMade,
    ChunkWritten,
    Committed,
    DataSynced,
    Dismissed,
    Effect,
    EraseCheckpoint,
    Event,
    Install,
    Installed,
    MakeCheckpoint,
    Propose,
    Proposed,
    ReadRegister,
    Received,
    Refused,
    RegisterRead,
    Send,
    SendChunk,
    Serve,
    StartSync,
    SteppedDown,
    Submit,
    SyncData,
    SyncDone,
    SyncStarted,
    Tick,
    WriteChunk,
)  # fmt: skip
from shards.replication.messages import Ack, Append, Chunk, Hello, Nak, Offer, Pull
from shards.replication.own import Applied
from shards.replication.ports import Outcome
from shards.replication.replica import Replica
from tests.replication.disk import MemoryLog

A, B, C = (rid_of(name, "1") for name in "abc")
NEW = first(frozenset((A, B, C)), "first")


class Bench:
    """A replica and its log; a sync takes place when asked for with `sync`."""

    def __init__(self, rid: Rid, log: MemoryLog | None = None, applied: Applied | None = None, retained: Retained | None = None) -> None:
        self.log = log or MemoryLog()
        self.replica = Replica(rid, self.log, applied or Applied(), Random(1), retained or Retained())

    def bring(self, *events: Event) -> list[Effect]:
        out: list[Effect] = []
        for event in events:
            out += self.replica.handle(event)
            self.replica.check()
        return out

    def sync(self) -> list[Effect]:
        out = self.bring(SyncStarted())
        self.log.sync()
        return out + self.bring(SyncDone())

    def hear(self, source: Rid, *entries: Entry, before: int = 0, before_epoch: int = 0, epoch: int = 1, commit: int = 0) -> list[Effect]:
        return self.bring(Received(source, Append(epoch, before, before_epoch, entries, commit)))


def record(index: int, position: int, epoch: int = 1) -> Entry:
    return Entry(index, epoch, Kind.RECORD, Record(position, [(0, b"k%d" % position, b"v")]).encode())


def leading() -> Bench:
    """A leads epoch 1; nothing is on its disk yet."""
    bench = Bench(A)
    assert bench.bring(Tick(0)) == [ReadRegister(), StartSync()]
    (proposal,) = [effect for effect in bench.bring(RegisterRead(NEW)) if isinstance(effect, Propose)]
    assert (proposal.new.leader, proposal.new.epoch, proposal.new.isr) == (A, 1, NEW.replicas)
    bench.bring(Proposed(proposal.new, Outcome.DONE))
    return bench


def serving() -> Bench:
    """And serves it: everybody has the NOOP."""
    bench = leading()
    bench.sync()
    bench.bring(Received(B, Ack(1, 1)), Received(C, Ack(1, 1)))
    assert bench.replica.serving
    return bench


# ---- leading


def test_a_leader_is_silent_until_its_promise_is_on_its_disk() -> None:
    """What it sent before could outlive what it remembers."""
    bench = Bench(A)
    bench.bring(Tick(0), SyncStarted())
    (proposal,) = [effect for effect in bench.bring(RegisterRead(NEW)) if isinstance(effect, Propose)]
    assert bench.bring(Proposed(proposal.new, Outcome.DONE), Tick(HEARTBEAT_MS)) == []
    # The sync that ends now began before the promise was made.
    assert bench.bring(SyncDone()) == [StartSync()]
    noop = Entry(1, 1, Kind.NOOP)
    assert bench.sync() == [Send(B, Append(1, 0, 0, (noop,), 0)), Send(C, Append(1, 0, 0, (noop,), 0))]


def test_it_serves_when_everybody_in_sync_has_its_beginning() -> None:
    """Applied first, then told."""
    bench = leading()
    bench.sync()
    assert bench.bring(Received(B, Ack(1, 1))) == []
    assert bench.bring(Received(C, Ack(1, 1))) == [Apply((Entry(1, 1, Kind.NOOP),), 0), Serve(1, 0), Committed(0)]


def test_a_record_is_sent_at_once_and_committed_when_all_have_it_on_disk() -> None:
    """The leader too: its own sync may be the last."""
    bench = serving()
    entry = record(2, 7)
    sent = Append(1, 1, 1, (entry,), 1)
    assert bench.bring(Submit(Kind.RECORD, entry.payload, 7)) == [StartSync(), Send(B, sent), Send(C, sent)]
    assert bench.bring(Received(B, Ack(1, 2)), Received(C, Ack(1, 2))) == []
    assert bench.sync() == [Apply((entry,), 7), Committed(7)]


def test_an_acknowledgement_of_another_epoch_is_not_counted() -> None:
    """The log it was given for may have been cut off since."""
    bench = serving()
    bench.bring(Submit(Kind.RECORD, record(2, 7).payload, 7))
    bench.sync()
    assert bench.bring(Received(B, Ack(0, 2)), Received(C, Ack(2, 2)), Received(B, Ack(1, 2))) == []


def test_who_is_put_out_of_the_isr_is_waited_for_until_the_register_says_so() -> None:
    """DONE, and what waited for it commits at once."""
    bench = serving()
    bench.bring(Submit(Kind.RECORD, record(2, 7).payload, 7))
    bench.sync()
    bench.bring(Tick(HEARTBEAT_MS), Received(B, Ack(1, 2)))
    (proposal,) = [effect.new for effect in bench.bring(Tick(ACK_MS)) if isinstance(effect, Propose)]
    assert proposal.isr == frozenset((A, B))
    assert Committed(7) in bench.bring(Proposed(proposal, Outcome.DONE))


def test_an_unknown_outcome_stays_open_when_the_old_version_is_read() -> None:
    """It may be on its way still: a newer version is made on top of the old, and that settles it."""
    bench = serving()
    bench.bring(Submit(Kind.RECORD, record(2, 7).payload, 7))
    bench.sync()
    bench.bring(Received(B, Ack(1, 2)))
    (lost,) = [effect.new for effect in bench.bring(Tick(ACK_MS)) if isinstance(effect, Propose)]
    assert bench.bring(Proposed(lost, Outcome.UNKNOWN)) == []
    known = bench.replica.cfg
    assert known is not None and ReadRegister() in bench.bring(Tick(2 * ACK_MS))
    (again,) = [effect.new for effect in bench.bring(RegisterRead(known)) if isinstance(effect, Propose)]
    assert (again.ver, again.isr) == (known.ver + 1, known.isr)
    assert not any(isinstance(effect, Committed) for effect in bench.bring(Proposed(again, Outcome.DONE)))


def test_a_newer_epoch_ends_it() -> None:
    """Whoever says so."""
    bench = serving()
    assert bench.bring(Received(B, Nak(2, 0))) == [SteppedDown("b/1 has promised epoch 2"), StartSync()]
    other = serving()
    later = taken_over(shrunk(taken_over(NEW, A, "x"), C, "y"), B, "z")
    other.bring(Tick(10_000))
    assert SteppedDown("b/1 leads epoch 2") in other.bring(RegisterRead(later))


def test_too_much_that_waits_is_refused_whole() -> None:
    """It may come again; nothing of it is anywhere."""
    bench = serving()
    half = b"x" * (UNCOMMITTED_BYTES_MAX // 2 + 1)
    bench.bring(Submit(Kind.RECORD, half, 7))
    (effect,) = bench.bring(Submit(Kind.RECORD, half, 8))
    assert isinstance(effect, Refused) and effect.position == 8 and "wait for replicas" in effect.reason
    assert bench.log.last == 2


# ---- following


def test_a_follower_answers_when_promise_and_entries_are_on_its_disk() -> None:
    """One sync for both."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.sync()
    assert bench.hear(A, record(1, 5), record(2, 6)) == [StartSync()]
    assert bench.sync() == [Send(A, Ack(1, 2))]
    assert bench.hear(A, before=2, before_epoch=1, commit=2) == [Send(A, Ack(1, 2)), Apply((record(1, 5), record(2, 6)), 6)]


def test_what_matches_is_kept_and_what_differs_is_replaced_in_one_write() -> None:
    """A late message that says less cuts nothing off."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.hear(A, record(1, 5), record(2, 6), record(3, 7))
    bench.hear(A, record(1, 5))
    assert bench.log.last == 3
    bench.hear(C, record(2, 9, 2), before=1, before_epoch=1, epoch=2)
    assert [bench.log.epoch_at(index) for index in (1, 2)] == [1, 2] and bench.log.last == 2


def test_what_is_committed_and_not_on_the_own_disk_is_not_applied() -> None:
    """Data must never be ahead of the log."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.sync()
    assert bench.hear(A, record(1, 5), commit=1) == [StartSync()]
    assert bench.sync() == [Send(A, Ack(1, 1)), Apply((record(1, 5),), 5)]


def test_an_older_epoch_is_answered_with_the_promise() -> None:
    """And with where the log ends, since whoever asked may lead the newer one by now."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.hear(A, record(1, 5), epoch=3)
    assert bench.hear(C, epoch=2) == [], "the promise is not on the disk"
    bench.sync()
    assert bench.hear(C, epoch=2) == [Send(C, Nak(3, 1))]


def test_a_silent_leader_is_replaced_after_the_patience_of_the_rank() -> None:
    """By a replica in sync; the first compare-and-set wins."""
    bench = Bench(B)
    led = taken_over(NEW, A, "x")
    bench.bring(Tick(0), RegisterRead(led))
    bench.sync()
    bench.hear(A, epoch=1)
    assert bench.bring(Tick(FAILOVER_MS - 1)) == []
    assert bench.bring(Tick(FAILOVER_MS)) == [ReadRegister()]
    (proposal,) = [effect.new for effect in bench.bring(RegisterRead(led)) if isinstance(effect, Propose)]
    assert (proposal.leader, proposal.epoch, proposal.isr) == (B, 2, frozenset((B, C)))


def test_a_proposal_of_unknown_outcome_is_known_again_by_its_nonce() -> None:
    """It was made after all."""
    bench = Bench(B)
    (proposal,) = [effect.new for effect in bench.bring(Tick(0), RegisterRead(NEW)) if isinstance(effect, Propose)]
    bench.bring(Proposed(proposal, Outcome.UNKNOWN))
    bench.bring(Tick(5_000), RegisterRead(proposal))
    assert (bench.replica.role, bench.replica.epoch) == ("leader", 1)


def test_a_leader_that_was_restarted_leads_under_the_next_epoch() -> None:
    """At once, but never its own old one."""
    led = taken_over(NEW, A, "x")
    bench = Bench(A)
    (proposal,) = [effect.new for effect in bench.bring(Tick(0), RegisterRead(led)) if isinstance(effect, Propose)]
    assert (bench.replica.role, proposal.epoch, proposal.leader) == ("follower", 2, A)


def test_who_is_no_replica_and_not_becoming_one_is_told() -> None:
    """By a linearizable read, and by nothing else."""
    bench = Bench(rid_of("d", "1"))
    assert bench.bring(Tick(0), RegisterRead(NEW))[-1] == Dismissed()


def test_a_copy_made_anew_asks_to_take_the_place_of_the_former_one() -> None:
    """It asks the copies of other sites, and looks into the register until it is in it; it never proposes anything itself."""
    anew = rid_of("c", "2")
    bench = Bench(anew)
    bench.bring(Tick(0))
    assert Dismissed() not in bench.bring(RegisterRead(taken_over(NEW, A, "x")))
    assert [effect for effect in bench.bring(Tick(100)) if isinstance(effect, Send)] == [Send(A, Hello(0)), Send(B, Hello(0))]
    bench.hear(A, before=0)
    assert ReadRegister() in bench.bring(Tick(LOOK_MS))


def test_a_copy_made_anew_is_counted_when_the_former_is_out_and_it_has_caught_up() -> None:
    """Not before: what the former had acknowledged is nothing that the new one has."""
    bench, anew = serving(), rid_of("c", "2")
    half = ACK_MS // 2
    shown = bench.bring(Tick(half), Received(anew, Hello(0)), Received(anew, Ack(1, 1)), Received(B, Ack(1, 1)), Tick(half + 100))
    assert not [effect for effect in shown if isinstance(effect, Propose)], "the former is in the isr"
    (shrink,) = [effect.new for effect in bench.bring(Tick(ACK_MS)) if isinstance(effect, Propose)]
    assert shrink.isr == {A, B} and shrink.replicas == {A, B, C}
    bench.bring(Proposed(shrink, Outcome.DONE))
    (joined,) = [effect.new for effect in bench.bring(Tick(ACK_MS + 100)) if isinstance(effect, Propose)]
    assert joined.isr == joined.replicas == {A, B, anew}
    bench.bring(Submit(Kind.RECORD, record(2, 5).payload, 5))
    bench.sync()
    assert bench.bring(Received(B, Ack(1, 2))) == [], "it is waited for from before the proposal"
    assert isinstance(bench.bring(Received(anew, Ack(1, 2)))[0], Apply)


# ---- families and checkpoints


def test_a_family_is_dropped_when_the_data_before_it_is_on_disk() -> None:
    """What comes behind waits for it."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.sync()
    drop = of_family(2, 1, Kind.DROP, 4)
    bench.hear(A, record(1, 5), drop, record(3, 6), commit=3)
    assert bench.sync() == [Send(A, Ack(1, 3)), Apply((record(1, 5),), 5)]
    assert bench.bring(Tick(1)) == [SyncData(1)]
    assert bench.bring(DataSynced(1)) == [Apply((drop, record(3, 6)), 6)]


def test_a_checkpoint_is_made_offered_pulled_and_erased() -> None:
    """The leader's side, for who is behind where its log begins."""
    bench = serving()
    for index in range(2, 6):
        bench.bring(Submit(Kind.RECORD, record(index, index).payload, index))
    bench.sync()
    bench.log.trim(4)
    fresh = Bench(A, bench.log, Applied(5, 1, 5))
    (proposal,) = [effect.new for effect in fresh.bring(Tick(0), RegisterRead(taken_over(NEW, A, "x"))) if isinstance(effect, Propose)]
    fresh.bring(Proposed(proposal, Outcome.DONE))
    fresh.sync()
    assert MakeCheckpoint(1) in fresh.bring(Received(C, Nak(2, 0)))
    files = (("one", 4), ("two", 0))
    assert fresh.bring(CheckpointMade(1, 5, 1, files)) == [Send(C, Offer(2, 1, 5, 1, files))]
    assert fresh.bring(Received(C, Pull(2, 1, 0, 0))) == [SendChunk(C, Pull(2, 1, 0, 0))]
    assert EraseCheckpoint(1) in fresh.bring(Received(C, Ack(2, 5)))


def test_a_checkpoint_is_pulled_written_and_installed_and_then_the_log_begins_anew() -> None:
    """The learner's side: not before all of it is there."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.hear(A)
    bench.sync()
    files = (("one", 4), ("two", 0))
    pull = Pull(1, 9, 0, 0)
    assert bench.bring(Received(A, Offer(1, 9, 40, 1, files))) == [BeginTransfer(files), Send(A, pull)]
    broken = Chunk(1, 9, 0, 0, b"ab", 1)
    assert bench.bring(Received(A, broken)) == [], "it was changed on its way"
    assert bench.bring(Received(A, Chunk.of(pull, b"ab"))) == [WriteChunk(0, 0, b"ab")]
    assert bench.bring(ChunkWritten(0, 2)) == [Send(A, Pull(1, 9, 0, 2))]
    assert bench.bring(Received(A, Chunk.of(Pull(1, 9, 0, 2), b"cd"))) == [WriteChunk(0, 2, b"cd")]
    assert bench.bring(ChunkWritten(0, 4)) == [Install(40, 1)]
    assert bench.log.last == 0
    assert bench.bring(Installed(40, 1, 99)) == [Send(A, Ack(1, 40))]
    assert (bench.log.first, bench.log.last, bench.replica.applied) == (41, 40, 40)


def test_a_crash_between_the_renaming_and_the_log_is_mended_at_the_start() -> None:
    """The data says where the log has to begin."""
    log = MemoryLog()
    log.append([record(1, 5), record(2, 6)])
    bench = Bench(B, log, Applied(40, 3, 99))
    assert (bench.log.first, bench.log.last, bench.replica.commit) == (41, 40, 40)


def test_data_that_the_log_cannot_bring_forward_is_damage() -> None:
    """Nothing is begun anew by itself: that would be a copy that claims to have everything."""
    log = MemoryLog()
    log.reset(40, 3)
    with pytest.raises(StoreDamaged, match="the data engine ends at entry 12, and the log begins at 41"):
        Bench(B, log, Applied(12, 2, 9))


def test_the_log_goes_when_the_data_is_on_disk_and_nobody_needs_it() -> None:
    """But for what is kept for who is behind."""
    bench = Bench(B, retained=Retained(entries=2))
    bench.bring(Tick(0))
    bench.hear(A, *(record(index, index) for index in range(1, 9)), commit=8)
    bench.sync()
    bench.bring(DataSynced(5))
    assert bench.log.first == 6
    bench.bring(DataSynced(8))
    assert (bench.log.first, bench.log.last) == (7, 8)
