"""What only pagestream promises: its bytes on disk, what a message costs, and that no read waits for an index. The index itself is tested
with record_batch."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shards.engine import Apart, Op, StoreFailed, index_of
from shards.engine_memory import MemoryEngine
from shards.layouts.paged_index.index import Bounds
from shards.layouts.paged_index.pages import PAGE_PREFIX
from shards.layouts.pagestream import BOUNDS, PageStream
from shards.layouts.port import LayoutOptions
from shards.messages import encode_message

MANY = 1 << 40
OPTIONS = LayoutOptions((0,))
LITERAL = LayoutOptions((None,))
SMALL = Bounds(
    run_entries=16, flush_runs=2, fold_segments=3, slice_entries=16, slice_pages=2, slice_messages=10, page_entries=4, sampled_records=1
)
GOLDEN = [
    ("0000000000000000451d709d1a626917b0", "bda91198af13a133"),
    ("00000000000000004c0000000000000001706c616e74", "a5bf101d2b411454"),
    ("000000000000000050a5bf101d2b411454", "dbda840002b80618"),
    ("000000000000000050dbda840002b80618", "1d709d1a626917b0"),
    ("bda91198af13a13300000102030405060708", "76616c7565"),
]


class Counting(MemoryEngine):
    """How many messages were read at once, at most, and how many in all, since it was last said."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.all = 0

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        keys, values, size = super().keys_and_values(family, start, end, limit, bytes_max, goes_on)
        self.most = max(self.most, len(keys))
        self.all += len(keys)
        return keys, values, size


def opened(bounds: Bounds = BOUNDS, options: LayoutOptions = OPTIONS) -> tuple[Counting, PageStream]:
    engine = Counting()
    engine.create_family(1)
    return engine, PageStream.open(engine, 1, options, bounds)


def write(engine: MemoryEngine, layout: PageStream, topics: list[bytes], first: int = 1) -> list[Op]:
    """One record with a message for each topic, at consecutive positions."""
    ops: list[Op] = []
    for position, topic in enumerate(topics, first):
        layout.put(ops, layout.key_of(topic), position, encode_message(1, 0, b"p", topic, b"\0"))
    layout.flush(ops)
    engine.write([*layout.take_growth(), *ops])
    return ops


def positions(layout: PageStream, topic_filter: bytes, examine_max: int = MANY) -> list[int]:
    (stream,) = layout.streams(topic_filter)
    found: list[int] = []
    place, done = 0, False
    while not done:
        read = layout.read(stream, place, MANY, MANY, MANY, examine_max)
        found += read.positions
        place, done = read.place, read.done
    return found


def work(layout: PageStream, upto: int) -> None:
    slices = 0
    while layout.idle_work(upto):
        slices += 1
        assert slices < 10_000


def test_the_keys_are_those_of_the_format_page() -> None:
    # Property: golden bytes; a change here is a new layout with a new name, never a change of this one.
    engine, layout = opened(options=LayoutOptions((9, 0)))
    key = layout.key_of(b"plant/7/t")
    ops = layout.take_growth()
    layout.put(ops, key, 0x0102030405060708, b"value")
    layout.flush(ops)
    engine.write(ops)
    assert [(k.hex(), v.hex()) for k, v in engine.scan(1, b"", b"\xff" * 40, 100)] == GOLDEN


def test_a_message_is_one_op_however_many_levels_vary() -> None:
    # Property: the cost of a stored message is known.
    _, layout = opened(options=LayoutOptions((9, 0)))
    for topic in (b"a", b"a/b", b"a/b/c/d"):
        ops: list[Op] = []
        layout.put(ops, layout.key_of(topic), 5, b"v")
        layout.flush(ops)
        assert len(ops) == 1


