"""One network connection of a client: bytes in to packets, packets out to bytes, and the bounds on both.

Leaves every rule of MQTT to the gateway core.  A client that does not read is not read either, so its acknowledgements stop
and with them what is sent to it; one that lets SLOW_FACTOR times the write bound pile up is cut off.
"""

from __future__ import annotations

import asyncio
import select
import socket as sockets
import ssl
from collections.abc import Callable
from typing import Protocol, cast

import structlog

from access.certificates import CertificateError, names_of, serial_of
from actors.listening.arrival import Arrival
from mqtt.blocks import PropertyBlocks
from mqtt.decode import DecodeError, Decoder
from mqtt.packets import Item

log = structlog.get_logger(__name__)

SLOW_FACTOR = 8
CLOSE_FLUSH_SECONDS = 5.0
TCP_CLOSED = 7
"""Of TCP_INFO: the connection was reset, or its keep-alive had no answer."""
Gone = Callable[[Arrival], None]


class ConnectionOwner(Protocol):
    bytes_received: int
    connect_bytes_max: int
    filters_max: int
    property_blocks: PropertyBlocks
    topic_levels_max: int
    user_properties_max: int
    write_buffer_max: int

    def opened(self, connection: ClientConnection) -> None: ...

    def received(self, connection: ClientConnection, items: list[Item]) -> None: ...

    def malformed(self, connection: ClientConnection, code: int, detail: str) -> None: ...

    def lost(self, connection: ClientConnection, why: str) -> None: ...

    def congested(self, connection: ClientConnection, full: bool) -> None: ...


class ClientConnection(asyncio.Protocol):
    """`socket` is a number that is never used twice in this process.  gone: told once, when the network connection is no more."""

    __slots__ = (
        "_closing", "_cut_off", "_decoder", "_gone", "_owner", "_paused", "_reading", "_transport", "arrival", "names", "serial", "socket",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner, socket: int, arrival: Arrival, gone: Gone) -> None:
        self.socket = socket
        self.arrival = arrival
        self.names: tuple[str, ...] = ()
        """In the client's certificate, of the kind that the listener takes."""
        self.serial = ""
        self._owner = owner
        self._gone = gone
        self._decoder = Decoder(
            None,
            arrival.door.packet_bytes_max,
            connect_bytes_max=owner.connect_bytes_max,
            filters_max=owner.filters_max,
            user_properties_max=arrival.door.user_properties_max or owner.user_properties_max,
            blocks=owner.property_blocks,
            topic_levels_max=owner.topic_levels_max,
        )
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._cut_off: asyncio.TimerHandle | None = None
        """Since it was closed by us, until its client has closed too."""
        self._paused = False
        self._reading = True

    # ------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in everything but the class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._owner.write_buffer_max)
        if self.arrival.door.asks_for_certificate:
            self._look_at_certificate(transport.get_extra_info("ssl_object"))
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._owner.bytes_received += len(data)
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
        if self._cut_off is not None:
            self._cut_off.cancel()
            self._cut_off = None
        self._gone(self.arrival)
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
    def listener(self) -> str:
        return self.arrival.listener

    @property
    def peer(self) -> str:
        return self.arrival.peer

    @property
    def version(self) -> int | None:
        return self._decoder.version

    def write(self, data: bytes) -> None:
        """Of what the gateway says; how it goes over the wire is left to the transport that this is."""
        self._send(data)

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._closing or transport.is_closing():
            return
        # Looked at before, so that one packet may be larger than the bound.
        if self._paused and transport.get_write_buffer_size() > SLOW_FACTOR * self._owner.write_buffer_max:
            self._closing = True
            self._owner.lost(self, f"{transport.get_write_buffer_size()} bytes wait for a client that does not read")
            transport.abort()
            return
        transport.write(data)

    def read(self, wanted: bool) -> None:
        self._reading = wanted
        self._set_reading()

    def look(self) -> None:
        """One whose peer is gone while it is not read is lost now: the loop says nothing of a socket that it does not watch."""
        transport = self._transport
        if transport is None or transport.is_closing() or (self._reading and not self._paused):
            return
        sock = transport.get_extra_info("socket")
        if sock.family != sockets.AF_UNIX and sock.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, 1)[0] == TCP_CLOSED:
            transport.abort()

    def look_for_end(self) -> None:
        """One that nobody has answered yet is lost if its peer has gone, or sends no more: what it sent before it left has no taker."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if poll.poll(0):
            transport.abort()

    def close(self) -> None:
        """Flush, say that there is no more, and wait a little for the client to close; one that does not is cut off.

        To close at once would be a reset where the client has just sent something, and a reset takes away what it has not yet
        read: the DISCONNECT that says why.
        """
        self._closing = True
        transport = self._transport
        if transport is not None and not transport.is_closing():
            try:
                if transport.can_write_eof():
                    transport.write_eof()
                else:
                    transport.close()  # TLS says by itself that there is no more, and waits for the other side to say so.
            except OSError:
                # The client has closed in this very moment, and this loop has not been told yet.
                transport.abort()
                return
            self.read(True)
            self._cut_off = asyncio.get_running_loop().call_later(CLOSE_FLUSH_SECONDS, transport.abort)

    def _give_up(self, last: bytes, why: str) -> None:
        """The other side broke what lies beneath MQTT, or ended it: it is sent this, and the owner has lost it."""
        if self._closing:
            return
        self._send(last)
        if not self._closing:
            ClientConnection.close(self)
            self._owner.lost(self, why)

    def _look_at_certificate(self, shown: ssl.SSLObject) -> None:
        """TLS has found it good; nobody's name, where it has none, or more than one."""
        certificate = shown.getpeercert(binary_form=True)
        if certificate is None:
            return
        door = self.arrival.door
        try:
            self.serial = serial_of(certificate)
            if door.takes_certificate:
                (_, user), _ = names_of(certificate, door.identity)
                self.names = (user,)
        except CertificateError as error:
            log.info("client.certificate", peer=self.peer, cause=str(error))

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._reading and not self._paused:
            transport.resume_reading()
        else:
            transport.pause_reading()
