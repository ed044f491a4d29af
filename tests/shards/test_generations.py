"""The table of generations (shards/generations.py): it survives a crash at every step, and what is gone says so."""

from __future__ import annotations

import pytest

from shards.engine import Op, StoreFailed
from shards.engine_memory import MemoryEngine
from shards.generations import GenerationDropped, GenerationId, GenerationInfo, Generations, row_key
from shards.layouts.port import LayoutOptions
from shards.layouts.registry import UnknownLayout
from shards.messages import encode_message

OPTIONS = LayoutOptions((2, 1))


def opened(engine: MemoryEngine, options: LayoutOptions = OPTIONS, layout: str = "skipstream") -> Generations:
    table = Generations.open(engine, layout, options, 11, 22)
    table.check()
    return table


def test_an_empty_store_gets_generation_1_from_position_0() -> None:
    # Property: the first generation has id 1, since 0, and remembers when it was made.
    engine = MemoryEngine()
    table = opened(engine)
    assert table.infos() == [GenerationInfo(GenerationId(1), "skipstream", OPTIONS, 0, None, 11, 22, None)]
    assert engine.families() == [0, 1]
    assert opened(engine.crash(power=False)).infos() == table.infos()


def test_a_roll_joins_the_generations_without_gap_or_overlap() -> None:
    # Property: until(g) == since(g + 1) == the position of the roll.
    engine = MemoryEngine()
    table = opened(engine)
    engine.write(table.roll(100, 33, 44))
    table.check()
    first, second = table.infos()
    assert (first.until, first.sealed_age_ms) == (100, 33)
    assert (second.id, second.since, second.until, second.created_age_ms, second.created_wall_ms) == (2, 100, None, 33, 44)
    assert opened(engine.crash(power=False)).infos() == [first, second]
    assert [table.generation_of(position) for position in (0, 99, 100, 10**9)] == [1, 1, 2, 2]


@pytest.mark.parametrize("position", [0, -1])
def test_a_roll_before_the_beginning_is_refused(position: int) -> None:
    # Property: no empty generation; the table is untouched.
    table = opened(MemoryEngine())
    with pytest.raises(ValueError, match="began at 0"):
        table.roll(position, 0, 0)
    table.check()
    assert len(table.infos()) == 1


def test_a_roll_that_was_not_committed_never_was() -> None:
    # Property: a crash before the record is on disk leaves the old generation current, and no family behind.
    engine = MemoryEngine()
    table = opened(engine)
    engine.sync()
    table.create_next()
    engine.write(table.roll(100, 1, 1))
    engine = engine.crash(power=True)
    assert engine.families() == [0, 1, 2], "the family was made durably"
    again = opened(engine)
    assert again.current().id == 1 and again.current().until is None
    assert engine.families() == [0, 1]
    engine.write(again.roll(150, 1, 1))
    assert [info.since for info in again.infos()] == [0, 150]


def test_creating_the_next_one_ahead_changes_nothing_but_the_roll_is_cheap() -> None:
    # Property: create_next twice is once, and a roll then makes no family.
    engine = MemoryEngine()
    table = opened(engine)
    table.create_next()
    table.create_next()
    assert engine.families() == [0, 1, 2]
    assert [info.id for info in table.infos()] == [1]
    table.roll(5, 0, 0)
    assert engine.families() == [0, 1, 2]


def test_a_drop_erases_the_row_first_and_the_family_after() -> None:
    # Property: whenever a crash comes, no row is without its family.
    engine = MemoryEngine()
    table = opened(engine)
    engine.write(table.roll(100, 1, 1))
    engine.sync()
    ops = table.drop(1)
    assert ops[0] == (0, row_key(1), None)
    engine.write(ops)
    table.check()
    lost = engine.crash(power=True)
    assert [info.id for info in opened(lost).infos()] == [1, 2], "the drop was not synced: it is there again, whole"
    engine = lost
    table = opened(engine)
    engine.write(table.drop(1))
    engine.sync()
    engine = engine.crash(power=True)
    assert engine.families() == [0, 1, 2]
    table = opened(engine)
    assert [info.id for info in table.infos()] == [2]
    assert engine.families() == [0, 2], "the family without a row went at the opening"
    with pytest.raises(GenerationDropped):
        table.layout(1)


