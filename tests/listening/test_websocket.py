"""Frames of a WebSocket: what comes out does not depend on how they were cut, and nothing is kept for what was only claimed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transport.websocket import FrameReader, WebSocketError, close_frame, frame

MASK = b"\x11\x22\x33\x44"
BINARY, CONTINUATION, TEXT, CLOSE, PING, PONG = 2, 0, 1, 8, 9, 10


def sent(payload: bytes, opcode: int = BINARY, fin: bool = True, mask: bytes = MASK, claimed: int | None = None) -> bytes:
    """A frame as a client sends it.  claimed: the length in its head, when that is not the payload's."""
    length = len(payload) if claimed is None else claimed
    head = bytes([opcode | (0x80 if fin else 0)])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 1 << 16:
        head += b"\xfe" + struct.pack(">H", length)
    else:
        head += b"\xff" + struct.pack(">Q", length)
    return head + mask + bytes([byte ^ mask[i % 4] for i, byte in enumerate(payload)])


def outcome(pieces: list[bytes]) -> tuple[bytes, bytes, bool, int, int]:
    """Payload, the last answer of each kind, whether it is over, the code of a fault, and what is kept at most."""
    reader, got, answers, code, held = FrameReader(), b"", [], 0, 0
    for piece in pieces:
        try:
            got += b"".join(reader.feed(piece))
        except WebSocketError as error:
            got += b"".join(error.pieces)
            code = error.code
        held = max(held, reader.held_bytes)
        answers += reader.answers
        reader.answers = []
    return got, answers[-1] if answers else b"", reader.closed, code, held


