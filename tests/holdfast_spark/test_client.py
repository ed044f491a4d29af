"""The client: a truncated answer is always an error, what passes is tried again, and a scan gives each row once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_spark.client import Client, Endpoint, NoReader, NotRepeatable, Truncated, Unit, parse_brokers, split
from holdfast_spark.protocol import Block, Refused, decode_block
from tests.holdfast_spark.fake_reader import TOKEN, FakeReader, one_shard
from tests.holdfast_spark.plain import Message, block_of

UNIT = Unit(0, 1, 0, 1 << 40)
MESSAGES = [Message(stream, 10 * at + stream, f"t/{stream}", "c", b"%d" % at) for stream in (1, 2) for at in range(5)]


class Time:
    """A clock that goes on only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader(one_shard(*MESSAGES)) as served:
        yield served


def client_of(reader: FakeReader, time: Time | None = None, *, token: str = TOKEN, patience_s: float = 30.0) -> Client:
    time = time or Time()
    endpoint = Endpoint(parse_brokers(reader.brokers), token)
    return Client(endpoint, patience_s=patience_s, sleep=time.sleep, clock=time.clock)


def positions(blocks: Iterator[Block]) -> list[int]:
    return [at for block in blocks for at in struct.unpack(f"<{block.rows}Q", block.positions)]


EXPECTED = [each.position for each in MESSAGES]


def test_a_scan_gives_all_rows_in_order(reader: FakeReader) -> None:
    """Stream by stream, and the connection is used again for the next request."""
    with client_of(reader) as client:
        assert positions(client.scan("site-a:2", UNIT, ["#"])) == EXPECTED
        assert client.cuts()["store"] == "site-a:2"
        assert positions(client.scan("site-a:2", UNIT, ["t/2"])) == EXPECTED[5:]


