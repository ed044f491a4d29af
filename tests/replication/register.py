"""The register of a simulation: linearizable, and everything between it and who asks is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shards.replication.bounds import REGISTER_MS
from shards.replication.configuration import Configuration, breach
from shards.replication.ports import Outcome
from tests.replication.world import Violation, World

LATE = 0.15
"""Of proposals: they arrive when their author has long been told that nobody knows."""


class SimRegister:
    """cut: sites that do not reach it. Every change is checked against the rules, and told to `changed`."""

    def __init__(self, world: World, first: Configuration, changed: Callable[[Configuration, Configuration], None]) -> None:
        """changed: (before, now)."""
        self.world = world
        self.now = first
        self.cut: set[str] = set()
        self._changed = changed
        self.delayed: Callable[[Configuration, Configuration], None] = lambda before, new: None
        """(record, proposal that will be long on its way)."""

    def read(self, site: str, answer: Callable[[Configuration | None], None]) -> None:
        if self._lost(site):
            self.world.later(REGISTER_MS, answer, None)
            return
        self.world.later(self.world.between(1, 12), self._read, site, answer)

    def propose(self, site: str, new: Configuration, answer: Callable[[Outcome], None]) -> None:
        """Answered once: in time, or with UNKNOWN. What has left may arrive at any time."""
        told: list[Outcome] = []

        def tell(outcome: Outcome) -> None:
            if not told:
                told.append(outcome)
                answer(outcome)

        self.world.later(REGISTER_MS, tell, Outcome.UNKNOWN)
        if site in self.cut and self.world.happens(0.7):
            return
        late = self.world.happens(LATE) and not self.world.healing
        if late:
            self.delayed(self.now, new)
        self.world.later(self.world.between(1, 4000) if late else self.world.between(1, 10), self._arrive, site, new, tell)

    def operate(self, change: Callable[[Configuration], Configuration]) -> None:
        """Somebody else than a replica."""
        self._put(change(self.now))

    def _read(self, site: str, answer: Callable[[Configuration | None], None]) -> None:
        if self._lost(site):
            self.world.later(REGISTER_MS, answer, None)
        else:
            self.world.later(self.world.between(1, 12), answer, self.now)

    def _arrive(self, site: str, new: Configuration, tell: Callable[[Outcome], None]) -> None:
        done = new.ver == self.now.ver + 1
        if done:
            self._put(new)
        if not self._lost(site) and not (self.world.happens(0.1) and not self.world.healing):
            self.world.later(self.world.between(1, 10), partial(tell, Outcome.DONE if done else Outcome.CONFLICT))

    def _put(self, new: Configuration) -> None:
        wrong = breach(self.now, new)
        if wrong is not None:
            raise Violation(f"the register is given what may not follow: {wrong}")
        self.world.note("register", f"{new.ver} e{new.epoch} {new.leader} isr {sorted(new.isr)} elr {sorted(new.elr)} {new.trans}")
        before, self.now = self.now, new
        self._changed(before, new)

    def _lost(self, site: str) -> bool:
        return site in self.cut and self.world.happens(0.9)
