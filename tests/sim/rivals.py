"""A second device with the client id and the name of a client, in some worlds: the two take the id from one another, over and over.

A rival comes while the client is online, is given its session, and leaves everything to it: it acknowledges nothing and publishes
nothing, so what the session holds is there for the client afterwards.  Thrown out or refused it comes again soon, until it gives up.

That both are slowed, and that people hear of it, is checked at the home (tests.sim.contest); that nothing which was acknowledged is
lost, by the client, as in all worlds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Connack, Connect, Pingreq, Properties
from tests.sim.client import AGAIN_US, PACKET_BYTES_MAX, Client
from tests.sim.crowd import Crowd
from tests.sim.network import End, Network, Wire
from tests.sim.process import Process
from tests.sim.shape import ClientShape, Shape
from tests.sim.world import MS, SECOND, World

WORLDS = 0.2
"""In how many of them there are rivals; in half of the others there is the product's own limit of takeovers."""
TAKEOVERS_MAX = (1, 2, 5)
SALT = "rivals"
EVERY_US = 15 * SECOND
KEEP_ALIVE_S = 5
PING_US = 2 * SECOND
LASTS_US = (2 * SECOND, 40 * SECOND)
LONG_S = 7 * 86_400
LATE_US = 60 * SECOND
"""So long after a rival's last CONNECT its home may take it up: a gateway stood still meanwhile."""


def with_rivals(seed: int, shape: Shape) -> Shape:
    """Drawn apart from everything else, so that the other worlds stay what they are.  Where strangers come there are none: who is let
    in there is checked by the client that is online."""
    rng = Random(f"{SALT} {seed}")
    rivals = rng.random() < WORLDS and not shape.named
    takeovers_max = rng.choice(TAKEOVERS_MAX) if rivals else rng.choice((0, 5))
    shape = replace(shape, shard=replace(shape.shard, takeovers_max=takeovers_max), rivals=rivals)
    return replace(shape, clients=tuple([_patient(each) for each in shape.clients])) if rivals else shape


def _patient(client: ClientShape) -> ClientShape:
    """With a session that outlives what its client cannot know: when its connection has ended in favour of a rival that has gone since."""
    return replace(client, temper=replace(client.temper, expiry_s=LONG_S)) if client.temper.expiry_s else client


class Rivals:
    def __init__(self, world: World, network: Network, crowd: Crowd, n_gateways: int) -> None:
        self.world = world
        self.network = network
        self.n_gateways = n_gateways
        self.process = Process(world, "client", 0, 0)
        self.process.name = "rival"
        self._crowd = crowd
        self._there: dict[bytes, _Rival] = {}

    def start(self) -> None:
        self.world.later(int(self.world.rng.expovariate(1.0) * EVERY_US) + MS, self._begin)

    def _begin(self) -> None:
        if self._crowd.resting:
            return
        free = [client for client in self._crowd.clients if client.online and not self.fights(client.key)]
        if free:
            client = self.world.rng.choice(free)
            self._there[client.key] = _Rival(self, client, self.world.now_us + self.world.between(*LASTS_US))
            self._there[client.key].come()
        self.start()

    def rest(self) -> None:
        """Everybody gives up."""
        for rival in self._there.values():
            rival.give_up()

    def fights(self, client: bytes) -> bool:
        rival = self._there.get(client)
        return rival is not None and rival.until_us > self.world.now_us

    def may_have_come(self, client: bytes) -> bool:
        """Whether the home of this client may have taken up a rival of it lately."""
        rival = self._there.get(client)
        return rival is not None and self.world.now_us - rival.came_us <= LATE_US


class _Rival:
    """until_us: when it gives up.  came_us: its newest CONNECT."""

    def __init__(self, rivals: Rivals, client: Client, until_us: int) -> None:
        self.until_us = until_us
        self.came_us = 0
        self._rivals = rivals
        self._client = client
        self._wire: Wire | None = None
        self._decoder = Decoder(client.temper.version, PACKET_BYTES_MAX, "client")

    def come(self) -> None:
        rivals, world = self._rivals, self._rivals.world
        if world.now_us >= self.until_us or self._wire is not None:
            return
        wire = rivals.network.dial(rivals.process, self, ("mqtt", world.between(0, rivals.n_gateways - 1)), 5 * MS)
        if wire is None:
            self._again()
            return
        wire.connect()
        self._wire, self.came_us = wire, world.now_us
        version = self._client.temper.version
        self._decoder = Decoder(version, PACKET_BYTES_MAX, "client")
        world.note("rival", "connects", f"in place of {self._client.id}")
        wire.dialler.send(encode(version, self._connect()))
        world.later(self.until_us - world.now_us, self.leave, wire)

    def _connect(self) -> Connect:
        """As the client itself would come to its session."""
        temper = self._client.temper
        properties = Properties()
        if temper.version == MQTT_5:
            properties = Properties(session_expiry_interval=temper.expiry_s or None, receive_maximum=temper.receive_max)
        clean_start = temper.version != MQTT_5 and not temper.expiry_s
        return Connect(temper.version, self._client.id, clean_start, KEEP_ALIVE_S, properties=properties)

    def _ping(self, wire: Wire) -> None:
        if self._wire is wire:
            wire.dialler.send(encode(self._client.temper.version, Pingreq()))
            self._rivals.world.later(PING_US, self._ping, wire)

    def give_up(self) -> None:
        self.until_us = min(self.until_us, self._rivals.world.now_us)
        if self._wire is not None:
            self.leave(self._wire)

    def leave(self, wire: Wire) -> None:
        """Without a word, and for good or until it comes again."""
        if self._wire is wire:
            self._wire = None
            wire.dialler.close("a rival leaves")
            self._again()

    def _again(self) -> None:
        world = self._rivals.world
        world.later(world.between(*AGAIN_US), self.come)

    # ------------------------------------------------------------------ Owner

    def link_up(self, end: End) -> None:
        raise AssertionError("a client's end is up from the beginning")

    def link_frame(self, end: End, data: bytes) -> None:
        if self._wire is None or end is not self._wire.dialler:
            return
        for packet in self._decoder.feed(data):
            if isinstance(packet, Connack) and packet.reason:
                self.leave(self._wire)
                return
            if isinstance(packet, Connack):
                # Not before: of whoever sends more than CONNECT a gateway does not see that it has gone, until it is let in or refused.
                self._ping(self._wire)

    def link_down(self, end: End) -> None:
        if self._wire is not None and end is self._wire.dialler:
            self._wire = None
            self._again()
