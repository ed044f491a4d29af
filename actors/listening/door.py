"""One listener of one gateway: accepts connections, and leads each to where MQTT begins.

    accept -> limits -> PROXY header -> TLS -> ClientConnection or WebSocketConnection

It accepts by itself, for it has to stop accepting, look at addresses, read a header before TLS begins, and take the certificate that is in
force.  Leaves names, sessions and rights to the gateway core.

Always holds: each accepted connection is counted in the limits until it is gone, in whichever of these steps that is.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from dataclasses import replace
from ipaddress import ip_address
from typing import Protocol

import structlog

from actors.connection import CLOSE_FLUSH_SECONDS, ClientConnection
from actors.listening.arrival import Arrival
from actors.listening.complaints import Complaints
from actors.listening.options import ENCRYPTED, DoorOptions
from actors.listening.proxied import Introduction
from actors.listening.sockets import inode_of, listen_at, listen_on, remove_own
from actors.topology import ListenerInfo
from gateway.transport.limits import Limiter
from gateway.transport.proxy import Found, plain_address

log = structlog.get_logger(__name__)

ACCEPTS_PER_TURN = 8
"""The others wait in the backlog: one costs a fifth of a millisecond, and those who are in wait for it."""
EXHAUSTED_PAUSE_S = 0.2
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
HANDSHAKES_AT_LEAST_S = 0.05


class DoorOwner(Protocol):
    def arrived(self, arrival: Arrival, door: Door) -> ClientConnection:
        """The connection that serves it; `door.gone(arrival)` when it is over."""

    def context(self, listener: str) -> ssl.SSLContext:
        """The one in force."""

    def exhausted(self, listener: str, cause: str) -> None:
        """It rests, because there are no descriptors for those who come."""


class Door:
    """made -> open -> (paused <-> open) -> closed."""

    def __init__(self, options: DoorOptions, gateway: int, owner: DoorOwner) -> None:
        self.options = options
        self.limiter = Limiter(options.limits)
        self.complaints = Complaints(options.name)
        self._gateway = gateway
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._file = ("", 0)
        """Path and inode of a unix socket."""
        self.infos: tuple[ListenerInfo, ...] = ()
        """Where it listens, and what has to be said there first."""
        self._here: dict[Arrival, str | None] = {}
        """Connections that were handed on, and the address that the limits know them by."""
        self._introductions: dict[socket.socket, Introduction] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._accepts = False

    # ------------------------------------------------------------------ its life

    def open(self, *, own_port: int | None = None) -> list[ListenerInfo]:
        """own_port: of this gateway alone, beside the shared one, if nobody has it meanwhile; 0 for any free one.  Raises CannotListen,
        and then nothing is open."""
        try:
            infos = [self._open_path() if self.options.kind == "unix" else self._open_port(self.options.port, shared=True)]
            if own_port is not None:
                infos.append(self._open_own(own_port))
        except OSError:
            self.close()
            raise
        self._accept(True)
        self.infos = tuple(infos)
        return infos

    def pause(self) -> None:
        """Nobody new comes in; those who wait stay in the backlog."""
        self._accept(False)

    def close(self) -> None:
        """Nobody new comes in, and who has not reached MQTT yet is closed; connections that were handed on go on."""
        self._accept(False)
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        remove_own(*self._file)
        for accepted, introduction in list(self._introductions.items()):
            introduction.cancel()
            accepted.close()
        self._introductions.clear()
        for task in self._opening:
            task.cancel()

    def change(self, options: DoorOptions) -> None:
        """From now on; where it listens stays."""
        self.options = options
        self.limiter.limits = options.limits
        self.infos = tuple([replace(info, plain=options.plain) for info in self.infos])

    def gone(self, arrival: Arrival) -> None:
        """A connection that was handed on is over.  Told twice, it is once."""
        if arrival in self._here:
            self.limiter.gone(self._here.pop(arrival))

    # ------------------------------------------------------------------ sockets

    def _open_port(self, port: int, *, shared: bool) -> ListenerInfo:
        options = self.options
        listening = listen_at(options.host, port, options.backlog, shared=shared)
        self._listening.append(listening)
        return ListenerInfo(self._gateway, options.kind, options.host, listening.getsockname()[1], shared, options.name, options.plain)

    def _open_own(self, port: int) -> ListenerInfo:
        try:
            return self._open_port(port, shared=False)
        except OSError:
            if not port:
                raise
            return self._open_port(0, shared=False)

    def _open_path(self) -> ListenerInfo:
        options = self.options
        path = unix_path(options.path, self._gateway)
        self._listening.append(listen_on(path, options.mode, options.backlog))
        self._file = path, inode_of(path)
        return ListenerInfo(self._gateway, options.kind, path, 0, False, options.name, options.plain)

    def _accept(self, wanted: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wanted == self._accepts:
            return
        self._accepts = wanted
        for listening in self._listening:
            if wanted:
                self._loop.add_reader(listening.fileno(), self._come, listening)
            else:
                self._loop.remove_reader(listening.fileno())

    def _rest(self, seconds: float) -> None:
        """Accept nobody for a while; they wait in the backlog."""
        self._accept(False)
        self._timer = self._loop.call_later(seconds, self._accept, True)

    # ------------------------------------------------------------------ one connection after the other

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _come(self, listening: socket.socket) -> None:
        now_ms = self._now_ms()
        for _ in range(ACCEPTS_PER_TURN):
            wait_ms = self.limiter.wait_ms(now_ms)
            if wait_ms:
                self._rest(wait_ms / 1000)
                return
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    continue  # It was closed by its peer before we took it.
                log.error("listener.exhausted", listener=self.options.name, cause=error.strerror, again_in_s=EXHAUSTED_PAUSE_S)
                self._owner.exhausted(self.options.name, str(error.strerror).lower())
                self._rest(EXHAUSTED_PAUSE_S)
                return
            self._enter(accepted, peer, now_ms)

    def _enter(self, accepted: socket.socket, peer: object, now_ms: int) -> None:
        options = self.options
        accepted.setblocking(False)
        address, port = _address(peer)
        if not self.limiter.accepted(now_ms):
            self._turn_away(
                accepted, "full", f"there are {self.limiter.connections} connections, as many as connections_max allows", address
            )
            return
        if options.proxy is None:
            here = not isinstance(peer, tuple) or (_is_loopback(address) and _is_loopback(_address(accepted.getsockname())[0]))
            self._admit(accepted, Arrival(options, f"{address}:{port}" if address else "unix", address, here, now_ms))
        elif any(ip_address(address) in network for network in options.proxy.networks):
            self._introductions[accepted] = Introduction(
                accepted, options.proxy.versions, options.connect_ms, lambda found: self._introduced(accepted, found, address, port, now_ms)
            )
        else:
            self.limiter.gone(None)
            self._turn_away(accepted, "no_proxy", "it is no proxy of proxy_from", address)

    def _introduced(self, accepted: socket.socket, found: Found | str, address: str, port: int, began_ms: int) -> None:
        del self._introductions[accepted]
        if isinstance(found, str):
            self.limiter.gone(None)
            self._turn_away(accepted, "bad_proxy_header", found, address)
            return
        if found.address is not None:
            address, port = found.address, found.port
        self._admit(accepted, Arrival(self.options, f"{address}:{port}", address, False, began_ms))

    def _admit(self, accepted: socket.socket, arrival: Arrival) -> None:
        """It is known from where it comes: it may be one too many from there."""
        cause = self.limiter.known(arrival.address, self._now_ms()) if arrival.address else ""
        if cause:
            self.limiter.gone(None)
            self._turn_away(accepted, "too_many", cause, arrival.peer)
            return
        self._here[arrival] = arrival.address or None
        task = self._loop.create_task(self._serve(accepted, arrival))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _serve(self, accepted: socket.socket, arrival: Arrival) -> None:
        """Done when MQTT, or the handshake of a WebSocket, may begin."""
        try:
            connection = self._owner.arrived(arrival, self)
            if arrival.door.kind not in ENCRYPTED:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
                return
            within_ms = min(arrival.door.handshake_ms, arrival.began_ms + arrival.door.connect_ms - self._now_ms())
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._owner.context(arrival.listener),
                ssl_handshake_timeout=max(within_ms / 1000, HANDSHAKES_AT_LEAST_S),
                ssl_shutdown_timeout=CLOSE_FLUSH_SECONDS,
            )
        except OSError as error:  # TLS's own errors and those of time are OSErrors, too.
            self.gone(arrival)
            accepted.close()
            self.complaints.add("handshake_failed", self._now_ms(), peer=arrival.peer, cause=str(error) or type(error).__name__)
        except asyncio.CancelledError:
            self.gone(arrival)
            accepted.close()
            raise

    def _turn_away(self, accepted: socket.socket, kind: str, cause: str, peer: str) -> None:
        accepted.close()
        self.complaints.add(kind, self._now_ms(), peer=peer or "unix", cause=cause)


def unix_path(path: str, gateway: int) -> str:
    """Where this gateway listens: a path cannot be shared as a port can."""
    return f"{path}.{gateway}" if gateway else path


def _address(name: object) -> tuple[str, int]:
    """Of a socket's name: its address as rules know it, and its port; neither for a unix socket."""
    if not isinstance(name, tuple):
        return "", 0
    host = str(name[0]).partition("%")[0]
    return (plain_address(ip_address(host)) if ":" in host else host), int(name[1])


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
