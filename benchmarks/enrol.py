"""Makes many durable sessions that are offline when a run begins, and takes them away when it has ended.

Works in bundles of connections: send all, then read all, so that a thousand sessions take a second or two
and no more sockets than a bundle.
Holds: after `enrol` the broker has closed each connection itself, so it counts the session as offline already.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from benchmarks import wire
from benchmarks.clients import Endpoint, SessionPlan, Socket, await_packet, dial

BUNDLE = 100


def enrol(endpoint: Endpoint, plans: Sequence[SessionPlan]) -> None:
    """Connects, subscribes and disconnects each session."""
    for begin in range(0, len(plans), BUNDLE):
        bundle = plans[begin : begin + BUNDLE]
        socks = _connect(endpoint, [plan.client_id for plan in bundle], clean=False)
        rest: list[bytes] = []
        for sock, plan in zip(socks, bundle, strict=True):
            packet, behind = await_packet(sock)
            wire.accepted(endpoint.version, packet)
            sock.sendall(wire.subscribe(endpoint.version, 1, plan.topic_filter, plan.qos))
            rest.append(behind)
        for sock, plan, behind in zip(socks, bundle, rest, strict=True):
            packet, behind = await_packet(sock, behind)
            while packet.kind & 0xF0 == wire.PUBLISH:
                packet, behind = await_packet(sock, behind)  # a retained message may come before its SUBACK
            wire.granted(packet, plan.qos)
        _part(socks)


def dismiss(endpoint: Endpoint, plans: Sequence[SessionPlan]) -> None:
    """Ends each session with all that is stored for it, by a clean start."""
    for begin in range(0, len(plans), BUNDLE):
        socks = _connect(endpoint, [plan.client_id for plan in plans[begin : begin + BUNDLE]], clean=True)
        for sock in socks:
            wire.accepted(endpoint.version, await_packet(sock)[0])
        _part(socks)


def _connect(endpoint: Endpoint, client_ids: Sequence[str], *, clean: bool) -> list[Socket]:
    socks = []
    for client_id in client_ids:
        sock = dial(endpoint)
        sock.sendall(wire.connect(endpoint.version, client_id, clean=clean, user=endpoint.user))
        socks.append(sock)
    return socks


def _part(socks: Sequence[Socket]) -> None:
    for sock in socks:
        sock.sendall(wire.BYE)
        sock.shutdown(socket.SHUT_WR)
    for sock in socks:
        try:
            while sock.recv(4096):
                pass
        except OSError:
            pass  # a broker that resets instead of closing has closed too
        sock.close()