STREAMS = {
    "one": sent(b"hello"),
    "none in it": sent(b""),
    "126 bytes": sent(bytes(range(126))),
    "300 bytes": sent(bytes(300)) + sent(b"x"),
    "fragments": sent(b"ab", fin=False) + sent(b"", CONTINUATION, fin=False) + sent(b"cde", CONTINUATION) + sent(b"f"),
    "ping within fragments": sent(b"ab", fin=False) + sent(b"are you there", PING) + sent(b"c", CONTINUATION),
    "pong": sent(b"yes", PONG) + sent(b"x"),
    "close": sent(b"last") + sent(struct.pack(">H", 1001) + "é".encode(), CLOSE) + sent(b"not read"),
    "close without a code": sent(b"", CLOSE),
    "text": sent(b"last") + sent(b"hello", TEXT),
    "reserved bits": sent(b"last") + sent(b"hello", BINARY | 0x40),
    "unknown kind": sent(b"hello", 3),
    "unknown control": sent(b"hello", 11),
    "ping in fragments": sent(b"", PING, fin=False),
    "ping of 126 bytes": sent(bytes(126), PING),
    "continuation of nothing": sent(b"x", CONTINUATION),
    "message within a message": sent(b"a", fin=False) + sent(b"b"),
    "no mask": sent(b"last") + b"\x82\x03abc",
    "no mask, and long": b"\x82\x7e\x01\x00" + bytes(300),
    "a length with its highest bit": b"\x82\xff" + struct.pack(">Q", 1 << 63) + MASK,
    "close of one byte": sent(b"\x03", CLOSE),
    "close with 1005": sent(struct.pack(">H", 1005), CLOSE),
    "close with 999": sent(struct.pack(">H", 999), CLOSE),
    "close with no utf-8": sent(struct.pack(">H", 1000) + b"\xff", CLOSE),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_means_the_same_however_it_is_cut(name: str) -> None:
    """Whole, cut at each byte, and byte by byte: the same payload, answers and end."""
    data = STREAMS[name]
    whole = outcome([data])
    assert [outcome([data[:cut], data[cut:]])[:4] for cut in range(len(data) + 1)] == [whole[:4]] * (len(data) + 1)
    singly = outcome([data[i : i + 1] for i in range(len(data))])
    assert singly[:4] == whole[:4] and singly[4] < 14 + 125


@pytest.mark.parametrize(
    ("name", "payload", "code"),
    [
        ("one", b"hello", 0),
        ("300 bytes", bytes(300) + b"x", 0),
        ("126 bytes", bytes(range(126)), 0),
        ("fragments", b"abcdef", 0),
        ("ping within fragments", b"abc", 0),
        ("close", b"last", 0),
        ("text", b"last", 1003),
        ("reserved bits", b"last", 1002),
        ("no mask", b"last", 1002),
        ("no mask, and long", b"", 1002),
        ("unknown kind", b"", 1002),
        ("unknown control", b"", 1002),
        ("ping in fragments", b"", 1002),
        ("ping of 126 bytes", b"", 1002),
        ("continuation of nothing", b"", 1002),
        ("message within a message", b"a", 1002),
        ("a length with its highest bit", b"", 1002),
        ("close of one byte", b"", 1002),
        ("close with 1005", b"", 1002),
        ("close with 999", b"", 1002),
        ("close with no utf-8", b"", 1007),
    ],
)
def test_what_a_stream_means(name: str, payload: bytes, code: int) -> None:
    """What came before a fault is given out, and the fault has the code that the RFC says."""
    got, _, closed, found, _ = outcome([STREAMS[name]])
    assert (got, found) == (payload, code) and closed == bool(code or name == "close")


def test_a_ping_is_answered_with_its_payload_and_the_last_of_several_alone() -> None:
    """So a flood of them is answered with no more than one frame for each piece that is read."""
    reader = FrameReader()
    reader.feed(sent(b"one", PING))
    assert reader.answers == [b"\x8a\x03one"]
    reader.answers = []
    reader.feed(sent(b"two", PING) * 1000 + sent(b"three", PING))
    assert reader.answers == [b"\x8a\x05three"]


def test_a_close_is_answered_with_its_code() -> None:
    """And with 1000 where it has none."""
    assert outcome([STREAMS["close"]])[1] == close_frame(1001) == b"\x88\x02\x03\xe9"
    assert outcome([STREAMS["close without a code"]])[1] == close_frame(1000)


def test_nothing_is_kept_for_a_length_that_is_only_claimed() -> None:
    """A frame of a claimed gigabyte is given on as it comes."""
    reader = FrameReader()
    assert b"".join(reader.feed(sent(b"begins", claimed=1 << 30))) == b"begins" and reader.held_bytes == 0
    rest = bytes([byte ^ MASK[(6 + i) % 4] for i, byte in enumerate(b"goes on")])
    assert b"".join(reader.feed(rest)) == b"goes on" and reader.held_bytes == 0


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536, 1 << 32])
def test_the_head_of_a_frame_says_its_length_in_the_fewest_bytes(length: int) -> None:
    """As the RFC wants it of whoever sends."""
    head = frame(length)
    assert head[0] == 0x82 and len(head) == (2 if length < 126 else 4 if length < 65_536 else 10)
    assert (head[1] if len(head) == 2 else int.from_bytes(head[2:], "big")) == length


@given(
    st.lists(
        st.tuples(st.binary(max_size=400), st.sampled_from(["whole", "fragments", "ping"]), st.binary(min_size=4, max_size=4)), max_size=8
    ),
    st.data(),
)
def test_any_payload_comes_through_any_cuts(messages: list[tuple[bytes, str, bytes]], data: st.DataObject) -> None:
    """Fragmented or not, with pings between, with any mask."""
    stream, wanted = b"", b""
    for payload, how, mask in messages:
        if how == "ping":
            stream += sent(payload[:125], PING, mask=mask)
            continue
        wanted += payload
        if how == "whole":
            stream += sent(payload, mask=mask)
        else:
            half = len(payload) // 2
            stream += sent(payload[:half], fin=False, mask=mask) + sent(b"", PING) + sent(payload[half:], CONTINUATION, mask=mask[::-1])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    got, _, closed, code, held = outcome(pieces)
    assert (got, closed, code) == (wanted, False, 0) and held < 14 + 125


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_taken_or_refused_in_one_way(data: bytes, cut: int) -> None:
    """Nothing but WebSocketError comes out, and a cut changes nothing."""
    assert outcome([data])[:4] == outcome([data[:cut], data[cut:]])[:4]
