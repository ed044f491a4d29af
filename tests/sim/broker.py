"""The broker: its processes, their disks, and who starts them again.

Stands for Ray, the launcher and the machine: a process that dies is started anew after a while, under a new name; a power
cut takes every process and what no disk has synced.  A process that only stands still may be replaced, and comes back
later as a zombie with its old name and its old links.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core import GatewayCore
from sessions.core import SessionCore
from shards.core import ShardCore
from shards.engine import HOME_FAMILY
from shards.rows import SESSION, SessionRow, client_key, unpack_as
from shards.slots import SlotTable
from tests.sim.disk import Disk
from tests.sim.gateway_part import GatewayPart, GatewaySetting
from tests.sim.ledger import Ledger
from tests.sim.network import Network
from tests.sim.process import Process
from tests.sim.rules import Violation
from tests.sim.session_part import SessionPart, SessionSetting
from tests.sim.shape import Shape
from tests.sim.shard_part import ShardPart, ShardSetting
from tests.sim.world import World

Part = ShardPart | SessionPart | GatewayPart


class Plant:
    """Told of every core that is made.  A planted fault is one that changes what it is told of; this one changes nothing."""

    world: World
    late = False
    """Shards read what they have written when it is committed, not before (tests.sim.late_engine)."""
    patient = False
    """What nobody waits for is left to the next turn, as by actors.pump; else it has one at once, as much as if that came then."""
    whole_frames = False
    """Parts hear frames as they are, as those of one process do (actors.direct), and may change nothing in them."""

    def shard(self, core: ShardCore) -> None: ...

    def session(self, core: SessionCore) -> None: ...

    def gateway(self, core: GatewayCore) -> None: ...


@dataclass(slots=True)
class Place:
    """A part's place: who is there now, and how many were there."""

    role: str
    index: int
    part: Part | None = None
    incarnations: int = 0
    zombies: list[Process] = field(default_factory=list)


