"""Faults that are planted to see whether the histories find them: in the store, its generations, its structure, and in whoever reads.

Those within a layout are in planted_layouts. Each is a mistake that somebody could make; the first five words of the gate are among them:
an index entry skipped, read above the watermark, dropped before the seal, a batch without its last message, a cut-off one epoch off.
"""

from __future__ import annotations

from typing import Any

from shards.engine import Op
from shards.frames import Place, Poll, Polled, RangeRead, ReadRange
from shards.generations import Generations
from shards.lts import Leaf, TopicStructure
from shards.reading import Reader
from shards.store import GenerationId, Read, Store, Stream
from shards.tail import Tail
from tests.contracts.planted_layouts import IN_LAYOUTS
from tests.contracts.planting import Fault, Planting, faults

# ---- above the watermark


def a_reader_goes_above_the_watermark(planting: Planting) -> None:
    poll = Reader.poll

    def planted(self: Reader, ask: Poll, watermark: int, now_ms: int = 0) -> Polled | None:
        return poll(self, ask, max([watermark, *self._tail.positions[-1:]]), now_ms)

    planting.replace(Reader, "poll", planted)


def a_generation_ends_before_its_seal_is_committed(planting: Planting) -> None:
    read = Store.read

    def planted(self: Store, generation: int, stream: Stream, after: int, upto: int, *bounds: int) -> Read:
        found = read(self, generation, stream, after, upto, *bounds)
        return found._replace(ended=found.done and self._generations.info(generation).until is not None)

    planting.replace(Store, "read", planted)


def what_is_not_committed_is_indexed(planting: Planting) -> None:
    work = Generations.idle_work
    planting.replace(Generations, "idle_work", lambda self, upto: work(self, 1 << 60))


# ---- drops


def a_generation_is_dropped_before_its_seal_is_committed(planting: Planting) -> None:
    drop = Generations.drop

    def planted(self: Generations, generation: int, *more: Any) -> list[Op]:
        ops = drop(self, generation, *more)
        self._engine.drop_family(generation)
        return ops

    planting.replace(Generations, "drop", planted)
    planting.replace(Generations, "erase", lambda self, generation: self._dropping.remove(generation))


def a_dropped_generation_is_read_as_an_empty_one(planting: Planting) -> None:
    answer = Reader.range

    def planted(self: Reader, ask: ReadRange, watermark: int) -> RangeRead:
        return answer(self, ask, watermark)._replace(lost=False)

    planting.replace(Reader, "range", planted)


def a_generation_is_erased_and_its_row_stays(planting: Planting) -> None:
    drop = Generations.drop

    def planted(self: Generations, generation: int, *more: Any) -> list[Op]:
        return drop(self, generation, *more)[1:]

    planting.replace(Generations, "drop", planted)


def nobody_remembers_what_was_dropped(planting: Planting) -> None:
    drop = Generations.drop

    def planted(self: Generations, generation: int, *more: Any) -> list[Op]:
        return drop(self, generation, *more)[:1]

    planting.replace(Generations, "drop", planted)


# ---- growth and what is learned


def growth_is_given_back_and_not_written(planting: Planting) -> None:
    planting.replace(Store, "give_back", lambda self, ops: None)


def growth_is_written_one_record_too_late(planting: Planting) -> None:
    take = Store.take_growth
    kept: dict[int, list[Op]] = {}

    def planted(self: Store) -> list[Op]:
        before = kept.pop(id(self), [])
        kept[id(self)] = take(self)
        return before

    planting.replace(Store, "take_growth", planted)


def the_heir_of_a_structure_forgets_a_level(planting: Planting) -> None:
    inherit, end = TopicStructure.inherit, TopicStructure._end_with
    inheriting: list[bool] = []

    def inherits(self: TopicStructure, *thresholds: Any) -> TopicStructure:
        inheriting.append(True)
        try:
            return inherit(self, *thresholds)
        finally:
            inheriting.pop()

    def planted(self: TopicStructure, state: Any, path: tuple[bytes | None, ...], special: bool) -> Leaf:
        return end(self, state, path[:-1] if inheriting and len(path) > 2 else path, special)

    planting.replace(TopicStructure, "inherit", inherits)
    planting.replace(TopicStructure, "_end_with", planted)


