"""Whether the pages of a stream's index are whole, in order, and say what the messages say. For commands, as it reads everything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shards.bulk import NO_LIMIT
from shards.engine import Engine, Op, StoreFailed
from shards.layouts.checking import Sum, difference, sums_of_messages
from shards.layouts.paged_index.pages import PAGE_PREFIX, SEGMENT_END, Segment, decode_page, entry_of, segment_prefix, state_key
from shards.layouts.paged_index.stream_index import POSITION_MAX, StreamIndex
from shards.layouts.port import ReadStream

_PAGES_END = b"\xff" * 23
"""Behind a stream's prefix: higher than every page."""


class _Wrong(Exception):
    """A segment cannot be summed up; says why."""


def faults_of(engine: Engine, family: int, index: StreamIndex, read: ReadStream) -> Iterator[str]:
    """One sentence for each segment and level of which something is wrong. family: of the index."""
    where = f"index of stream {index.static.hex()}"
    try:
        index.find(engine, family)
    except (StoreFailed, ValueError) as error:
        yield f"{where}: {error}"
        return
    after = -1
    for segment in index.segments:
        if segment.last <= after:
            yield f"{where}: segment {segment.number} ends at {segment.last}, and the one before at {after}"
            return
        try:
            wanted = sums_of_messages(read, index.static, index.depths, after, segment.last)
        except (StoreFailed, ValueError) as error:
            yield f"{where}: its messages behind {after} cannot be read: {error}"
            return
        for level, messages in enumerate(wanted, 1):
            try:
                wrong = difference(_sum_of(engine, family, index.static, level, segment), messages)
            except (_Wrong, StoreFailed, ValueError) as error:
                wrong = str(error)
            if wrong:
                yield f"{where}, level {level}, segment {segment.number} for positions {after + 1} to {segment.last}: {wrong}"
        after = segment.last
    if index.state.covered < after:
        yield f"{where}: it says that it covers positions up to {index.state.covered}, and has a segment up to {after}"


def begun_anew(engine: Engine, family: int, index: StreamIndex, read: ReadStream) -> list[Op]:
    """Takes away what is on disk of a stream's index, which is then made anew from its messages, as after a crash. All at once: of pages
    that no state names, only those of the next segment are looked for. Raises StoreFailed or ValueError where messages cannot be read."""
    static = index.static
    sums_of_messages(read, static, index.depths, -1, POSITION_MAX)
    pages = PAGE_PREFIX + static
    found = engine.columns(family, pages, pages + _PAGES_END, NO_LIMIT) if engine.has_family(family) else ()
    return [(family, state_key(static), None), *[(family, key, None) for keys, _, _ in found for key in keys]]


def _sum_of(engine: Engine, family: int, static: bytes, level: int, segment: Segment) -> Sum:
    """Raises _Wrong when the pages do not lie as a seek would have them; StoreFailed."""
    prefix = segment_prefix(static, level, segment.number)
    total, before = Sum(), (-1, -1)
    for keys, values, _ in engine.columns(family, prefix, prefix + SEGMENT_END, NO_LIMIT):
        for key, value in zip(keys, values, strict=True):
            page = decode_page(key, value)
            hashes, positions = np.asarray(page.hashes, np.uint64), np.asarray(page.positions, np.uint64)
            if not len(hashes) or key != prefix + entry_of(page.hashes[-1], page.positions[-1]):
                raise _Wrong(f"page {key.hex()} does not end with the entry that it is named for")
            falls = (hashes[1:] < hashes[:-1]) | ((hashes[1:] == hashes[:-1]) & (positions[1:] <= positions[:-1]))
            if (page.hashes[0], page.positions[0]) <= before or falls.any():
                raise _Wrong(f"page {key.hex()} is not in order")
            before = page.hashes[-1], page.positions[-1]
            total = total.plus(hashes, positions)
    if total.entries != segment.entries:
        raise _Wrong(f"{total.entries} entries, of which {segment.entries} were written")
    return total
