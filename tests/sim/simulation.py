"""One seed from beginning to end: a safety phase with faults, healing, a liveness phase in which everything drains, the checks.

`run(seed)` raises Failed for a broken promise, or whatever a core asserts, with the line that replays it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from tests.sim import finals
from tests.sim.broker import Broker, Plant
from tests.sim.crowd import Crowd
from tests.sim.faults import Faults
from tests.sim.ledger import Ledger
from tests.sim.network import Network
from tests.sim.proving import Proving
from tests.sim.rivals import Rivals, with_rivals
from tests.sim.rules import Rules, Violation
from tests.sim.shape import Shape, draw
from tests.sim.strangers import Strangers, with_names
from tests.sim.wills import Wills
from tests.sim.world import SECOND, World

DRAIN_WITHIN_US = 60 * SECOND
LOOK_EVERY_US = SECOND // 4
QUIET_US = 3 * SECOND
SETTLE_EVERY_US = SECOND // 100
SETTLED_WITHIN_US = 10 * SECOND
"""Longer than any client may take to hear that its connection is closed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """history: the digest.  simulated_us: how long the world lasted.  faults, messages, delivered: how much happened."""

    seed: int
    history: str
    simulated_us: int
    events: int
    faults: int
    messages: int
    delivered: int


class Failed(AssertionError):
    """A seed that does not hold; the message has the cause and how to see it again."""


class Simulation:
    def __init__(self, seed: int, shape: Shape | None = None, plant: Plant | None = None, keep_all: bool = False) -> None:
        self.world = world = World(seed, keep_all)
        self.shape = with_rivals(seed, with_names(seed, draw(Random(seed)))) if shape is None else shape
        self.ledger = Ledger(world)
        self.rules = Rules(self.ledger, self.shape.gateway.persistence, self.shape.gateway.store_qos0)
        self.network = Network(world, self.shape.delays_us)
        self.broker = Broker(world, self.network, self.shape, self.ledger, plant or Plant())
        self.crowd = Crowd(world, self.network, self.shape, self.ledger, self.rules)
        self.faults = Faults(world, self.broker, self.shape)
        self.crowd.did = self.faults.aim
        for client in self.crowd.clients:
            client.session_on_disk = self.broker.session_of
            client.memory_on_disk = self.broker.memory_of
        self.strangers = Strangers(world, self.network, self.crowd, self.shape.n_gateways)
        self.proving = Proving(world, self.crowd)
        self.rivals = Rivals(world, self.network, self.crowd, self.shape.n_gateways)
        self.wills = Wills(world, self.crowd.clients, self.ledger, self.broker.disks)
        self.wills.may_be_replaced = self.rivals.may_have_come
        self.ledger.will_written = self.wills.written

    def run(self) -> Outcome:
        world = self.world
        self.broker.start()
        self.crowd.start()
        if self.shape.named:
            self.strangers.start()
            self.proving.start()
        if self.shape.rivals:
            self.rivals.start()
        world.later(2 * SECOND, self.faults.start)
        world.run(self.shape.safety_us)
        self.heal()
        self.drain()
        finals.check(self.broker, self.crowd, self.ledger)
        delivered = sum(sum(sub.got.values()) for subs in self.ledger.subscriptions.values() for sub in subs)
        return Outcome(world.seed, world.history(), world.now_us, world.events, self.faults.count, len(self.ledger.messages), delivered)

    def heal(self) -> None:
        self.world.note("phase", "heals")
        self.faults.over = True
        self.broker.heal()
        self.crowd.rest()
        self.rivals.rest()

    def drain(self) -> None:
        """Everything owed comes, everything begun ends, within a bound, and then it stays so for a while."""
        world = self.world
        deadline_us = world.now_us + DRAIN_WITHIN_US
        quiet_since_us = -1
        while quiet_since_us < 0 or world.now_us < quiet_since_us + QUIET_US:
            world.run(world.now_us + LOOK_EVERY_US)
            if not (self.broker.complete and self.crowd.idle() and self._nobody_waits() and self._nothing_owed()):
                quiet_since_us = -1
                if world.now_us >= deadline_us:
                    raise Violation(f"liveness: {DRAIN_WITHIN_US // SECOND} s after all faults {self._unfinished()}")
            elif quiet_since_us < 0:
                quiet_since_us = world.now_us
        self._settle()
        world.note("phase", "drained")

    def _settle(self) -> None:
        """Whatever a shard submits by itself, as when a generation begins, may be on its way in this very moment; and so may what a session
        asks that has got nothing for a while."""
        world = self.world
        deadline_us = world.now_us + SETTLED_WITHIN_US
        while behind := [f"{name} to commit" for name in self.broker.uncommitted] or finals.lagging(self.broker):
            if world.now_us >= deadline_us:
                raise Violation(f"liveness: after {SETTLED_WITHIN_US // SECOND} s there is still {', '.join(behind)}")
            world.run(world.now_us + SETTLE_EVERY_US)

    def _nobody_waits(self) -> bool:
        """Connections that their clients have given up are gone: those of a contended client id wait long to be let in."""
        online, count = finals.connections(self.broker, self.crowd)
        return online == count

    def _nothing_owed(self) -> bool:
        if self.rules.persistence is None and next(self.wills.missing(), None) is not None:
            return False
        return next(self.rules.missing(), None) is None

    def _unfinished(self) -> str:
        wills = list(self.wills.missing())
        if wills and self.rules.persistence is None:
            return f"{len(wills)} wills are owed, the first one: {wills[0]}"
        missing = list(self.rules.missing())
        if missing:
            return f"{len(missing)} messages are owed, the first one: {missing[0][1]} for {missing[0][0]}"
        busy = [client.story() for client in self.crowd.clients if not client.idle]
        if not self._nobody_waits():
            return "{} clients are online, gateways have {} connections".format(*finals.connections(self.broker, self.crowd))
        return f"these are not done: {'; '.join(busy)}"


def run(
    seed: int, shape: Shape | None = None, plant: Plant | None = None, say: Callable[[str], None] | None = None, last: int = 400
) -> Outcome:
    """One seed; a failure says how to see it again, and with `say` what happened before it."""
    with _without_collection():
        return _run(Simulation(seed, shape, plant, keep_all=say is not None), say, last)


def finished(make: Callable[[], Simulation], say: Callable[[str], None] | None = None, last: int = 400) -> Outcome:
    """A world of another kind, from its making on; `run` has what the others mean."""
    with _without_collection():
        return _run(make(), say, last)


def _run(simulation: Simulation, say: Callable[[str], None] | None, last: int) -> Outcome:
    try:
        return simulation.run()
    except Exception as error:
        if say is not None:
            for line in simulation.world.tell(last):
                say(line)
        at = simulation.world.now_us / SECOND
        again = "" if type(simulation) is Simulation else f"SIM_WORLD={type(simulation).__name__} "
        raise Failed(f"{again}{simulation.world.replay_hint()}  # at {at:.6f} s: {type(error).__name__}: {error}") from error


@contextmanager
def _without_collection() -> Iterator[None]:
    """A world makes little garbage in cycles, and looking for it all the time costs an eighth of everything.  What is left of the
    world before is taken away first; what there is without a world is not looked at again."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
