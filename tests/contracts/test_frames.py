"""The four kinds of links: every frame comes back from its bytes, and no bytes make anything but a frame or a ValueError."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import ModuleType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import frames as between_gateways
from sessions import frames as to_sessions
from sessions import inquiry_frames as of_inquiries
from shards import frames as to_shards

LINKS = [to_shards, to_sessions, between_gateways, of_inquiries]
by_link = pytest.mark.parametrize("link", LINKS, ids=["shard", "session", "gateway", "inquiry"])

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**31), 2**63 - 1),
    bytes: st.binary(max_size=12),
    str: st.text(max_size=5),
    bool: st.booleans(),
    NoneType: st.none(),
    Any: st.integers(0, 9) | st.binary(max_size=3),
}

NARROW: dict[Any, dict[str, st.SearchStrategy[Any]]] = {
    of_inquiries.Move: {"verb": st.sampled_from([of_inquiries.SKIP, of_inquiries.REWIND, of_inquiries.PURGE])},
}
"""Fields of which not every value of their type makes a frame."""


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, whatever frames are made of."""
    if hint in PLAIN:
        return PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([of(each) for each in arguments])
    if origin is list or origin is Sequence:
        return st.lists(of(arguments[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(of, arguments))
    fields = {name: of(each) for name, each in get_type_hints(hint).items()}
    return st.builds(hint, **fields | NARROW.get(hint, {}))


def _settled(frame: Any) -> Any:
    """That nothing was lost does not travel, as an empty list or otherwise (shards.queries.told_fields)."""
    told = frame.told if isinstance(frame, to_shards.Result) else None
    if isinstance(told, to_shards.Polled | to_shards.RangeRead) and not told.gone:
        return frame._replace(told=told._replace(gone=()))
    return frame


def kinds(link: ModuleType) -> list[Any]:
    return list(get_args(link.Frame))


@by_link
@given(data=st.data())
def test_a_frame_comes_back_from_its_bytes(link: ModuleType, data: st.DataObject) -> None:
    """Every kind, every field, also where frames hold entries, replies, asks and answers to them; a tuple as a tuple, which msgpack does
    not know."""
    frame = data.draw(of(data.draw(st.sampled_from(kinds(link)))))
    assert repr(_settled(link.decode(link.encode(frame)))) == repr(_settled(frame))


ONE: Any = (b"c",)
THREE: Any = (1, b"c", 2)


@pytest.mark.parametrize(
    ("link", "frame"),
    [
        (to_shards, to_shards.Superseded([THREE])),
        (to_shards, to_shards.Request(1, [to_shards.Check([ONE])])),
        (to_shards, to_shards.Query(1, to_shards.Unknown([THREE]))),
        (to_sessions, to_sessions.Subscribe(1, 1, [THREE], 0)),
        (between_gateways, between_gateways.Interest(1, False, [], [], [], [], [ONE])),
        (of_inquiries, of_inquiries.PlacesTold(1, True, [ONE], True)),
    ],
    ids=["plain", "entry", "ask", "session", "gateway", "inquiry"],
)
def test_a_tuple_of_another_length_is_refused_where_it_comes_in(link: ModuleType, frame: object) -> None:
    """Not later, in the middle of what is done with the frame."""
    with pytest.raises(ValueError, match="not a frame of this link"):
        link.decode(link.encode(frame))


@by_link
@given(data=st.data())
def test_damaged_bytes_are_a_frame_or_a_value_error(link: ModuleType, data: st.DataObject) -> None:
    """Whatever a peer sends, nothing else escapes: the owner of the link closes it on ValueError and on nothing else."""
    raw = bytearray(link.encode(data.draw(of(data.draw(st.sampled_from(kinds(link)))))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _takes_or_refuses(link.decode, bytes(raw[: data.draw(st.integers(0, len(raw)))]))


@by_link
def test_bytes_that_are_no_frame_are_a_value_error(link: ModuleType) -> None:
    """Nothing, a number, a map, a kind that does not exist, too few and too many fields, noise."""
    rows: list[object] = [7, {}, [], [99], [-1], list(range(30)), ["a"], [None], [[1]]]
    for row in rows:
        with pytest.raises(ValueError, match="not a frame of this link"):
            link.decode(msgpack.packb(row))
    rng = random.Random(1)
    for size in range(200):
        _takes_or_refuses(link.decode, rng.randbytes(size))


def _takes_or_refuses(decode: Callable[[bytes], object], raw: bytes) -> None:
    try:
        decode(raw)
    except ValueError:
        pass
