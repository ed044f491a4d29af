"""The faults of a world: which of them happen when, and what each one does."""

from __future__ import annotations

from tests.sim.broker import Broker
from tests.sim.disk import Disk
from tests.sim.process import Process
from tests.sim.shape import Shape
from tests.sim.world import MS, SECOND, World

WATCHDOG_US = 3 * SECOND
AIMED = 0.15
"""How often something that a client begins meets a fault."""


class Faults:
    def __init__(self, world: World, broker: Broker, shape: Shape) -> None:
        self._world = world
        self._broker = broker
        self._shape = shape
        self._kinds = list(shape.faults)
        self._weights = list(shape.faults.values())
        self.over = False
        self.count = 0

    def start(self) -> None:
        if self._shape.fault_every_us and self._kinds:
            self._next()

    def _next(self) -> None:
        wait_us = int(self._world.rng.expovariate(1.0) * self._shape.fault_every_us)
        self._world.later(min(wait_us, 20 * SECOND) + MS, self._one)

    def aim(self) -> None:
        """Somebody has just begun something: now and then a fault comes while it is under way."""
        if self._kinds and self._shape.fault_every_us and self._world.happens(AIMED):
            _, sync_us = self._shape.sync_us
            _, delay_us = self._shape.delays_us
            self._world.later(self._world.between(0, 3 * (sync_us + 4 * delay_us)), self._do)

    def _one(self) -> None:
        self._do()
        if not self.over:
            self._next()

    def _do(self) -> None:
        if self.over:
            return
        (kind,) = self._world.rng.choices(self._kinds, self._weights)
        self._world.note("fault", kind)
        self.count += 1
        getattr(self, "_" + kind.replace(" ", "_"))()

    def _any(self, role: str) -> int:
        return self._world.between(0, sum(1 for place in self._broker.places if place[0] == role) - 1)

    # ------------------------------------------------------------------ deaths

    def _kill_shard(self) -> None:
        self._broker.kill("shard", self._any("shard"), "killed")

    def _kill_session(self) -> None:
        self._broker.kill("session", self._any("session"), "killed")

    def _kill_gateway(self) -> None:
        self._broker.kill("gateway", self._any("gateway"), "killed")

    def _kill_all(self) -> None:
        for role, index in self._broker.places:
            self._broker.kill(role, index, "killed with all")

    def _power_shard(self) -> None:
        self._broker.cut_power(self._any("shard"))

    def _power_all(self) -> None:
        self._broker.cut_power_of_all()

    def _shut_down_gateway(self) -> None:
        part = self._broker.gateway(self._any("gateway"))
        if part is not None and not part.process.stopped:
            part.shut_down()

    # ------------------------------------------------------------------ disks and clocks

    def _eio(self) -> None:
        self._broker.disks[self._any("shard")].fail_next_sync()

    def _full(self) -> None:
        disk = self._broker.disks[self._any("shard")]
        disk.room = self._world.between(1, 3)
        wait_us = self._world.between(0, 4 * SECOND)
        disk.low_until_us = self._world.now_us + wait_us + 2 * SECOND
        self._world.later(wait_us, _room_again, disk)

    def _wall_step(self) -> None:
        self._world.wall_step_ms += self._world.between(-20_000_000, 20_000_000)

    # ------------------------------------------------------------------ standing still

    def _stop(self, role: str, longest_us: int) -> None:
        part = self._broker.places[role, self._any(role)].part
        if part is None or part.process.stopped:
            return
        wait_us = self._world.between(10 * MS, longest_us)
        part.process.stop()
        if role == "gateway" and self._shape.watchdog and wait_us > WATCHDOG_US:
            self._world.later(WATCHDOG_US, part.process.die, "watchdog")
        else:
            self._world.later(wait_us, part.process.go_on)

    def _stop_gateway(self) -> None:
        self._stop("gateway", self._world.rng.choice((SECOND, 5 * SECOND, 30 * SECOND)))

    def _stop_session(self) -> None:
        self._stop("session", 3 * SECOND)

    def _stop_shard(self) -> None:
        self._stop("shard", 3 * SECOND)

    def _zombie(self, role: str) -> None:
        process = self._broker.replace(role, self._any(role))
        if process is not None:
            for wire in self._broker.network.of(process):
                if self._world.happens(0.4):
                    wire.break_("taken for dead")
            self._world.later(self._world.between(SECOND, 8 * SECOND), self._back, process)

    def _back(self, process: Process) -> None:
        process.go_on()
        self._world.later(self._world.between(0, 10 * SECOND), process.die, "replaced long ago")

    def _zombie_session(self) -> None:
        self._zombie("session")

    def _zombie_gateway(self) -> None:
        self._zombie("gateway")

    # ------------------------------------------------------------------ the network

    def _drop_link(self) -> None:
        self._drop(False)

    def _drop_client(self) -> None:
        self._drop(True)

    def _drop(self, of_clients: bool) -> None:
        wires = [wire for wire in self._broker.network.wires if (wire.dialler.process.role == "client") is of_clients]
        if wires:
            self._world.rng.choice(wires).break_("network")

    def _hold_link(self) -> None:
        wires = list(self._broker.network.wires)
        if wires:
            self._world.rng.choice(wires).hold(self._world.between(MS, self._world.rng.choice((50 * MS, SECOND, 8 * SECOND))))


def _room_again(disk: Disk) -> None:
    disk.room = 0
