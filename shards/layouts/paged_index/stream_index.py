"""The index of one stream: what is of it on disk, and what is in RAM only.

Life cycle: known by name -> found: the state row is read -> loaded: the entries of messages behind ``covered`` are made anew from the
messages -> written to. A stream that did not exist when the generation was opened is loaded from the start. Entries may be put
before the stream is loaded; then only what lies between ``covered`` and the first of them is missing.

A stream of which few messages are in no segment may drop their entries again: then it counts as not loaded.

Holds, when loaded: every message of the stream has its entries in exactly one place: in a segment when its position is at most
``covered``, in RAM otherwise.
"""

from __future__ import annotations

from shards.engine import Engine
from shards.layouts.learned import level_hashes
from shards.layouts.paged_index.entries import Entries
from shards.layouts.paged_index.pages import NO_INDEX, IndexState, Segment, decode_state, encode_state, state_key
from shards.layouts.port import ReadStream

POSITION_MAX = (1 << 64) - 2
_LOAD_BYTES_MAX = 1 << 20


class StreamIndex:
    __slots__ = ("_loading", "_loading_from", "depths", "entries", "folded", "forgotten", "loaded", "state", "static", "unfinished")

    def __init__(self, static: bytes, levels: tuple[bytes | None, ...], loaded: bool) -> None:
        self.static = static
        self.depths = tuple(depth for depth, level in enumerate(levels) if level is None)
        self.entries = Entries(len(self.depths))
        self.state = NO_INDEX
        self.loaded = loaded
        self.unfinished = not loaded
        """There may be pages of a segment of the next number: a process ended while it made them, or a write failed."""
        self.folded: dict[int, list[bytes]] = {}
        """By number: pages of segments that this process has folded and still has to delete; a third of a byte for each entry."""
        self.forgotten = 0
        """How many entries are in no segment and no longer in RAM: the next load makes them anew."""
        self._loading_from = -1
        self._loading = bytearray()

    @property
    def levels(self) -> int:
        return len(self.depths)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.state.segments

    def encoded(self, state: IndexState) -> tuple[bytes, bytes]:
        """(key, value) of the row for such a state."""
        key = state_key(self.static)
        return key, encode_state(key, self.levels, state)

    @property
    def uncovered(self) -> int:
        """Entries in no segment, as far as is known before loading."""
        return self.entries.count + self.forgotten

    def forget(self, upto: int) -> int:
        """Drop the entries of messages up to here from RAM, of a stream that has few; returns how many. They are made anew from the
        messages when somebody asks for them."""
        if self._loading_from >= 0 or self.loaded:
            self._loading_from = self.state.covered
            self._loading = bytearray()
        dropped = self.entries.forget(upto)
        self.forgotten += dropped
        self.loaded = self.loaded and not dropped
        return dropped

    def find(self, engine: Engine, family: int) -> None:
        """What is of it on disk is known then."""
        if not self.loaded and self._loading_from < 0:
            key = state_key(self.static)
            row = engine.get(family, key) if engine.has_family(family) else None
            self.state = NO_INDEX if row is None else decode_state(key, row, self.levels)
            self._loading_from = self.state.covered

    def load(self, engine: Engine, family: int, read: ReadStream, messages_max: int) -> int:
        """Go on with loading, by at most so many messages; returns how many it was. ``loaded`` says whether more is to be done."""
        if self.loaded:
            return 0
        self.find(engine, family)
        first = self.entries.first
        found = read(self.static, self._loading_from, POSITION_MAX if first is None else first - 1, messages_max, _LOAD_BYTES_MAX)
        for position, message in zip(found.positions, found.values, strict=True):
            self._loading += position.to_bytes(8, "big")
            self._loading += b"".join(level_hashes(message, self.depths))
        self._loading_from = found.place
        if found.done:
            self.entries.precede(self._loading)
            self.loaded = True
            self.forgotten = 0
            self._loading = bytearray()
        return len(found.positions)