def a_topic_moves_when_its_level_becomes_a_wildcard(planting: Planting) -> None:
    learn = TopicStructure.learn

    def planted(self: TopicStructure, topic: bytes) -> tuple[Leaf, list[bytes]]:
        first = self._special if topic[:1] == b"$" else self._root
        if first.plus is None:
            return learn(self, topic)
        literal, first.literal = first.literal, {}
        try:
            return learn(self, topic)
        finally:
            first.literal = literal

    planting.replace(TopicStructure, "learn", planted)


def a_hash_does_not_match_the_level_above(planting: Planting) -> None:
    match = TopicStructure.match

    def planted(self: TopicStructure, topic_filter: bytes) -> list[tuple[Leaf, tuple[bytes | None, ...]]]:
        levels = topic_filter.split(b"/")
        return [each for each in match(self, topic_filter) if levels[-1] != b"#" or len(each[0].levels) >= len(levels)]

    planting.replace(TopicStructure, "match", planted)


# ---- readers


def the_tail_does_not_say_what_fell_off(planting: Planting) -> None:
    trim = Tail.trim

    def planted(self: Tail, watermark: int) -> None:
        floor = self.floor
        trim(self, watermark)
        self.floor = floor

    planting.replace(Tail, "trim", planted)


def a_sweep_begins_its_stream_anew(planting: Planting) -> None:
    sweep = Reader._sweep

    def planted(self: Reader, ask: Poll, place: Place, watermark: int, now_ms: int) -> Polled:
        return sweep(self, ask, place._replace(position=min(place.position, place.cut)), watermark, now_ms)

    planting.replace(Reader, "_sweep", planted)


def a_sweep_leaves_out_the_stream_it_broke_off_in(planting: Planting) -> None:
    sweep = Reader._sweep

    def planted(self: Reader, ask: Poll, place: Place, watermark: int, now_ms: int) -> Polled:
        return sweep(self, ask, place._replace(position=place.horizon) if place.static else place, watermark, now_ms)

    planting.replace(Reader, "_sweep", planted)


def a_range_is_told_in_the_order_of_positions(planting: Planting) -> None:
    answer = Reader.range
    planting.replace(Reader, "range", lambda self, ask, watermark: answer(self, ask._replace(merged=True), watermark))


def the_end_of_a_generation_is_left_out(planting: Planting) -> None:
    streams = Store.streams

    def planted(self: Store, topic_filter: bytes, after: int) -> list[tuple[GenerationId, Stream]]:
        ends = {info.id: info.until for info in self.generations()}
        return [each for each in streams(self, topic_filter, after) if (until := ends[each[0]]) is None or until > after + 2]

    planting.replace(Store, "streams", planted)


IN_THE_STORE = faults(
    a_reader_goes_above_the_watermark,
    a_generation_ends_before_its_seal_is_committed,
    what_is_not_committed_is_indexed,
    a_generation_is_dropped_before_its_seal_is_committed,
    a_dropped_generation_is_read_as_an_empty_one,
    a_generation_is_erased_and_its_row_stays,
    nobody_remembers_what_was_dropped,
    growth_is_given_back_and_not_written,
    growth_is_written_one_record_too_late,
    the_heir_of_a_structure_forgets_a_level,
    a_topic_moves_when_its_level_becomes_a_wildcard,
    a_hash_does_not_match_the_level_above,
    the_tail_does_not_say_what_fell_off,
    a_sweep_begins_its_stream_anew,
    a_sweep_leaves_out_the_stream_it_broke_off_in,
    a_range_is_told_in_the_order_of_positions,
    the_end_of_a_generation_is_left_out,
)
ALL: tuple[Fault, ...] = (*IN_LAYOUTS, *IN_THE_STORE)
