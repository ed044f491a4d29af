"""Lives in the simulator: the shipped cores of the whole broker, two gateways, virtual time, and many lives in one world.

The scripts are coroutines that wait for one of two things, a time or a bell; both are calls in the world's queue here.  Lives
whose gateway is killed have worlds of their own, where the kill comes when all of them are ready for it.

`live` plays lives in one world and returns what was wrong with each; `worlds` cuts a table into worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import replace
from random import Random

from gateway.options import Options as GatewayOptions
from gateway.zones import Zone
from sessions.options import SessionOptions
from shards.options import ShardOptions
from tests.lives.judge import faults
from tests.lives.player import Player
from tests.lives.stage import Stage
from tests.lives.table import Ending, Kind, Life
from tests.sim.broker import Broker, Plant
from tests.sim.ledger import Ledger
from tests.sim.network import End, Network
from tests.sim.process import Process
from tests.sim.shape import Shape
from tests.sim.world import MS, SECOND, World

PREFIX = "l"
LIVES_PER_WORLD = 250
IN_MEMORY = Zone("memory", client_prefixes=(f"{PREFIX}-{Kind.MEMORY.value}-".encode(),), enable=False)
BEGIN_WITHIN_US = 2 * SECOND
"""Lives of one world begin at any moment of this span."""
SLOW = 4
"""So much longer is it where the network is slow and windows are small: one client sees all wills, and must not fall behind."""
WORLD_US_MAX = 200 * SECOND
CRASHES_PER_S = 0.4
OUTAGE_S = 1.5
"""As long as a shard is away, with the time that its clients take to find it again."""
_HEARS_OF_END_US = 5 * MS

Script = Coroutine["_Wait", bool, None]


class _Wait:
    """What a script waits for.  resume: set when it has stopped there."""

    __slots__ = ("resume",)

    def __init__(self) -> None:
        self.resume: Callable[[bool], None] = _nothing

    def __await__(self) -> Generator[_Wait, bool, bool]:
        return (yield self)


def _nothing(rang: bool) -> None:
    raise AssertionError("nobody waits there yet")


class Bell:
    def __init__(self, world: World) -> None:
        self._world = world
        self._waits: _Wait | None = None

    def ring(self) -> None:
        self._end(self._waits, True)

    async def until(self, done: Callable[[], bool], within_s: float) -> bool:
        deadline_us = self._world.now_us + int(within_s * SECOND)
        while not done():
            if self._world.now_us >= deadline_us:
                return False
            wait = self._waits = _Wait()
            self._world.later(deadline_us - self._world.now_us, self._end, wait, False)
            await wait
        return True

    def _end(self, wait: _Wait | None, rang: bool) -> None:
        if wait is not None and self._waits is wait:
            self._waits = None
            self._world.later(0, wait.resume, rang)


class Socket:
    """A client's end of a wire."""

    def __init__(self, heard: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self.end: End
        self._heard = heard
        self._lost = lost

    def send(self, data: bytes) -> None:
        self.end.send(data)

    def close(self) -> None:
        self.end.close("client closes")

    def link_up(self, end: End) -> None:
        raise AssertionError("a client's end is up from the beginning")

    def link_frame(self, end: End, data: bytes) -> None:
        self._heard(data)

    def link_down(self, end: End) -> None:
        self._lost()


class SimulatedPort:
    """settle_s: some round trips of the slowest network, a sync that takes its time, and a turn of everybody."""

    settle_s = 0.5

    def __init__(self, world: World, network: Network, broker: Broker, wait_for_kill: int) -> None:
        self._world = world
        self._network = network
        self._broker = broker
        self._process = Process(world, "client", 0, 0)
        self._left_to_wait = wait_for_kill
        self._waiting: list[_Wait] = []

    @property
    def now_s(self) -> float:
        return self._world.now_us / SECOND

    def bell(self) -> Bell:
        return Bell(self._world)

    async def passes(self, seconds: float) -> None:
        wait = _Wait()
        self._world.later(int(seconds * SECOND), lambda: wait.resume(True))
        await wait

    async def dial(self, gateway: int, heard: Callable[[bytes], None], lost: Callable[[], None]) -> Socket | None:
        socket = Socket(heard, lost)
        wire = self._network.dial(self._process, socket, ("mqtt", gateway), _HEARS_OF_END_US)
        if wire is None:
            return None
        socket.end = wire.dialler
        wire.connect()
        return socket

    async def killed(self, gateway: int) -> float:
        self._left_to_wait -= 1
        if self._left_to_wait:
            wait = _Wait()
            self._waiting.append(wait)
            await wait
        else:
            self._broker.kill("gateway", gateway, "killed")
            for wait in self._waiting:
                self._world.later(0, wait.resume, True)
        return self.now_s

    def gave_up(self) -> None:
        """A life that was expected at the kill will not come to it."""
        if self._left_to_wait > 0:
            self._left_to_wait -= 1
            if not self._left_to_wait and self._waiting:
                self._broker.kill("gateway", 0, "killed")
                for wait in self._waiting:
                    self._world.later(0, wait.resume, True)


def shape(rng: Random) -> Shape:
    """Two gateways, and everything else in several sizes: no life may depend on them."""
    n_shards = rng.choice((1, 3))
    return Shape(
        n_shards=n_shards,
        n_sessions=rng.choice((1, 2)) if n_shards > 1 else 1,
        n_gateways=2,
        delays_us=rng.choice(((30, 300), (30, 1500), (50, 10_000))),
        sync_us=rng.choice(((50, 300), (200, 4000))),
        restart_us=(100 * MS, 2 * SECOND),
        shard=ShardOptions(messages_per_record_max=rng.choice((1, 1000)), tail_bytes_max=rng.choice((2000, 1 << 20))),
        session=SessionOptions(batch_size=rng.choice((3, 100)), deliver_bytes_max=rng.choice((60, 1 << 20))),
        gateway=GatewayOptions(max_inflight=rng.choice((5, 100)), frame_bytes_max=rng.choice((100, 4 << 20)), zones=(IN_MEMORY,)),
        check_every=256,
    )


class Theatre:
    """One world with a broker, a stage and its lives."""

    def __init__(
        self, lives: list[Life], seed: int, plant: Plant | None = None, crashes: bool = False, keep_all: bool = False
    ) -> None:  # fmt: skip
        """crashes: shards are killed, or lose their power, every few seconds."""
        self.world = world = World(seed, keep_all)
        made = shape(Random(seed))
        if crashes:
            made = replace(made, restart_us=(20 * MS, 100 * MS))
        network = Network(world, made.delays_us)
        self._begin_within_us = BEGIN_WITHIN_US * (SLOW if made.delays_us[1] > 5 * MS and made.gateway.max_inflight < 10 else 1)
        self.broker = Broker(world, network, made, Ledger(world), plant or Plant())
        killed = sum(1 for life in lives if life.ending is Ending.KILLED)
        assert killed in (0, len(lives)), "lives whose gateway is killed have a world of their own"
        self.port = SimulatedPort(world, network, self.broker, killed)
        self.stage = Stage(self.port, PREFIX)
        self.players = [Player(life, number, self.port, self.stage) for number, life in enumerate(lives)]
        self._left = len(self.players)
        self._retained: dict[bytes, int] = {}
        self._over = False
        self._crashes = crashes

    def run(self) -> dict[Life, list[str]]:
        """What was wrong with each life that was not as it should be."""
        self.broker.start()
        self._go(self._all())
        self.world.run(WORLD_US_MAX, lambda: self._over)
        for part in self.broker.parts():
            part.check()
        assert self._over, f"{self._left} lives have not ended after {WORLD_US_MAX // SECOND} s"
        outage_s = OUTAGE_S if self._crashes else 0.0
        found = {player.life: faults(player, self.stage, self._retained, outage_s) for player in self.players}
        return {life: what for life, what in found.items() if what}

    async def _all(self) -> None:
        await self.port.passes(1)
        await self.stage.open()
        for player in self.players:
            self.world.later(self.world.between(0, self._begin_within_us), self._go, self._one(player))
        while self._left:
            await self.port.passes(1)
            if self._crashes and self.world.happens(CRASHES_PER_S):
                shard = self.world.between(0, len(self.broker.disks) - 1)
                self.world.later(self.world.between(0, SECOND), self._crash, shard)
        self.stage.check()
        self._retained = await self.stage.retained()
        self._over = True

    def _crash(self, shard: int) -> None:
        if self.world.happens(0.5):
            self.broker.kill("shard", shard, "killed")
        else:
            self.broker.cut_power(shard)

    async def _one(self, player: Player) -> None:
        await player.play()
        self._left -= 1
        if player.seen.stuck and not player.seen.ended_to_s:
            self.port.gave_up()

    def _go(self, script: Script, value: bool | None = None) -> None:
        """Let it go on until it waits again."""
        try:
            wait = script.send(value)  # type: ignore[arg-type]  # a coroutine begins with None
        except StopIteration:
            return
        wait.resume = lambda rang: self._go(script, rang)


def worlds(lives: Iterable[Life], size: int = LIVES_PER_WORLD) -> Iterator[list[Life]]:
    """Cut into worlds; the order within the two kinds stays."""
    kinds: tuple[list[Life], list[Life]] = ([], [])
    for life in lives:
        kind = kinds[life.ending is Ending.KILLED]
        kind.append(life)
        if len(kind) == size:
            yield list(kind)
            kind.clear()
    yield from (kind for kind in kinds if kind)


def live(lives: list[Life], seed: int, plant: Plant | None = None, crashes: bool = False) -> dict[Life, list[str]]:
    return Theatre(lives, seed, plant, crashes).run()
