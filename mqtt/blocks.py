"""Blocks of properties with which a PUBLISH may be one of a run: they were read before, and nothing in them concerns one message alone.

Most publishers send the same few blocks with every message.  To take such a message on its own costs three times what it costs in a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from mqtt.packets import Properties, Publish

BLOCKS_MAX: Final = 4_096
BLOCK_BYTES_MAX: Final = 128
_SHORT: Final = 0x80


class Known(Protocol):
    def get(self, block: bytes, /) -> int | None:
        """How many user properties are in it; None: it may not be in a run.  block: its length as one byte stands first."""


class PropertyBlocks:
    """Connections share one.  A memory only, emptied when it is full: what is in it changes whether a message comes in a run, and
    nothing else.

    joins: says of properties that nobody has to look at them while the message is on its way.  Not asked for those with a topic alias
    or a subscription identifier, which are not stored.
    """

    __slots__ = ("_joins", "known")

    def __init__(self, joins: Callable[[Properties], bool]) -> None:
        self._joins = joins
        self.known: dict[bytes, int] = {}
        """How many user properties are in it, by block: its length of one byte, and the properties."""

    def note(self, packet: Publish) -> None:
        """This one was read on its own; the next one like it need not be."""
        properties = packet.properties
        size = len(packet.body) - len(packet.payload)
        if not 1 < size <= BLOCK_BYTES_MAX or properties.topic_alias is not None or properties.subscription_identifiers:
            return
        if self._joins(properties):
            if len(self.known) >= BLOCKS_MAX:
                self.known.clear()
            self.known[packet.body[:size]] = len(properties.user_properties)


class UnreadBlocks:
    """For who reads each block itself: whatever is in one, and be it malformed, it may be in a run where one byte says its length."""

    known: Final[Known]

    def __init__(self) -> None:
        self.known = _Unread()

    def note(self, packet: Publish) -> None:
        pass


class _Unread:
    def get(self, block: bytes, /) -> int | None:
        return 0 if block[0] < _SHORT else None
