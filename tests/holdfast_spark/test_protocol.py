"""Frames, blocks and messages to append, byte for byte as docs/reader.md has them; whatever is cut or changed is an error."""

from __future__ import annotations

import pickle  # noqa: TID251  # Spark pickles the exceptions of its workers; that they survive it is tested here
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_spark.protocol import (
    APPEND_ROWS_MAX,
    Ended,
    Frame,
    Kind,
    Late,
    Malformed,
    Refused,
    Tally,
    Wire,
    WireError,
    decode_block,
    decode_messages,
    encode_block,
    encode_messages,
)
from shards.bulk import lengths_of


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_frame_is_length_kind_and_body(pair: tuple[socket.socket, socket.socket]) -> None:
    """The bytes of a JSON frame are those of the page."""
    ours, theirs = pair
    Wire(ours).send_json({"hello": 1})
    assert theirs.recv(100) == b'\x00\x00\x00\x0c\x01{"hello":1}'


def test_a_block_has_the_bytes_of_the_page() -> None:
    """Golden: two streams, three rows."""
    crc, parts = encode_block(
        [(7, 2), (0xFFFF_FFFF_FFFF_FFFE, 1)],
        [struct.pack("<QQ", 10, 11), struct.pack("<Q", 9)],
        [lengths_of([b"ab", b"", b"cde"])],
        [b"abc", b"de"],
    )
    rest = bytes.fromhex(
        "0700000000000000" "02000000" "feffffffffffffff" "01000000"
        "0a00000000000000" "0b00000000000000" "0900000000000000"
        "02000000" "00000000" "03000000" "6162" "636465"
    )  # fmt: skip
    assert b"".join(parts) == bytes.fromhex("030000000200000005000000") + zlib.crc32(rest).to_bytes(4, "little") + rest
    assert crc == zlib.crc32(rest) == 0xB8D90779


def test_messages_to_append_have_the_bytes_of_the_page() -> None:
    """Golden: two messages."""
    head, rest = encode_messages(b"\x01\x05", [b"c", b"dd"], [b"t/1", b"t"], [b"\x00x", b"\x00"])
    assert rest == bytes.fromhex("010100030002000000050200010001000000") + b"cdd" + b"t/1t" + b"\x00x\x00"
    assert head == b"\x02\x00\x00\x00" + zlib.crc32(rest).to_bytes(4, "little")


values = st.lists(st.binary(max_size=40), max_size=30)


@given(values, st.data())
def test_a_block_comes_back_as_it_was(stored: list[bytes], data: st.DataObject) -> None:
    """Runs, positions, lengths and values, and the checksum that the tally counts."""
    positions = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(stored), max_size=len(stored)))
    cut = data.draw(st.integers(0, len(stored)))
    runs = [(stream, count) for stream, count in ((1, cut), (2**64 - 1, len(stored) - cut)) if count]
    crc, parts = encode_block(runs, [struct.pack(f"<{len(stored)}Q", *positions)], [lengths_of(stored)], stored)
    block = decode_block(memoryview(b"".join(parts)))
    assert (block.rows, list(block.runs), block.crc) == (len(stored), runs, crc)
    assert struct.unpack(f"<{len(stored)}Q", block.positions) == tuple(positions)
    assert struct.unpack(f"<{len(stored)}I", block.lengths) == tuple(map(len, stored))
    assert bytes(block.values) == b"".join(stored)


@given(values, st.data())
def test_a_block_with_one_bit_changed_is_an_error(stored: list[bytes], data: st.DataObject) -> None:
    """Wherever the bit is, in the head too."""
    _, parts = encode_block([(5, len(stored))] if stored else [], [bytes(8 * len(stored))], [lengths_of(stored)], stored)
    body = bytearray(b"".join(parts))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(Malformed):
        decode_block(memoryview(body))


