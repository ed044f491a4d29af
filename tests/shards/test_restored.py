"""A store that comes from a backup goes on as a new incarnation (shards/restored.py)."""

from __future__ import annotations

import pytest

from shards.classes import ClassMap, RetentionClass
from shards.clock import AgeMark, Reading
from shards.engine import HOME_FAMILY, Op, StoreFailed
from shards.engine_memory import MemoryEngine
from shards.frames import Place, Segment
from shards.housekeeping import AGE_ROW, POSITION_ROW
from shards.options import StoreOptions
from shards.replacement import GENERATIONS_PER_INCARNATION, POSITIONS_PER_INCARNATION, TOKENS_PER_INCARNATION
from shards.restored import begin_incarnation
from shards.rows import META, OWNER, ROUTE, pack_row, u64, unpack_row
from tests.shards.test_gone import Log, three

NOW_MS = 1_800_000_000_000
BACKUP_MS = NOW_MS - 3_600_000
AGE_MS = 50_000


def restored(log: Log, incarnation: int = 2, later_lost: bool = True) -> int:
    """Where the store goes on; it is open again."""
    rows: list[Op] = [
        (HOME_FAMILY, POSITION_ROW, pack_row((log.last,))),
        (HOME_FAMILY, AGE_ROW, AgeMark(AGE_MS, Reading(BACKUP_MS, "boot", 1), False).encode()),
    ]
    log.engine.write(rows)
    since = begin_incarnation(log.engine, incarnation, [], NOW_MS, later_lost)
    log.last = since
    log.open()
    return since


def topics(segments: list[Segment]) -> list[int]:
    return sorted(position for segment in segments for position in segment.positions)


def test_who_was_behind_reads_all_there_is_and_then_learns_once_that_something_is_gone() -> None:
    """From the beginning, from the middle, and from the head of the copy; nothing of an old generation is told as lost."""
    log = three()
    last = log.last
    log.engine.write([(HOME_FAMILY, POSITION_ROW, pack_row((last,)))])
    since = restored(log)
    log.publish(b"a")
    for cut in (-1, 4, 6, last - 1, last):
        polled = log.poll(Place(cut))
        assert topics(polled.segments) == [position for position, _, _ in log.stored if position > cut]
        (gone,) = polled.gone
        assert (gone.after, gone.upto, gone.reason) == (last, since - 1, "restored")
        assert (gone.from_wall_ms, gone.to_wall_ms) == (BACKUP_MS, NOW_MS)
        assert log.poll(polled.place).gone == () and polled.place.cut == log.last


def test_who_had_read_on_gets_everything_that_is_new() -> None:
    """A session in another shard, whose copy is later, has a place beyond the copy of this one: no new message is below it."""
    log = three()
    cut = log.last + 5_000_000
    since = restored(log)
    log.publish(b"a", b"new")
    polled = log.poll(Place(cut))
    assert topics(polled.segments) == [since + 1, since + 2]
    assert [(gone.after, gone.upto) for gone in polled.gone] == [(cut, since - 1)]


def test_what_it_was_in_the_middle_of_is_read_again_as_far_as_it_is_there() -> None:
    """A range that reaches beyond the copy, and one of a generation that the copy does not have."""
    log = three()
    last = log.last
    polled = log.poll(Place(-1))
    restored(log)
    again = [log.range(segment) for segment in polled.segments]
    assert sorted(position for found in again for position in found.positions) == topics(polled.segments)
    beyond = polled.segments[-1]._replace(streams=[(4, beyond_static) for _, beyond_static in polled.segments[-1].streams])
    found = log.range(beyond._replace(after=last, upto=last + 100))
    assert found.lost and found.values == []


def test_when_nothing_came_later_nobody_is_told_of_a_loss() -> None:
    """Its broker was stopped for the backup."""
    log = three()
    last = log.last
    since = restored(log, later_lost=False)
    log.publish(b"a")
    for cut in (-1, last, last + 1000):
        polled = log.poll(Place(cut))
        assert not polled.gone and topics(polled.segments)[-1] == since + 1


