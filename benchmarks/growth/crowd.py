"""Durable sessions whose clients have left and stay away, and what they have subscribed to: all that is published, or nothing of it.

Of the subscriptions that match nothing a half has a `+` where topics of runs differ, and all of them end as a topic of a run does, in a
number that none has: routing meets them as near as can be without a match.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from benchmarks import wire
from benchmarks.clients import Endpoint, SessionPlan, await_packet, dial
from benchmarks.enrol import enrol
from benchmarks.runs import topic_name

SESSIONS: Final = 100
PACKET: Final = 200
"""Filters of one SUBSCRIBE."""
FIRST: Final = 500_000
"""Topics of a run have smaller numbers."""


def away(endpoint: Endpoint, prefix: str, count: int) -> None:
    """Makes so many sessions on the wildcard over all topics of runs with this prefix. Raises wire.Refused."""
    enrol(endpoint, [SessionPlan(f"{prefix}-away{number}", f"{prefix}/#", 1, 0) for number in range(count)])


def filter_of(prefix: str, number: int) -> str:
    """The filter of subscription `number`."""
    return topic_name("+" if number % 2 else prefix, FIRST + number)


def shares(begin: int, end: int) -> Iterator[tuple[int, list[int]]]:
    """Which session gets which of the subscriptions from `begin` to before `end`."""
    for session in range(SESSIONS):
        mine = [number for number in range(begin, end) if number % SESSIONS == session]
        if mine:
            yield session, mine


def subscribe(endpoint: Endpoint, prefix: str, begin: int, end: int) -> None:
    """Makes these subscriptions; sessions that exist go on. Raises wire.Refused."""
    for session, numbers in shares(begin, end):
        sock = dial(endpoint)
        sock.sendall(wire.connect(endpoint.version, f"{prefix}-c{session}", clean=False, user=endpoint.user))
        packet, rest = await_packet(sock)
        wire.accepted(endpoint.version, packet)
        for at in range(0, len(numbers), PACKET):
            first, *more = [filter_of(prefix, number) for number in numbers[at : at + PACKET]]
            sock.sendall(wire.subscribe(endpoint.version, 1 + at // PACKET, first, 1, *more))
            packet, rest = await_packet(sock, rest)
            while packet.kind & 0xF0 == wire.PUBLISH:
                packet, rest = await_packet(sock, rest)
            if packet.kind != wire.SUBACK or set(packet.body[-1 - len(more) :]) != {1}:
                raise wire.Refused(f"packet 0x{packet.kind:02x} where a SUBACK of {1 + len(more)} times QoS 1 was due")
        sock.sendall(wire.BYE)
        sock.shutdown(socket.SHUT_WR)
        try:
            while sock.recv(4096):
                pass
        except OSError:
            pass  # a broker that resets instead of closing has closed too
        sock.close()
