"""What all parts of one replica share: who it is, its log, what is committed and applied, the time, and the effects of this event.

Always holds (see check): applied <= commit; applied <= what is on the own disk; what is applied was never anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from shards.replication.configuration import Configuration, Rid
from shards.replication.events import Effect, Send
from shards.replication.messages import Message
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

    def commit_upto(self, index: int) -> None:
        self.commit = max(self.commit, index)

    def check(self) -> None:
        self.writing.check()
        assert self.applied.index <= self.commit, (self.applied, self.commit)
        assert self.applied.index <= self.writing.stable or not self.writing.stable_epoch, (self.applied, self.writing.stable)
