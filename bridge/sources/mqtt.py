"""Another MQTT broker as source: one connection of the client that a bridge inwards is there, by the codec of this broker.

    made -> reach -> greet -> run -> closed

Not by aiomqtt or amqtt, as the targets are: paho, below aiomqtt, can leave PUBACK to its user, but answers PUBREC before it hands a message
on; amqtt answers both.  What they have acknowledged and nobody has stored yet is lost when we are killed.  Here nothing is acknowledged but
when the owner says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from bridge.inward import Came
from bridge.port import Context, Message, Misconfigured, Unavailable
from bridge.targets.mqtt import CREDENTIALS, client_id_of, of_origin, password_of
from bridge.targets.origins import ORIGIN, peer_of, told_store
from bridge.targets.tls import client_context
from config.bridge_kinds import Mqtt, broker_address
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import acks, encode
from mqtt.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    AckKind,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
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

PACKET_BYTES_MAX: Final = 268_435_455
"""What MQTT allows. Where the other broker cannot be told of less, what is larger than this broker takes is read, and refused."""
READ_BYTES: Final = 256 << 10
RECEIVE_MAX: Final = 65_535
CLOSE_S: Final = 2.0
TOPIC_LEVELS_MAX: Final = 65_535
"""As many as a topic has bytes: which are too many for this broker is for its owner to say, of each message."""
ONLY_IF_NEW: Final = 1
"""Retained messages come with a subscription that is new, and not each time that we connect."""
_SUBSCRIBE, _UNSUBSCRIBE = 1, 2
_OF_SESSION: Final = (Publish, PublishRun, Ack, AckRun)


class SourceOwner(Protocol):
    async def room(self) -> None:
        """Returns when more may be read."""

    def arrived(self, came: Sequence[Came]) -> None: ...

    def released(self, packet_ids: Sequence[int]) -> None:
        """PUBREL."""

    def subscribed(self) -> None:
        """The subscription is as it was asked for, and no other is left of those that were named."""


class Source:
    def __init__(self, settings: Mqtt, context: Context, owner: SourceOwner | None, *, receive_max: int, packet_bytes_max: int) -> None:
        """owner: None: nothing is to come.  packet_bytes_max: what this broker takes."""
        self._settings = settings
        self._context = context
        self._owner = owner
        self._receive_max = min(receive_max, RECEIVE_MAX)
        self._packet_bytes_max = packet_bytes_max
        self._version = MQTT_5 if settings.version == "5" else MQTT_3_1_1
        self._decoder = Decoder(self._version, PACKET_BYTES_MAX, "client", topic_levels_max=TOPIC_LEVELS_MAX)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._early: list[Item] = []
        """What came right behind the CONNACK."""
        self._leaves: tuple[str, ...] = ()
        self._keep_alive_s = settings.keep_alive.seconds
        self._timer: asyncio.TimerHandle | None = None
        self._heard, self._reading = True, False
        """Whether something has come since the last ping, and whether it would be read."""
        self._why = ""
        """Why we have ended the connection."""
        self.peers: tuple[str, ...] = (peer_of(settings.url),)
        """What marks call the other broker."""
        self.answered = False
        """Whether the other broker has answered CONNECT: it did nothing but what it said."""

    # ------------------------------------------------------------------ its beginning
    async def reach(self) -> None:
        """Connect, and say nothing.  Raises Unavailable, Misconfigured."""
        settings = self._settings
        address = broker_address(settings.url)
        if address is None:
            raise Misconfigured(f"{settings.url!r} is not the address of a broker")
        tls = await client_context(self._context.data_dir, settings.ca, settings.cert, settings.key) if address[2] else None
        try:
            self._reader, self._writer = await asyncio.open_connection(*address[:2], ssl=tls, limit=2 * READ_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise Misconfigured(f"the certificate of {settings.url} is not trusted: {error.verify_message}") from None
        except OSError as error:
            raise Unavailable(f"{settings.url} cannot be reached: {error}") from None

    async def greet(self) -> bool:
        """CONNECT, to the session that is there or a new one; whether one was there.  Raises Unavailable, Misconfigured."""
        self._write(self._connect(clean=False))
        items = await self._read()
        connack, *self._early = items
        if not isinstance(connack, Connack):
            raise Unavailable(f"{self._settings.url} began with a {type(connack).__name__}")
        self.answered = True
        if connack.reason:
            kind = Misconfigured if connack.reason in CREDENTIALS else Unavailable
            said = connack.properties.reason_string or connack.reason.name.lower().replace("_", " ")
            raise kind(f"{self._settings.url} refused the connection: {said}")
        if connack.properties.session_expiry_interval == 0:
            raise Misconfigured(f"{self._settings.url} keeps no session: what comes while we are not connected would be lost")
        store = told_store(connack.properties.user_properties)
        if store and store == self._context.store:
            raise Misconfigured(f"{self._settings.url} is this broker itself")
        if store:
            self.peers = (store, *self.peers)
        if connack.properties.server_keep_alive is not None:
            self._keep_alive_s = float(connack.properties.server_keep_alive)
        return connack.session_present

    async def goes_on(self, within_s: float) -> bool:
        """Whether the other broker sends something of this session, before anything is subscribed on this connection.  A session that was
        made by a CONNECT of ours, whose answer was lost, has nothing to send.  Raises Unavailable."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not any(isinstance(item, _OF_SESSION) for item in self._early):
                    self._early += await self._read()
                return True
        return False

    def _connect(self, *, clean: bool) -> Connect:
        settings = self._settings
        password = password_of(settings, self._context)
        properties = Properties()
        if self._version == MQTT_5:
            properties = Properties(
                session_expiry_interval=0 if clean else int(settings.session_expiry.seconds),
                receive_maximum=self._receive_max,
                maximum_packet_size=min(int(settings.packet_bytes_max), self._packet_bytes_max),
                user_properties=((ORIGIN, of_origin(self._context)),),
            )
        return Connect(
            self._version, client_id_of(settings, self._context), clean, int(settings.keep_alive.seconds), settings.user or None,
            None if password is None else password.encode(), None, properties,
        )  # fmt: skip

    async def end_session(self) -> None:
        """Connect to a new session that ends with this connection: the one that was there ends too.  Raises Unavailable, Misconfigured."""
        await self.reach()
        self._write(self._connect(clean=True))
        (connack, *_) = await self._read()
        if not isinstance(connack, Connack) or connack.reason:
            raise Unavailable(f"{self._settings.url} refused the connection")
        self.answered = True

    # ------------------------------------------------------------------ what comes
    def subscribe(self, topic_filter: str, leaves: Iterable[str]) -> None:
        """leaves: what was subscribed under former settings, and shall not be any more."""
        self._leaves = tuple(leaves)
        row = Subscription(topic_filter.encode(), self._settings.qos, no_local=True, retain_as_published=True, retain_handling=ONLY_IF_NEW)
        self._write(Subscribe(_SUBSCRIBE, (row,)))

    async def run(self) -> None:
        """Until the connection ends, which it says by an exception.  Raises Unavailable, Misconfigured."""
        self._tick()
        early, self._early = self._early, []
        self._take(early)
        while True:
            self._reading = False
            await self._heard_by().room()
            self._reading = self._heard = True
            self._take(await self._read())

    async def _read(self) -> list[Item]:
        """At least one packet."""
        assert self._reader is not None
        while True:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError as error:
                raise Unavailable(self._why or f"the connection to {self._settings.url} broke: {error}") from None
            if not data:
                raise Unavailable(self._why or f"{self._settings.url} closed the connection")
            self._heard = True
            try:
                items = self._decoder.feed(data)
            except DecodeError as error:
                raise Unavailable(f"{self._settings.url} sent what is no MQTT: {error.detail}") from None
            if items:
                return items

    def _take(self, items: Sequence[Item]) -> None:
        came: list[Came] = []
        for item in items:
            if isinstance(item, Publish):
                came.append(_came(item))
            elif isinstance(item, PublishRun):
                came += _of_run(item)
            else:
                self._hand_on(came)
                came = []
                self._take_other(item)
        self._hand_on(came)

    def _hand_on(self, came: list[Came]) -> None:
        if came:
            self._heard_by().arrived(came)

    def _take_other(self, item: Item) -> None:
        match item:
            case AckRun(kind=AckKind.PUBREL, packet_ids=packet_ids):
                self._heard_by().released(packet_ids)
            case Ack(kind=AckKind.PUBREL, packet_id=packet_id):
                self._heard_by().released([packet_id])
            case Suback():
                self._granted(item)
            case Unsuback():
                self._heard_by().subscribed()
            case Pingresp():
                pass
            case Disconnect():
                said = item.properties.reason_string or item.reason.name.lower().replace("_", " ")
                raise Unavailable(f"{self._settings.url} ended the connection: {said}")
            case _:
                raise Unavailable(f"{self._settings.url} sent a {type(item).__name__}")

    def _heard_by(self) -> SourceOwner:
        assert self._owner is not None
        return self._owner

    def _granted(self, suback: Suback) -> None:
        reason = suback.reasons[0]
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            said = suback.properties.reason_string or reason.name.lower().replace("_", " ")
            raise Misconfigured(f"{self._settings.url} refused the subscription: {said}")
        if reason == 0:
            raise Misconfigured(f"{self._settings.url} grants QoS 0 only, at which nothing is acknowledged")
        if self._leaves:
            self._write(Unsubscribe(_UNSUBSCRIBE, tuple([each.encode() for each in self._leaves])))
        else:
            self._heard_by().subscribed()

    # ------------------------------------------------------------------ what goes
    def acknowledge(self, qos: int, packet_ids: Sequence[int]) -> None:
        """PUBACK, or at QoS 2 PUBREC."""
        self._send(acks(self._version, AckKind.PUBREC if qos == 2 else AckKind.PUBACK, packet_ids))

    def complete(self, packet_ids: Sequence[int]) -> None:
        self._send(acks(self._version, AckKind.PUBCOMP, packet_ids))

    def _write(self, packet: Item) -> None:
        self._send(encode(self._version, packet))

    def _send(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    def _tick(self) -> None:
        """A ping as often as was agreed; without a word since the last one, it is gone."""
        if not self._keep_alive_s:
            return
        if self._reading and not self._heard:
            self._end(f"{self._settings.url} did not answer a ping")
            return
        self._heard = False
        self._write(Pingreq())
        self._timer = asyncio.get_running_loop().call_later(self._keep_alive_s, self._tick)

    def _end(self, why: str) -> None:
        self._why = why
        if self._writer is not None:
            self._writer.transport.abort()

    # ------------------------------------------------------------------ its end
    async def close(self) -> None:
        """Say so, where there is somebody to hear it; the session stays there.  Never raises, and takes CLOSE_S at most."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self.answered:
            self._write(Disconnect())
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await writer.wait_closed()
        writer.transport.abort()


def _came(packet: Publish) -> Came:
    properties = packet.properties
    expiry_s = properties.message_expiry_interval
    now_ms = time.time_ns() // 1_000_000
    message = _message(packet.topic, packet.payload, packet.flags, now_ms)._replace(
        user_properties=properties.user_properties,
        content_type=properties.content_type or "",
        response_topic=properties.response_topic or "",
        correlation_data=properties.correlation_data or b"",
        payload_is_text=properties.payload_format_indicator == 1,
        expires_at_ms=0 if expiry_s is None else now_ms + expiry_s * 1000,
    )
    return Came(packet.packet_id, packet.qos, packet.dup, message)


def _of_run(run: PublishRun) -> list[Came]:
    now_ms = time.time_ns() // 1_000_000
    rows = zip(run.flags, run.packet_ids, run.topics, run.bodies, strict=True)
    return [
        Came(packet_id, flags >> 1 & 3, bool(flags & 8), _message(topic, body[1:], flags, now_ms)) for flags, packet_id, topic, body in rows
    ]


def _message(topic: bytes, payload: bytes, flags: int, now_ms: int) -> Message:
    """Of no store: where it lies there nobody says."""
    return Message(0, 0, 0, topic.decode(), payload, flags >> 1 & 3, bool(flags & 1), now_ms, "")