def test_every_class_goes_on_in_a_generation_of_its_own() -> None:
    """And whoever reads one of them learns of what it may have lost."""
    options = StoreOptions(classes=ClassMap((RetentionClass("gold", b"gold/#", 1000),)))
    log = Log(options)
    log.publish(b"gold/1", b"x")
    since = restored(log)
    log.store.check()
    assert [(info.klass, info.since, info.until) for info in log.store.generations()] == [
        ("default", 0, 3), ("gold", 0, 3), ("default", since, None), ("gold", since, None),
    ]  # fmt: skip
    log.publish(b"gold/2", b"y")
    for topic_filter, klass in ((b"gold/#", "gold"), (b"x", "default"), (b"y", "default")):
        assert [gone.klass for gone in log.poll(Place(-1), topic_filter=topic_filter).gone] == [klass]
    assert len(log.poll(Place(-1), topic_filter=b"#").gone) == 2


def test_all_numbers_go_on_above_those_of_the_incarnation_before() -> None:
    """Positions, generations, owner tokens, connection numbers; the age at which the old generation was sealed is that of the copy."""
    log = three()
    log.engine.write([(HOME_FAMILY, OWNER, pack_row((7, "session:1")))])
    since = restored(log)
    assert since > POSITIONS_PER_INCARNATION
    *_, sealed, fresh = log.store.generations()
    assert fresh.id > GENERATIONS_PER_INCARNATION and (sealed.until, sealed.sealed_age_ms) == (12, AGE_MS)
    assert (fresh.created_age_ms, fresh.created_wall_ms) == (AGE_MS, NOW_MS)
    engine = log.engine
    assert unpack_row(engine.get(HOME_FAMILY, OWNER) or b"") == [TOKENS_PER_INCARNATION, ""]
    assert unpack_row(engine.get(HOME_FAMILY, META + b"conn") or b"")[0] >= 1 << 32
    # It rolls, drops and is restored again as any other.
    log.roll()
    log.drop(1)
    assert [row.generation for row in log.store.dropped_between(-1, 2)] == [1], "and nothing is forgotten that was there"
    assert restored(log, 3) > 2 * POSITIONS_PER_INCARNATION
    log.store.check()


def test_the_same_backup_restored_later_goes_on_above_what_the_first_restore_began() -> None:
    """Who has read what the first one stored does not take what the second one stores for that."""
    found = []
    for later_ms in (0, 86_400_000):
        log = three()
        log.engine.write([(HOME_FAMILY, POSITION_ROW, pack_row((log.last,)))])
        found.append(begin_incarnation(log.engine, 2, [], NOW_MS + later_ms))
    assert found[1] - found[0] == 86_400_000_000


def test_sessions_of_other_shards_have_their_routes() -> None:
    """Also those that were made after this copy."""
    log = three()
    log.engine.write([(HOME_FAMILY, POSITION_ROW, pack_row((log.last,)))])
    begin_incarnation(log.engine, 2, [(5, b"a/#", b"c")], NOW_MS)
    assert unpack_row(log.engine.get(HOME_FAMILY, ROUTE + u64(5)) or b"") == [b"a/#", b"c"]


def test_an_incarnation_that_would_repeat_numbers_is_refused() -> None:
    """And a store in which no broker has started."""
    log = three()
    restored(log, 3)
    with pytest.raises(StoreFailed, match="incarnation 2 begins at"):
        begin_incarnation(log.engine, 2, [], NOW_MS)
    with pytest.raises(StoreFailed, match="no generation was found"):
        begin_incarnation(MemoryEngine(), 2, [], NOW_MS)


def test_a_range_that_reaches_beyond_the_copy_is_given_as_far_as_it_is_there() -> None:
    """Merged, or of one stream: the first messages of it, and that the others are gone. Not of several streams one after the other, where
    nobody knows whose end is missing; there the session compares how many there are."""
    log = three()
    last = log.last
    (generation, static), *_ = log.poll(Place(-1)).segments[0].streams
    restored(log)
    for streams, merged, lost in (([(generation, static)], False, True), ([(generation, static)], True, True)):
        found = log.range(Segment(streams, -1, last + 100, merged, [], []))
        assert (found.lost, found.before) == (lost, len(found.values)) and found.positions
        assert [(gone.after, gone.upto, gone.reason) for gone in found.gone] == [(last, last + 100, "restored")]
    several = [(int(info.id), stream.static) for info in log.store.generations()[:3] for stream in log.store.streams_in(info.id, b"#")]
    found = log.range(Segment(several, -1, last + 100, False, [], []))
    assert not found.lost and len(found.positions) == len(log.stored)
    within = log.range(Segment([(generation, static)], -1, last, True, [], []))
    assert not within.lost and within.gone == ()