def test_a_dropped_generation_is_named_and_never_empty() -> None:
    # Property: every way to a dropped generation raises with its number; one that never was is another mistake.
    engine = MemoryEngine()
    table = opened(engine)
    for position in (100, 200, 300):
        engine.write(table.roll(position, 1, 1))
    table.layout(1)
    engine.write(table.drop(1))
    table.erase(1)
    assert engine.families() == [0, 2, 3, 4]
    for table_now in (table, opened(engine.crash(power=False))):
        with pytest.raises(GenerationDropped, match="generation 1 ") as raised:
            table_now.layout(1)
        assert raised.value.generation == 1
        with pytest.raises(GenerationDropped, match="generation 1 "):
            table_now.info(1)
        with pytest.raises(GenerationDropped, match="generation 1 "):
            table_now.generation_of(99)
        assert table_now.generation_of(100) == 2
        for never in (0, 5):
            with pytest.raises(LookupError, match="never"):
                table_now.info(never)


def test_what_reads_of_a_dropped_generation_have_done_is_still_told() -> None:
    # Property: it only grows, whatever is dropped.
    engine = MemoryEngine()
    table = opened(engine)
    ops: list[Op] = []
    layout = table.layout(1)
    layout.put(ops, layout.key_of(b"t"), 5, encode_message(1, 0, b"p", b"t", b"\0"))
    engine.write([*layout.take_growth(), *ops])
    (stream,) = layout.streams(b"t")
    assert len(layout.read(stream, 0, 9, 9, 999, 9).messages) == 1
    before = table.moves()
    assert before["skipstream", "next"] == 1 and before["skipstream", "end_of_stream"] == 1
    engine.write(table.roll(100, 1, 1))
    engine.write(table.drop(1))
    assert table.moves() == before


def test_the_current_generation_cannot_be_dropped() -> None:
    # Property: there is always one to write to.
    table = opened(MemoryEngine())
    with pytest.raises(ValueError, match="current"):
        table.drop(1)
    table.check()


def test_a_generation_keeps_its_options_for_ever() -> None:
    # Property: what the configuration says now is for the next generation only.
    engine = MemoryEngine()
    opened(engine, LayoutOptions((2, 1)))
    table = opened(engine, LayoutOptions((None, 7)))
    assert table.current().options == LayoutOptions((2, 1))
    engine.write(table.roll(10, 0, 0))
    assert [info.options.thresholds for info in opened(engine).infos()] == [(2, 1), (None, 7)]


def test_what_varies_is_inherited_in_the_record_of_the_roll() -> None:
    # Property: after a restart the next generation knows the structure without learning it again.
    engine = MemoryEngine()
    table = opened(engine)
    for n in range(9):
        table.layout(1).key_of(b"a/%d" % n)
    ops = table.roll(100, 1, 1)
    engine.write(ops)
    again = opened(engine.crash(power=False))
    assert again.layout(2).key_of(b"a/8").indexes
    assert again.layout(2).take_growth() == []
    assert again.layout(1).key_of(b"a/8").generation == 1
    assert again.layout(1).take_growth() == [], "growth not taken before the roll went with it"


def test_sealed_generations_are_loaded_when_asked_for() -> None:
    # Property: start-up does not read the structure of every old generation.
    engine = MemoryEngine()
    table = opened(engine)
    for position in range(10, 60, 10):
        for n in range(9):
            table.layout(table.current().id).key_of(b"a/%d" % n)
        engine.write(table.roll(position, 1, 1))
    scanned: list[int] = []

    class Watched(MemoryEngine):
        def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
            scanned.append(family)
            return super().scan(family, start, end, limit, bytes_max)

    watched = Watched()
    for family in engine.families()[1:]:
        watched.create_family(family)
        watched.write([(family, *entry) for entry in engine.scan(family, b"", b"\xff" * 9, 1 << 30)])
    watched.write([(0, *entry) for entry in engine.scan(0, b"", b"\xff" * 9, 1 << 30)])
    again = opened(watched)
    assert set(scanned) == {0}
    again.layout(3)
    assert set(scanned) == {0, 3}


