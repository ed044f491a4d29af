"""Does the broker answer? A CONNECT by hand, the whole way: a port that is open proves nothing, a CONNACK does.

Knows one packet each way and imports nothing of the broker, so that `status` and the launcher stay small.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable

from actors.topology import ListenerInfo

# CONNECT, MQTT 3.1.1, clean session, keep-alive 10 s, empty client identifier: the broker assigns one and forgets it with the connection.
_CONNECT = bytes.fromhex("100c00044d5154540402000a0000")
_DISCONNECT = bytes.fromhex("e000")
# 0 is welcome; 4 and 5 are a broker at work that does not know us [MQTT-3.2.2-4].
_ALIVE = (0, 4, 5)
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def mqtt_answers(host: str, port: int, within: float) -> bool:
    """True when a CONNECT to this address got its CONNACK in this many seconds."""
    deadline = time.monotonic() + within
    try:
        with socket.create_connection((_ANYWHERE.get(host, host), port), timeout=within) as connection:
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


def all_answer(listeners: Iterable[ListenerInfo], within: float) -> bool:
    """True when there is a plain listener, and every gateway answers on one of its own, or on the shared one if it has no other."""
    plain = [listener for listener in listeners if listener.kind == "tcp"]
    best: dict[int, ListenerInfo] = {}
    for listener in plain:
        if listener.gateway not in best or best[listener.gateway].shared:
            best[listener.gateway] = listener
    deadline = time.monotonic() + within
    chosen = {(listener.host, listener.port) for listener in best.values()}
    return bool(chosen) and all(mqtt_answers(host, port, deadline - time.monotonic()) for host, port in sorted(chosen))
