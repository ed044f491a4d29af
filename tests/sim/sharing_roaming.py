"""Durable shared groups whose members and dispatchers are served by session actors that move to another site (tests.sim.roaming), by the
rules of tests.sim.sharing."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.broker import Plant
from tests.sim.roaming import Moves, roaming
from tests.sim.shape import Shape
from tests.sim.sharing import TEAM, Sharing, shape_of
from tests.sim.simulation import finished


def _shape_of(seed: int) -> Shape:
    """Members keep the QoS that they have: at QoS 0 nothing is promised."""
    plain = shape_of(seed)
    qos = {client.name: client.qos for client in plain.clients if TEAM in client.filters}
    shape = roaming(plain, seed)
    return replace(shape, clients=tuple(replace(client, qos=qos.get(client.name, client.qos)) for client in shape.clients))


class SharingRoaming(Sharing):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        super().__init__(seed, plant, keep_all, _shape_of(seed))
        self.faults = Moves(self.world, self.broker, self.shape)
        self.crowd.did = self.faults.aim


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: SharingRoaming(seed, plant))