def test_a_row_without_its_family_is_reported_and_treated_as_dropped() -> None:
    # Property: a damaged store starts, and says what is missing.
    engine = MemoryEngine()
    table = opened(engine)
    engine.write(table.roll(100, 1, 1) + table.roll(200, 1, 1))
    engine.drop_family(2)
    again = opened(engine)
    assert again.lost_at_open == (2,)
    assert [info.id for info in again.infos()] == [1, 3]
    assert again.generation_of(50) == 1
    for call in (lambda: again.layout(2), lambda: again.generation_of(150)):
        with pytest.raises(GenerationDropped, match="generation 2 "):
            call()


def test_a_missing_current_generation_stops_the_start() -> None:
    # Property: writing on into a new one would hide the loss of the newest messages.
    engine = MemoryEngine()
    table = opened(engine)
    engine.write(table.roll(100, 1, 1))
    engine.drop_family(2)
    with pytest.raises(StoreFailed, match="current generation 2"):
        opened(engine)


def test_rows_are_those_of_the_format_page() -> None:
    # Property: golden bytes of version 1; a newer version and an unknown layout are refused with a sentence.
    info = GenerationInfo(GenerationId(258), "skipstream", LayoutOptions((100, None)), 1, 2, 3, 4, 5)
    key, value = info.encode()
    assert key.hex() == "6700000102"
    assert value.hex() == "01" + "97" + "aa" + b"skipstream".hex() + "9264c0" + "01" + "02" + "03" + "04" + "05"
    assert GenerationInfo.decode(key, value) == info
    with pytest.raises(StoreFailed, match="version 03"):
        GenerationInfo.decode(key, b"\x03" + value[1:])
    engine = MemoryEngine()
    engine.create_family(1)
    row: Op = (0, *GenerationInfo(GenerationId(1), "from_the_future", OPTIONS, 0, None, 0, 0, None).encode())
    engine.write([row])
    with pytest.raises(UnknownLayout, match="from_the_future"):
        opened(engine).layout(1)
    with pytest.raises(UnknownLayout, match="skipstream"):
        Generations.open(MemoryEngine(), "nonsense", OPTIONS)


def test_bit_field_keys_add_their_options_to_the_row() -> None:
    # Property: golden bytes of a row of wildcard_optimized; rows of other layouts have no such element, and are read as before.
    options = LayoutOptions((100, 10), 32, 17, 5)
    info = GenerationInfo(GenerationId(2), "wildcard_optimized", options, 1, None, 3, 4, None)
    key, value = info.encode()
    assert value.hex() == "01" + "98" + "b2" + b"wildcard_optimized".hex() + "92640a" + "01" + "c0" + "03" + "04" + "c0" + "93201105"
    assert GenerationInfo.decode(key, value) == info
    other = GenerationInfo(GenerationId(2), "record_batch", options, 1, None, 3, 4, None)
    assert GenerationInfo.decode(*other.encode()).options == LayoutOptions((100, 10))


def test_the_options_of_the_keys_are_those_of_the_generation_for_ever() -> None:
    # Property: other options at the next start do not touch keys that are there; the next roll takes them.
    engine = MemoryEngine()
    first, second = LayoutOptions((0,), 16, 10, 6), LayoutOptions((0,), 64, 20, 4)
    opened(engine, first, "wildcard_optimized")
    table = opened(engine, second, "wildcard_optimized")
    assert table.current().options == first
    assert table.layout(1).cutoff(b"#", 5000) == 5000
    ops: list[Op] = []
    table.layout(1).put(ops, table.layout(1).key_of(b"a/b"), 4_100, b"waits")
    assert table.layout(1).cutoff(b"#", 5000) == 4 * 1024 - 1
    engine.write(table.roll(6000, 1, 1))
    assert opened(engine, first, "wildcard_optimized").current().options == second
