"""Who else is there while lives are lived: a publisher, and two observers of wills and of what the lives publish.

One observer's session is ephemeral, the other's is durable, so that both ways of a message are looked at.  Each life has
topics of its own below the stage's prefix, and a client id of its own, PREFIX-KIND-N, that says where its session lives:

    PREFIX/w/N   its wills        PREFIX/s/N   what it publishes        PREFIX/i/N   what it subscribes to
    PREFIX/o/N   what its session from before was subscribed to
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.broker import wire
from tests.lives import packets
from tests.lives.connection import ANSWER_WITHIN_S, Arrived, Bell, Connection, Port, Stuck

OBSERVERS = ("ephemeral", "durable")
_HERE = 1
"""The gateway of everybody on the stage; lives whose gateway is killed are on the other one."""
_DURABLE_S = 3600


@dataclass(frozen=True, slots=True)
class Seen:
    """A message at an observer."""

    observer: str
    at_s: float
    qos: int
    retained: bool


class Stage:
    def __init__(self, port: Port, prefix: str) -> None:
        self.prefix = prefix
        self._port = port
        self._seen: dict[bytes, list[Seen]] = {}
        self._bell = port.bell()
        self._publisher = _Publisher(port, self._bell)
        self._observers: list[Connection] = []

    async def open(self) -> None:
        await self._begin(self._publisher, "publisher", 0)
        for which, name in enumerate(OBSERVERS):
            observer = Connection(self._port, self._bell, 5, answering=True)
            observer.heard = lambda arrived, name=name: self._heard(name, arrived)
            await self._begin(observer, name, _DURABLE_S if which else 0)
            await observer.subscribe(1, f"{self.prefix}/w/+", 2)
            await observer.subscribe(2, f"{self.prefix}/s/+", 2)
            self._observers.append(observer)

    async def _begin(self, connection: Connection, name: str, expiry_s: int) -> None:
        await connection.open(_HERE)
        connection.send(packets.connect(5, f"{self.prefix}-{name}", True, 0, expiry_s, None))
        await connection.accepted()

    def _heard(self, name: str, arrived: Arrived) -> None:
        message = arrived.publish
        self._seen.setdefault(message.payload, []).append(Seen(name, arrived.at_s, message.qos, message.retain))

    def seen(self, payload: bytes) -> list[Seen]:
        return self._seen.get(payload, [])

    async def publish(self, bell: Bell, topic: str, payload: bytes, qos: int) -> None:
        """Returns when the broker has taken it; the bell is that of whoever waits."""
        await self._publisher.publish(bell, topic, payload, qos)

    async def retained(self) -> dict[bytes, int]:
        """Payload -> QoS of every retained will."""
        reader = Connection(self._port, self._bell, 5, answering=True)
        await self._begin(reader, "reader", 0)
        await reader.subscribe(1, f"{self.prefix}/w/+", 2)
        await self._port.passes(self._port.settle_s)
        reader.send(packets.disconnect(5, packets.NORMAL, None))
        return {each.publish.payload: each.publish.qos for each in reader.publishes if each.publish.retain}

    def check(self) -> None:
        """Nobody of the stage has been sent away."""
        for connection in (self._publisher, *self._observers):
            if connection.closed:
                raise Stuck(f"somebody of the stage {self.prefix} was disconnected: {connection.farewell}")

    async def close(self) -> None:
        """DISCONNECT with expiry 0: nothing of the stage stays behind."""
        for connection, expiry_s in zip((self._publisher, *self._observers), (None, None, 0), strict=True):
            connection.send(packets.disconnect(5, packets.NORMAL, expiry_s))
            await connection.must(lambda: True, "end")
            connection.leave()


class _Publisher(Connection):
    def __init__(self, port: Port, bell: Bell) -> None:
        super().__init__(port, bell, 5)
        self._last_id = 0
        self._waiting: dict[int, Bell] = {}

    async def publish(self, bell: Bell, topic: str, payload: bytes, qos: int) -> None:
        self._last_id = packet_id = self._last_id % wire.PACKET_IDS + 1
        self._waiting[packet_id] = bell
        self.send(wire.publish(5, topic, payload, qos, packet_id))
        kind = wire.PUBACK if qos == 1 else wire.PUBREC
        if not await bell.until(lambda: (kind, packet_id) in self.answers, ANSWER_WITHIN_S):
            raise Stuck(f"the publisher of {topic} had no answer")
        if qos == 2:
            self.send(wire.answer(wire.PUBREL, packet_id))
        del self._waiting[packet_id], self.answers[kind, packet_id]

    def _packet(self, each: wire.Packet) -> None:
        super()._packet(each)
        if each.kind in (wire.PUBACK, wire.PUBREC):
            packet_id, _ = wire.read_answer(each.body)
            if packet_id in self._waiting:
                self._waiting[packet_id].ring()
