"""Session actors that move to another site while the old one does not know it, in worlds where everything else happens too.

Who is where is told late (actors.sites.whereabouts): the session actor that has served a home goes on for a while, with its links, beside
the one that serves it now; each gateway looks again in its own time, so clients are served by both; then the old one ends.  Of some moves
its home knows it no more: its own site's copy of the shard leads no longer, so its link there breaks and is not made again.  Of others it
does, and owner tokens alone decide (PROTOCOLS 6).

In half of the worlds clients answer late, and most of what they get is of QoS 2, so connections move with open deliveries.

The promises are those of every world (tests.sim.rules), and that it drains: two owners must not fight for ever.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.sim.broker import Plant
from tests.sim.faults import Faults
from tests.sim.session_part import SessionPart
from tests.sim.shape import Shape, draw
from tests.sim.simulation import Simulation
from tests.sim.world import MS, SECOND

MOVE = "move session"
MOVES = 8
"""The weight of a move among the faults."""
LOOK_WITHIN_US = (200 * MS, 2 * SECOND, 8 * SECOND)
"""How late the processes of a site may hear who leads; most do at once."""
KNOWN_NO_MORE = 0.5


def shape_of(seed: int) -> Shape:
    return roaming(draw(Random(seed)), seed)


def roaming(shape: Shape, seed: int) -> Shape:
    """As many session actors as shards."""
    faults = {**shape.faults, MOVE: MOVES}
    if seed % 2:
        # Many deliveries of QoS 2 that are open for long: at a move each is somewhere in its exchange.
        clients = [replace(client, qos=(2, *client.qos), ack_late=0.9, ack_within_us=5 * SECOND, window=20) for client in shape.clients]
        shape = replace(shape, clients=tuple(clients))
    return replace(shape, n_sessions=shape.n_shards, faults=faults, fault_every_us=shape.fault_every_us or SECOND, roams=True)


class Moves(Faults):
    """All faults, and moves."""

    def _move_session(self) -> None:
        world, broker = self._world, self._broker
        place = broker.places["session", self._any("session")]
        if not isinstance(place.part, SessionPart) or place.part.process.stopped:
            return
        old = place.part
        late_us = world.rng.choice(LOOK_WITHIN_US)
        broker.pass_on(place, world.between(0, late_us))
        if world.happens(KNOWN_NO_MORE):
            old.leave_home()
        for wire in broker.network.of(old.process):
            if wire.dialler.process.role == "gateway":
                world.later(world.between(0, late_us), wire.break_, "looks again")
        world.later(world.between(0, 2 * late_us), old.process.die, "another site leads")


class Roaming(Simulation):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        super().__init__(seed, shape_of(seed), plant, keep_all)
        self.faults = Moves(self.world, self.broker, self.shape)
        self.crowd.did = self.faults.aim
