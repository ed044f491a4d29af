"""Who clients are, in some worlds; and strangers there, who come with the client id of somebody else and must not get in.

A client says who it is by its user name, and the password of each user is his name.  A stranger is another user, nobody, or the
right user with a wrong password.  It comes while a client is online; as long as that client stays, nothing but a refusal is right.
Whether a refusal changed anything is seen by the client: its session, its messages and its will are checked as in all worlds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Connack, Connect, Properties
from tests.sim.client import CONNACK_WITHIN_US, PACKET_BYTES_MAX, Attempt, Client
from tests.sim.crowd import Crowd
from tests.sim.network import End, Network, Wire
from tests.sim.process import Process
from tests.sim.rules import Violation
from tests.sim.shape import Shape
from tests.sim.world import MS, SECOND, World

USERS = ("", "ann", "bob")
WORLDS = 0.25
"""In how many of them clients have names."""
BY_METHOD = 0.6
"""How many clients of MQTT 5 that have names show them by an authentication method, and again and again (tests.sim.proving)."""
SALT = "whose"
EVERY_US = 3 * SECOND
KEEP_ALIVE_S = 5
"""Nobody tells a gateway that a stranger has gone when the network breaks."""
EXPIRY_S = 10


def with_names(seed: int, shape: Shape) -> Shape:
    """Drawn apart from everything else, so that the other worlds stay what they are."""
    rng = Random(f"{SALT} {seed}")
    if rng.random() >= WORLDS:
        return shape
    named = [replace(each.temper, user=rng.choice(USERS)) for each in shape.clients]
    tempers = [replace(each, by_method=bool(each.user) and each.version == MQTT_5 and rng.random() < BY_METHOD) for each in named]
    clients = [replace(each, temper=temper) for each, temper in zip(shape.clients, tempers, strict=True)]
    return replace(shape, clients=tuple(clients), named=True)


class Strangers:
    def __init__(self, world: World, network: Network, crowd: Crowd, n_gateways: int) -> None:
        self.world = world
        self._network = network
        self._crowd = crowd
        self._n_gateways = n_gateways
        self._process = Process(world, "client", 0, 0)
        self._process.name = "stranger"

    def start(self) -> None:
        self.world.later(int(self.world.rng.expovariate(1.0) * EVERY_US) + MS, self._come)

    def _come(self) -> None:
        if self._crowd.resting:
            return
        there = [client for client in self._crowd.clients if client.online]
        if there:
            self._visit(self.world.rng.choice(there))
        self.start()

    def _visit(self, client: Client) -> None:
        rng = self.world.rng
        gateway, visit = self.world.between(0, self._n_gateways - 1), _Visit(client, rng.choice((4, 5)))
        user = rng.choice(USERS)
        if not user and not client.temper.user:
            return
        wire = self._network.dial(self._process, visit, ("mqtt", gateway), 5 * MS)
        if wire is None:
            return
        visit.wire = wire
        wire.connect()
        password = user if user != client.temper.user else "wrong"
        # What a stranger may have while the client is away is over soon: it is not the client that is refused for ever then.
        properties = Properties(session_expiry_interval=rng.choice((None, EXPIRY_S))) if visit.version == MQTT_5 else Properties()
        clean_start = self.world.happens(0.5) or visit.version != MQTT_5
        connect = Connect(
            visit.version, client.id, clean_start, KEEP_ALIVE_S, user or None, password.encode() if user else None, properties=properties
        )
        self.world.note("stranger", "connects", f"as {user or 'nobody'} in place of {client.id}")
        wire.dialler.send(encode(visit.version, connect))
        self.world.later(CONNACK_WITHIN_US, visit.leave)


class _Visit:
    def __init__(self, client: Client, version: int) -> None:
        self.version = version
        self.wire: Wire | None = None
        self._client = client
        self._attempt: Attempt | None = client.attempt
        self._decoder = Decoder(version, PACKET_BYTES_MAX, "client")

    def link_up(self, end: End) -> None:
        raise AssertionError("a client's end is up from the beginning")

    def link_frame(self, end: End, data: bytes) -> None:
        for packet in self._decoder.feed(data):
            if isinstance(packet, Connack) and not packet.reason and self._stayed():
                raise Violation(f"a stranger was let in as {self._client.id}, who is {self._client.temper.user or 'nobody'}")
        self.leave()

    def link_down(self, end: End) -> None:
        pass

    def leave(self) -> None:
        if self.wire is not None:
            self.wire.dialler.close("a stranger leaves")

    def _stayed(self) -> bool:
        """The client was there all the time, and its home knows it: by its session, which is not over though its gateway may have been
        taken for dead at once, or by a gateway that never stood still."""
        client, attempt = self._client, self._attempt
        if attempt is None or client.attempt is not attempt or not attempt.online or not attempt.whole or client._loose:
            return False
        assert attempt.wire is not None
        gateway = attempt.wire.accepted.process
        lasts = client.stored and client.world.now_us - attempt.began_us < (client._expiry_s - 1) * SECOND
        return lasts or (gateway.alive and not gateway.stopped and gateway.still_us < attempt.began_us)
