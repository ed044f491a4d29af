"""The words of rules: what somebody may do, and how much of a topic filter that covers."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Right(IntFlag):
    """Several at once mean all of them.  The numbers are in rows and links: they never change."""

    PUBLISH = 1
    RETAIN = 2
    DELAY = 4
    SUBSCRIBE = 8
    SHARE = 16
    REPLAY = 32


class Extent(IntEnum):
    """How much of what a topic filter matches is allowed.  SOME: each message has to be asked for by its topic."""

    NONE = 0
    SOME = 1
    ALL = 2
