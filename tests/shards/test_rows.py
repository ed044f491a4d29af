"""The rows of a home, byte by byte: what docs/formats.md says of them is what lies on the disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from shards import frames, rows
from shards.frames import Answer, Place, Published
from shards.rows import (
    ConnectionRow,
    LossRow,
    ProgressRow,
    RangeRow,
    SessionRow,
    SubscriptionRow,
    client_key,
    pack_connection,
    pack_progress,
    pack_range,
    pack_row,
    pack_session,
    pack_subscription,
    split_client_key,
    unpack_as,
    unpack_row,
)
from tests.shards.harness import G, connect, linked, publish, route

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"

GOLDEN = {
    "connection": (
        ConnectionRow(513, "gateway-0:a", 0, False, [b"w", 1, True, 5, b"\0x"]),
        "9601cd0201ab676174657761792d303a6100c295c4017701c305c4020078",
    ),
    "connection of somebody who is known": (
        ConnectionRow(513, "g", 0, True, None, b"who"),
        "9701cd0201a16700c3c0c40377686f",
    ),
    "session of a user": (SessionRow(513, 3600, 5, 7, 0, 0, b"u"), "9801cd0201cd0e1005070000c40175"),
    "session in memory": (SessionRow(513, 3600, 5, 7, 0, 3), "9701cd0201cd0e1005070003"),
    "subscription": (SubscriptionRow(b"a/+", 1, 2, 0, rows.ACTIVE, [(0, 99)]), "9701c403612f2b0102000191920063"),
    "subscription that began in the past": (
        SubscriptionRow(b"a/+", 1, 18, 0, rows.ACTIVE, [(0, 99)], [True, [[0, 300, 1000, 0]]]),
        "9801c403612f2b011200019192006392c3919400cd012ccd03e800",
    ),
    "history of a replay": (
        RangeRow(1, b"a", 1, 32, 0, 2, True, [(1, b"12345678")], 5, 300, 1, 10, 0, 0, [], [], 1000, 0),
        "dc00130101c4016101200002c3919201c408313233343536373805cd012c010a00009090cd03e800",
    ),
    "range": (
        RangeRow(1, b"a", 1, 0, 0, 2, True, [(1, b"12345678")], 5, 300, 1, 10, 0, 0, []),
        "dc00100101c4016101000002c3919201c408313233343536373805cd012c010a000090",
    ),
    "range of which some is lost": (
        RangeRow(1, b"a", 1, 0, 0, 2, True, [(1, b"12345678")], 5, 300, 1, 10, 0, 0, [], [1, 4, 0, 0]),
        "dc00110101c4016101000002c3919201c408313233343536373805cd012c010a0000909401040000",
    ),
    "progress of a session that has lost something": (ProgressRow(3, 10, 21, 20, 0, 1, 0, [4], 2), "9a01030a1514000100910402"),
    "progress of a session that is to be told of a loss": (ProgressRow(3, 10, 21, 20, 0, 1, 0, [4], 2, True), "9b01030a1514000100910402c3"),
    "loss": (
        LossRow(1, b"a/+", 2, 7, "default", 4, 300, rows.NOT_COUNTED, 1, 2, 3, "period"),
        "9e0101c403612f2b0207a764656661756c7404cd012cff010203a6706572696f6400",
    ),
    "progress": (ProgressRow(3, 10, 21, 20, 0, 1, 0, [4]), "9901030a15140001009104"),
    "place": (Place(7, 9, 1, b"12345678", 8), "9601070901c408313233343536373808"),
}


def packed(row: tuple[Any, ...]) -> bytes:
    if isinstance(row, RangeRow):
        return pack_range(row)
    if isinstance(row, SubscriptionRow):
        return pack_subscription(row)
    if isinstance(row, ConnectionRow):
        return pack_connection(row)
    if isinstance(row, SessionRow):
        return pack_session(row)
    return pack_progress(row) if isinstance(row, ProgressRow) else pack_row(row)


@pytest.mark.parametrize("name", GOLDEN)
def test_values_are_the_golden_bytes_of_version_1(name: str) -> None:
    """A change of these bytes is a new version."""
    row, golden = GOLDEN[name]
    assert packed(row).hex() == golden
    kind: Any = type(row)
    assert repr(unpack_as(kind, bytes.fromhex(golden))) == repr(row)


def test_only_the_row_of_a_session_in_memory_or_of_a_user_says_so() -> None:
    """The row of any other session has the bytes it always had; not known whose it is, is not the same as the anonymous one's."""
    row = SessionRow(513, 3600, 5, 7, 0)
    assert pack_session(row).hex() == "9601cd0201cd0e10050700"
    assert unpack_as(SessionRow, pack_session(row)) == row
    assert pack_session(row._replace(memory=3)) == pack_row(row._replace(memory=3)[:-1])
    nameless = row._replace(user=b"")
    assert unpack_as(SessionRow, pack_session(nameless)) == nameless != row


def test_a_row_of_a_newer_version_is_refused() -> None:
    """Never guessed at."""
    with pytest.raises(ValueError, match="row of version 2 found, 1 is the newest"):
        unpack_row(b"\x92\x02\x00")


def test_keys_of_a_client_lie_together_and_give_the_client_back() -> None:
    """Kind, length, client id, suffix; a client whose id begins with another's has its own place."""
    assert client_key(b"u", "ü".encode(), rows.u64(258)) == bytes.fromhex("750002c3bc0000000000000102")
    assert split_client_key(client_key(b"p", b"ab", b"suffix")) == (b"ab", b"suffix")
    keys = sorted(client_key(b"u", client, suffix) for client in (b"a", b"ab", b"b") for suffix in (b"\0", b"b\0", b"\xff"))
    assert [split_client_key(key)[0] for key in keys] == [b"a"] * 3 + [b"b"] * 3 + [b"ab"] * 3


def test_the_answer_to_a_frame_lies_in_its_slot() -> None:
    """Sender and n mod 64 are the key; version, number and replies the value."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"t")
    number = h.request(G, publish(b"p", conn, b"t"))
    h.tick()
    key = b"n" + b"g0:a" + bytes((number % frames.FRAMES_UNANSWERED_MAX,))
    assert h.engine.get(0, key) == bytes.fromhex(f"9301{number:02x}919300c2c400")
    assert h.take(G, Answer)[-1] == Answer(number, [Published(False, b"")])


def test_every_kind_of_row_and_reply_is_in_the_page() -> None:
    """With its code; no two kinds share one."""
    page = PAGE.read_text().partition("## Home rows")[2].partition("\n## ")[0]
    kinds = {value for name, value in vars(rows).items() if name.isupper() and isinstance(value, bytes)}
    assert set(re.findall(r"^\| `(.)` ", page, re.M)) == {kind.decode() for kind in kinds} | {"g", "d"}
    replies = [(str(code), kind.__name__, ", ".join(kind._fields)) for code, kind in enumerate(frames.REPLIES)]
    assert re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \|$", page, re.M) == replies
