"""Leading one epoch: entries are made, sent, counted, and committed when everybody who must has them.

Life cycle: won -> promise on the disk -> NOOP committed and applied: serving -> yielding, or deposed.

Always holds (see check):
1. nothing of the epoch is sent before its promise is on the own disk;
2. what is committed is on the disk of everybody in every isr that may be in force, the leader among them, with min_isr in each;
3. positions of records grow, and are told committed in their order.
"""

from __future__ import annotations

from collections import deque

from shards.engine import StoreFull
from shards.replication.bounds import ACK_MS, LEARNER_MS, LEARNERS_MAX, UNCOMMITTED_BYTES_MAX
from shards.replication.catch_up import Offering
from shards.replication.configuration import REPLICAS_MAX, Configuration, Rid, added, claimed, may_remove, removed, replaced, site_of
from shards.replication.entry import BEFORE_FIRST, PAYLOAD_BYTES_MAX, Entry, Kind
from shards.replication.events import Committed, Refused, Serve, Submit
from shards.replication.in_sync import InSync, caught_up
from shards.replication.membership import former, next_step, obsolete, of_site
from shards.replication.messages import Ack, Hello, Nak, Yield
from shards.replication.own import Own
from shards.replication.peers import Peer, replicate


class Leading:
    __slots__ = (
        "_bytes", "_own", "_told", "_waiting", "_yield_ms", "begin", "epoch", "in_sync", "offering", "peers", "serving", "yielding",
    )  # fmt: skip

    def __init__(self, own: Own, cfg: Configuration) -> None:
        """Promises the epoch and writes its NOOP. Raises StoreFull: then nobody leads, until another replica takes over."""
        self._own = own
        self.epoch = cfg.epoch
        self.in_sync = InSync(own, cfg)
        self.offering = Offering(own)
        self.peers: dict[Rid, Peer] = {}
        own.writing.promise(cfg.epoch, cfg.incarnation)
        last = own.writing.log.last
        own.writing.append([Entry(last + 1, cfg.epoch, Kind.NOOP)])
        self.begin = last + 1
        self._waiting: deque[tuple[int, int, int]] = deque()
        """(index, position, bytes) of what is submitted and not told committed; position 0: no record."""
        self._bytes = 0
        self._told = -1
        self.serving = False
        self.yielding: Rid | None = None
        self._yield_ms = 0
        self._meet(cfg)

    def submit(self, event: Submit) -> None:
        own, size = self._own, len(event.payload)
        log = own.writing.log
        why = None
        if self.yielding is not None:
            why = "the leader is handing over"
        elif size > PAYLOAD_BYTES_MAX:
            why = f"a record of {size} bytes, {PAYLOAD_BYTES_MAX} is the most"
        elif self._bytes and self._bytes + size > UNCOMMITTED_BYTES_MAX:
            why = f"{self._bytes} bytes wait for replicas, {UNCOMMITTED_BYTES_MAX} is the most"
        else:
            try:
                own.writing.append([Entry(log.last + 1, self.epoch, event.kind, event.payload)])
            except StoreFull as error:
                why = str(error)
        if why is not None:
            own.out.append(Refused(event.position, why))
            return
        self._waiting.append((log.last, event.position, size))
        self._bytes += size

    def acked(self, source: Rid, ack: Ack) -> None:
        peer = self.peers.get(source)
        if peer is not None and ack.epoch == self.epoch:
            last = self._own.writing.log.last
            assert ack.upto <= last, f"{source} acknowledges {ack.upto}, and the log ends at {last}"
            peer.acked(ack.upto, last, self._own.now_ms)
            self.offering.acked(source, ack.upto)

    def refused(self, source: Rid, nak: Nak) -> None:
        peer = self.peers.get(source)
        if peer is not None and nak.epoch == self.epoch:
            peer.refused(nak.hint, self._own.writing.log.last, self._own.now_ms)

    def hello(self, source: Rid, hello: Hello) -> None:
        """Somebody wants to catch up: who was asked for, or who is to take the place of a former copy of its site. Who is not wanted any
        more is forgotten after a while, and then reads in the register that it is not."""
        cfg, now_ms = self.in_sync.cfg, self._own.now_ms
        anew = former(cfg, source) is not None
        if hello.incarnation != cfg.incarnation:
            return
        if not anew and (cfg.trans is None or cfg.trans.op != "add" or site_of(source) != cfg.trans.site):
            return
        peer = self.peers.get(source)
        if peer is None:
            # Of each kind: a site can be added only while enough are in sync, and that may hang on who was made anew.
            learners = [rid for rid in self.peers.keys() - cfg.replicas if (former(cfg, rid) is not None) == anew]
            if len(learners) >= LEARNERS_MAX:
                return
            last = self._own.writing.log.last
            peer = self.peers[source] = Peer(source, min(hello.last, last), last, now_ms)
        peer.hello_ms = peer.heard_ms = now_ms

    def hand_over(self, to: Rid) -> None:
        """Take nothing more until `to` has everything and leads, or does not in time."""
        if self.yielding is None and to in self.in_sync.cfg.isr and to != self._own.rid:
            self.yielding, self._yield_ms = to, self._own.now_ms

    def tick(self) -> None:
        own = self._own
        self.in_sync.tick()
        self.offering.tick()
        if self.yielding is not None and own.now_ms - self._yield_ms >= ACK_MS:
            self.yielding = None
        heir = None if self.yielding is None else self.peers.get(self.yielding)
        if heir is not None and heir.match == own.writing.log.last:
            own.send(heir.rid, Yield(self.epoch))
        self._meet(self.in_sync.cfg)
        if own.writing.stable_epoch == self.epoch and self.in_sync.settled:
            new = self.in_sync.change(self.peers, self.begin) or self._replacement() or self._step()
            if new is not None:
                self.in_sync.propose(new)

    def settle(self) -> None:
        """After every event: send what can be sent, and commit what is complete."""
        own = self._own
        if own.writing.stable_epoch == self.epoch:
            for peer in self.peers.values():
                replicate(own, self.epoch, peer)
                if peer.lacks:
                    self.offering.want(peer, self.epoch)
        upto = self.complete()
        if upto >= self.begin:
            own.commit_upto(upto)

    def complete(self) -> int:
        """The highest index that may be committed."""
        if not self.in_sync.writable:
            return BEFORE_FIRST
        others = self.in_sync.needed() - {self._own.rid}
        return min([self._own.writing.stable, *(self.peers[rid].match if rid in self.peers else 0 for rid in others)])

    def tell(self) -> None:
        """What was applied is told: first that this replica serves, then how far records are committed."""
        own = self._own
        if own.applied.index < self.begin:
            return
        if not self.serving:
            self.serving = True
            own.out.append(Serve(self.epoch, own.applied.position))
        while self._waiting and self._waiting[0][0] <= own.applied.index:
            self._bytes -= self._waiting.popleft()[2]
        if own.applied.position > self._told:
            self._told = own.applied.position
            own.out.append(Committed(self._told))

    def check(self) -> None:
        self.in_sync.check()
        for peer in self.peers.values():
            peer.check(self._own.writing.log.last)
        assert self._bytes == sum(size for _, _, size in self._waiting)

    # ---- within

    def _meet(self, cfg: Configuration) -> None:
        """Everybody who is a replica in some record that may be in force is a peer; learners come and go."""
        own = self._own
        last = own.writing.log.last
        known = set(cfg.replicas).union(*(each.replicas for each in self.in_sync.open)) - {own.rid}
        for rid in sorted(known - self.peers.keys()):
            # As if it had what came before the NOOP: if it has not it says so.
            self.peers[rid] = Peer(rid, min(self.begin - 1, last), last, own.now_ms)
        for rid in sorted(self.peers.keys() - known):
            if own.now_ms - self.peers[rid].hello_ms >= LEARNER_MS:
                del self.peers[rid]

    def _replacement(self) -> Configuration | None:
        """A copy that was made anew takes the place of the former one of its site, when that is out of the isr and it has caught up."""
        own, cfg = self._own, self.in_sync.cfg
        for rid in sorted(self.peers.keys() - cfg.replicas):
            gone = former(cfg, rid)
            if gone is not None and gone not in cfg.isr and caught_up(own, self.peers[rid], self.begin):
                return replaced(cfg, gone, rid, own.nonce())
        return None

    def _step(self) -> Configuration | None:
        """One step of membership, of the one that is claimed, or claiming the next."""
        own, cfg = self._own, self.in_sync.cfg
        if obsolete(cfg):
            return claimed(cfg, None, own.nonce())
        if cfg.trans is None:
            step = next_step(cfg)
            return None if step is None else claimed(cfg, step, own.nonce())
        if cfg.trans.op == "add":
            ready = [rid for rid in sorted(self.peers.keys() - cfg.replicas) if site_of(rid) == cfg.trans.site]
            ready = [rid for rid in ready if caught_up(own, self.peers[rid], self.begin)]
            if ready and cfg.writable and len(cfg.replicas) < REPLICAS_MAX:
                return added(cfg, ready[0], own.nonce())
            return None
        leaving = of_site(cfg, cfg.trans.site)
        if leaving == own.rid:
            best = max(sorted(cfg.isr - {own.rid}), key=lambda rid: self.peers[rid].match, default=None)
            if best is not None:
                self.hand_over(best)
        elif leaving is not None and may_remove(cfg, leaving):
            return removed(cfg, leaving, own.nonce())
        return None