def literal(layout: PageStream, sizes: list[int], first: int, apart: int = 1) -> list[Op]:
    """The ops of one record: messages of these sizes, all of one topic whose levels do not vary."""
    ops: list[Op] = []
    for number, size in enumerate(sizes):
        layout.put(ops, layout.key_of(b"hall/door"), first + number * apart, bytes([65 + number % 26]) * size)
    layout.flush(ops)
    return ops


def test_a_batch_is_that_of_the_format_page() -> None:
    # Property: golden bytes; without varying levels sixteen messages of a record are one value, under the position of the last, when
    # the record before had as many.
    engine, layout = opened(options=LayoutOptions((9,)))
    places = [*range(1004, 1079, 5), 1256]
    write(engine, layout, [b"plant"] * 16)
    ops: list[Op] = []
    key = layout.key_of(b"plant")
    for position, message in zip(places, [*b"abcdefghi", *[None] * 6, ord("j")], strict=True):
        layout.put(ops, key, position, bytes([message]) if message else b"")
    layout.flush(ops)
    ((_, stored_under, value),) = ops
    assert stored_under.hex() == key.static.hex() + "0000" + "00000000000004e8" + "21"
    assert value is not None and len(value) == 0x9A
    assert value[:16].hex() == "10000000" + "9a000000" + "ec03000000000000"
    assert value[16:80] == b"".join((position - 1004).to_bytes(4, "little") for position in places)
    assert value[80:144] == b"".join(end.to_bytes(4, "little") for end in [*range(145, 154), *[153] * 6, 154])
    assert value[144:] == b"abcdefghij"
    engine.write(ops)
    (stream,) = layout.streams(b"plant")
    assert layout.read(stream, 0, MANY, MANY, MANY, MANY).positions == [*range(1, 17), *places]


@pytest.mark.parametrize("sizes", [[100] * 150, [100, *[101] * 149], [10 + n % 7 for n in range(150)], [0] * 150, [3000] * 150])
def test_batches_are_read_from_any_place_to_any_other(sizes: list[int]) -> None:
    # Property: whether all messages of a batch are equally long or not, nothing of it shows in what is read: also with few wanted at a
    # time, in columns, and in a store that is opened anew.
    engine, layout = opened(SMALL, LITERAL)
    records = [[50] * 16, sizes, [7], [60] * 16, sizes[::-1]]
    for number, some in enumerate(records):
        engine.write([*layout.take_growth(), *literal(layout, some, 1000 * (number + 1), 3)])
    assert len(engine.scan(1, b"\x01", b"\xff" * 40, MANY)) < 33 + len(sizes) / 7
    (stream,) = layout.streams(b"hall/#")
    everything = layout.read(stream, 0, MANY, MANY, MANY, MANY).messages
    assert [len(message) for _, message in everything] == [size for some in records for size in some]
    places = [0, *[position for position, _ in everything]]
    for kept in (layout, PageStream.open(engine, 1, LITERAL)):
        for first in range(0, len(places), 17):
            for last in range(first + 1, len(places), 23):
                asked = stream, places[first], places[last]
                assert kept.read(*asked, MANY, MANY, MANY).messages == everything[first:last]
                assert kept.read(*asked, 5, MANY, MANY).messages == everything[first : min(last, first + 5)]
                columns = kept.bulk(*asked, MANY, MANY)
                assert columns.values == [message for _, message in everything[first:last]]
                assert columns.positions == b"".join(position.to_bytes(8, "little") for position, _ in everything[first:last])


def test_what_is_no_batch_of_its_key_is_damage() -> None:
    # Property: a value that is too short, too long, or of another position is told, and never read as messages; so is an unknown kind.
    engine, layout = opened(options=LITERAL)
    literal(layout, [20] * 16, 1)
    ((family, key, value),) = literal(layout, [20] * 40, 100)
    assert value is not None
    engine.write(layout.take_growth())
    (stream,) = layout.streams(b"hall/door")
    moved = key[:17] + bytes([key[17] + 1]) + key[18:]
    for broken in (
        (key, b""),
        (key, value[:-1]),
        (key, value + b"x"),
        (key, b"\0" * 4 + value[4:]),
        (moved, value),
        (key[:-1] + b"\x22", value),
    ):
        engine.write([(family, *broken)])
        with pytest.raises(StoreFailed):
            layout.read(stream, 0, MANY, MANY, MANY, MANY)
        with pytest.raises(StoreFailed):
            layout.bulk(stream, 0, MANY, MANY, MANY)
        engine.write([(family, broken[0], None)])


