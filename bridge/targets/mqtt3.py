"""MQTT 3.1.1 by amqtt's client: its protocol handler and its packets, without its sending again and its five seconds for a PUBACK.

amqtt's `publish` gives up when the PUBACK takes longer than five seconds, and its client connects and sends again by itself.  Neither is
used: packets are written here, and its reader tells each PUBACK as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Final

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.client import ClientContext
from amqtt.contexts import ClientConfig
from amqtt.errors import AMQTTError, MQTTError
from amqtt.mqtt.protocol.client_handler import ClientProtocolHandler
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.plugins.manager import PluginManager
from amqtt.session import Session

from bridge.port import Context, Message, Misconfigured, Unavailable
from bridge.targets.mqtt import Answered, Closed, client_id_of, password_of
from config.bridge_kinds import Mqtt, broker_address

PACKET_IDS: Final = 65_535
HEADER_BYTES_MAX: Final = 9
"""Of a PUBLISH, beside topic and payload: type, length, length of the topic, packet identifier."""
CLOSE_S: Final = 4.0
_REFUSALS: Final = {1: "the version of MQTT", 2: "the client id", 4: "the user name or password", 5: "the connection, as not authorized"}


class _Handler(ClientProtocolHandler):  # type: ignore[misc]  # amqtt ships no types
    """amqtt's, which says what comes to who opened it."""

    def __init__(self, manager: Any, answered: Answered, closed: Closed) -> None:
        super().__init__(manager)
        self._answered = answered
        self._closed = closed

    async def handle_puback(self, puback: PubackPacket) -> None:
        if puback.variable_header is not None:
            self._answered(puback.variable_header.packet_id, "", "")

    async def handle_connection_closed(self) -> None:
        self._closed("the broker closed the connection")
        await super().handle_connection_closed()

    def handle_write_timeout(self) -> None:
        """The time for a ping; the one before must have been answered since."""
        if self._ping_task is None:
            super().handle_write_timeout()
        else:
            self._closed("the broker did not answer a ping")


class BrokerWire:
    """One connection at MQTT 3.1.1."""

    def __init__(self, settings: Mqtt, context: Context, tls: ssl.SSLContext | None, answered: Answered, closed: Closed) -> None:
        self.window = settings.window
        self.packet_bytes_max = int(settings.packet_bytes_max)
        self.store = ""
        self._settings = settings
        self._context = context
        self._tls = tls
        self._answered, self._closed = answered, closed
        self._handler: _Handler | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._packet = 0

    async def open(self) -> None:
        settings = self._settings
        address = broker_address(settings.url)
        assert address is not None
        session = Session()
        session.client_id = client_id_of(settings, self._context)
        session.clean_session = True
        session.keep_alive = int(settings.keep_alive.seconds)
        session.username = settings.user or None
        session.password = password_of(settings, self._context)
        context = ClientContext()
        context.config = ClientConfig(plugins={})
        try:
            reader, self._writer = await asyncio.open_connection(*address[:2], ssl=self._tls)
            handler = self._handler = _Handler(PluginManager("amqtt.client.plugins", context), self._answered, self._closed)
            handler.attach(session, StreamReaderAdapter(reader), StreamWriterAdapter(self._writer))
            code = await handler.mqtt_connect()
        except ssl.SSLCertVerificationError as error:
            raise Misconfigured(f"the certificate of {settings.url} is not trusted: {error.verify_message}") from None
        except (OSError, EOFError, AMQTTError, MQTTError) as error:
            raise Unavailable(f"{settings.url} cannot be reached: {error or 'it closed the connection'}") from None
        if code in _REFUSALS:
            raise Misconfigured(f"{settings.url} refused {_REFUSALS[code]}")
        if code:
            raise Unavailable(f"{settings.url} refused the connection with code {code}")
        # The reader would else be cancelled after so long without a packet, and lose what it has read of one.
        session.keep_alive = 0
        await handler.start()

    def size_of(self, message: Message) -> int:
        return HEADER_BYTES_MAX + len(message.topic.encode()) + len(message.payload)

    def publish(self, message: Message, now_ms: int) -> int:
        if self._writer is None:
            raise Unavailable("the connection to the broker is closed")
        self._packet = self._packet % PACKET_IDS + 1
        retain = message.retain and self._settings.retain
        packet = PublishPacket.build(message.topic, message.payload, self._packet, False, 1, retain)
        self._writer.write(packet.to_bytes())
        return self._packet

    async def drain(self) -> None:
        if self._writer is not None:
            try:
                await self._writer.drain()
            except OSError as error:
                self._closed(f"the connection to the broker broke: {error}")

    async def close(self) -> None:
        handler, self._handler = self._handler, None
        writer, self._writer = self._writer, None
        if handler is not None:
            with contextlib.suppress(OSError, AMQTTError, MQTTError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await handler.mqtt_disconnect()
                    await handler.stop()
        if writer is not None:
            writer.transport.abort()
