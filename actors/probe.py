"""Does the broker answer? A CONNECT by hand, the whole way: a port that is open proves nothing, a CONNACK does.

Knows one packet each way and imports nothing of the broker, so that `status` and the launcher stay small.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable

from actors.topology import OWNERS, ListenerInfo

# CONNECT, MQTT 3.1.1, clean session, keep-alive 10 s, empty client identifier: the broker assigns one and forgets it with the connection.
_CONNECT = bytes.fromhex("100c00044d5154540402000a0000")
_DISCONNECT = bytes.fromhex("e000")
# 0 is welcome; 4 and 5 are a broker at work that does not know us [MQTT-3.2.2-4].
_ALIVE = (0, 4, 5)
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def mqtt_answers(host: str, port: int, within: float) -> bool:
    """True when a CONNECT to this address got its CONNACK in this many seconds."""
    return _answers(ListenerInfo(0, "tcp", host, port, False), within)


def all_answer(listeners: Iterable[ListenerInfo], within: float) -> bool:
    """True when every gateway answers on one of its listeners: one that takes a CONNECT at once if it has such, and its own rather than
    one that it shares.  Of a listener that wants more than a CONNECT it is asked only whether it is there."""
    best: dict[int, ListenerInfo] = {}
    for listener in listeners:
        if listener.kind not in OWNERS and (listener.gateway not in best or _worth(listener) > _worth(best[listener.gateway])):
            best[listener.gateway] = listener
    deadline = time.monotonic() + within
    chosen = {(each.kind, each.host, each.port): each for each in best.values()}
    return bool(chosen) and all(_answers(each, deadline - time.monotonic()) for _, each in sorted(chosen.items()))


def _worth(listener: ListenerInfo) -> tuple[bool, bool, bool]:
    return listener.plain, not listener.shared, listener.kind == "tcp"


def _answers(listener: ListenerInfo, within: float) -> bool:
    deadline = time.monotonic() + within
    try:
        with _connected(listener, within) as connection:
            if not listener.plain:
                return True
            connection.sendall(_CONNECT)
            answer = b""
            while len(answer) < 4:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                part = connection.recv(4 - len(answer))
                if not part:
                    return False
                answer += part
            connection.sendall(_DISCONNECT)
            return answer[:3] == b"\x20\x02\x00" and answer[3] in _ALIVE
    except OSError:
        return False


def _connected(listener: ListenerInfo, within: float) -> socket.socket:
    if listener.kind != "unix":
        return socket.create_connection((_ANYWHERE.get(listener.host, listener.host), listener.port), timeout=max(0.001, within))
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(max(0.001, within))
    try:
        connection.connect(listener.host)
    except OSError:
        connection.close()
        raise
    return connection
