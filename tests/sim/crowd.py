"""What clients do of their own: publish in bursts, subscribe and unsubscribe, go away in every manner, come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.sim.client import Attempt, Client
from tests.sim.ledger import SHARE, Ledger, Message
from tests.sim.network import Network, Wire
from tests.sim.rules import Rules
from tests.sim.shape import TOPICS, ClientShape, Shape
from tests.sim.world import MS, SECOND, World


class Crowd:
    def __init__(self, world: World, network: Network, shape: Shape, ledger: Ledger, rules: Rules) -> None:
        self.world = world
        self.ledger = ledger
        self._network = network
        self.members: list[tuple[ClientShape, Client]] = []
        self.resting = False
        """Nobody begins anything new."""
        self.did: Callable[[], None] = _nothing
        """Told of every action: a moment for a fault."""
        self._released: dict[Client, tuple[Attempt, list[Wire]]] = {}
        """Wires that are held until a client hears something over another connection than this."""
        self._left = shape.messages_max
        self._serial = 0
        for wanted in shape.clients:
            client = Client(world, network, shape.n_gateways, wanted.name, wanted.temper, ledger, rules)
            client.publishing.window = wanted.window
            client.subscribing.ack_late = wanted.ack_late
            client.subscribing.ack_within_us = wanted.ack_within_us
            for name in wanted.filters:
                client.subscribing.wanted[name] = self._terms(wanted, name)
            client.heard_message = partial(self._heard, wanted)
            self.members.append((wanted, client))

    @property
    def clients(self) -> list[Client]:
        return [client for _, client in self.members]

    def start(self) -> None:
        for wanted, client in self.members:
            client.connect_soon(self.world.between(0, 2 * SECOND))
            for rate, action in ((wanted.publishes, self._publish), (wanted.subscribes, self._change), (wanted.restless, self._leave)):
                if rate:
                    self._next(rate, action, wanted, client)

    def _next(self, rate: float, action: object, wanted: ClientShape, client: Client) -> None:
        wait_us = int(self.world.rng.expovariate(rate) * SECOND)
        self.world.later(min(wait_us, 60 * SECOND) + MS, self._act, rate, action, wanted, client)

    def _act(self, rate: float, action: object, wanted: ClientShape, client: Client) -> None:
        if not self.resting:
            assert callable(action)
            action(wanted, client)
            self.did()
            self._next(rate, action, wanted, client)

    def rest(self) -> None:
        """From now on everybody stays, acknowledges at once, and finishes what is begun."""
        self.resting = True
        for client in self.clients:
            client.wanted = True
            client.subscribing.prompt = True
            client.connect_soon(self.world.between(0, 500 * MS))

    def idle(self) -> bool:
        return all(client.idle for client in self.clients)

    # ------------------------------------------------------------------ publishing

    def message(self, wanted: ClientShape, client: Client) -> Message:
        world, rng = self.world, self.world.rng
        self._serial += 1
        topic = rng.choice(TOPICS)
        qos = rng.choice(wanted.qos)
        payload = b"m%d-%s %s" % (self._serial, client.key, b"." * rng.choice((0, 20, 200)))
        expires = client.temper.version == 5 and world.happens(0.1)
        made = Message(payload, client.key, topic, qos, topic.startswith(b"r/") and world.happens(0.5), expires)
        self.ledger.add(made)
        return made

    def _publish(self, wanted: ClientShape, client: Client) -> None:
        count = min(self._left, self.world.between(1, 8))
        self._left -= count
        if count:
            client.publishing.publish([self.message(wanted, client) for _ in range(count)])

    # ------------------------------------------------------------------ subscribing

    def _terms(self, wanted: ClientShape, name: bytes) -> tuple[int, int]:
        """QoS and options; a shared subscription cannot have no-local [MQTT-3.8.3-4]."""
        options = self.world.rng.choice((0, 0, 0, 1, 2)) if wanted.temper.version == 5 and not name.startswith(SHARE) else 0
        return self.world.rng.choice((1, 2, 2, 0) if len(wanted.qos) > 1 else (wanted.qos[0],)), options

    def _change(self, wanted: ClientShape, client: Client) -> None:
        """Leave a filter, take one, or take one anew with another QoS."""
        if not client.online:
            return
        rng, having = self.world.rng, client.subscribing.wanted
        missing = [name for name in wanted.filters if name not in having]
        choice = rng.random()
        if choice < 0.4 and having:
            client.subscribing.unsubscribe(rng.sample(sorted(having), 1 if rng.random() < 0.7 else len(having)))
        elif choice < 0.7 and missing:
            taken = rng.sample(missing, rng.randint(1, len(missing)))
            for name in taken:
                having[name] = self._terms(wanted, name)
            client.subscribing.subscribe(taken, rng.choice((0, 0, 1, 2)))
        elif having:
            name = rng.choice(sorted(having))
            having[name] = self._terms(wanted, name)
            client.subscribing.subscribe([name], rng.choice((0, 1, 2)))

    # ------------------------------------------------------------------ going away

    def _leave(self, wanted: ClientShape, client: Client) -> None:
        choice = self.world.chance()
        if not client.wanted or client.attempt is None:
            return
        if choice < 0.25:
            client.drop()
        elif choice < 0.4:
            client.connect()
        elif choice < 0.6:
            self._tear(wanted, client)
        elif choice < 0.65 and client.temper.expiry_s:
            client.connect(clean=True)
        else:
            client.wanted = False
            if choice < 0.8 and client.online:
                client.disconnect(with_will=choice < 0.7, expiry_s=self.world.rng.choice((None, None, 0, 3, 1000)))
            else:
                client.drop()
            # Not longer than its session lasts, and now and then about as long, or three generations of the store.
            longest = self.world.rng.choice((6, 6, 6, min(20, client.temper.expiry_s + 2)))
            self.world.later(self.world.between(0, longest * SECOND), self._back, client)

    def _tear(self, wanted: ClientShape, client: Client) -> None:
        """In the middle of things to another connection, and what the old gateway had still to say arrives late."""
        assert client.attempt is not None and client.attempt.wire is not None
        if client.online and wanted.publishes:
            self._publish(wanted, client)
        self.world.later(self.world.between(0, 30 * MS), self._torn, client, client.attempt)

    def _heard(self, wanted: ClientShape, client: Client) -> None:
        left, wires = self._released.get(client, (client.attempt, []))
        if client.attempt is not left:
            del self._released[client]
            for wire in wires:
                wire.release()
        if not self.resting and client.attempt is not None and self.world.happens(wanted.torn):
            # At once, before it has acknowledged, or a little later.
            self.world.later(self.world.between(0, self.world.rng.choice((0, 0, MS))), self._torn, client, client.attempt)

    def _torn(self, client: Client, attempt: Attempt) -> None:
        """What the old gateway has to say, to one kind of its neighbours, stays on the way; soon after the client is elsewhere."""
        if client.attempt is not attempt or attempt.wire is None:
            return
        gateway = attempt.wire.accepted.process
        role = self.world.rng.choice(("shard", "session", "session", "mqtt"))
        held = [
            wire for wire in self._network.of(gateway) if (wire is attempt.wire if role == "mqtt" else wire.accepted.process.role == role)
        ]
        for wire in held:
            wire.hold(self.world.between(10 * MS, self.world.rng.choice((60 * MS, 400 * MS, 3 * SECOND))))
        if self.world.happens(0.5):
            # Or until it hears something there, which makes old words come in the midst of new ones.
            self._released[client] = (attempt, held)
        self.world.later(self.world.between(0, self.world.rng.choice((MS, 20 * MS, 200 * MS))), self._elsewhere, client, attempt)

    def _elsewhere(self, client: Client, attempt: Attempt) -> None:
        if client.attempt is attempt:
            clean = bool(client.temper.expiry_s) and self.world.happens(0.3)
            if self.world.happens(0.5):
                client.drop(again=False)
            client.connect(clean, elsewhere=True)
        else:
            self._released.pop(client, None)

    def _back(self, client: Client) -> None:
        client.wanted = True
        client.connect_soon(0)


def _nothing() -> None:
    pass
