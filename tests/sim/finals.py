"""What must hold when everything has drained: of every part, of all parts together, and of what the disks hold."""

from __future__ import annotations

from sessions.session import HEAD
from tests.sim import replay, rest
from tests.sim.broker import Broker
from tests.sim.crowd import Crowd
from tests.sim.gateway_part import GatewayPart
from tests.sim.ledger import Ledger
from tests.sim.rules import Violation
from tests.sim.session_part import SessionPart
from tests.sim.shard_part import ShardPart


def check(broker: Broker, crowd: Crowd, ledger: Ledger) -> None:
    for part in broker.parts():
        part.check()
        if isinstance(part, ShardPart):
            replay.check(part, broker.disks[part.index].engine, broker.shape, broker.world.steady_ms)
    rest.check(broker.disks, ledger)
    _one_connection(broker, crowd)
    _nothing_counted_lost(broker)


def connections(broker: Broker, crowd: Crowd) -> tuple[int, int]:
    """How many clients are online, and how many connections gateways have."""
    count = sum(part.core.connections for part in broker.parts() if isinstance(part, GatewayPart))
    return sum(client.online for client in crowd.clients), count


def _one_connection(broker: Broker, crowd: Crowd) -> None:
    """Every client has one connection, and gateways have no other."""
    online, count = connections(broker, crowd)
    if count != online:
        raise Violation(f"one connection: {online} clients are online, gateways have {count} connections")


def lagging(broker: Broker) -> list[str]:
    """Subscriptions of connected sessions that do not stand at the head: they have not read everything, or ask whether there is something
    to read, as they do after a while without."""
    parts = [part for part in broker.parts() if isinstance(part, SessionPart)]
    return [
        f"{session.client.decode()} of {part.process.name} to read shard {cursor.shard}"
        for part in parts
        for session in part.core._state.by_conn.values()
        for sub in session.subs.values()
        for cursor in sub.cursors
        if cursor.doing is not HEAD
    ]


def _nothing_counted_lost(broker: Broker) -> None:
    """No session actor has met a range that it could not read again."""
    for part in broker.parts():
        if isinstance(part, SessionPart):
            counters = part.core.counters
            if counters.lost or counters.ranges_differ:
                raise Violation(f"{part.process.name}: {counters.lost} messages lost, {counters.ranges_differ} ranges differ")
