"""Frames as the links of gateways and session actors carry them: a row of msgpack, which begins with the number of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgpack

from shards.shapes import maker

F = TypeVar("F", bound=NamedTuple)


def framing(*kinds: type[F]) -> tuple[Callable[[F], bytes], Callable[[bytes | memoryview], F]]:
    """encode and decode of the frames of one link.  kinds: named tuples of plain values, tuples and lists of them; a kind keeps its number,
    so new ones come last.

    decode raises ValueError for anything that is not a frame of this link."""
    code = {kind: number for number, kind in enumerate(kinds)}
    makers = [maker(kind) for kind in kinds]
    pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
    unpack = msgpack.unpackb

    def encode(frame: F) -> bytes:
        return bytes(pack((code[type(frame)], *frame)))

    def decode(data: bytes | memoryview) -> F:
        try:
            row = unpack(data, raw=False, use_list=True, strict_map_key=False)
            frame: F = makers[row[0]](row[1:])
            return frame
        except (msgpack.UnpackException, TypeError, IndexError, KeyError, ValueError) as error:
            raise ValueError(f"not a frame of this link: {error}") from None

    return encode, decode
