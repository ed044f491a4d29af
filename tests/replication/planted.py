"""Faults that are planted in the shipped core, to see whether the simulation finds them. Each is a mistake that somebody could make.

The first five words of the plan are among them: acknowledged before the fsync, no epoch check, served above the commit, cut off whatever
comes, a checkpoint that is not installed at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shards.engine import StoreFailed
from shards.replication import in_sync, leader, peers
from shards.replication.catch_up import Receiving
from shards.replication.configuration import Configuration, Rid
from shards.replication.entry import Entry
from shards.replication.events import Install, Submit
from shards.replication.follower import Following
from shards.replication.in_sync import InSync
from shards.replication.leader import Leading
from shards.replication.membership import former
from shards.replication.messages import Ack, Append, Message
from shards.replication.peers import Peer
from shards.replication.replica import Replica
from shards.replication.takeover import TakingOver
from tests.contracts.planting import Planting, faults
from tests.replication import register

# ---- on the disk


def acknowledged_before_the_fsync(planting: Planting) -> None:
    settle = Following.settle

    def planted(self: Following) -> None:
        writing = self._own.writing
        stable, writing.stable = writing.stable, writing.log.last
        settle(self)
        writing.stable = stable

    planting.replace(Following, "settle", planted)


def a_promise_is_answered_for_before_it_is_on_the_disk(planting: Planting) -> None:
    settle = Following.settle

    def planted(self: Following) -> None:
        writing = self._own.writing
        stable, writing.stable_epoch = writing.stable_epoch, writing.log.promised
        settle(self)
        writing.stable_epoch = stable

    planting.replace(Following, "settle", planted)


def a_leader_speaks_before_its_promise_is_on_the_disk(planting: Planting) -> None:
    settle = Leading.settle

    def planted(self: Leading) -> None:
        writing = self._own.writing
        stable, writing.stable_epoch = writing.stable_epoch, self.epoch
        settle(self)
        writing.stable_epoch = stable

    planting.replace(Leading, "settle", planted)


def a_leader_counts_itself_before_its_sync(planting: Planting) -> None:
    complete = Leading.complete

    def planted(self: Leading) -> int:
        writing = self._own.writing
        stable, writing.stable = writing.stable, writing.log.last
        try:
            return complete(self)
        finally:
            writing.stable = stable

    planting.replace(Leading, "complete", planted)


def what_is_not_on_the_own_disk_is_applied(planting: Planting) -> None:
    apply = Replica._apply

    def planted(self: Replica) -> None:
        writing = self._own.writing
        stable, writing.stable = writing.stable, writing.log.last
        apply(self)
        writing.stable = stable

    planting.replace(Replica, "_apply", planted)


def the_log_goes_before_the_data_is_on_its_disk(planting: Planting) -> None:
    synced = Replica._data_synced

    def planted(self: Replica, index: int) -> None:
        synced(self, self._own.applied.index)

    planting.replace(Replica, "_data_synced", planted)


def a_family_goes_before_the_data_is_on_its_disk(planting: Planting) -> None:
    planting.replace(Replica, "_before_drop", lambda self, entries: entries)


# ---- what is compared, and what is cut off


def no_epoch_check(planting: Planting) -> None:
    received = Replica._received

    def planted(self: Replica, source: Rid, message: Message) -> None:
        if isinstance(message, Append) and message.epoch < self.epoch and self._leading is None:
            self._following.take(source, message)
            self._own.send(source, Ack(message.epoch, message.before + len(message.entries)))
        else:
            received(self, source, message)

    planting.replace(Replica, "_received", planted)


def cut_off_whatever_comes(planting: Planting) -> None:
    def planted(self: Following, entries: tuple[Entry, ...]) -> None:
        if entries:
            self._own.writing.append(entries)

    planting.replace(Following, "_write", planted)


def nothing_is_compared(planting: Planting) -> None:
    def planted(self: Following, message: Append) -> tuple[int, tuple[Entry, ...]]:
        # As if what comes before were never another entry.
        log = self._own.writing.log
        return (log.first - 1 if message.before <= log.last else message.before), message.entries

    planting.replace(Following, "_kept", planted)


def a_follower_believes_any_commit(planting: Planting) -> None:
    take = Following.take

    def planted(self: Following, source: Rid, message: Append) -> None:
        take(self, source, message)
        self._own.commit_upto(min(message.commit, self._own.writing.log.last))

    planting.replace(Following, "take", planted)


def an_answer_of_another_epoch_counts(planting: Planting) -> None:
    def planted(self: Leading, source: Rid, ack: Ack) -> None:
        peer, last = self.peers.get(source), self._own.writing.log.last
        if peer is not None:
            peer.acked(min(ack.upto, last), last, self._own.now_ms)

    planting.replace(Leading, "acked", planted)


# ---- what is committed


def served_above_the_commit(planting: Planting) -> None:
    apply = Replica._apply

    def planted(self: Replica) -> None:
        if self._leading is not None:
            self._own.commit_upto(self._own.writing.stable)
        apply(self)

    planting.replace(Replica, "_apply", planted)


def a_majority_is_enough(planting: Planting) -> None:
    def planted(self: Leading) -> int:
        cfg = self.in_sync.cfg
        known = [self._own.writing.stable if rid == self._own.rid else self.peers[rid].match for rid in sorted(cfg.replicas)]
        return sorted(known, reverse=True)[len(known) // 2]

    planting.replace(Leading, "complete", planted)


def fewer_than_a_majority_is_enough(planting: Planting) -> None:
    complete = Leading.complete

    def planted(self: Leading) -> int:
        if self.in_sync.writable:
            return complete(self)
        others = [self.peers[rid].match for rid in sorted(self.in_sync.needed() - {self._own.rid})]
        return min([self._own.writing.stable, *others])

    planting.replace(Leading, "complete", planted)


# ---- the register


def only_the_known_record_counts(planting: Planting) -> None:
    planting.replace(InSync, "needed", lambda self: set(self.cfg.isr))


def an_unknown_outcome_is_settled_by_the_old_version(planting: Planting) -> None:
    read = InSync.read

    def planted(self: InSync, now: Configuration | None) -> None:
        if now is not None and now.ver == self.cfg.ver:
            self.open = []
        read(self, now)

    planting.replace(InSync, "read", planted)


def who_leaves_is_not_waited_for_from_the_proposal_on(planting: Planting) -> None:
    needed = InSync.needed

    def planted(self: InSync) -> set[Rid]:
        leaving = [self.cfg.isr - each.isr for each in self.open]
        return needed(self).difference(*leaving)

    planting.replace(InSync, "needed", planted)


def anybody_joins(planting: Planting) -> None:
    for module in (in_sync, leader):
        planting.replace(module, "caught_up", lambda own, peer, begin: True)


def a_restarted_leader_goes_on(planting: Planting) -> None:
    read = TakingOver.read

    def planted(self: TakingOver, now: Configuration | None, heard_ms: int) -> Configuration | None:
        if now is not None and now.leader == self._own.rid and now.epoch == self._own.writing.log.promised:
            self._asked = False
            return now
        return read(self, now, heard_ms)

    planting.replace(TakingOver, "read", planted)


def any_replica_takes_over(planting: Planting) -> None:
    planting.replace(Configuration, "may_lead", lambda self, rid: rid in self.replicas)


# ---- checkpoints, learners, submitting


def the_log_begins_anew_before_the_checkpoint_is_installed(planting: Planting) -> None:
    following = Receiving._next

    def planted(self: Receiving) -> None:
        following(self)
        for effect in self._own.out:
            if isinstance(effect, Install):
                self._own.writing.reset(effect.index, effect.epoch)

    planting.replace(Receiving, "_next", planted)


def half_a_checkpoint_is_installed(planting: Planting) -> None:
    following = Receiving._next

    def planted(self: Receiving) -> None:
        one = self._transfer
        if one is not None and one.file == 0 and one.offset >= one.offer.files[0][1]:
            one.file = len(one.offer.files)
        following(self)

    planting.replace(Receiving, "_next", planted)


def a_log_that_does_not_fit_its_data_is_kept(planting: Planting) -> None:
    start = Replica.__init__

    def planted(self: Replica, rid: Rid, log: Any, applied: Any, *more: Any) -> None:
        kept, log.reset = log.reset, lambda index, epoch: None
        try:
            start(self, rid, log, applied, *more)
        finally:
            log.reset = kept

    planting.replace(Replica, "__init__", planted)


def who_once_lacked_something_lacks_it_for_ever(planting: Planting) -> None:
    replicate = peers.replicate

    def planted(own: Any, epoch: int, peer: Peer) -> None:
        lacked = peer.lacks
        replicate(own, epoch, peer)
        peer.lacks = peer.lacks or lacked

    planting.replace(leader, "replicate", planted)


def who_is_not_wanted_any_more_keeps_its_place(planting: Planting) -> None:
    meet = Leading._meet

    def planted(self: Leading, cfg: Configuration) -> None:
        for peer in self.peers.values():
            if peer.hello_ms:
                peer.hello_ms = self._own.now_ms
        meet(self, cfg)

    planting.replace(Leading, "_meet", planted)


def a_copy_made_anew_is_counted_before_it_has_caught_up(planting: Planting) -> None:
    replacement = Leading._replacement

    def planted(self: Leading) -> Configuration | None:
        match, commit = {rid: peer.match for rid, peer in self.peers.items()}, max(self._own.commit, self.begin)
        for rid in self.peers.keys() - self.in_sync.cfg.replicas:
            self.peers[rid].match = commit
        try:
            return replacement(self)
        finally:
            for rid, peer in self.peers.items():
                peer.match = match[rid]

    planting.replace(Leading, "_replacement", planted)


def a_copy_made_anew_inherits_that_the_former_was_in_sync(planting: Planting) -> None:
    def planted(self: Leading) -> Configuration | None:
        cfg = self.in_sync.cfg
        for rid in sorted(self.peers.keys() - cfg.replicas):
            gone = former(cfg, rid)
            if gone is not None and gone != self._own.rid:
                heir = {gone: rid}
                replicas, isr, elr = (frozenset(heir.get(each, each) for each in some) for some in (cfg.replicas, cfg.isr, cfg.elr))
                return replace(cfg, ver=cfg.ver + 1, replicas=replicas, isr=isr, elr=elr, nonce=self._own.nonce())
        return None

    planting.replace(Leading, "_replacement", planted)
    planting.replace(register, "breach", lambda before, after: None)


def what_was_refused_is_there(planting: Planting) -> None:
    submit = Leading.submit

    def planted(self: Leading, event: Submit) -> None:
        # The same record is taken twice when the first time there was no room.
        log: Any = self._own.writing.log
        if log.full:
            log.full = False
            submit(self, event)
        submit(self, event)

    planting.replace(Leading, "submit", planted)


def a_broken_disk_is_used_further(planting: Planting) -> None:
    def planted(self: Replica, reason: str) -> None:
        try:
            self._own.writing.sync_done()
        except AssertionError as error:
            raise StoreFailed(reason) from error

    planting.replace(Replica, "_fail", planted)


ALL = faults(
    acknowledged_before_the_fsync,
    a_promise_is_answered_for_before_it_is_on_the_disk,
    a_leader_speaks_before_its_promise_is_on_the_disk,
    a_leader_counts_itself_before_its_sync,
    what_is_not_on_the_own_disk_is_applied,
    the_log_goes_before_the_data_is_on_its_disk,
    a_family_goes_before_the_data_is_on_its_disk,
    no_epoch_check,
    cut_off_whatever_comes,
    nothing_is_compared,
    a_follower_believes_any_commit,
    an_answer_of_another_epoch_counts,
    served_above_the_commit,
    a_majority_is_enough,
    fewer_than_a_majority_is_enough,
    only_the_known_record_counts,
    an_unknown_outcome_is_settled_by_the_old_version,
    who_leaves_is_not_waited_for_from_the_proposal_on,
    anybody_joins,
    a_restarted_leader_goes_on,
    any_replica_takes_over,
    the_log_begins_anew_before_the_checkpoint_is_installed,
    half_a_checkpoint_is_installed,
    a_log_that_does_not_fit_its_data_is_kept,
    who_once_lacked_something_lacks_it_for_ever,
    who_is_not_wanted_any_more_keeps_its_place,
    a_copy_made_anew_is_counted_before_it_has_caught_up,
    a_copy_made_anew_inherits_that_the_former_was_in_sync,
    what_was_refused_is_there,
    a_broken_disk_is_used_further,
)
