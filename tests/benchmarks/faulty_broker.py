"""A broker of a hundred lines that makes the mistakes it is told to make.

Knows just enough of MQTT for the generator: CONNECT, SUBSCRIBE, PUBLISH at QoS 0 to 2 and the acknowledgements, for subscribers that are
online. It counts messages from 1 in the order they come in, and plants a fault at the counts it was given.
Runs in a thread; the generator's processes are elsewhere, so neither waits for the other.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from benchmarks import wire


@dataclass(frozen=True, slots=True)
class Faults:
    """At which counts what goes wrong."""

    lose: frozenset[int] = frozenset()
    double: frozenset[int] = frozenset()
    swap_with_next: frozenset[int] = frozenset()
    refuse: frozenset[int] = frozenset()
    disconnect_at: int = 0
    forget_ack: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Peer:
    sock: socket.socket
    data: bytes = b""
    version: int = 4
    subscribed: bool = False


@dataclass(slots=True)
class FaultyBroker:
    """Listens on `port` between `with` and its end."""

    faults: Faults = field(default_factory=Faults)
    connects: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    _count: int = 0
    _next_id: int = 0
    _held: tuple[int, bytes] | None = None
    _peers: list[_Peer] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _wake: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)
    _thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake[0], selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._wake[1].send(b"x")
        if self._thread is not None:
            self._thread.join()
        for sock in (self._listener, *self._wake, *(peer.sock for peer in self._peers)):
            sock.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake[0]:
                    return
                if key.fileobj is self._listener:
                    peer = _Peer(self._listener.accept()[0])
                    self._peers.append(peer)
                    self._selector.register(peer.sock, selectors.EVENT_READ, peer)
                else:
                    self._read(key.data)

    def _read(self, peer: _Peer) -> None:
        try:
            more = peer.sock.recv(1 << 16)
        except OSError:
            more = b""
        peer.data += more
        while more and (found := wire.read_packet(peer.data)) is not None:
            packet, peer.data = found
            if not self._handle(peer, packet):
                more = b""
        if not more:
            self._selector.unregister(peer.sock)
            self._peers.remove(peer)
            peer.sock.close()

    def _handle(self, peer: _Peer, packet: wire.Packet) -> bool:
        kind, body = packet.kind, packet.body
        if kind == wire.CONNECT:
            peer.version = body[6]
            self.connects.append(body)
            peer.sock.sendall(b"\x20\x03\x00\x00\x00" if peer.version == 5 else b"\x20\x02\x00\x00")
        elif kind == wire.SUBSCRIBE:
            peer.subscribed = True
            peer.sock.sendall(
                bytes([wire.SUBACK, 4 if peer.version == 5 else 3]) + body[:2] + (b"\0" if peer.version == 5 else b"") + body[-1:]
            )
        elif kind & 0xF0 == wire.PUBLISH:
            return self._publish(peer, packet)
        elif kind == wire.PUBREL:
            peer.sock.sendall(b"\x70\x02" + body[:2])
        elif kind == wire.PUBREC:
            peer.sock.sendall(b"\x62\x02" + body[:2])
        elif kind in (wire.PUBACK, wire.PUBCOMP):
            self.acknowledged += 1
        return kind != wire.DISCONNECT

    def _publish(self, peer: _Peer, packet: wire.Packet) -> bool:
        self._count += 1
        count, qos, body = self._count, packet.kind >> 1 & 3, packet.body
        if count == self.faults.disconnect_at:
            return False
        name_end = 2 + int.from_bytes(body[:2], "big")
        if qos and count not in self.faults.forget_ack:
            answer = wire.PUBACK if qos == 1 else wire.PUBREC
            packet_id = body[name_end : name_end + 2]
            if count in self.faults.refuse:
                peer.sock.sendall(bytes([answer, 3]) + packet_id + b"\x97")
                return True
            peer.sock.sendall(bytes([answer, 2]) + packet_id)
        rest = body[name_end + (2 if qos else 0) :]
        rest = rest[1:] if peer.version == 5 else rest  # the generator sends no properties
        if count in self.faults.swap_with_next:
            self._held = (qos, body[:name_end] + rest)
            return True
        for copy in range(0 if count in self.faults.lose else 2 if count in self.faults.double else 1):
            self._deliver(qos, body[:name_end], rest, dup=copy > 0)
        if self._held is not None:
            held_qos, message = self._held
            self._held = None
            self._deliver(held_qos, message[:name_end], message[name_end:], dup=False)
        return True

    def _deliver(self, qos: int, name: bytes, rest: bytes, *, dup: bool) -> None:
        for peer in self._peers:
            if peer.subscribed:
                self._next_id = self._next_id % 65535 + 1
                body = name + (self._next_id.to_bytes(2, "big") if qos else b"") + (b"\0" if peer.version == 5 else b"") + rest
                with contextlib.suppress(OSError):
                    head = bytes([wire.PUBLISH | qos << 1 | (8 if dup and qos else 0)])
                    peer.sock.sendall(head + wire.encode_length(len(body)) + body)