@given(values)
def test_a_block_that_is_shorter_or_longer_is_an_error(stored: list[bytes]) -> None:
    """At every length but its own."""
    _, parts = encode_block([(5, len(stored))] if stored else [], [bytes(8 * len(stored))], [lengths_of(stored)], stored)
    body = b"".join(parts)
    for length in range(len(body)):
        with pytest.raises(Malformed):
            decode_block(memoryview(body[:length]))
    with pytest.raises(Malformed):
        decode_block(memoryview(body + b"\0"))


def test_runs_that_do_not_add_up_are_an_error_though_the_checksum_is_right() -> None:
    """A reader that counts wrong is found out."""
    rest = struct.pack("<QI", 1, 2) + bytes(8) + struct.pack("<I", 1) + b"x"
    body = struct.pack("<IIII", 1, 1, 1, zlib.crc32(rest)) + rest
    with pytest.raises(Malformed, match="do not add up"):
        decode_block(memoryview(body))


def test_what_does_not_fit_together_is_not_encoded() -> None:
    """The mistake is found where it is made."""
    with pytest.raises(ValueError, match="do not fit"):
        encode_block([(1, 2)], [bytes(8)], [lengths_of([b"a"])], [b"a"])
    with pytest.raises(ValueError, match="do not fit"):
        encode_block([(1, 1)], [bytes(8)], [], [b"a"])
    with pytest.raises(ValueError, match="one of each"):
        encode_messages(b"\0", [b""], [], [b""])
    with pytest.raises(ValueError, match="is the most"):
        encode_messages(bytes(APPEND_ROWS_MAX + 1), *[[b""] * (APPEND_ROWS_MAX + 1)] * 3)
    with pytest.raises(ValueError, match="is the most"):
        encode_messages(bytes(2), [b""] * 2, [b""] * 2, [bytes(3 << 20)] * 2)


def test_one_message_is_never_too_large_to_append() -> None:
    """However large it is, it goes alone."""
    head, rest = encode_messages(b"\x01", [b"c"], [b"t"], [bytes(9 << 20)])
    assert decode_messages(memoryview(head + rest)).bodies == [bytes(9 << 20)]


message = st.tuples(st.integers(0, 255), st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=40))


@given(st.lists(message, max_size=20), st.data())
def test_messages_to_append_come_back_or_are_an_error(messages: list[tuple[int, bytes, bytes, bytes]], data: st.DataObject) -> None:
    """Whole: the same. Cut, or with a bit changed: never others."""
    columns = [list(column) for column in zip(*messages, strict=True)] or [[], [], [], []]
    body = b"".join(encode_messages(bytes(columns[0]), *columns[1:]))
    found = decode_messages(memoryview(body))
    assert [bytes(found.flags), found.clients, found.topics, found.bodies] == [bytes(columns[0]), *columns[1:]]
    with pytest.raises(Malformed):
        decode_messages(memoryview(body)[: data.draw(st.integers(0, len(body) - 1))])
    # The first four bytes are the count, which no checksum covers: it has to be found out by the lengths.
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(Malformed):
        decode_messages(memoryview(changed))


def test_a_frame_cut_anywhere_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    """Between frames it is the end, inside of one it is broken; fewer bytes never."""
    whole = b'\x00\x00\x00\x0c\x01{"hello":1}'
    for length in range(len(whole)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(whole[:length])
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(WireError) as error:
                Wire(ours).receive()
            assert isinstance(error.value, Ended) == (length == 0)


def test_a_frame_in_single_bytes_is_one_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    """TCP may deliver it so."""
    ours, theirs = pair

    def feed() -> None:
        for byte in b"\x00\x00\x00\x03\x02ab":
            theirs.send(bytes((byte,)))

    feeder = threading.Thread(target=feed)
    feeder.start()
    frame = Wire(ours).receive()
    feeder.join()
    assert (frame.kind, bytes(frame.body)) == (Kind.BLOCK, b"ab")


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (b"\x00\x00\x00\x00\x01", "0 bytes"),
        (b"\x7f\x00\x00\x00\x01", "bytes; 1 to"),
        (b"\x00\x00\x00\x02\x09a", "kind 9"),
    ],
)
def test_what_is_no_frame_is_refused_by_name(pair: tuple[socket.socket, socket.socket], sent: bytes, sentence: str) -> None:
    """Before anything of it is taken."""
    ours, theirs = pair
    theirs.sendall(sent)
    with pytest.raises(Malformed, match=sentence):
        Wire(ours).receive()


