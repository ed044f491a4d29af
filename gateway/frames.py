"""What travels between two gateways: who has live subscribers for what, messages for them (sessions.live_frames), and `$SYS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from sessions.framing import framing
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
encode: Callable[[Frame], bytes]
decode: Callable[[bytes | memoryview], Frame]
encode, decode = framing(Interest, InterestSeen, Forward, Counts, SystemTable)


__all__ = [
    "HANDED_ON", "Counts", "ForGroups", "Forward", "Frame", "Interest", "InterestSeen", "LiveFrame", "SystemTable", "decode", "encode",
]  # fmt: skip
