"""The opening of a WebSocket: what is let in, what is refused and with which status, whatever the pieces it comes in."""

from __future__ import annotations

import gc

import pytest
from websockets.server import ServerProtocol

from gateway.transport.handshake import REQUEST_BYTES_MAX, Answer, Handshake
from gateway.transport.origin import origin_allowed

REQUEST = (
    "GET /mqtt HTTP/1.1\r\nHost: broker.example:8083\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
)
END = "\r\n"


def shake(request: str, origins: tuple[str, ...] = (), secure: bool = False) -> Answer | None:
    return Handshake("/mqtt", secure, origins).feed(request.encode("latin-1"))


def status(request: str, origins: tuple[str, ...] = (), secure: bool = False) -> int:
    answer = shake(request, origins, secure)
    assert answer is not None
    assert answer.data.startswith(f"HTTP/1.1 {answer.status} ".encode()) and (answer.opened or answer.detail)
    return answer.status


def test_a_good_request_opens_and_what_comes_along_is_kept() -> None:
    """The answer proves that the key was read, and names the subprotocol."""
    answer = shake(REQUEST + END + "\x82\x80")
    assert answer is not None and answer.opened and answer.rest == "\x82\x80".encode("latin-1")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer.data
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer.data and b"Extensions" not in answer.data


def test_it_is_the_same_however_it_is_cut() -> None:
    """At each byte, and byte by byte."""
    data = (REQUEST + END).encode()
    for cut in range(1, len(data)):
        handshake = Handshake("/mqtt", False, ())
        assert handshake.feed(data[:cut]) is None
        answer = handshake.feed(data[cut:] + b"rest")
        assert answer is not None and answer.opened and answer.rest == b"rest"
    handshake = Handshake("/mqtt", False, ())
    answers = [handshake.feed(data[i : i + 1]) for i in range(len(data))]
    assert answers[:-1] == [None] * (len(data) - 1) and answers[-1] is not None and answers[-1].opened


@pytest.mark.parametrize(
    ("found", "wanted", "code"),
    [
        ("GET", "POST", 400),
        ("HTTP/1.1", "HTTP/1.0", 400),
        ("GET /mqtt HTTP/1.1", "\x10\x0e\0\x04MQTT", 400),
        ("/mqtt", "/", 404),
        ("/mqtt", "/mqtt/", 404),
        ("/mqtt", "/mqtt?token=x", 101),
        ("Upgrade: websocket\r\n", "", 426),
        ("keep-alive, Upgrade", "close", 426),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", 400),
        ("Version: 13", "Version: 8", 400),
        ("Protocol: mqtt", "Protocol: chat", 400),
        ("Sec-WebSocket-Protocol: mqtt\r\n", "", 400),
        ("Protocol: mqtt", "Protocol: chat, mqttv3.1", 101),
        ("Protocol: mqtt", "Protocol: mqttv3.1\r\nSec-WebSocket-Protocol: mqtt", 101),
        ("Host: broker.example:8083", "Host: a\r\nHost: b", 400),
        ("Host", "Ho st", 400),
        ("Host: broker.example:8083", "Host: broker.example:8083\r\nOrigin: http://other.example", 403),
        ("Host: broker.example:8083", "Host: broker.example:8083\r\nOrigin: http://broker.example:8083", 101),
        ("Host: broker.example:8083", "Host: broker.example:8083\r\nOrigin: null", 403),
    ],
)
def test_each_mistake_has_its_status(found: str, wanted: str, code: int) -> None:
    """As docs/listeners.md says."""
    assert found in REQUEST
    assert status(REQUEST.replace(found, wanted) + END) == code


def test_a_request_that_does_not_end_is_refused_at_its_bound() -> None:
    """And nothing is answered before."""
    handshake = Handshake("/mqtt", False, ())
    assert handshake.feed(REQUEST.encode() + b"X: ") is None
    answer = handshake.feed(b"y" * REQUEST_BYTES_MAX)
    assert answer is not None and answer.status == 400 and "8192" in answer.detail


@pytest.mark.parametrize(
    ("origin", "host", "secure", "listed", "allowed"),
    [
        (None, "b", True, (), True),
        ("https://b", "b", True, (), True),
        ("https://B", "b", True, (), True),
        ("https://b", "b:443", True, (), True),
        ("https://b:443", "b", True, (), True),
        ("http://b", "b", True, (), False),
        ("http://b", "b", False, (), True),
        ("https://b", "b", False, (), True),
        ("http://b:80", "b", False, (), True),
        ("http://b:8083", "b", False, (), False),
        ("http://b", "b:8083", False, (), False),
        ("http://b.evil", "b", False, (), False),
        ("http://evil/b", "b", False, (), False),
        ("http://b@evil", "evil", False, (), False),
        ("null", "null", False, (), False),
        ("null", "b", False, ("null",), False),
        ("", "", False, (), False),
        ("http://", "", False, (), False),
        ("file://", "", False, (), False),
        ("https://app.example", "b", True, ("https://app.example",), True),
        ("https://app.example", "b", True, ("https://app.example:443",), True),
        ("http://app.example", "b", True, ("https://app.example",), False),
        ("https://x.app.example", "b", True, ("https://app.example",), False),
        ("anything", "b", True, ("*",), True),
        ("null", "b", True, ("*",), True),
    ],
)
def test_a_page_may_connect_from_the_host_itself_or_a_listed_origin(
    origin: str | None, host: str, secure: bool, listed: tuple[str, ...], allowed: bool
) -> None:
    """Nothing that only looks like it."""
    assert origin_allowed(origin, host, secure, listed) is allowed


@pytest.mark.parametrize(("found", "wanted"), [("GET", "GET"), ("/mqtt", "/"), ("1.1", "1.0"), ("GET", "")])
def test_nothing_of_it_waits_for_a_collection_of_garbage(found: str, wanted: str) -> None:
    """Neither of one that opened nor of one that was refused: of many who come and go at once all would be there until then."""
    gc.collect()
    gc.disable()
    try:
        assert shake(REQUEST.replace(found, wanted) + END) is not None
        assert not any(isinstance(each, ServerProtocol) for each in gc.get_objects())
    finally:
        gc.enable()
