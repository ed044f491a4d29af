"""Frames between gateways and the plugin: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.asked import Asked
from access.identity import ANONYMOUS, Grant, Identity
from access.login import Login
from access.rights import Right
from actors.plugin.frames import Allowed, Ask, Denied, Failed, Frame, Invalidate, Told, decode, encode

WHO = Identity("ann", "jwt", ("a", "b"), (("serial", "0A"),), (Grant(Right.PUBLISH, (b"x/#",)),))
LOGIN = Login("c1", 5, "ann", b"\xff\x00", None, b"", "tls", "192.0.2.1", False, ("a", "b"), "0A1B", True)


@pytest.mark.parametrize(
    "frame",
    [
        Ask(((1, LOGIN), (2, Asked(WHO, "c1", "receive", "a/b")), (3, Asked(ANONYMOUS, "", "publish", "")))),
        Ask(()),
        Told(((1, Allowed(WHO.pack())), (2, Allowed(b"")), (3, Denied(0x87)), (4, True), (5, False), (6, Failed.RAISED))),
        Invalidate(None),
        Invalidate(("ann",)),
    ],
)
def test_what_goes_in_comes_out(frame: Frame) -> None:
    """Of each kind, with everything that it may have."""
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=40))
@settings(max_examples=100)
def test_bytes_of_others_are_no_frame(data: bytes) -> None:
    """Or one: never another error."""
    try:
        decode(data)
    except ValueError:
        pass


@pytest.mark.parametrize(
    "row", [1, [], [1], [9, []], [1, [[1, 9]]], [1, [[1, 1, "c"]]], [2, [[1, 1, "text"]]], [2, [[1, 4, 99]]], [2, [[1, 2, True, 3]]]]
)
def test_rows_of_another_form_are_refused(row: object) -> None:
    """By one error."""
    with pytest.raises(ValueError):
        decode(msgpack.packb(row))
