"""What reads ranges again and again sees it when they are not the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast_spark.client import Client, Endpoint, Unit
from holdfast_spark.protocol import Code, Refused, Wire
from tests.gates.gate import GateFailed
from tests.lake.ranges import Ranges, Rows, read_unit
from tests.lake.toy_reader import STORE, TOKEN, ToyReader, serving


def toy() -> ToyReader:
    """Two generations of two streams; positions from 0 to 399, two in a row in the same stream."""

    def rows(since: int, stream: int) -> list[tuple[int, bytes]]:
        return [(position, b"value %d" % position) for position in range(since, since + 200) if position // 2 % 2 == stream]

    return ToyReader({1: {7: rows(0, 0), 9: rows(0, 1)}, 2: {7: rows(200, 0), 9: rows(200, 1)}}, cut=400)


class Forgetful(ToyReader):
    """Leaves a row out of every fourth answer."""

    def spoil(self, rows: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        return rows[:-1] if self.scans % 4 == 0 else rows


class Blind(ToyReader):
    """Never shows a position that is a multiple of 50 as the first of a range."""

    def spoil(self, rows: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        return rows[1:]


class Confused(ToyReader):
    """Rows of a stream are not in order."""

    def spoil(self, rows: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        return rows[::-1]


def turns(reader: ToyReader, count: int = 8, lose_after: int = 99) -> Ranges:
    with serving(reader) as address, Client(Endpoint((address,), TOKEN), patience_s=0.0) as client:
        ranges = Ranges(client, STORE, random.Random(3))
        for turn in range(count):
            if turn == lose_after:
                reader.lost.add(1)
            ranges.turn()
        return ranges


def test_a_good_reader_is_found_good() -> None:
    """Ranges in one piece and two, and read again later."""
    happened = turns(toy()).happened
    assert happened["in two pieces, sealed"] > 5 and happened["again, sealed before"] > 5


def test_what_is_dropped_says_so() -> None:
    """LOST is an answer when the generation is listed no more."""
    assert turns(toy(), 20, lose_after=5).happened["again, and it was dropped"] > 0


@pytest.mark.parametrize("kind", [Forgetful, Blind, Confused])
def test_a_bad_reader_is_found_bad(kind: type[ToyReader]) -> None:
    """Whether it gives other rows the second time, other rows in two pieces, or rows in disorder."""
    good = toy()
    with pytest.raises(GateFailed):
        turns(kind(good.generations, good.cut))


def test_lost_without_a_drop_is_a_fault() -> None:
    """The generation is still listed."""

    class Liar(ToyReader):
        def cuts(self) -> dict[str, object]:
            return {"store": STORE, "shards": {"0": {"earliest": 0, "cut": self.cut, "generations": [{"id": 1}, {"id": 2}]}}}

    good = toy()
    with pytest.raises(GateFailed, match="is listed"):
        turns(Liar(good.generations, good.cut), 20, lose_after=5)


def test_lost_at_the_first_reading_is_a_fault_as_well() -> None:
    """A reader that plans for a generation, lists it, and says LOST to whoever reads it."""

    class Liar(ToyReader):
        def scan(self, wire: Wire, request: dict[str, Any]) -> None:
            raise Refused(Code.LOST, "it is gone", {"gaps": []})

    good = toy()
    with pytest.raises(GateFailed, match="is listed"):
        turns(Liar(good.generations, good.cut))


def test_a_plan_that_leaves_out_a_generation_is_found() -> None:
    """Of a short range the second generation is planned, of a long one it is not."""

    class Hasty(ToyReader):
        def plan(self, request: dict[str, Any]) -> dict[str, Any]:
            found = super().plan(request)
            long = request["to"]["0"] - request["from"]["0"] > 150
            return {**found, "units": [each for each in found["units"] if not long or each["generation"] == 1]}

    good = toy()
    with pytest.raises(GateFailed, match="in one plan only"):
        turns(Hasty(good.generations, good.cut))


def test_rows_are_joined_stream_by_stream() -> None:
    """And their digest does not know blocks."""
    with serving(toy()) as address, Client(Endpoint((address,), TOKEN), patience_s=0.0) as client:
        whole = read_unit(client, STORE, Unit(0, 1, 0, 200))
        first, second = (read_unit(client, STORE, Unit(0, 1, *bounds)) for bounds in ((0, 73), (73, 200)))
        assert whole.count == 200 and list(whole.streams) == [7, 9]
        assert (first + second).same(whole) and not (second + first).same(whole)
        assert whole.digest() == (first + second).digest() != first.digest()
        assert read_unit(client, STORE, Unit(0, 1, 5, 5)).same(Rows({}))