class Broker:
    def __init__(self, world: World, network: Network, shape: Shape, ledger: Ledger, plant: Plant) -> None:
        self.world = world
        self.network = network
        self.shape = shape
        self.disks = [Disk(world, shard, ledger, shape.sync_us) for shard in range(shape.n_shards)]
        counts = {"shard": shape.n_shards, "session": shape.n_sessions, "gateway": shape.n_gateways}
        self.places = {(role, index): Place(role, index) for role, count in counts.items() for index in range(count)}
        self.quick = False
        """Whoever dies is started again at once."""
        plant.world = world
        self._slots = SlotTable.initial(shape.n_shards)
        self._tokens: dict[tuple[int, int], None] = {}
        self._numbers: dict[int, None] = {}
        world.patient, world.whole_frames = plant.patient, plant.whole_frames
        self._shards = ShardSetting(shape.n_shards, shape.shard, shape.store, plant.shard, shape.check_every, plant.late)
        self._sessions = SessionSetting(shape.n_shards, shape.n_sessions, shape.session, plant.session, shape.check_every, self._owned)
        self._gateways = GatewaySetting(
            shape.n_shards,
            shape.n_sessions,
            shape.n_gateways,
            shape.gateway,
            plant.gateway,
            shape.check_every,
            self._numbered,
            roams=shape.roams,
        )

    # ------------------------------------------------------------------ starting

    def start(self) -> None:
        for place in self.places.values():
            self._start_soon(place, self.world.between(0, 50_000))

    def _start_soon(self, place: Place, delay_us: int) -> None:
        self.world.later(delay_us, self._start, place, place.incarnations)

    def _start(self, place: Place, incarnations: int) -> None:
        """incarnations: how many there were when this start was decided on; another start may have come first."""
        if place.part is None and place.incarnations == incarnations:
            self.make(place)

    def make(self, place: Place) -> None:
        place.incarnations += 1
        process = Process(self.world, place.role, place.index, place.incarnations)
        process.when_dead += [self.network.died, self._died]
        part: Part
        if place.role == "shard":
            part = ShardPart(process, self.network, self.disks[place.index], self._shards)
        elif place.role == "session":
            part = SessionPart(process, self.network, self._sessions)
        else:
            part = GatewayPart(process, self.network, self._gateways)
        place.part = part
        part.start()

    def _died(self, process: Process) -> None:
        place = self.places[process.role, process.index]
        if process in place.zombies:
            place.zombies.remove(process)
            return
        assert place.part is not None and place.part.process is process
        place.part = None
        if process.role == "shard":
            disk = self.disks[process.index]
            # Whether a sync that failed has lost what the page cache held, nobody knows.
            (disk.after_power_cut if disk.failed and self.world.happens(0.5) else disk.after_kill)()
        self._start_soon(place, self.world.between(0, 100_000) if self.quick else self.world.between(*self.shape.restart_us))

    def session_of(self, client: bytes) -> int:
        """The id of the session that the client's home has on its disk; 0: none."""
        value = self.disks[self._slots.shard_of(client)].engine.get(HOME_FAMILY, client_key(SESSION, client))
        return unpack_as(SessionRow, value).session_id if value else 0

    def memory_of(self, client: bytes) -> tuple[int, int]:
        """The owner token in the row of a client's session, and the newest one that its home has given.  While a replaced actor
        is still there either may be asked, and ends what it does not have: as if it had got a newer one."""
        shard = self._slots.shard_of(client)
        value = self.disks[shard].engine.get(HOME_FAMILY, client_key(SESSION, client))
        newest = max((token for of, token in self._tokens if of == shard), default=0)
        crowded = bool(self.places["session", shard % self.shape.n_sessions].zombies)
        return unpack_as(SessionRow, value).memory if value else 0, newest + crowded

    # ------------------------------------------------------------------ what faults do

    def parts(self) -> list[Part]:
        return [place.part for place in self.places.values() if place.part is not None]

    @property
    def complete(self) -> bool:
        """Everybody is there and nobody else."""
        return all(place.part is not None and not place.zombies for place in self.places.values())

    @property
    def uncommitted(self) -> list[str]:
        """Shards that have submitted more than is committed."""
        shards = [part for part in self.parts() if isinstance(part, ShardPart)]
        return [part.process.name for part in shards if part.core.watermark < part.core.next_position - 1]

    def gateway(self, index: int) -> GatewayPart | None:
        part = self.places["gateway", index].part
        assert part is None or isinstance(part, GatewayPart)
        return part

    def kill(self, role: str, index: int, why: str) -> None:
        part = self.places[role, index].part
        if part is not None:
            part.process.die(why)

    def cut_power(self, shard: int) -> None:
        """The page cache is lost with the process: a machine of its own."""
        self.disks[shard].failed = False
        self.kill("shard", shard, "power cut")
        self.disks[shard].after_power_cut()

    def cut_power_of_all(self) -> None:
        """The machine is off and on again: its processes, their page cache, its boot time."""
        for place in self.places.values():
            for zombie in list(place.zombies):
                zombie.die("power cut")
            if place.role == "shard":
                self.cut_power(place.index)
            else:
                self.kill(place.role, place.index, "power cut")
        self.world.reboot()

    def replace(self, role: str, index: int) -> Process | None:
        """The process stands still, is taken for dead, and another takes its place."""
        place = self.places[role, index]
        if place.part is None:
            return None
        process = place.part.process
        process.stop()
        place.zombies.append(process)
        place.part = None
        self._start_soon(place, self.world.between(*self.shape.restart_us))
        return process

    def pass_on(self, place: Place, delay_us: int) -> None:
        """Another process takes the place of this one, which goes on and does not know it."""
        assert place.part is not None
        place.zombies.append(place.part.process)
        place.part = None
        self._start_soon(place, delay_us)

    def heal(self) -> None:
        """Everything that stands still goes on, whoever was replaced ends, every wire is fast, every disk has room."""
        self.quick = True
        for disk in self.disks:
            disk.heal()
        for wire in list(self.network.wires):
            if wire.held_until_us > self.world.now_us:
                wire.release()
        for place in self.places.values():
            for zombie in list(place.zombies):
                zombie.go_on()
                self.world.later(2_000_000, zombie.die, "replaced long ago")
            if place.part is not None:
                place.part.process.go_on()
            else:
                self._start_soon(place, 0)

    # ------------------------------------------------------------------ what is given once

    def _owned(self, shard: int, token: int) -> None:
        if (shard, token) in self._tokens:
            raise Violation(f"one owner: shard {shard} gave token {token} twice")
        self._tokens[shard, token] = None

    def _numbered(self, number: int) -> None:
        if number in self._numbers:
            raise Violation(f"connection numbers: {number} was given twice")
        self._numbers[number] = None
