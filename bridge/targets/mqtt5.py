"""MQTT 5 by aiomqtt, with properties and reasons.

aiomqtt takes any PUBACK for acceptance, whatever its reason, and ends `publish` after ten seconds; so packets are sent by the client that
is below it (paho), whose answers its subclass here tells as they come.  Nothing is sent again by itself: each opening is a new session.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Final

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from bridge.port import Context, Message, Misconfigured, Unavailable
from bridge.targets.mqtt import CREDENTIALS, FOR_GOOD, Answered, Closed, client_id_of, identity_of, of_origin, password_of
from bridge.targets.origins import ORIGIN, marked, told_store
from config.bridge_kinds import Mqtt, broker_address
from mqtt.packets import Properties as OurProperties
from mqtt.properties import Place, encode_properties

CONNACK_S: Final = 600.0
"""More than the bridge waits for a connection, whose clock it is."""
CLOSE_S: Final = 4.0
FIXED_BYTES_MAX: Final = 32
"""Of a PUBLISH, beside its texts and its payload."""
_PROPERTY_BYTES_MAX: Final = 5


class Packed(Properties):
    """Properties of a PUBLISH as they go out.  Paho's own take longer to make and to write than all the rest of a message."""

    def __init__(self, properties: OurProperties) -> None:
        self.__dict__["block"] = encode_properties(properties, Place.PUBLISH)

    def pack(self) -> bytes:
        block: bytes = self.__dict__["block"]
        return block


class Connection(aiomqtt.Client):
    """aiomqtt's client, which tells what it would keep: the reason of each PUBACK, what the CONNACK says, and that it has ended."""

    def __init__(self, answered: Answered, closed: Closed, **options: Any) -> None:
        super().__init__(timeout=CONNACK_S, **options)
        self._tell_answered, self._tell_closed = answered, closed
        self.said = Properties(PacketTypes.CONNACK)  # type: ignore[no-untyped-call]
        """Properties of the CONNACK."""
        self.present = False
        """Whether the broker had a session of ours."""

    def watch(self) -> None:
        """Say when the connection ends, from now on."""
        self._disconnected.add_done_callback(self._ended)

    def send(self, topic: str, payload: bytes, retain: bool, properties: Properties | None) -> int:
        info = self._client.publish(topic, payload, 1, retain, properties)
        if info.rc != paho.MQTT_ERR_SUCCESS:
            raise Unavailable(f"the connection to the broker broke: {paho.error_string(info.rc)}")
        return info.mid

    def drop(self) -> None:
        """End the socket without a word."""
        with contextlib.suppress(OSError, ValueError):
            self._client._sock_close()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason_code: ReasonCode, properties: Properties | None = None) -> None:
        if properties is not None:
            self.said = properties
        self.present = bool(flags.session_present)
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason_code: ReasonCode, properties: Properties | None = None) -> None:
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("it closed the connection"))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties) -> None:
        # A reason of 3.1.1 is made up by paho, and means success.
        value = reason_code.value
        if value < 0x80:
            self._tell_answered(mid, "", "")
        else:
            said = getattr(properties, "ReasonString", "")
            words = f"the broker answered {str(reason_code).lower()} (0x{value:02x})" + (f": {said}" if said else "")
            self._tell_answered(mid, *((words, "") if value in FOR_GOOD else ("", words)))

    def _ended(self, disconnected: asyncio.Future[None]) -> None:
        error = None if disconnected.cancelled() else disconnected.exception()
        self._tell_closed(f"the connection to the broker ended: {error or 'it was closed'}")


