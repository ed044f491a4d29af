"""Another MQTT broker as target.  What is the same in both versions of MQTT: which messages go, the window, and what an answer means.

A message is accepted when its PUBACK is there, however long that takes: nothing is sent twice on one connection, and `deliver_timeout` of
the bridge is the only clock.  Messages go out in order, up to `window` of them without an answer; after an answer that says "not now" no
further one does.  At least once: a message that was under way when the connection broke is sent again, by the same identity
(`bridge.targets.origins`).
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Unavailable
from bridge.targets.flight import Flight
from bridge.targets.origins import ORIGINS_MAX, passed, was_at
from bridge.targets.tls import client_context
from config.bridge_kinds import Mqtt, broker_address
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name

PUBLISHES_A_TURN: Final = 64
"""So many are written before the loop may do something else."""
CREDENTIALS: Final = frozenset({0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"""Reasons of a CONNACK that stay as long as nobody changes something."""
FOR_GOOD: Final = frozenset({0x87, 0x90, 0x99})
"""Reasons of a PUBACK that are about this message: not authorized, topic name invalid, payload format invalid."""
_WIRES: Final = {"3.1.1": ("bridge.targets.mqtt3", "amqtt"), "5": ("bridge.targets.mqtt5", "aiomqtt")}


class Wire(Protocol):
    """A connection to a broker.  It says `answered(packet, refusal, away)` for each PUBACK, and `closed(why)` once when it has ended."""

    window: int
    packet_bytes_max: int
    store: str
    """The id of its store, if it says one when it is opened."""

    async def open(self) -> None:
        """Raises Unavailable, Misconfigured."""

    def size_of(self, message: Message) -> int:
        """Bytes of its packet, at most."""

    def publish(self, message: Message, now_ms: int) -> int:
        """Send it at QoS 1; the packet identifier.  Raises Unavailable."""

    async def drain(self) -> None:
        """Wait until so much is sent that more may be written."""

    async def close(self) -> None: ...


Answered = Callable[[int, str, str], None]
Closed = Callable[[str], None]


class MqttTarget:
    """made -> opened -> (delivers) -> closed; of no use any more once the connection has ended."""

    exactly_once: ClassVar[bool] = False

    def __init__(self, settings: Mqtt, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._wire: Wire | None = None
        self._flight = Flight(0)
        self._changed = asyncio.Event()
        self._away = ""

    async def open(self) -> Accepted | None:
        settings, context = self._settings, self._context
        module, package = _WIRES[settings.version]
        address = broker_address(settings.url)
        if address is None:
            raise Misconfigured(f"{settings.url!r} is not the address of a broker")
        try:
            wires = await asyncio.to_thread(importlib.import_module, module)
        except ImportError:
            raise Misconfigured(f"MQTT {settings.version} needs the package {package}, which is not installed") from None
        tls = await client_context(context.data_dir, settings.ca, settings.cert, settings.key) if address[2] else None
        wire: Wire = wires.BrokerWire(settings, context, tls, self._answered, self._closed)
        self._wire = wire
        await wire.open()
        return None

    async def deliver(self, batch: Batch) -> Outcome:
        wire = self._wire
        if wire is None or self._away:
            raise Unavailable(self._away or "the connection to the broker is closed")
        flight = self._flight = Flight(len(batch.messages))
        now_ms = time.time_ns() // 1_000_000
        for index, message in enumerate(batch.messages):
            if _is_over(message, now_ms) or (wire.store and was_at(message.user_properties, wire.store)):
                flight.settle(index)  # Nobody may be given it any more, or it has been there.
                continue
            if unfit := self._unfit(wire, message):
                flight.settle(index, unfit)
                continue
            await self._room(flight, wire.window - 1)
            if self._stopped(flight):
                break
            flight.sent(wire.publish(message, now_ms), index)
            await wire.drain()
            if index % PUBLISHES_A_TURN == PUBLISHES_A_TURN - 1:
                await asyncio.sleep(0)
        await self._room(flight, 0)
        outcome = flight.outcome()
        if outcome.done < len(batch.messages):
            # Set by what the wire said meanwhile, which the type checker cannot see.
            self._closed(flight.failed)
            if not outcome.done:
                raise Unavailable(self._away)
        return outcome

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        self._closed("the connection was closed")
        if wire is not None:
            await wire.close()

    # ---------------------------------------------------------------- what the wire says
    def _answered(self, packet: int, refusal: str, away: str) -> None:
        flight = self._flight
        index = flight.answered(packet)
        if index is None:
            return
        if away:
            flight.failed = flight.failed or away
        else:
            flight.settle(index, refusal)
        self._changed.set()

    def _closed(self, why: str) -> None:
        self._away = self._away or why
        self._changed.set()

    # ---------------------------------------------------------------- judging
    def _stopped(self, flight: Flight) -> bool:
        return bool(self._away or flight.failed)

    async def _room(self, flight: Flight, under_way: int) -> None:
        """Wait until no more than so many are without an answer, or no answer will come."""
        while len(flight.under_way) > under_way and not self._stopped(flight):
            self._changed.clear()
            await self._changed.wait()

    def _unfit(self, wire: Wire, message: Message) -> str:
        """Why no broker will ever take it from us; empty: one may."""
        try:
            check_topic_name(message.topic)
        except ProtocolError as error:
            return f"its topic is no topic name: {error.detail}"
        size = wire.size_of(message)
        if size > wire.packet_bytes_max:
            return f"its packet has up to {size} bytes, and {wire.packet_bytes_max} are allowed"
        if len(passed(message.user_properties)) >= ORIGINS_MAX:
            return f"it has come over {ORIGINS_MAX} bridges, so it goes round in a loop"
        return ""


def _is_over(message: Message, now_ms: int) -> bool:
    return bool(message.expires_at_ms) and message.expires_at_ms <= now_ms


def client_id_of(settings: Mqtt, context: Context) -> str:
    """The same at every start, so that the broker ends an older connection; another one for each lane."""
    name = settings.client_id or f"holdfast-{context.store}-{context.bridge}"
    return name if context.lanes == 1 else f"{name}-{context.lane}"


def password_of(settings: Mqtt, context: Context) -> str | None:
    """Raises Misconfigured."""
    if not settings.password:
        return None
    try:
        return context.secret(settings.password).decode()
    except UnicodeDecodeError:
        raise Misconfigured("the password of the broker's user is not text in UTF-8") from None
    except KeyError:
        raise Misconfigured(f"the password of the broker's user is not at {settings.password}") from None


def of_origin(context: Context) -> str:
    return f"{context.store}/{context.bridge}"


def identity_of(context: Context, message: Message) -> str:
    return f"{context.store}/{message.shard}/{message.position}"
