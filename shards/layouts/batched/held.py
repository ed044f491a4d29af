"""Messages of busy streams, until their record ends: only then is it known what becomes a batch.

A stream is busy when a record had enough of it for a batch, which is looked at in every so many records, as counting costs; and no
more when a record has fewer. Of all others each message is a value of its own at once: where a record has a message or two of each of
very many streams, holding them would cost half of what storing them does.

Holds: nothing is kept from one record to the next but which streams are busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shards.engine import Op
from shards.layouts.batched.batch import MESSAGES_MIN
from shards.lts import RESERVED_PREFIX

_STATIC_BYTES = 8


class Part(NamedTuple):
    """What a record has of one busy stream."""

    static: bytes
    positions: list[int]
    messages: list[bytes]


class Held:
    """Of one generation."""

    def __init__(self, sampled_records: int) -> None:
        """sampled_records: every so many records busy streams are looked for."""
        self._sampled = sampled_records
        self._records = 0
        self.busy: dict[bytes, tuple[list[int], list[bytes]]] = {}
        """By static key: positions and messages of this record. The same object for ever."""

    @property
    def empty(self) -> bool:
        return not any(positions for positions, _ in self.busy.values())

    def ended(self, ops: Sequence[Op], family: int, key_bytes: int, batched: Callable[[bytes], bool]) -> list[Part]:
        """The record of these ops ends: what it has of busy streams, in their order.  key_bytes: of the keys of single messages of streams
        that may have batches, and of others.  batched: whether the stream with this static key may."""
        new: list[bytes] = []
        if self._records % self._sampled == 0 and len(ops) >= MESSAGES_MIN:
            counts = Counter([key[:_STATIC_BYTES] for number, key, _ in ops if len(key) == key_bytes and number == family])
            often = [static for static, count in counts.items() if count >= MESSAGES_MIN]
            # A record in which a generation begins has rows of its topic structure too, and one of these may be as long as a message's key.
            new = [static for static in often if not static.startswith(RESERVED_PREFIX) and batched(static)]
        self._records += 1
        found: list[Part] = []
        if self.busy:
            found = [Part(static, *held) for static, held in self.busy.items() if held[0]]
            self.busy.clear()
            new += [part.static for part in found if len(part.messages) >= MESSAGES_MIN]
        for static in new:
            self.busy[static] = [], []
        return found
