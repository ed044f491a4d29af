"""Bridges are clients of this gateway that only processes of this broker can be (docs/bridge.md).

They come by a unix socket of their own, to a listener of a name that no configuration can give, and show in place of a password what
only those can know who read the broker's own secret.  Their client ids begin with `$bridge/`, and nobody else's do.  No rules are asked for
them: what a bridge carries its operator says.  Their subscriptions get from the store alone, everything at QoS 2, and are told of each
message what it is (sessions.origins).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from gateway.connection import Connection
from mqtt.packets import Connect
from sessions.bodies import UPGRADE_QOS
from sessions.origins import MARK, ORIGINS, PREFIX, STORE, is_bridge

LISTENER: Final = "$bridges"
CARRIED: Final = UPGRADE_QOS | ORIGINS
SUBSCRIBED: Final = "subscribed"
"""User properties of the CONNACK: the filters of the session that are subscribed."""


def token(secret: bytes) -> bytes:
    """What a bridge shows; secret: of the broker."""
    return hmac.digest(secret, b"holdfast bridge", hashlib.sha256).hex().encode()


def told(packet: Connect, subscribed: tuple[str, ...], store: str) -> tuple[tuple[str, str], ...]:
    """User properties of the CONNACK: to a bridge of ours what it has subscribed to, to one of another broker the id of the store."""
    asked = bool(store) and any(name == MARK for name, _ in packet.properties.user_properties)
    return tuple([(SUBSCRIBED, each) for each in subscribed]) + (((STORE, store),) if asked else ())


def comes_as_bridge(connection: Connection) -> bool:
    return connection.listener == LISTENER


def refuses(connection: Connection, packet: Connect, wanted: bytes) -> bool:
    """Whether this CONNECT is by somebody who is not what its client id or its listener says."""
    if not comes_as_bridge(connection):
        return is_bridge(packet.client_id.encode())
    shown = packet.password or b""
    named = is_bridge(packet.client_id.encode()) and len(packet.client_id) > len(PREFIX)
    return not (named and wanted and hmac.compare_digest(shown, wanted))
