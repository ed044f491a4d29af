"""What msgpack has unpacked, made what the types of a named tuple say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import pytest

from shards.shapes import maker


class Point(NamedTuple):
    x: int
    y: int = 0


class Everything(NamedTuple):
    plain: int
    loose: list[Any]
    pairs: list[tuple[int, bytes]]
    nested: list[list[tuple[int, int]]]
    row: tuple[int, Point]
    many: tuple[Point, ...]
    points: Sequence[Point]
    perhaps: Point | None
    late: Sequence[tuple[int, int]] = ()


WHOLE = Everything(1, [[2]], [(3, b"c")], [[], [(4, 5)]], (6, Point(7, 8)), (Point(9), Point(1, 2)), [Point(3, 4)], Point(5, 6), [(7, 8)])


def unpacked(row: tuple[object, ...]) -> list[Any]:
    found: list[Any] = msgpack.unpackb(msgpack.packb(row))
    return found


@pytest.mark.parametrize("row", [WHOLE, WHOLE._replace(perhaps=None), WHOLE._replace(pairs=[], many=(), late=[])])
def test_it_is_what_was_packed(row: Everything) -> None:
    """Tuples, lists and named tuples at every depth; `repr` knows the difference."""
    assert repr(maker(Everything)(unpacked(row))) == repr(row)


def test_last_fields_may_be_missing_if_they_have_defaults() -> None:
    """A row of an earlier release."""
    assert repr(maker(Everything)(unpacked(WHOLE[:-1]))) == repr(WHOLE._replace(late=()))
    with pytest.raises(TypeError):
        maker(Everything)(unpacked(WHOLE[:-2]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pairs", [(3,)]),
        ("pairs", [(3, b"c", 1)]),
        ("pairs", 7),
        ("row", (6,)),
        ("row", (6, (7, 8, 9))),
        ("many", [(1, 2, 3)]),
        ("nested", [[(4,)]]),
    ],
)
def test_another_shape_is_refused(field: str, value: Any) -> None:
    """By one of the two errors that frames and rows are refused with."""
    with pytest.raises((TypeError, ValueError)):
        maker(Everything)(unpacked(WHOLE._replace(**{field: value})))


def test_what_is_refused_is_not_repeated() -> None:
    """It may be somebody's message, and what is said of it goes into a log."""
    with pytest.raises(ValueError, match="tuples of 2 were wanted, one of 3 found") as refused:
        maker(Everything)(unpacked((1, [], [(3, b"a secret", 1)])))
    assert "secret" not in str(refused.value)