@pytest.mark.parametrize("written", [0, 1500])
@pytest.mark.parametrize("examine_max", [8, 80, 800, MANY])
def test_after_a_restart_no_read_waits_for_the_index(examine_max: int, written: int) -> None:
    # Property: a read with constraints goes by the pages that are there, and behind them looks at as many messages as its bound allows; all
    # is found, also what comes while the index is not whole yet.
    engine, layout = opened(SMALL)
    write(engine, layout, [b"d/%d" % (position % 50) for position in range(1, 2001)])
    if written:
        work(layout, written)
    layout = PageStream.open(engine, 1, OPTIONS, SMALL)
    write(engine, layout, [b"d/%d" % (position % 50) for position in range(2001, 2101)], 2001)
    engine.most = engine.all = 0
    assert positions(layout, b"d/7", examine_max) == [position for position in range(1, 2101) if position % 50 == 7]
    assert 0 < engine.most <= min(examine_max // 8, 512)
    assert 2100 - written <= engine.all <= 2100 - written + 100


def test_after_a_restart_idle_work_makes_the_index() -> None:
    # Property: then the first read with constraints finds it there.
    engine, layout = opened()
    write(engine, layout, [b"d/%d" % (position % 50) for position in range(1, 2001)])
    layout = PageStream.open(engine, 1, OPTIONS)
    work(layout, 2000)
    engine.all = 0
    assert positions(layout, b"d/7") == list(range(7, 2001, 50))
    assert engine.all == 0


@pytest.mark.slow
def test_a_restart_makes_few_entries_anew() -> None:
    # Property: what was written of the index is not made again, as long as idle work has had its turns.
    engine, layout = opened()
    rng = random.Random(1)
    last = 0
    while last < 160_000:
        write(engine, layout, [b"d/%d" % rng.randrange(1000) for _ in range(2000)], last + 1)
        last += 2000
        for _ in range(8):
            layout.idle_work(last)
    layout = PageStream.open(engine, 1, OPTIONS)
    engine.all = 0
    work(layout, last)
    assert 0 < engine.all <= 80_000


def test_who_reads_beside_sees_what_was_folded_since() -> None:
    # Property: nothing of the index is kept from one look to the next, as pages go and entries come.
    engine, layout = opened(SMALL)
    view = PageStream.open(engine, 1, OPTIONS, SMALL)
    for first in range(1, 1000, 50):
        write(engine, layout, [b"d/%d" % (position % 7) for position in range(first, first + 50)], first)
        work(layout, first + 49)
        view = PageStream(engine, 1, layout.structure, False, SMALL).seen_again() if first == 1 else view.seen_again()
        assert positions(view, b"d/3") == [position for position in range(1, first + 50) if position % 7 == 3]


def test_the_index_is_on_disk_and_in_no_record() -> None:
    # Property: what a replica gets is the messages; pages are local.
    engine, layout = opened(SMALL)
    ops = write(engine, layout, [b"d/%d" % (position % 7) for position in range(1, 200)])
    assert not [key for _, key, _ in ops if key.startswith(PAGE_PREFIX)]
    work(layout, 200)
    assert engine.scan(index_of(1), PAGE_PREFIX, PAGE_PREFIX + b"\xff" * 40, 10)


@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("topic_filter", [b"a/one/x", b"a/one/+", b"+/one/x"])
@pytest.mark.parametrize("state", ["in RAM", "on disk", "after a restart"])
def test_values_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch, topic_filter: bytes, state: str) -> None:
    # Property: the index may lie, the message does not: a colliding topic is never delivered, and blocks nothing.
    for module in ("learned", "pagestream"):
        monkeypatch.setattr(f"shards.layouts.{module}.hash_of", lambda level: b"samehash")
    engine, layout = opened(SMALL)
    write(engine, layout, [b"a/one/x" if position % 50 == 0 else b"a/two/x" for position in range(1, 400)])
    if state == "on disk":
        work(layout, 400)
    if state == "after a restart":
        layout = PageStream.open(engine, 1, OPTIONS, replace(SMALL, slice_messages=3))
    assert positions(layout, topic_filter, 20) == list(range(50, 400, 50))
    if state != "after a restart":
        assert layout.moves["hash_collision"] > 300 and layout.moves["hit"] == 7