def test_a_stranger_cannot_make_the_reader_take_much(pair: tuple[socket.socket, socket.socket]) -> None:
    """The bound is asked before there is room for the body."""
    ours, theirs = pair
    theirs.sendall(b"\x00\x02\x00\x00\x01")
    with pytest.raises(Malformed, match="1 to 65536"):
        Wire(ours).receive(bytes_max=65536)


@pytest.mark.parametrize("sent", [b"", b"\x00\x00", b"\x00\x00\x00\x03\x02a"])
def test_a_frame_that_stops_half_way_is_late(pair: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    """Nobody waits for ever: not for the first byte, not for the last."""
    ours, theirs = pair
    theirs.sendall(sent)
    begun = time.monotonic()
    with pytest.raises(Late):
        Wire(ours, wait_s=0.02).receive()
    assert time.monotonic() - begun < 60


def test_who_takes_nothing_is_late(pair: tuple[socket.socket, socket.socket]) -> None:
    """A writer is not held for ever by somebody who does not read."""
    ours, _ = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def many() -> None:
        # The pace gives a large frame more time, so it is many small ones that fill the line.
        for _ in range(10_000):
            Wire(ours, wait_s=0.02).send(Kind.BLOCK, bytes(4000))

    with pytest.raises(Late):
        many()


def test_a_frame_of_many_parts_comes_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    """However little of it the line takes at a time, and more parts than a system takes at once; some are empty."""
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    parts = [bytes([n % 251]) * (n * 37 % 400) for n in range(2000)]
    sending = threading.Thread(target=lambda: Wire(ours).send(Kind.BLOCK, *parts))
    sending.start()
    frame = Wire(theirs).receive()
    sending.join()
    assert frame.kind == Kind.BLOCK and bytes(frame.body) == b"".join(parts)


def test_who_takes_nothing_of_a_large_frame_is_late(pair: tuple[socket.socket, socket.socket]) -> None:
    """Its time is that of its length, and not longer because it goes in parts."""
    ours, _ = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with pytest.raises(Late):
        Wire(ours, wait_s=0.02).send(Kind.BLOCK, *[bytes(1000)] * 100)


@pytest.mark.parametrize("body", [b"[1]", b"{", b"\xff", b"1"])
def test_json_that_is_no_object_is_malformed(body: bytes) -> None:
    """Of every kind."""
    with pytest.raises(Malformed):
        Frame(Kind.JSON, memoryview(body)).json()


def test_a_block_where_json_is_owed_is_malformed() -> None:
    """Kinds are not guessed."""
    with pytest.raises(Malformed, match="BLOCK"):
        Frame(Kind.BLOCK, memoryview(b"{}")).json()


def test_a_refusal_is_the_same_after_json_and_after_pickle() -> None:
    """Spark carries exceptions about; code, sentence and the other fields stay."""
    refused = Refused("LOST", "gone", {"gaps": [{"shard": 0}]})
    for again in (Refused.from_json(refused.as_json()), pickle.loads(pickle.dumps(refused))):
        assert (again.code, again.sentence, again.more) == ("LOST", "gone", {"gaps": [{"shard": 0}]})
        assert str(again) == "gone (LOST)"


def test_the_tally_is_the_checksum_over_checksums() -> None:
    """Both sides count with it, so the number is pinned here."""
    tally = Tally()
    for crc in (1, 0xFFFF_FFFF):
        tally.add(3, 10, crc)
    expected = zlib.crc32(b"\x01\x00\x00\x00\xff\xff\xff\xff")
    assert tally.as_json() == {"rows": 6, "bytes": 20, "blocks": 2, "crc": expected}
