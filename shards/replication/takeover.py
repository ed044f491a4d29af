"""Taking over: when a follower asks the register, and when it proposes itself.

A proposal of unknown outcome may be made at any time. So its nonce is remembered, and whenever a read shows a record with it, this replica
leads. A process that was started anew remembers none: it takes over under the next epoch.
"""

from __future__ import annotations

from shards.replication.bounds import ELIGIBLE_MS, FAILOVER_MS, LOOK_MS, RANK_MS, REGISTER_MS
from shards.replication.configuration import Configuration, taken_over
from shards.replication.events import Propose, ReadRegister
from shards.replication.own import Own
from shards.replication.ports import Outcome

PROPOSALS_MAX = 64
"""Nonces remembered. The oldest is forgotten: if its proposal is made after all, this replica takes over once more."""


class TakingOver:
    __slots__ = ("_asked", "_asked_ms", "_hurry", "_mine", "_own", "_seen_epoch")

    def __init__(self, own: Own) -> None:
        self._own = own
        self._mine: dict[str, int] = {}
        self._asked = False
        self._asked_ms = -REGISTER_MS
        self._seen_epoch = 0
        self._hurry = True
        """The first look is at once, and so is one after the leader has yielded."""

    def tick(self, heard_ms: int, outside: bool) -> None:
        """outside: it is no replica yet, so nobody but the register tells it when it is."""
        own = self._own
        waited = self._hurry or own.now_ms - heard_ms >= self._patience_ms() or (outside and own.now_ms - self._asked_ms >= LOOK_MS)
        if not self._asked and waited and own.now_ms - self._asked_ms >= REGISTER_MS:
            self._look()

    def yielded(self) -> None:
        """The leader wants this replica to lead, and takes nothing meanwhile."""
        self._hurry = True
        self._seen_epoch = max(self._seen_epoch, self._own.writing.log.promised)
        if not self._asked:
            self._look()

    def read(self, now: Configuration | None, heard_ms: int) -> Configuration | None:
        """The record under which this replica leads now, if it does; else what comes next is asked."""
        own = self._own
        self._asked = False
        if now is None:
            return None
        own.learn(now)
        if now.nonce in self._mine and now.leader == own.rid and now.epoch > own.writing.log.promised:
            return self._won(now)
        promised = own.writing.log.promised
        newer = now.epoch > self._seen_epoch and now.leader not in (own.rid, "")
        self._seen_epoch = max(self._seen_epoch, now.epoch)
        silent = own.now_ms - heard_ms >= self._patience_ms() or (self._hurry and not newer)
        # A restarted leader does not wait for itself; who has promised more than it read there has heard of a newer record.
        if (silent or now.leader == own.rid) and now.may_lead(own.rid) and now.epoch >= promised:
            new = taken_over(now, own.rid, own.nonce())
            self._mine[new.nonce] = new.ver
            while len(self._mine) > PROPOSALS_MAX:
                del self._mine[next(iter(self._mine))]
            self._asked = True
            own.out.append(Propose(new))
        self._hurry = False
        return None

    def answered(self, new: Configuration, outcome: Outcome) -> Configuration | None:
        self._asked = False
        own = self._own
        if outcome is Outcome.DONE:
            own.learn(new)
            return self._won(new) if new.epoch > own.writing.log.promised else None
        return None

    def _won(self, now: Configuration) -> Configuration:
        self._mine.clear()
        self._seen_epoch = now.epoch
        return now

    def _look(self) -> None:
        self._asked, self._asked_ms = True, self._own.now_ms
        self._own.out.append(ReadRegister())

    def _patience_ms(self) -> int:
        """How long a silence means something: by rank, so that not all try at once."""
        own, cfg = self._own, self._own.cfg
        if cfg is None:
            return FAILOVER_MS
        if own.rid in cfg.isr:
            return FAILOVER_MS + RANK_MS * sorted(cfg.isr - {cfg.leader} | {own.rid}).index(own.rid)
        return FAILOVER_MS + ELIGIBLE_MS + RANK_MS * sorted(cfg.replicas | {own.rid}).index(own.rid)
