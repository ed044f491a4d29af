"""What must hold when everything has drained: of every part, of all parts together, and of what the disks hold."""

from __future__ import annotations

from tests.sim.broker import Broker
from tests.sim.crowd import Crowd
from tests.sim.gateway_part import GatewayPart
from tests.sim.rules import Rules, Violation
from tests.sim.session_part import SessionPart


def check(broker: Broker, crowd: Crowd, rules: Rules) -> None:
    for part in broker.parts():
        part.check()
    _one_connection(broker, crowd)
    _nothing_counted_lost(broker)


def _one_connection(broker: Broker, crowd: Crowd) -> None:
    """Every client has one connection, and gateways have no other."""
    count = sum(part.core.connections for part in broker.parts() if isinstance(part, GatewayPart))
    online = sum(client.online for client in crowd.clients)
    if count != online:
        raise Violation(f"one connection: {online} clients are online, gateways have {count} connections")


def _nothing_counted_lost(broker: Broker) -> None:
    """No session actor has met a range that it could not read again."""
    for part in broker.parts():
        if isinstance(part, SessionPart):
            counters = part.core.counters
            if counters.lost or counters.ranges_differ:
                raise Violation(f"{part.process.name}: {counters.lost} messages lost, {counters.ranges_differ} ranges differ")
