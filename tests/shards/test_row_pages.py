"""Rows for people: every answer is bounded, and with the next questions nothing is left out and nothing told twice."""

from __future__ import annotations

import pytest

from shards.draft import Draft
from shards.engine import HOME_FAMILY
from shards.engine_memory import MemoryEngine
from shards.queries import Rows
from shards.row_pages import BYTES_MAX, ROWS_MAX, rows_found

ALL = (b"k", b"l")


def draft(values: list[bytes]) -> Draft:
    engine = MemoryEngine()
    engine.write([(HOME_FAMILY, b"k%06d" % number, value) for number, value in enumerate(values)])
    return Draft(engine)


@pytest.mark.parametrize(
    ("values", "cut"),
    [([b"x"] * 1700, 100), ([b"y" * 5000] * 300, 1 << 20), ([b"z" * 900_000] * 3, 1 << 20), ([b"z" * 900_000, b"x"] * 10, 50), ([], 10)],
    ids=["small", "middling", "large", "large and cut", "none"],
)
def test_page_after_page_tells_each_row_once(values: list[bytes], cut: int) -> None:
    """Never more than an answer holds, but for one row that is larger; of a value that is cut the whole length is told."""
    rows = draft(values)
    start, told = ALL[0], 0
    while True:
        found = rows_found(rows, Rows([(start, ALL[1], 1 << 20)], cut), 7)
        assert found.age_ms == 7
        (page,) = found.found
        assert len(page) <= ROWS_MAX and (len(page) == 1 or sum(len(value) for _, value, _ in page[:-1]) < BYTES_MAX)
        for key, value, size in page:
            assert (key, value, size) == (b"k%06d" % told, values[told][:cut], len(values[told]))
            told += 1
        if found.whole[0]:
            break
        assert page, "it goes on"
        start = page[-1][0] + b"\0"
    assert told == len(values)


def test_several_ranges_are_of_one_moment_and_share_the_room() -> None:
    """What is not committed is there as well; a range that got no room is not told as whole."""
    rows = draft([b"x"] * 20)
    rows.put(b"k000003", b"new")
    rows.delete(b"k000019")
    found = rows_found(rows, Rows([(b"k000002", b"k000005", 10), (b"k000018", b"l", 10), (b"m", b"n", 10), (b"k", b"l", 2)], 100), 0)
    assert [[value for _, value, _ in page] for page in found.found] == [[b"x", b"new", b"x"], [b"x"], [], [b"x", b"x"]]
    assert found.whole == [True, True, True, False]
    crowded = rows_found(draft([b"x"] * 2000), Rows([(*ALL, 1 << 20), (*ALL, 1 << 20)], 100), 0)
    assert [len(page) for page in crowded.found] == [ROWS_MAX, 0] and crowded.whole == [False, False]
