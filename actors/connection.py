"""One network connection of a client: bytes in to packets, packets out to bytes, and the bounds on both.

Leaves every rule of MQTT to the gateway core.  A client that does not read is not read either, so its acknowledgements stop
and with them what is sent to it; one that lets SLOW_FACTOR times the write bound pile up is cut off.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from mqtt.decode import DecodeError, Decoder
from mqtt.packets import Item
from mqtt.topics import TopicNames

SLOW_FACTOR = 8
CLOSE_FLUSH_SECONDS = 5.0


class ConnectionOwner(Protocol):
    connect_bytes_max: int
    filters_max: int
    packet_bytes_max: int
    topic_names: TopicNames
    write_buffer_max: int

    def opened(self, connection: ClientConnection) -> None: ...

    def received(self, connection: ClientConnection, items: list[Item]) -> None: ...

    def malformed(self, connection: ClientConnection, code: int, detail: str) -> None: ...

    def lost(self, connection: ClientConnection, why: str) -> None: ...

    def congested(self, connection: ClientConnection, full: bool) -> None: ...


class ClientConnection(asyncio.Protocol):
    """`socket` is a number that is never used twice in this process."""

    __slots__ = ("_closing", "_decoder", "_owner", "_paused", "_reading", "_transport", "listener", "peer", "socket")

    def __init__(self, owner: ConnectionOwner, socket: int, listener: str) -> None:
        self.socket = socket
        self.listener = listener
        self.peer = ""
        self._owner = owner
        self._decoder = Decoder(
            None, owner.packet_bytes_max, names=owner.topic_names, connect_bytes_max=owner.connect_bytes_max, filters_max=owner.filters_max
        )
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._paused = False
        self._reading = True

    # ------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in everything but the class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._owner.write_buffer_max)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix"
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            items = self._decoder.feed(data)
        except DecodeError as error:
            if error.items:
                self._owner.received(self, error.items)
            self._owner.malformed(self, int(error.reason), error.detail)
            return
        if items:
            self._owner.received(self, items)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._closing:
            self._closing = True
            self._owner.lost(self, str(exc) if exc else "closed by the peer")

    def pause_writing(self) -> None:
        self._paused = True
        self._set_reading()
        self._owner.congested(self, True)

    def resume_writing(self) -> None:
        self._paused = False
        self._set_reading()
        self._owner.congested(self, False)

    # ------------------------------------------------------------------ for the owner

    @property
    def version(self) -> int | None:
        return self._decoder.version

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._closing or transport.is_closing():
            return
        transport.write(data)
        if self._paused and transport.get_write_buffer_size() > SLOW_FACTOR * self._owner.write_buffer_max:
            self._closing = True
            self._owner.lost(self, f"{transport.get_write_buffer_size()} bytes wait for a client that does not read")
            transport.abort()

    def read(self, wanted: bool) -> None:
        self._reading = wanted
        self._set_reading()

    def close(self) -> None:
        """Flush, say that there is no more, and wait a little for the client to close; one that does not is cut off.

        To close at once would be a reset where the client has just sent something, and a reset takes away what it has not yet
        read: the DISCONNECT that says why.
        """
        self._closing = True
        transport = self._transport
        if transport is not None and not transport.is_closing():
            try:
                transport.write_eof()
            except OSError:
                # The client has closed in this very moment, and this loop has not been told yet.
                transport.abort()
                return
            self.read(True)
            asyncio.get_running_loop().call_later(CLOSE_FLUSH_SECONDS, transport.abort)

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._reading and not self._paused:
            transport.resume_reading()
        else:
            transport.pause_reading()
