"""The register as a leader sees it: the record it knows, what it has proposed and does not know the outcome of, and what to propose next.

A proposal is open from before it is made until the register is known to be past it. Whoever is in the isr of an open proposal is waited
for as if it were made, and whoever it puts out is waited for as if it were not.

Always holds (see check): every open proposal has a higher version than the record that is known; one question is under way at a time.
"""

from __future__ import annotations

from dataclasses import replace

from shards.replication.bounds import ACK_MS, LOOK_MS, REGISTER_MS
from shards.replication.configuration import Configuration, Rid, expanded, shrunk
from shards.replication.events import Propose, ReadRegister
from shards.replication.own import Own
from shards.replication.peers import Peer
from shards.replication.ports import Outcome


class InSync:
    __slots__ = ("_asked", "_asked_ms", "_own", "_unknown", "cfg", "open")

    def __init__(self, own: Own, cfg: Configuration) -> None:
        self._own = own
        self.cfg = cfg
        self.open: list[Configuration] = []
        self._asked = False
        self._unknown = False
        self._asked_ms = own.now_ms

    def needed(self) -> set[Rid]:
        """Whose acknowledgements a commit needs: in whatever record the register may hold."""
        return set(self.cfg.isr).union(*(each.isr for each in self.open))

    @property
    def writable(self) -> bool:
        """In whatever record the register may hold, enough are in sync."""
        return all(each.writable for each in (self.cfg, *self.open))

    @property
    def settled(self) -> bool:
        """Nothing is open or asked: something new may be proposed."""
        return not self.open and not self._asked and not self._unknown

    def propose(self, new: Configuration) -> None:
        self.open.append(new)
        self._ask()
        self._own.out.append(Propose(new))

    def look(self) -> None:
        if not self._asked:
            self._ask()
            self._own.out.append(ReadRegister())

    def answered(self, new: Configuration, outcome: Outcome) -> None:
        self._asked = False
        if outcome is Outcome.DONE:
            self.adopt(new)
        else:
            # After CONFLICT too: somebody else has made a newer version, and a read shows it.
            self._unknown = True
            if outcome is Outcome.CONFLICT:
                self.look()

    def read(self, now: Configuration | None) -> None:
        """A linearizable read of this epoch, or none."""
        self._asked = False
        if now is None:
            return
        if now.ver > self.cfg.ver:
            self.adopt(now)
        elif self.open:
            # The old version says nothing of what is on its way: only a newer one does. So one is made, on top of the old.
            self.propose(replace(now, ver=now.ver + 1, nonce=self._own.nonce()))
        else:
            self._unknown = False

    def adopt(self, now: Configuration) -> None:
        self._own.learn(now)
        if now.ver > self.cfg.ver:
            self.cfg = now
        self.open = [each for each in self.open if each.ver > self.cfg.ver]
        self._unknown = bool(self.open)

    def tick(self) -> None:
        """Look again: soon when something is open, else now and then."""
        if not self._asked and self._own.now_ms - self._asked_ms >= (REGISTER_MS if self.open or self._unknown else LOOK_MS):
            self.look()

    def change(self, peers: dict[Rid, Peer], begin: int) -> Configuration | None:
        """Who has to leave the isr, or can join it."""
        own, cfg = self._own, self.cfg
        for rid in sorted(cfg.isr - {own.rid}):
            if peers[rid].behind_ms(own.now_ms) >= ACK_MS:
                return shrunk(cfg, rid, own.nonce())
        for rid in sorted(cfg.replicas - cfg.isr):
            if caught_up(own, peers[rid], begin):
                return expanded(cfg, rid, own.nonce())
        return None

    def check(self) -> None:
        assert all(each.ver > self.cfg.ver for each in self.open), (self.cfg, self.open)

    def _ask(self) -> None:
        self._asked, self._asked_ms = True, self._own.now_ms


def caught_up(own: Own, peer: Peer, begin: int) -> bool:
    """It has all that is committed, and the beginning of this epoch; and it answers."""
    return peer.match >= max(own.commit, begin) and peer.behind_ms(own.now_ms) < ACK_MS
