"""The protocol of docs/replication.md at its barest, and a world that does its worst to it.

Not the shipped core: a second telling of the same rules, small enough to be read at once, in which each rule can be left out. It says
whether the *rules* hold; tests/replication/simulation.py says whether the code keeps them. The register record and its changes are the
shipped ones (shards.replication.configuration): those are rules already.

The world: five copies, three of them replicas at first. Messages are lost, delayed, repeated and reordered; a copy loses its power, and
with it whatever it had not synced; it is cut off from others or from the register. A compare-and-set travels like any message: it may
arrive long after its author has given up on it, and its answer may be lost.

Checked: two copies never commit different entries at one place; nothing committed is cut off; whatever was committed, by whoever, is in the
log of everybody who may lead; at most one leads in an epoch; no record follows another that may not; in the end all is whole again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from shards.replication.configuration import (
    REPLICAS_MAX,
    Configuration,
    Rid,
    added,
    breach,
    expanded,
    first,
    may_remove,
    removed,
    shrunk,
    taken_over,
)
from tests.replication.model_words import Ack, Append, Copy, Item, Message, Nak, Rule, Violation

COPIES = tuple(Rid(f"s{number}/c") for number in range(5))
STEPS = 2600
HEALING_STEPS = 9000
MESSAGES_MAX = 50


class Model:
    def __init__(self, seed: int, without: Rule | None = None) -> None:
        self.rng = random.Random(f"replication {seed}")
        self.without = without
        self.record = first(frozenset(COPIES[:3]), "first")
        self.copies = {rid: Copy(rid) for rid in COPIES}
        self.messages: list[tuple[Rid, Rid, Message]] = []
        self.later: list[tuple[int, int, Callable[[], None]]] = []
        self.apart: set[Rid] = set()
        self.from_register: set[Rid] = set()
        self.slow: set[Rid] = set()
        self.committed: list[Item] = []
        self.leaders: dict[int, tuple[Rid, int]] = {}
        self.happened: Counter[str] = Counter()
        self.healing = False
        self._steps = 0
        self._serial = 0
        self._values = 0

    def keeps(self, rule: Rule) -> bool:
        return self.without is not rule

    # ------------------------------------------------------------------ the run

    def run(self) -> None:
        for _ in range(STEPS):
            self._step()
        self._heal()
        for step in range(HEALING_STEPS):
            self._step()
            if step % 50 == 0 and self._whole():
                break
        else:
            raise Violation(f"nothing is whole {HEALING_STEPS} steps after everything was mended: {self.record}")

    def _after(self, steps: int, action: Callable[[], None]) -> None:
        self._serial += 1
        heappush(self.later, (self._steps + steps, self._serial, action))

    def _step(self) -> None:
        self._steps += 1
        while self.later and self.later[0][0] <= self._steps:
            heappop(self.later)[2]()
        dice = self.rng.random()
        if dice < 0.58:
            self._deliver()
        elif dice < 0.982 or self.healing:
            copy = self.copies[self.rng.choice(COPIES)]
            if copy.up:
                self._act(copy)
        else:
            self._break()

    def _act(self, copy: Copy) -> None:
        dice = self.rng.random()
        if dice < 0.3:
            self._sync(copy)
        elif copy.leads:
            self._lead(copy)
        elif dice < (0.5 if self.healing else 0.34):
            self._consider(copy)
        if self.rng.random() < 0.1:
            # What is applied may come to the disk at any time, before the log does.
            copy.disk.applied = min(copy.commit, copy.stable) if self.keeps(Rule.APPLY_WHAT_IS_SYNCED) else copy.commit

    # ------------------------------------------------------------------ faults

    def _break(self) -> None:
        rid = self.rng.choice(COPIES)
        copy = self.copies[rid]
        match self.rng.randrange(8):
            case 0 | 1 if copy.up:
                self._cut(copy)
            case 0 | 1 | 2 | 3 if not copy.up:
                self._start(copy)
            case 4:
                self.apart.add(rid)
            case 5:
                self.apart.clear()
            case 6:
                self.from_register.add(rid)
            case 7:
                self.from_register.clear()

    def _part(self, rids: list[Rid]) -> None:
        if rids and not self.healing:
            self.apart.add(rids[0])

    def _cut(self, copy: Copy) -> None:
        if copy.up and not self.healing:
            self.happened["power cut"] += 1
            copy.up = False

    def _start(self, copy: Copy) -> None:
        if copy.up:
            return
        disk = copy.disk
        copy.log, copy.promised, copy.commit = disk.log.copy(), disk.promised, disk.applied
        copy.stable = len(copy.log)
        if copy.commit > copy.stable:
            raise Violation(f"{copy.rid} has applied {copy.commit}, and its log ends at {copy.stable}")
        copy.up, copy.leads, copy.life = True, False, copy.life + 1
        copy.open, copy.waiting = [], []
        if self.keeps(Rule.RESTART_TAKES_OVER):
            copy.known = set()

    def _heal(self) -> None:
        self.healing = True
        self.apart.clear()
        self.from_register.clear()
        self.slow.clear()
        for copy in self.copies.values():
            self._start(copy)

    def _whole(self) -> bool:
        leader = self.copies.get(self.record.leader)
        if leader is None or not leader.leads or leader.promised != self.record.epoch or self.record.isr != self.record.replicas:
            return False
        self._check_complete()
        return leader.commit >= leader.begin > 0 and len(self.committed) <= leader.commit

    # ------------------------------------------------------------------ messages

    def _send(self, source: Rid, target: Rid, message: Message) -> None:
        if (source in self.apart or target in self.apart) and self.rng.random() < 0.9:
            return
        if self.rng.random() < (0.7 if source in self.slow else 0.1):
            self._after(self.rng.randint(40, 250), lambda: self.messages.append((source, target, message)))
            return
        self.messages.append((source, target, message))
        if len(self.messages) > MESSAGES_MAX:
            del self.messages[:20]

    def _deliver(self) -> None:
        if not self.messages:
            return
        place = self.rng.randrange(min(len(self.messages), 14))
        source, target, message = self.messages[place]
        if self.rng.random() > 0.05:
            del self.messages[place]
        copy = self.copies[target]
        if not copy.up:
            return
        match message:
            case Append():
                self._take(copy, source, message)
            case Ack(epoch, upto) if copy.leads and epoch == copy.promised:
                copy.match[source] = max(copy.match[source], upto)
                copy.next[source] = max(copy.next[source], upto)
                self._advance(copy)
            case Nak(epoch, hint) if copy.leads and epoch == copy.promised:
                copy.next[source] = max(copy.match[source], hint)
            case _:
                pass

    # ------------------------------------------------------------------ a follower

    def _take(self, copy: Copy, source: Rid, message: Append) -> None:
        if message.epoch < copy.promised and self.keeps(Rule.OLD_EPOCH_REFUSED):
            return
        if message.epoch > copy.promised:
            copy.promised, copy.leads, copy.open, copy.waiting = message.epoch, False, [], []
        elif copy.leads:
            return
        if message.before > len(copy.log) or copy.epoch_at(message.before) != message.before_epoch:
            self._send(copy.rid, source, Nak(message.epoch, min(len(copy.log), max(0, message.before - 1))))
            return
        for place, item in enumerate(message.items, message.before + 1):
            if place > len(copy.log):
                copy.log.append(item)
            elif copy.log[place - 1].epoch != item.epoch or not self.keeps(Rule.KEEP_WHAT_MATCHES):
                if place <= copy.commit and copy.log[place - 1] != item:
                    raise Violation(f"{copy.rid} is told to cut off {place}, and has committed {copy.commit}")
                copy.log[place - 1 :] = [item]
                copy.stable = min(copy.stable, place - 1)
        upto = message.before + len(message.items)
        reach = message.commit if not self.keeps(Rule.COMMIT_WITHIN_SENT) else min(message.commit, upto)
        self._commit(copy, min(reach, len(copy.log)))
        ack = Ack(message.epoch, upto)
        if self.keeps(Rule.SYNC_BEFORE_ACK):
            copy.waiting.append((source, ack))
        else:
            self._send(copy.rid, source, ack)

    def _sync(self, copy: Copy) -> None:
        copy.sync()
        for target, ack in copy.waiting:
            if ack.epoch == copy.promised or not self.keeps(Rule.OLD_EPOCH_REFUSED):
                self._send(copy.rid, target, ack)
        copy.waiting.clear()
        if copy.leads:
            copy.match[copy.rid] = len(copy.log)
            self._advance(copy)

    def _commit(self, copy: Copy, upto: int) -> None:
        for place in range(copy.commit, upto):
            if place < len(self.committed) and self.committed[place] != copy.log[place]:
                raise Violation(f"{copy.rid} commits {copy.log[place]} at {place + 1}, and {self.committed[place]} is committed there")
        copy.commit = max(copy.commit, upto)

    # ------------------------------------------------------------------ a leader

    def _lead(self, copy: Copy) -> None:
        cfg = copy.cfg
        assert cfg is not None
        if self.rng.random() < (0.05 if self.healing else 0.35):
            self._values += 1
            copy.log.append(Item(copy.promised, self._values))
        if not self.keeps(Rule.OWN_SYNC_COUNTS):
            copy.match[copy.rid] = len(copy.log)
        if copy.disk.promised == copy.promised or not self.keeps(Rule.PROMISE_BEFORE_SPEAKING):
            for rid in COPIES:
                if rid != copy.rid and self.rng.random() < 0.6:
                    self._replicate(copy, rid)
        if self.rng.random() < (0.5 if copy.open else 0.25):
            self._change(copy, cfg)
        self._advance(copy)

    def _replicate(self, copy: Copy, rid: Rid) -> None:
        before = min(copy.next[rid], len(copy.log))
        items = tuple(copy.log[before : before + self.rng.randint(0, 4)])
        self._send(copy.rid, rid, Append(copy.promised, before, copy.epoch_at(before), items, copy.commit))
        if self.rng.random() < 0.5:
            copy.next[rid] = before + len(items)

    def _change(self, copy: Copy, cfg: Configuration) -> None:
        """Something about the isr or the replicas; or a look at the register, when an outcome is open."""
        if copy.open and self.rng.random() < 0.5:
            self._look(copy)
            return
        caught_up = [rid for rid in COPIES if copy.match[rid] >= max(copy.commit, copy.begin)]
        if not self.keeps(Rule.CAUGHT_UP_TO_JOIN):
            caught_up = list(COPIES)
        lagging = [rid for rid in sorted(cfg.isr - {copy.rid}) if copy.match[rid] < len(copy.log)]
        joining = [rid for rid in caught_up if rid in cfg.replicas - cfg.isr]
        learners = [rid for rid in caught_up if rid not in cfg.replicas]
        nonce = f"{self.rng.random()}"
        match self.rng.randrange(8):
            case 0 | 1 if lagging and not self.healing:
                self._propose(copy, shrunk(cfg, self.rng.choice(lagging), nonce))
            case 2 | 3 | 4 if joining:
                self._propose(copy, expanded(cfg, self.rng.choice(joining), nonce))
            case 5 if learners and cfg.writable and len(cfg.replicas) < REPLICAS_MAX and not self.healing:
                self._propose(copy, added(cfg, self.rng.choice(learners), nonce))
            case 6 if len(cfg.replicas) > 1 and not self.healing:
                rid = self.rng.choice(sorted(cfg.replicas - {copy.rid}))
                if may_remove(cfg, rid):
                    self._propose(copy, removed(cfg, rid, nonce))
            case _:
                pass

    def _propose(self, copy: Copy, new: Configuration) -> None:
        if not self.keeps(Rule.STAY_COMPLETE) and copy.cfg is not None:
            gone = (copy.cfg.elr | copy.cfg.isr) & new.replicas - new.isr
            new = Configuration(new.ver, new.epoch, new.leader, new.replicas, new.isr, gone, nonce=new.nonce)
        copy.open.append(new)
        copy.known.add(new.nonce)
        if not self.keeps(Rule.SHRINK_WHEN_KNOWN) and copy.leads and copy.cfg is not None and new.isr < copy.cfg.isr:
            copy.cfg = Configuration(copy.cfg.ver, new.epoch, new.leader, new.replicas, new.isr, new.elr, nonce=copy.cfg.nonce)
        # Most arrive soon, some very late, some never; and so with the answers.
        if self.rng.random() < 0.95:
            late = self.rng.random() < 0.25
            self._after(self.rng.randint(1, 400 if late else 12), partial(self._arrive, copy, copy.life, new))
            if late and copy.leads and self.rng.random() < 0.5 and not self.healing:
                self._after(self.rng.randint(1, 60), partial(self._part, sorted(new.isr - {copy.rid})))
        self._advance(copy)

    def _advance(self, copy: Copy) -> None:
        cfg = copy.cfg
        if not copy.leads or cfg is None:
            return
        possible = [cfg, *copy.open] if self.keeps(Rule.PROPOSED_COUNTS) else [cfg]
        needed = {copy.rid}.union(*(each.isr for each in possible))
        if self.keeps(Rule.ENOUGH_IN_SYNC) and not all(each.writable for each in possible):
            return
        upto = min(copy.match[rid] for rid in needed)
        if not self.keeps(Rule.ALL_IN_SYNC):
            upto = sorted((copy.match[rid] for rid in cfg.replicas), reverse=True)[len(cfg.replicas) // 2]
        if upto >= copy.begin and upto > copy.commit:
            self._commit(copy, upto)
            for item in copy.log[len(self.committed) : upto]:
                self.committed.append(item)
                self.happened["commit"] += 1
            self._check_complete()

    # ------------------------------------------------------------------ the register

    def _arrive(self, author: Copy, life: int, new: Configuration) -> None:
        done = new.ver == self.record.ver + 1
        if done:
            wrong = breach(self.record, new)
            if wrong is not None and self.without not in (Rule.ONLY_IN_SYNC_LEADS, Rule.STAY_COMPLETE):
                raise Violation(f"the register takes what may not follow: {wrong}")
            takeover, self.record = new.epoch != self.record.epoch, new
            self.happened["takeover" if takeover else "change"] += 1
            self._check_complete()
            if not self.healing:
                self._at_the_worst_moment(author, takeover)
        if self.rng.random() < 0.85:
            self._after(self.rng.randint(1, 12), partial(self._answered, author, life, new, done))

    def _at_the_worst_moment(self, author: Copy, takeover: bool) -> None:
        """The register has changed, and its author loses the register, or its power a little later, or somebody else is cut off."""
        dice = self.rng.random()
        if dice < 0.12:
            self.from_register.add(author.rid)
            self.apart.add(self.rng.choice([rid for rid in COPIES if rid != author.rid]))
        elif dice < 0.3 and takeover:
            begin, away = self.rng.randint(5, 80), self.rng.randint(2, 30)
            self.slow = {author.rid}
            self._after(begin, partial(self._cut, author))
            self._after(begin + away, partial(self._start, author))

    def _answered(self, copy: Copy, life: int, new: Configuration, done: bool) -> None:
        if not copy.up or copy.life != life or copy.rid in self.from_register or (copy.leads and new.epoch != copy.promised):
            return
        if done and copy.leads and copy.cfg is not None and new.ver > copy.cfg.ver:
            self._adopt(copy, new)
        elif done and not copy.leads and new.leader == copy.rid:
            self._begin(copy, new)
        elif not done:
            self._look(copy)

    def _look(self, copy: Copy) -> None:
        """A linearizable read. The old version says nothing of what is under way."""
        if copy.rid in self.from_register and self.rng.random() < 0.9:
            return
        now = self.record
        if copy.leads and copy.cfg is not None:
            if now.epoch != copy.promised:
                copy.leads, copy.open = False, []
            elif now.ver > copy.cfg.ver or not self.keeps(Rule.UNKNOWN_STAYS_OPEN):
                self._adopt(copy, now)
        elif now.leader == copy.rid and now.nonce in copy.known:
            self._begin(copy, now)

    def _adopt(self, copy: Copy, now: Configuration) -> None:
        copy.cfg = now
        copy.open = [each for each in copy.open if each.ver > now.ver] if self.keeps(Rule.UNKNOWN_STAYS_OPEN) else []
        self._advance(copy)

    def _consider(self, copy: Copy) -> None:
        """It has not heard of its leader for a while."""
        if copy.rid in self.from_register and self.rng.random() < 0.9:
            return
        now = self.record
        self._look(copy)
        leader = self.copies.get(now.leader)
        if copy.leads or (self.healing and leader is not None and leader.leads and leader.promised == now.epoch):
            return
        in_sync = copy.rid in now.isr or (
            copy.rid in now.elr and (self.rng.random() < 0.3 or not any(self.copies[rid].up for rid in now.isr))
        )
        nonce = f"{self.rng.random()}"
        if in_sync and now.epoch >= copy.promised:
            self._propose(copy, taken_over(now, copy.rid, nonce))
        elif not self.keeps(Rule.ONLY_IN_SYNC_LEADS) and copy.rid in now.replicas and now.epoch >= copy.promised:
            isr = now.isr - {now.leader} | {copy.rid}
            self._propose(copy, Configuration(now.ver + 1, now.epoch + 1, copy.rid, now.replicas, isr, nonce=nonce))

    def _begin(self, copy: Copy, now: Configuration) -> None:
        if now.epoch < copy.promised or (now.epoch == copy.promised and self.keeps(Rule.RESTART_TAKES_OVER)):
            return
        former = self.leaders.setdefault(now.epoch, (copy.rid, copy.life))
        if former[0] != copy.rid:
            raise Violation(f"{former[0]} and {copy.rid} lead epoch {now.epoch}")
        self.happened["reign"] += 1
        copy.leads, copy.cfg, copy.promised, copy.open, copy.waiting = True, now, now.epoch, [], []
        copy.next = dict.fromkeys(COPIES, len(copy.log))
        copy.match = dict.fromkeys(COPIES, 0)
        copy.log.append(Item(now.epoch, 0))
        copy.begin = len(copy.log)

    # ------------------------------------------------------------------ what must hold

    def _check_complete(self) -> None:
        """Whoever may lead has everything that anybody has committed."""
        upto = len(self.committed)
        if not upto:
            return
        for rid in sorted(self.record.isr | self.record.elr):
            copy = self.copies[rid]
            log = copy.log if copy.up else copy.disk.log
            if len(log) < upto or log[upto - 1] != self.committed[-1]:
                raise Violation(f"{upto} is committed, and {rid}, who may lead, has {len(log)} entries, not the same")
        if self.healing and self.copies[self.record.leader].log[:upto] != self.committed:
            raise Violation("the leader has another history than the one that was committed")
