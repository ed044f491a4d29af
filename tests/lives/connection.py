"""One connection of a scripted client, over any wire: it sends what it is told to and writes down what it hears.

`answering`: acknowledges everything as a client does that has nothing better to do; otherwise the script does it, or leaves it.
The port is what differs between the simulator and a real broker: time, sockets, and waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.broker import wire
from tests.broker.wire import Version

ANSWER_WITHIN_S = 15.0
_DIAL_AGAIN_S = 0.1


class Stuck(Exception):
    """Something that has to come did not come."""


class Bell(Protocol):
    """Where one script waits."""

    def ring(self) -> None:
        """Something has changed: look again."""

    async def until(self, done: Callable[[], bool], within_s: float) -> bool:
        """Whether it came in time."""


class Socket(Protocol):
    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Port(Protocol):
    settle_s: float
    """Long enough for everything to arrive that is going to."""

    @property
    def now_s(self) -> float: ...

    def bell(self) -> Bell: ...

    async def passes(self, seconds: float) -> None: ...

    async def dial(self, gateway: int, heard: Callable[[bytes], None], lost: Callable[[], None]) -> Socket | None:
        """None: nobody listens there now."""

    async def killed(self, gateway: int) -> float:
        """Returns when the gateway has been killed, which is done when every life that waits for it is here; says when."""


@dataclass(frozen=True, slots=True)
class Arrived:
    at_s: float
    publish: wire.Publish


class Connection:
    def __init__(self, port: Port, bell: Bell, version: Version, answering: bool = False) -> None:
        self.connack: wire.Connack | None = None
        self.publishes: list[Arrived] = []
        self.releases: list[int] = []
        self.answers: dict[tuple[int, int], int] = {}
        """(kind, packet id) -> reason code."""
        self.subacks: dict[int, bytes] = {}
        self.farewell: int | None = None
        """The reason code of the broker's DISCONNECT."""
        self.closed_s = -1.0
        self.sent_s = 0.0
        self.heard: Callable[[Arrived], None] | None = None
        self._port = port
        self._bell = bell
        self._version = version
        self._answering = answering
        self._reader = wire.Reader()
        self._socket: Socket | None = None
        self._left = False

    async def open(self, gateway: int) -> None:
        deadline_s = self._port.now_s + 2 * ANSWER_WITHIN_S
        while True:
            self._socket = await self._port.dial(gateway, self._received, self._lost)
            if self._socket is not None:
                return
            if self._port.now_s > deadline_s:
                raise Stuck(f"gateway {gateway} does not listen")
            await self._port.passes(_DIAL_AGAIN_S)

    def send(self, data: bytes) -> None:
        assert self._socket is not None
        self.sent_s = self._port.now_s
        self._socket.send(data)

    def leave(self) -> None:
        """Close the socket; nothing more is heard."""
        self._left = True
        if self._socket is not None:
            self._socket.close()
        if self.closed_s < 0:
            self.closed_s = self._port.now_s

    async def must(self, done: Callable[[], bool], what: str, within_s: float = ANSWER_WITHIN_S) -> None:
        if not await self._bell.until(lambda: done() or self.closed, within_s) or not done():
            raise Stuck(f"no {what}{' before the connection ended' if self.closed else f' within {within_s} s'}{self.last_word}")

    @property
    def closed(self) -> bool:
        return self.closed_s >= 0

    @property
    def last_word(self) -> str:
        return "" if self.farewell is None else f" (DISCONNECT 0x{self.farewell:02x})"

    async def accepted(self) -> None:
        await self.must(lambda: self.connack is not None, "CONNACK")
        assert self.connack is not None
        if self.connack.code:
            raise Stuck(f"CONNACK 0x{self.connack.code:02x}")

    async def subscribe(self, packet_id: int, topic_filter: str, qos: int) -> None:
        self.send(wire.subscribe(self._version, packet_id, topic_filter, qos))
        await self.must(lambda: packet_id in self.subacks, "SUBACK")
        if self.subacks[packet_id] != bytes([qos]):
            raise Stuck(f"SUBACK {self.subacks[packet_id].hex()} for QoS {qos}")

    def found(self, payload: bytes) -> wire.Publish | None:
        """The first PUBLISH with this payload."""
        return next((each.publish for each in self.publishes if each.publish.payload == payload), None)

    # -------------------------------------------------------------------- what comes

    def _received(self, data: bytes) -> None:
        if self._left:
            return
        for each in self._reader.feed(data):
            self._packet(each)
        self._bell.ring()

    def _packet(self, each: wire.Packet) -> None:
        match each.kind:
            case wire.PUBLISH:
                arrived = Arrived(self._port.now_s, wire.read_publish(self._version, each.flags, each.body))
                self.publishes.append(arrived)
                if self.heard is not None:
                    self.heard(arrived)
                if self._answering and arrived.publish.qos:
                    self.send(wire.answer(wire.PUBACK if arrived.publish.qos == 1 else wire.PUBREC, arrived.publish.packet_id))
            case wire.PUBREL:
                packet_id, _ = wire.read_answer(each.body)
                self.releases.append(packet_id)
                if self._answering:
                    self.send(wire.answer(wire.PUBCOMP, packet_id))
            case wire.PUBACK | wire.PUBREC | wire.PUBCOMP:
                packet_id, code = wire.read_answer(each.body)
                self.answers[each.kind, packet_id] = code
            case wire.CONNACK:
                self.connack = wire.read_connack(self._version, each.body)
            case wire.SUBACK:
                packet_id, codes = wire.read_suback(self._version, each.body)
                self.subacks[packet_id] = codes
            case wire.DISCONNECT:
                self.farewell = each.body[0] if each.body else 0
            case _:
                pass

    def _lost(self) -> None:
        if self.closed_s < 0:
            self.closed_s = self._port.now_s
        self._bell.ring()
