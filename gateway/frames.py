"""What travels between two gateways: who has live subscribers for what, messages for them (sessions.live_frames), and `$SYS`."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import msgpack

from sessions.live_frames import HANDED_ON, ForGroups, Forward, Interest, InterestSeen


class Counts(NamedTuple):
    """What the sender counts, in the order of gateway.system; to the gateway that publishes `$SYS`."""

    values: list[int]


class SystemTable(NamedTuple):
    """The `$SYS` topics as they were published last, columns of equal length; from the gateway that publishes them."""

    topics: list[bytes]
    bodies: list[bytes]


LiveFrame: TypeAlias = Interest | InterestSeen | Forward
"""Those that a session actor knows too."""
Frame: TypeAlias = LiveFrame | Counts | SystemTable
_KINDS: tuple[type[Any], ...] = (Interest, InterestSeen, Forward, Counts, SystemTable)
_CODE = {kind: code for code, kind in enumerate(_KINDS)}
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(frame: Frame) -> bytes:
    return bytes(_pack((_CODE[type(frame)], *frame)))


def decode(data: bytes | memoryview) -> Frame:
    """Raises ValueError for anything that is not a frame of this link."""
    try:
        row = msgpack.unpackb(data, raw=False, use_list=True, strict_map_key=False)
        frame: Frame = _KINDS[row[0]](*row[1:])
        return frame
    except (msgpack.UnpackException, TypeError, IndexError, KeyError, ValueError) as error:
        raise ValueError(f"not a frame of this link: {error}") from None


__all__ = [
    "HANDED_ON", "Counts", "ForGroups", "Forward", "Frame", "Interest", "InterestSeen", "LiveFrame", "SystemTable", "decode", "encode",
]  # fmt: skip
