"""Which zone a connection is in: the first whose listeners, user names or client id prefixes name it.

Zones of topics are not the business of connections: for messages see shards.persistence, for subscriptions sessions.options.
A user name is that of who it is (access.identity), whatever CONNECT says; the anonymous one has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions.options import NO_OVERRIDES, ReadOverrides


@dataclass(frozen=True, slots=True)
class Zone:
    """enable: whether sessions that outlive their connection are durable; None: as for everybody."""

    name: str
    listeners: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    client_prefixes: tuple[bytes, ...] = ()
    enable: bool | None = None
    reads: ReadOverrides = NO_OVERRIDES

    def holds(self, listener: str, user: str, client: bytes) -> bool:
        return listener in self.listeners or user in self.users or client.startswith(self.client_prefixes)


NO_ZONE = Zone("")


def zone_of(zones: tuple[Zone, ...], listener: str, user: str, client: bytes) -> Zone:
    for zone in zones:
        if zone.holds(listener, user, client):
            return zone
    return NO_ZONE
