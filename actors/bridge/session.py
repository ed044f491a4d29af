"""The session of a bridge at the broker: one connection of it, over the socket that only processes of this broker can use.

    connect -> CONNACK -> SUBSCRIBE, where its filter is not subscribed -> messages, until one of us hangs up

What the session has subscribed to, its CONNACK says, as the committed rows have it; so nothing is kept of that here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from actors.bridge.arriving import dead_letter, deliveries_of
from actors.listening.door import unix_path
from actors.settings import bridge_socket
from bridge.events import Bury, Delivery
from gateway.bridges import SUBSCRIBED, token
from gateway.replay import FROM
from mqtt.blocks import UnreadBlocks
from mqtt.decode import Decoder
from mqtt.encode import acks, encode
from mqtt.packets import (
    MQTT_5,
    Ack,
    AckKind,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Item,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from mqtt.reason import ReasonCode
from sessions.origins import PREFIX
from shards.ids import EXPIRY_NEVER

PACKET_BYTES_MAX = 256 << 20
_READ_BYTES = 256 << 10
CONNECT_S = 15.0
_IDS = 65_535
_NEVER_RETAINED = 2


class Refused(Exception):
    """The broker has refused a CONNECT or a SUBSCRIBE, or has closed the connection; one sentence."""


class SessionOwner(Protocol):
    async def room(self) -> None:
        """Returns when more may be read."""

    def connected(self) -> None:
        """It is subscribed; messages follow."""

    def arrived(self, session: int, deliveries: Sequence[Delivery]) -> None:
        """session: the id of the session at the broker."""

    def released(self, packet_ids: Sequence[int]) -> None:
        """PUBREL."""

    def buried(self, number: int, *, stored: bool) -> None: ...


def client_id(name: str) -> str:
    return f"{PREFIX.decode()}{name}"


class BridgeSession:
    """made -> run -> over.  One connection."""

    def __init__(
        self, name: str, run_dir: Path, secret: bytes, gateway: int, owner: SessionOwner, *, topic_filter: str, start: str,
        inflight_max: int, dead_letter_topic: str,
    ) -> None:  # fmt: skip
        self._name = name
        self._path = unix_path(str(bridge_socket(run_dir)), gateway)
        self._secret = secret
        self._owner = owner
        self._filter = topic_filter
        self._start = start
        self._inflight_max = inflight_max
        self._dead_letter_topic = dead_letter_topic
        self._writer: asyncio.StreamWriter | None = None
        self._connected = False
        self._others: list[str] = []
        """Filters that were subscribed under former settings."""
        self._receive_max = _IDS
        self._letters: dict[int, int] = {}
        """Numbers of dead letters on their way, by packet identifier."""
        self._letters_waiting: deque[Bury] = deque()
        self._last_id = 0

    async def run(self) -> None:
        """Until the connection ends.  Raises OSError, EOFError, TimeoutError, Refused, and what decoding raises."""
        async with asyncio.timeout(CONNECT_S):
            reader, self._writer = await asyncio.open_unix_connection(self._path, limit=2 * _READ_BYTES)
        try:
            self._write(
                Connect(
                    MQTT_5, client_id(self._name), clean_start=False, password=token(self._secret),
                    properties=Properties(session_expiry_interval=EXPIRY_NEVER, receive_maximum=self._inflight_max),
                )
            )  # fmt: skip
            decoder = Decoder(MQTT_5, PACKET_BYTES_MAX, "client", blocks=UnreadBlocks())
            while True:
                if self._connected:
                    await self._owner.room()
                    data = await reader.read(_READ_BYTES)
                else:
                    async with asyncio.timeout(CONNECT_S):
                        data = await reader.read(_READ_BYTES)
                if not data:
                    raise EOFError("the gateway has closed the connection")
                self._take(decoder.feed(data))
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        writer, self._writer = self._writer, None
        self._connected = False
        if writer is not None:
            writer.transport.abort()

    # ------------------------------------------------------------------ to the broker

    def acknowledge(self, packet_ids: Sequence[int]) -> None:
        self._send(acks(MQTT_5, AckKind.PUBREC, list(packet_ids)))

    def complete(self, packet_ids: Sequence[int]) -> None:
        self._send(acks(MQTT_5, AckKind.PUBCOMP, list(packet_ids)))

    def bury(self, letter: Bury) -> None:
        """Nothing while there is no connection: it is said again when there is one."""
        if self._connected:
            self._letters_waiting.append(letter)
            self._send_letters()

    def _send_letters(self) -> None:
        while self._letters_waiting and len(self._letters) < self._receive_max:
            letter = self._letters_waiting.popleft()
            packet_id = self._free_id()
            self._letters[packet_id] = letter.number
            self._write(dead_letter(packet_id, self._dead_letter_topic, self._name, letter.message, letter.reason))

    def _free_id(self) -> int:
        for _ in range(_IDS):
            self._last_id = self._last_id % _IDS + 1
            if self._last_id not in self._letters:
                return self._last_id
        raise AssertionError("fewer letters are on their way than there are packet ids")

    def _write(self, packet: Item) -> None:
        self._send(encode(MQTT_5, packet))

    def _send(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    # ------------------------------------------------------------------ from the broker

    def _take(self, items: Sequence[Item]) -> None:
        deliveries: list[Delivery] = []
        session = 0
        for item in items:
            if not isinstance(item, Publish | PublishRun):
                self._take_other(item)
                continue
            for of, delivery in deliveries_of(item):
                if of != session:
                    self._hand_on(session, deliveries)
                    session, deliveries = of, []
                deliveries.append(delivery)
        self._hand_on(session, deliveries)

    def _hand_on(self, session: int, deliveries: list[Delivery]) -> None:
        if deliveries:
            self._owner.arrived(session, deliveries)

    def _take_other(self, item: Item) -> None:
        match item:
            case Connack():
                self._accepted(item)
            case Suback():
                if item.reasons[0] >= ReasonCode.UNSPECIFIED_ERROR:
                    raise Refused(
                        f"SUBSCRIBE to {self._filter} was refused: {item.properties.reason_string or item.reasons[0].name.lower()}"
                    )
                self._subscribed()
            case Ack(kind=AckKind.PUBREL, packet_id=packet_id):
                self._owner.released([packet_id])
            case AckRun(kind=AckKind.PUBREL, packet_ids=packet_ids):
                self._owner.released(packet_ids)
            case Ack(kind=AckKind.PUBACK, packet_id=packet_id, reason=reason):
                self._answered([packet_id], stored=reason < ReasonCode.UNSPECIFIED_ERROR)
            case AckRun(kind=AckKind.PUBACK, packet_ids=packet_ids):
                self._answered(packet_ids, stored=True)
            case Disconnect():
                raise Refused(f"DISCONNECT {item.reason:#04x} ({item.reason.name.lower()})")
            case Unsuback():
                pass
            case _:
                raise Refused(f"a {type(item).__name__} came")

    def _accepted(self, connack: Connack) -> None:
        if connack.reason:
            raise Refused(f"CONNECT was refused: {connack.properties.reason_string or connack.reason.name.lower()}")
        self._receive_max = connack.properties.receive_maximum or _IDS
        filters = [value for name, value in connack.properties.user_properties if name == SUBSCRIBED]
        self._others = [each for each in filters if each != self._filter]
        if self._filter in filters:
            self._subscribed()
            return
        row = Subscription(self._filter.encode(), 2, retain_as_published=True, retain_handling=_NEVER_RETAINED)
        self._write(Subscribe(1, (row,), Properties(user_properties=((FROM, self._start),))))

    def _subscribed(self) -> None:
        if self._others:
            self._write(Unsubscribe(2, tuple([each.encode() for each in self._others])))
        self._connected = True
        self._owner.connected()

    def _answered(self, packet_ids: Sequence[int], *, stored: bool) -> None:
        for packet_id in packet_ids:
            number = self._letters.pop(packet_id, None)
            if number is not None:
                self._owner.buried(number, stored=stored)
        self._send_letters()
