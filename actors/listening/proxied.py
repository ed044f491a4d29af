"""An accepted connection whose proxy has yet to say for whom it speaks.

What is looked at is only taken when it is known to be of the header, so TLS or MQTT behind it stay in the socket for whoever reads next.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from gateway.transport.proxy import V2_BODY_MAX, Found, ProxyError, Versions, read_proxy_header

_LOOK_BYTES = 16 + V2_BODY_MAX


class Introduction:
    """Reads one header; `done` is told what was found, or why there is none, once, and the socket is its own again."""

    def __init__(self, accepted: socket.socket, versions: Versions, within_ms: int, done: Callable[[Found | str], None]) -> None:
        self._socket = accepted
        self._versions = versions
        self._done = done
        self._taken = b""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(within_ms / 1000, self._end, "no PROXY header in time")
        self._loop.add_reader(accepted.fileno(), self._read)

    def cancel(self) -> None:
        self._stop()

    def _read(self) -> None:
        try:
            seen = self._socket.recv(_LOOK_BYTES - len(self._taken), socket.MSG_PEEK)
            if not seen:
                self._end("closed before its PROXY header")
                return
            found = read_proxy_header(self._taken + seen, self._versions)
            # Where the header is not complete, all that is there belongs to it.
            count = found.header_bytes - len(self._taken) if isinstance(found, Found) else len(seen)
            self._taken += self._socket.recv(count)
        except (BlockingIOError, InterruptedError):
            return
        except ProxyError as error:
            self._end(str(error))
            return
        except OSError as error:
            self._end(f"closed before its PROXY header: {error.strerror}")
            return
        if isinstance(found, Found):
            self._end(found)

    def _end(self, outcome: Found | str) -> None:
        self._stop()
        self._done(outcome)

    def _stop(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