def test_an_index_without_its_message_is_loud() -> None:
    # Property: damage is reported, never skipped over as if nothing had been there.
    engine, layout = opened()
    ops = write(engine, layout, [b"a/b", b"a/c", b"a/b"])
    engine.write([(1, ops[-1][1], None)])
    with pytest.raises(StoreFailed, match=r"index names 3 in .*, its message is missing"):
        positions(layout, b"a/b")


def test_moves_say_what_reading_has_cost() -> None:
    # Property: without an index, by one level's, by several that agree now and then; pages on disk are jumped to.
    engine, layout = opened(SMALL)
    write(engine, layout, [b"a/%d/%d" % (position % 2, position % 5) for position in range(1, 101)])

    def moved(topic_filter: bytes) -> dict[str, int]:
        before = layout.moves
        positions(layout, topic_filter)
        return {kind: count - before[kind] for kind, count in layout.moves.items()}

    assert moved(b"#") == {"seek": 1, "next": 100, "hash_collision": 0, "hit": 0, "miss": 0, "end_of_stream": 1}
    in_ram = moved(b"a/1/3")
    assert (in_ram["hit"], in_ram["seek"], in_ram["end_of_stream"]) == (10, 0, 1) and in_ram["miss"] > 0
    layout.seal()
    work(layout, 200)
    on_disk = moved(b"a/1/3")
    assert on_disk["hit"] == 10 and on_disk["seek"] > 1 and on_disk["miss"] > 0


def test_streams_of_which_a_record_has_little_are_not_held() -> None:
    # Property: a stream is batched when a record that was looked at had sixteen messages of it, until a record has fewer; one message of
    # each of many streams goes into ops at once.
    engine, layout = opened(Bounds(sampled_records=2), LITERAL)

    def kinds(topic: bytes, count: int, first: int) -> list[int]:
        """How long the keys are of a record with so many messages of a topic, and one of each of thirty others."""
        others = [b"other/%d" % number for number in range(30)]
        ops = write(engine, layout, [*others, *[topic] * count], first)
        return [len(key) for _, key, _ in ops[30:]]

    assert kinds(b"a/b", 16, 1000) == [18] * 16
    assert kinds(b"a/b", 32, 2000) == [19]
    assert kinds(b"a/b", 15, 3000) == [18] * 15
    assert kinds(b"a/b", 16, 4000) == [18] * 16, "not looked at"
    assert kinds(b"a/b", 16, 5000) == [18] * 16, "looked at"
    assert kinds(b"a/b", 16, 6000) == [19]
    assert kinds(b"a/c", 16, 7000) == [18] * 16
    assert positions(layout, b"a/b") == [
        first + 30 + n for first, count in ((1000, 16), (2000, 32), (3000, 15), (4000, 16), (5000, 16), (6000, 16)) for n in range(count)
    ]
    ops: list[Op] = []
    layout.put(ops, layout.key_of(b"other/1"), 8000, b"x")
    assert len(ops) == 1
