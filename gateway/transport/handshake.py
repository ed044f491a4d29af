"""The opening of a WebSocket: an HTTP request in, its answer out (RFC 6455, section 4).

What a valid request is, and how the answer is worked out, is left to `websockets`; here is what we want beyond that: which path,
which subprotocol, which origins, and how many bytes it may take.

Always holds: no more than REQUEST_BYTES_MAX are kept; after an answer nothing more is read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from websockets.datastructures import MultipleValuesError
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from gateway.transport.origin import origin_allowed

REQUEST_BYTES_MAX: Final = 8_192
SUBPROTOCOLS: Final = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))

_END: Final = b"\r\n\r\n"
# It would log what peers do wrong, and that is said once, by whoever closes the connection.
_SILENT: Final = logging.getLogger("holdfast.websockets")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent.  status 101: the WebSocket is open, and `rest` are bytes of it that came along; else it is closed after it."""

    status: int
    data: bytes
    detail: str
    rest: bytes = b""

    @property
    def opened(self) -> bool:
        return self.status == HTTPStatus.SWITCHING_PROTOCOLS


class Handshake:
    """path: the one that is served.  origins: that pages may come from, besides the host that is talked to."""

    __slots__ = ("_held", "_origins", "_path", "_secure")

    def __init__(self, path: str, secure: bool, origins: Collection[str]) -> None:
        self._path = path
        self._secure = secure
        self._origins = origins
        self._held = b""

    def feed(self, data: bytes) -> Answer | None:
        """The answer when the request is complete."""
        held = self._held + data
        end = held.find(_END, max(0, len(self._held) - len(_END) + 1), REQUEST_BYTES_MAX)
        if end < 0:
            if len(held) >= REQUEST_BYTES_MAX:
                return _refused(HTTPStatus.BAD_REQUEST, f"a request of more than {REQUEST_BYTES_MAX} bytes")
            self._held = held
            return None
        end += len(_END)
        self._held = b""
        return self._answer(held[:end], held[end:])

    def _answer(self, request_bytes: bytes, rest: bytes) -> Answer:
        protocol = _protocol()
        try:
            return self._answer_of(protocol, request_bytes, rest)
        finally:
            _let_go(protocol)

    def _answer_of(self, protocol: ServerProtocol, request_bytes: bytes, rest: bytes) -> Answer:
        protocol.receive_data(request_bytes)
        events = protocol.events_received()
        if not events or not isinstance(events[0], Request):
            return _refused(HTTPStatus.BAD_REQUEST, "a request that is no GET of HTTP/1.1")
        request = events[0]
        if request.path.partition("?")[0] != self._path:
            return _refused(HTTPStatus.NOT_FOUND, f"a request for {request.path[:100]!r}, which is not {self._path!r}")
        response = protocol.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return Answer(response.status_code, response.serialize(), str(protocol.handshake_exc or "a request for no WebSocket")[:200])
        try:
            origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        except MultipleValuesError:
            return _refused(HTTPStatus.BAD_REQUEST, "a request with two hosts or origins")
        if not origin_allowed(origin, host, self._secure, self._origins):
            return _refused(HTTPStatus.FORBIDDEN, f"a page from {(origin or '')[:100]!r}, which is not in ws.origins")
        return Answer(response.status_code, response.serialize(), "", rest)


def _protocol() -> ServerProtocol:
    return ServerProtocol(subprotocols=SUBPROTOCOLS, logger=_SILENT)


def _let_go(protocol: ServerProtocol) -> None:
    """Its parser and the errors that it met refer to it, and it to them: each would be there until the next collection."""
    protocol.parser.close()
    protocol.handshake_exc = protocol.parser_exc = None


def _refused(status: HTTPStatus, detail: str) -> Answer:
    protocol = _protocol()
    response = protocol.reject(status, f"{status.phrase}: {detail}.\n")
    _let_go(protocol)
    return Answer(int(status), response.serialize(), detail)
