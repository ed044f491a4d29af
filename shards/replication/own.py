"""What all parts of one replica share: who it is, its log, what is committed and applied, the time, and the effects of this event.

Always holds (see check): applied <= commit; applied <= what is on the own disk; what is applied was never anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from shards.replication.configuration import Configuration, Rid, site_of
from shards.replication.events import Effect, Send
from shards.replication.messages import Hello, Message
from shards.replication.writing import Writing


@dataclass(slots=True)
class Applied:
    """The applied row of the data engine: the last entry that is in it, and the highest position of a record."""

    index: int = 0
    epoch: int = 0
    position: int = 0


@dataclass(slots=True)
class Own:
    """cfg: the newest register record known. commit: the highest index known to be committed, of the own log. data_synced: so far the
    data engine is on its disk."""

    rid: Rid
    writing: Writing
    applied: Applied
    rng: Random
    cfg: Configuration | None = None
    commit: int = 0
    data_synced: int = 0
    now_ms: int = 0
    out: list[Effect] = field(default_factory=list)

    def send(self, to: Rid, message: Message) -> None:
        self.out.append(Send(to, message))

    def nonce(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    def learn(self, cfg: Configuration) -> None:
        """Versions only grow, whoever tells them first."""
        if self.cfg is None or cfg.ver > self.cfg.ver:
            self.cfg = cfg

    def is_of_before(self, cfg: Configuration) -> bool:
        """Leadership was forced without this copy: what it holds is of an incarnation that is over. One that has never heard a leader
        holds nothing, and is of none yet."""
        log = self.writing.log
        return self.rid not in cfg.replicas and log.promised > 0 and log.incarnation < cfg.incarnation

    def ask_to_join(self, cfg: Configuration) -> None:
        """As a learner. Who is of no incarnation yet joins this one, and hears no leader of before any more."""
        log = self.writing.log
        if not log.promised and log.incarnation < cfg.incarnation:
            self.writing.promise(cfg.epoch, cfg.incarnation)
        if log.incarnation == cfg.incarnation:
            for rid in sorted(each for each in cfg.replicas if site_of(each) != site_of(self.rid)):
                self.send(rid, Hello(log.last, log.incarnation))

    def commit_upto(self, index: int) -> None:
        self.commit = max(self.commit, index)

    def check(self) -> None:
        self.writing.check()
        assert self.applied.index <= self.commit, (self.applied, self.commit)
        assert self.applied.index <= self.writing.stable or not self.writing.stable_epoch, (self.applied, self.writing.stable)