def answer_bytes(reader: FakeReader) -> int:
    """How long the whole answer to the scan is."""
    low, high = 0, 1 << 16
    while low < high:
        reader.cuts_after = [(low + high) // 2]
        try:
            with client_of(reader, patience_s=0) as client:
                positions(client.scan("site-a:2", UNIT, ["#"]))
            high = (low + high) // 2
        except NoReader:
            low = (low + high) // 2 + 1
    return low


@pytest.mark.slow
def test_an_answer_cut_after_any_number_of_bytes_is_an_error(reader: FakeReader) -> None:
    """Each single byte class is among all of them: frame heads, block heads, runs, positions, lengths, values, trailer. With no patience
    left there is no second try to hide it."""
    whole = answer_bytes(reader)
    assert whole > 500
    for length in range(whole):
        reader.cuts_after = [length]
        with client_of(reader, patience_s=0) as client, pytest.raises(NoReader):
            positions(client.scan("site-a:2", UNIT, ["#"]))
    reader.cuts_after = [whole]
    with client_of(reader, patience_s=0) as client:
        assert positions(client.scan("site-a:2", UNIT, ["#"])) == EXPECTED


@pytest.mark.slow
def test_a_scan_that_was_cut_goes_on_behind_its_last_row(reader: FakeReader) -> None:
    """Wherever it is cut, and though the blocks are others the second time: every row once, in order."""
    whole = answer_bytes(reader)
    for length in range(0, whole, 3):
        for rows in (1, 2, 4, 7):
            reader.block_rows, reader.cuts_after = 3, [length]
            with client_of(reader) as client:
                scan = client.scan("site-a:2", UNIT, ["#"])
                first = next(scan)
                reader.block_rows = rows
                assert positions(iter([first])) + positions(scan) == EXPECTED


def test_a_scan_cut_many_times_still_gives_each_row_once(reader: FakeReader) -> None:
    """Each try gets a bit further."""
    reader.cuts_after = [200, 250, 400, 100, 500, 550, 20]
    with client_of(reader) as client:
        assert positions(client.scan("site-a:2", UNIT, ["#"])) == EXPECTED


@pytest.mark.parametrize("field", ["rows", "bytes", "blocks", "crc"])
def test_a_trailer_that_counts_otherwise_is_an_error(reader: FakeReader, field: str) -> None:
    """Each of its counts is compared."""

    def mangle(answer: dict[str, Any]) -> dict[str, Any]:
        answer["trailer"][field] += 1
        return answer

    reader.mangle = mangle
    with client_of(reader, patience_s=0) as client, pytest.raises(NoReader, match="trailer says") as error:
        positions(client.scan("site-a:2", UNIT, ["#"]))
    assert isinstance(error.value.__cause__, Truncated)


@pytest.mark.parametrize("instead", [{}, {"trailer": None}, {"trailer": 7}, {"done": True}])
def test_an_end_without_a_trailer_is_an_error(reader: FakeReader, instead: dict[str, Any]) -> None:
    """Whatever comes instead."""
    reader.mangle = lambda _: instead
    with client_of(reader, patience_s=0) as client, pytest.raises(NoReader, match="not its trailer"):
        positions(client.scan("site-a:2", UNIT, ["#"]))


def test_rows_that_changed_between_two_tries_are_an_error(reader: FakeReader) -> None:
    """What was yielded cannot be taken back, so the task has to fail."""
    reader.cuts_after = [400]
    with client_of(reader) as client:
        scan = client.scan("site-a:2", UNIT, ["#"])
        next(scan)
        reader.store.shards[0][1].messages[0] = Message(1, 2, "t/1", "c", b"other")
        with pytest.raises(NotRepeatable, match="other rows than before"):
            positions(scan)


def test_rows_that_are_fewer_at_the_second_try_are_an_error(reader: FakeReader) -> None:
    """Also when what is left is the beginning of what came before."""
    reader.cuts_after = [450]
    with client_of(reader) as client:
        scan = client.scan("site-a:2", UNIT, ["#"])
        next(scan)
        next(scan)
        del reader.store.shards[0][1].messages[2:]
        with pytest.raises(NotRepeatable, match="had come before"):
            positions(scan)


@pytest.mark.parametrize("code", ["AWAY", "BUSY"])
def test_what_passes_is_waited_for(reader: FakeReader, code: str) -> None:
    """A busy reader, and a shard that restarts, cost time and nothing else."""
    time = Time()
    reader.refusals = [("SCAN", Refused(code, "later", {"retry_after": 1}))] * 5
    with client_of(reader, time) as client:
        assert positions(client.scan("site-a:2", UNIT, ["#"])) == EXPECTED
    assert 5 * 0.75 <= time.now < 15


def test_a_busy_reader_is_waited_for_as_long_as_others_may_take(reader: FakeReader) -> None:
    """A task whose turn does not come for minutes must not fail; one whose turn never comes says why. Being away counts from then on."""
    time = Time()
    busy, away = Refused("BUSY", "4 scans are under way", {"retry_after": 2}), Refused("AWAY", "shard 0 does not answer")
    reader.refusals = [("SCAN", busy)] * 60 + [("SCAN", away)] * 5
    with client_of(reader, time) as client:
        assert positions(client.scan("site-a:2", UNIT, ["#"])) == EXPECTED
    assert time.now > 60 * 0.75 * 2
    reader.refusals = [("SCAN", busy)] * 1000
    with client_of(reader, time) as client, pytest.raises(Refused, match="4 scans are under way"):
        list(client.scan("site-a:2", UNIT, ["#"]))


def test_a_reader_that_is_away_is_waited_for_at_least_fifteen_seconds(reader: FakeReader) -> None:
    """And then the reason is said: the reader's own."""
    time = Time()
    reader.refusals = [("CUTS", Refused("AWAY", "shard 0 does not answer"))] * 1000
    with client_of(reader, time) as client, pytest.raises(Refused, match="shard 0 does not answer"):
        client.cuts()
    assert 15 < time.now < 60


def test_nobody_there_is_one_sentence() -> None:
    """Who was looked for, for how long, and what to look at."""
    time = Time()
    with FakeReader(one_shard()) as gone:
        pass
    with client_of(gone, time) as client, pytest.raises(NoReader, match=rf"no answer from a reader at {gone.brokers} for 30 s: .*; is the"):
        client.cuts()
    assert 15 < time.now < 60


@pytest.mark.parametrize("code", ["FORBIDDEN", "REQUEST", "STORE", "LOST", "DAMAGED", "FULL"])
def test_what_does_not_pass_is_said_at_once_and_the_connection_stays(reader: FakeReader, code: str) -> None:
    """Waiting would not help."""
    time = Time()
    reader.refusals = [("SCAN", Refused(code, "no"))]
    with client_of(reader, time) as client:
        with pytest.raises(Refused) as refused:
            positions(client.scan("site-a:2", UNIT, ["#"]))
        assert (refused.value.code, time.now) == (code, 0)
        assert positions(client.scan("site-a:2", UNIT, ["#"])) == EXPECTED


def test_a_wrong_token_is_said_at_once(reader: FakeReader) -> None:
    """And the token is in no text."""
    time = Time()
    with client_of(reader, time, token="wrong-one") as client, pytest.raises(Refused, match="TOKEN") as refused:
        client.cuts()
    assert time.now == 0
    assert "wrong-one" not in str(refused.value) + repr(Endpoint((("h", 1),), "wrong-one"))


def test_another_broker_is_asked_when_one_is_away(reader: FakeReader) -> None:
    """Whichever of them is first."""
    with FakeReader(one_shard()) as gone:
        pass
    for brokers in (f"{gone.brokers},{reader.brokers}", f"{reader.brokers},{gone.brokers}"):
        for _ in range(4):
            time = Time()
            with Client(Endpoint(parse_brokers(brokers), TOKEN), sleep=time.sleep, clock=time.clock) as client:
                assert client.hello()["store"] == "site-a:2"
                assert time.now < 1


def test_a_scan_that_is_left_early_leaves_nothing_behind(reader: FakeReader) -> None:
    """The rest of its answer is not taken for that of the next request."""
    with client_of(reader) as client:
        scan = client.scan("site-a:2", UNIT, ["#"])
        next(scan)
        scan.close()  # type: ignore[attr-defined]  # it is a generator
        assert client.cuts()["store"] == "site-a:2"


def test_requests_are_those_of_the_page(reader: FakeReader) -> None:
    """Names of fields, and null where nothing is said."""
    with client_of(reader) as client:
        client.limit({0: 0}, {0: 60}, 5, None)
        client.plan({0: 0}, {0: 60}, ["#"], None, [0], 100)
        client.lease("put", name="l", ttl_ms=1, max_age_ms=None, max_bytes=None, block=False, filters=[], start="latest")
        client.ack("l", {0: 7})
        positions(client.scan("site-a:2", UNIT, ["#"]))
    assert reader.asked[0] == {"verb": "LIMIT", "from": {"0": 0}, "to": {"0": 60}, "rows": 5, "bytes": None}
    assert reader.asked[1] == {
        "verb": "PLAN", "from": {"0": 0}, "to": {"0": 60}, "filters": ["#"], "rows_per_unit": 100, "clients": None, "shards": [0]
    }  # fmt: skip
    assert reader.asked[3] == {"verb": "LEASE", "do": "ack", "name": "l", "to": {"0": 7}}
    assert reader.asked[4] == {
        "verb": "SCAN", "store": "site-a:2", "shard": 0, "generation": 1, "from": 0, "to": 1 << 40, "filters": ["#"], "clients": None
    }  # fmt: skip


@given(st.integers(0, 10))
@settings(max_examples=11)
def test_a_block_split_anywhere_is_the_same_rows(rows: int) -> None:
    """Runs, positions, lengths, values."""
    whole = decode_block(memoryview(block_of(MESSAGES)))
    first, second = split(whole, rows)
    assert (first.rows, second.rows) == (rows, 10 - rows)
    assert sum(count for _, count in first.runs) == rows
    assert sum(count for _, count in second.runs) == 10 - rows
    for name in ("positions", "lengths", "values"):
        assert bytes(getattr(first, name)) + bytes(getattr(second, name)) == bytes(getattr(whole, name))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h", (("h", 7883),)),
        ("h:1, g.example:2", (("h", 1), ("g.example", 2))),
        ("[::1]:5,[::1]", (("::1", 5), ("::1", 7883))),
    ],
)
def test_brokers_are_read(text: str, found: tuple[tuple[str, int], ...]) -> None:
    """With and without a port."""
    assert parse_brokers(text) == found


@pytest.mark.parametrize("text", ["", ":5", "h:0", "h:65536", "h:x", "a,,b", "::1:5"])
def test_brokers_that_are_none_are_one_sentence(text: str) -> None:
    """What was found and what is wanted."""
    with pytest.raises(ValueError, match="wanted is host:port"):
        parse_brokers(text)
