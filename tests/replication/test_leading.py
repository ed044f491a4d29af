"""What a leading shard does to its engine is in the log, in order, and the same on whoever applies it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shards.engine import HOME_FAMILY, Op, index_of
from shards.engine_memory import MemoryEngine
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.replication.applying import apply
from shards.replication.entry import Entry, Kind
from shards.replication.events import Submit
from shards.replication.leading import Handing, LeadingEngine
from shards.store import Store

SKIPSTREAM = StoreOptions("skipstream")


class Log:
    """Takes what is handed in, or says why not."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.full = False

    def hand(self, submit: Submit) -> str | None:
        if self.full:
            return "no room"
        self.entries.append(Entry(len(self.entries) + 1, 1, submit.kind, submit.payload))
        return None

    def kinds(self) -> list[tuple[Kind, int]]:
        return [(each.kind, each.position() if each.kind is Kind.RECORD else each.family()) for each in self.entries]

    def apply_to(self, engine: MemoryEngine) -> None:
        if self.entries:
            apply(engine, self.entries, 0)


def rows(engine: MemoryEngine) -> dict[int, list[tuple[bytes, bytes]]]:
    return {family: engine.scan(family, b"", b"\xff" * 64, 1 << 30) for family in engine.families()}


def opened(data: MemoryEngine, log: Log, options: StoreOptions = SKIPSTREAM) -> tuple[LeadingEngine, Store]:
    """As the shell does it: until nothing is wanted."""
    for _ in range(3):
        engine = LeadingEngine(data, 0)
        store = Store.open(engine, options, derives=False)
        if not engine.wanted:
            return engine, store
        at = len(log.entries)
        for submit in engine.wanted:
            assert log.hand(submit) is None
        apply(data, log.entries[at:], 0)
    raise AssertionError("the opening never has enough")


def test_an_empty_store_begins_in_the_log() -> None:
    """The first generation is made for all copies: family, then the record of its row."""
    data, log = MemoryEngine(), Log()
    _, store = opened(data, log)
    assert log.kinds() == [(Kind.MAKE, 1), (Kind.RECORD, 0)]
    other = MemoryEngine()
    log.apply_to(other)
    assert rows(other) == rows(data)
    assert [info.id for info in store.generations()] == [1]


def test_families_without_a_row_are_dropped_in_the_log() -> None:
    """A leader before this one had made them ahead; when one opens, none is there on any copy."""
    data, log = MemoryEngine(), Log()
    opened(data, log)
    data.create_family(2)
    opened(data, log)
    assert log.kinds()[2:] == [(Kind.DROP, 2)]
    assert data.families() == [HOME_FAMILY, 1]


def test_a_family_is_made_at_once_and_before_the_record_that_names_it() -> None:
    """And dropped when its entry is applied, not before."""
    data, log = MemoryEngine(), Log()
    engine, store = opened(data, log)
    handing = Handing(log.hand)
    engine.serve(handing)
    store.create_next()
    assert 2 in data.families() and log.kinds()[-1] == (Kind.MAKE, 2)
    engine.drop_family(2)
    assert 2 in data.families() and log.kinds()[-1] == (Kind.DROP, 2)


def test_an_index_of_when_the_site_was_alone_is_erased_before_its_messages_and_in_no_entry() -> None:
    """No entry can name it; each copy has its own or none, and drops it with the messages."""
    data, log = MemoryEngine(), Log()
    engine, store = opened(data, log)
    data.create_family(index_of(1))
    engine.serve(Handing(log.hand))
    before = log.kinds()
    assert store.erase_index(1) and not store.erase_index(1)
    assert data.families() == [HOME_FAMILY, 1] and not data.has_family(index_of(1)) and log.kinds() == before


def test_what_is_refused_goes_before_the_next_record() -> None:
    """And that is refused as long as it is: nothing names a family that its copy has not."""
    data, log = MemoryEngine(), Log()
    engine, _ = opened(data, log)
    handing = Handing(log.hand)
    engine.serve(handing)
    log.full = True
    engine.create_family(2)
    record = Submit(Kind.RECORD, b"", 7)
    assert handing.record(record) == "no room" and handing.owes == 1
    log.full = False
    before = len(log.entries)
    assert handing.record(Submit(Kind.DROP, b"\0\0\0\1")) is None
    assert [each.kind for each in log.entries[before:]] == [Kind.MAKE, Kind.DROP]


def test_one_that_is_there_already_is_made_in_the_log_all_the_same() -> None:
    """Its maker was deposed before anybody else had it."""
    data, log = MemoryEngine(), Log()
    engine, _ = opened(data, log)
    engine.serve(Handing(log.hand))
    data.create_family(2)
    engine.create_family(2)
    assert log.kinds()[-1] == (Kind.MAKE, 2)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["pagestream", "record_batch"])
def test_nothing_is_derived_on_one_copy(layout: str) -> None:
    """A generation with an index that is written later may be there from a configuration that is not allowed with several sites."""
    data, log = MemoryEngine(), Log()
    options = StoreOptions(layout, (0,))
    opened(data, log, options)
    engine = LeadingEngine(data, 0)
    store = Store.open(engine, options, derives=False)
    engine.serve(Handing(log.hand))
    ops: list[Op] = []
    for position in range(1, 70_001):
        topic = b"d/%d" % (position % 100)
        store.append(ops, store.key_of(topic), position, encode_message(1, 0, b"p", topic, b"\0"))
    store.flush(ops)
    data.write([*store.take_growth(), *ops])
    store.work(70_000, 70_000)
    assert not store.idle_work(70_000)
    (stream,) = store.streams(b"d/7", 0)
    assert len(store.read_range(b"d/7", [(stream[0], stream[1].static)], 0, 70_000)) == 700


@pytest.mark.parametrize("do", [lambda engine: engine.write([]), lambda engine: engine.sync()])
def test_who_serves_writes_through_the_committer_only(do: Callable[[LeadingEngine], None]) -> None:
    """Anything else would be on one copy."""
    engine, _ = opened(MemoryEngine(), Log())
    engine.serve(Handing(lambda submit: None))
    with pytest.raises(AssertionError):
        do(engine)