class Opening:
    """Connecting, which goes on in a thread when who wants it is cancelled, so that its connection can be closed all the same."""

    def __init__(self, connection: Connection, url: str) -> None:
        self._connection = connection
        self._url = url
        self._task: asyncio.Task[Any] | None = None

    async def connect(self) -> None:
        """Raises Unavailable, Misconfigured."""
        self._task = asyncio.create_task(self._connection.__aenter__())
        try:
            await asyncio.shield(self._task)
        except aiomqtt.MqttCodeError as error:
            code = error.rc.value if isinstance(error.rc, ReasonCode) else error.rc
            kind = Misconfigured if code in CREDENTIALS else Unavailable
            raise kind(f"{self._url} refused the connection: {error}") from None
        except ssl.SSLCertVerificationError as error:
            raise Misconfigured(f"the certificate of {self._url} is not trusted: {error.verify_message}") from None
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            if "certificate verify failed" in str(error):
                raise Misconfigured(f"the certificate of {self._url} is not trusted") from None
            raise Unavailable(f"{self._url} cannot be reached: {error}") from None
        self._connection.watch()

    async def close(self) -> None:
        """Never raises, and takes CLOSE_S at most; what still connects then is ended when it has."""
        task, self._task = self._task, None
        if task is None:
            return
        ending = asyncio.create_task(self._end(task))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(ending)

    async def _end(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            # Waiting for CONNACK, or still in its thread, which ends by itself.
            self._connection.drop()
        with contextlib.suppress(aiomqtt.MqttError, OSError, ValueError, asyncio.CancelledError):
            await asyncio.wait_for(task, 2 * CLOSE_S)
            async with asyncio.timeout(CLOSE_S / 2):
                await self._connection.__aexit__(None, None, None)
        self._connection.drop()


class BrokerWire:
    """One connection at MQTT 5."""

    def __init__(self, settings: Mqtt, context: Context, tls: ssl.SSLContext | None, answered: Answered, closed: Closed) -> None:
        address = broker_address(settings.url)
        assert address is not None
        self.window = settings.window
        self.packet_bytes_max = int(settings.packet_bytes_max)
        self.store = ""
        self._retain = settings.retain
        self._settings, self._context = settings, context
        self._connection = Connection(
            answered,
            closed,
            hostname=address[0],
            port=address[1],
            identifier=client_id_of(settings, context),
            username=settings.user or None,
            password=password_of(settings, context),
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=True,
            keepalive=int(settings.keep_alive.seconds),
            tls_context=tls,
            max_inflight_messages=settings.window,
            properties=_comes_as_bridge(context),
        )
        self._opening = Opening(self._connection, settings.url)

    async def open(self) -> None:
        await self._opening.connect()
        said = self._connection.said
        self.store = told_store(getattr(said, "UserProperty", []))
        if self.store and self.store == self._context.store:
            raise Misconfigured(f"{self._settings.url} is this broker itself")
        self.window = min(self.window, getattr(said, "ReceiveMaximum", self.window))
        self.packet_bytes_max = min(self.packet_bytes_max, getattr(said, "MaximumPacketSize", self.packet_bytes_max))
        self._retain = self._retain and bool(getattr(said, "RetainAvailable", 1))
        if getattr(said, "MaximumQoS", 2) == 0:
            raise Misconfigured(f"{self._settings.url} takes messages at QoS 0 only, which it does not acknowledge")

    def size_of(self, message: Message) -> int:
        texts = [message.topic, message.content_type, message.response_topic]
        for pair in self._user_properties(message):
            texts += pair
        bytes_ = sum([len(text.encode()) + _PROPERTY_BYTES_MAX for text in texts])
        return FIXED_BYTES_MAX + bytes_ + len(message.correlation_data) + len(message.payload)

    def publish(self, message: Message, now_ms: int) -> int:
        properties = OurProperties(
            payload_format_indicator=1 if message.payload_is_text else None,
            message_expiry_interval=max(1, (message.expires_at_ms - now_ms) // 1000) if message.expires_at_ms else None,
            content_type=message.content_type or None,
            response_topic=message.response_topic or None,
            correlation_data=message.correlation_data or None,
            user_properties=tuple(self._user_properties(message)),
        )
        return self._connection.send(message.topic, message.payload, message.retain and self._retain, Packed(properties))

    async def drain(self) -> None:
        """A window of packets is all that ever waits to be written."""

    async def close(self) -> None:
        await self._opening.close()

    def _user_properties(self, message: Message) -> list[tuple[str, str]]:
        return marked(message.user_properties, of_origin(self._context), identity_of(self._context, message))


def _comes_as_bridge(context: Context) -> Properties:
    """What CONNECT says, so that a Holdfast says who it is."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.UserProperty = [(ORIGIN, of_origin(context))]
    return properties
