"""The learned topic structure with what lies under it, and what reading a filter costs; from views of the files (actors.inquiry.stored)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from actors.inquiry.asking import Asking
from actors.inquiry.clients import shown
from actors.inquiry.stored import Stored
from actors.reader.surveying import survey
from actors.reader.views import Seen
from shards.generations import GenerationDropped, GenerationInfo
from shards.store import Stream

STREAMS_TOLD_MAX = 1_000
"""Of one generation, by themselves."""
COUNT_MAX = 1_000_000
"""Messages of one generation that are counted."""
_CHUNK_ROWS = 50_000
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the topics of some streams have in common, + where they vary.  streams: in how many it lies, over shards and generations.

    messages, bytes: as stored; estimated: not all were counted."""

    pattern: str
    messages: int
    bytes: int
    estimated: bool
    streams: int


@dataclass(frozen=True, slots=True)
class StreamRead:
    """wanted: levels of the topic that the filter names and that vary in this stream, `level=value`; empty: all of it is wanted."""

    pattern: str
    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GenerationRead:
    """What reading a filter costs in one generation: it is read stream by stream.

    streams: that it has; read: that have to be read; whole: of these, where every message matches; by_index: where some match, which are
    found by the levels that vary.  matching: messages, counted up to a million; messages: in the generation, None when nobody has counted.
    """

    shard: int
    generation: int
    retention_class: str
    layout: str
    sealed: bool
    streams: int
    read: int
    whole: int
    by_index: int
    matching: int
    counted: bool
    messages: int | None
    told: tuple[StreamRead, ...]


async def patterns(asking: Asking, stored: Stored, topic_filter: bytes = b"#") -> tuple[list[Pattern], tuple[str, ...]]:
    """(by pattern, who did not answer).  Under # those that begin with $ are as well."""
    missing: dict[str, None] = {}
    filters = () if topic_filter == b"#" else (topic_filter,)
    found: dict[str, Pattern] = {}
    for shard in range(asking.topology.n_shards):
        for row in await stored.look(shard, lambda seen, shard=shard: survey(shard, seen, filters), missing) or ():  # type: ignore[misc]
            one = found.get(row["pattern"], Pattern(row["pattern"], 0, 0, False, 0))
            found[one.pattern] = Pattern(
                one.pattern, one.messages + row["rows"], one.bytes + row["bytes"], one.estimated or row["sampled"], one.streams + 1
            )
    return [found[pattern] for pattern in sorted(found)], tuple(missing)


async def explain(asking: Asking, stored: Stored, topic_filter: bytes) -> tuple[list[GenerationRead], tuple[str, ...]]:
    """(by shard and generation, who did not answer)."""
    missing: dict[str, None] = {}
    found: list[GenerationRead] = []
    for shard in range(asking.topology.n_shards):
        found += await stored.look(shard, partial(_explained, shard, topic_filter), missing) or ()
    return found, tuple(missing)


# ---------------------------------------------------------------------------------------------------- in the thread


def _explained(shard: int, topic_filter: bytes, seen: Seen) -> list[GenerationRead]:
    found: list[GenerationRead] = []
    for info in seen.view.generations():
        try:
            found.append(_of_generation(shard, info, topic_filter, seen))
        except GenerationDropped:
            continue
    return found


def _of_generation(shard: int, info: GenerationInfo, topic_filter: bytes, seen: Seen) -> GenerationRead:
    view = seen.view
    leaves = {leaf.static: leaf.levels for leaf in view.leaves(info.id)}
    streams = view.streams_in(info.id, topic_filter)
    indexed = sum(bool(stream.constraints) for stream in streams)
    matching, counted = _matching(info, streams, seen)
    total = view.total(info.id)
    told = tuple(
        StreamRead(
            shown(b"/".join(b"+" if level is None else level for level in leaves.get(stream.static, ()))),
            tuple(f"{level + 1}={shown(value)}" for level, value in stream.literals),
        )
        for stream in streams[:STREAMS_TOLD_MAX]
    )
    return GenerationRead(
        shard, info.id, info.klass, info.layout, info.until is not None, len(leaves), len(streams), len(streams) - indexed, indexed,
        matching, counted, total.rows if total is not None else None, told,
    )  # fmt: skip


def _matching(info: GenerationInfo, streams: list[Stream], seen: Seen) -> tuple[int, bool]:
    count, upto = 0, seen.cut - 1
    for stream in streams:
        after, done = -1, False
        while not done and after < upto:
            columns = seen.view.bulk(info.id, stream, after, upto, min(_CHUNK_ROWS, COUNT_MAX - count), _CHUNK_BYTES)
            count, after, done = count + columns.rows, columns.place, columns.done
            if count >= COUNT_MAX:
                return count, False
    return count, True
