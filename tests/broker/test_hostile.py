"""What `one` sees of servers that are no broker: each of their faults is found, and nothing that came is missed."""

from __future__ import annotations

import asyncio

import pytest

from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Pingreq, Pingresp
from mqtt.reason import ReasonCode
from tests.broker.hostile import Ports, one
from tests.fuzz.cases import Case
from tests.fuzz.frames import frame
from tests.fuzz.judge import Seen, Unjust

PATIENCE_S = 60.0
SHORT_S = (0.05, 0.5, 5.0)
"""For what does not come; the longer ones where what comes before it took its time, too."""
LOGIN = encode(5, Connect(5, "c", True, 60))
PING, PONG = encode(5, Pingreq()), encode(5, Pingresp())
ONLINE, BYE = encode(5, Connack(False)), encode(5, Disconnect(ReasonCode.MALFORMED_PACKET))
SHAKEN = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
BAD = LOGIN + b"\x00\x00"


def given(wire: bytes, *, web: bool = False) -> Case:
    """Byte by byte."""
    sent = frame(wire) if web else wire
    return Case(7, 5, len(LOGIN), wire, tuple([sent[at : at + 1] for at in range(len(sent))]), web)


def seen(case: Case, *script: tuple[int, bytes], closes: bool = False, patience_s: float = PATIENCE_S) -> Seen:
    """What is seen of a server that says each of these when it has read so many bytes more, then closes or stays and says nothing."""

    served: asyncio.Future[None]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for size, answer in script:
                await reader.readexactly(size)
                writer.write(answer)
            if closes:
                writer.write_eof()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            served.set_result(None)

    async def run() -> Seen:
        nonlocal served
        served = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            try:
                return (await one(Ports(port, port), case, patience_s))[0]
            finally:
                await served

    return asyncio.run(run())


def test_what_comes_while_a_case_is_still_being_sent_counts() -> None:
    """CONNACK is there before the last byte has gone; the PINGREQ of the case is answered too, and then ours.  Who is served is left, maybe
    within a packet."""
    found = seen(given(LOGIN + PING), (len(LOGIN), ONLINE), (len(PING), PONG), (len(PING), PONG))
    assert found == Seen(5, ONLINE + PONG + PONG, False, pinged=True, whole=False)


def test_a_server_that_says_why_and_closes_is_just() -> None:
    """What is still sent to it does not matter."""
    found = seen(given(BAD + bytes(50)), (len(LOGIN), ONLINE), (1, BYE), closes=True)
    assert (found.out, found.closed, found.failed is not None) == (ONLINE + BYE, True, True)


def test_frames_of_a_websocket_are_taken_apart() -> None:
    """The answers are in frames of their own."""
    head = 6 + 160  # Of the frame, and within the request; what is behind it is read later.
    assert seen(given(LOGIN, web=True), (head, SHAKEN + b"\x82" + bytes((len(ONLINE),)) + ONLINE), closes=True).out == ONLINE


FAULTS = {
    "no CONNACK": (LOGIN, [], False, "Connack did not come"),
    "a close instead of CONNACK": (LOGIN, [(1, b"")], True, "a good CONNECT got no answer"),
    "one PINGRESP for two": (LOGIN + PING, [(len(LOGIN + PING), ONLINE + PONG)], False, "Pingresp did not come"),
    "no PINGRESP": (LOGIN, [(len(LOGIN), ONLINE)], False, "Pingresp did not come"),
    "no close of a broken stream": (BAD, [(len(LOGIN), ONLINE)], False, "a close did not come"),
    "a DISCONNECT without a close": (BAD, [(len(LOGIN), ONLINE + BYE)], False, "a close did not come"),
    "something behind DISCONNECT": (BAD, [(len(LOGIN), ONLINE + BYE + PONG)], True, "something after DISCONNECT"),
    "two CONNACKs": (BAD, [(len(LOGIN), ONLINE + ONLINE)], True, "CONNACK twice"),
    "no word before the close": (BAD, [(len(LOGIN), ONLINE)], True, "was not told why"),
    "no MQTT": (LOGIN, [(1, b"\xff\xff")], True, "no MQTT"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_server_is_seen(name: str) -> None:
    """And the case is named."""
    wire, script, closes, words = FAULTS[name]

    def complaint(patience_s: float) -> Unjust:
        with pytest.raises(Unjust) as raised:
            seen(given(wire), *script, closes=closes, patience_s=patience_s)
        return raised.value

    first, *longer = SHORT_S
    found = complaint(first)
    for patience_s in longer:
        found = found if words in str(found) else complaint(patience_s)
    assert words in str(found)
    assert any("case 7" in note for note in found.__notes__)


def test_a_handshake_that_is_refused_is_no_answer() -> None:
    """The request of a WebSocket is always a good one."""
    with pytest.raises(ValueError, match="handshake"):
        seen(given(LOGIN, web=True), (10, b"HTTP/1.1 400 Bad Request\r\n\r\n"), closes=True)
