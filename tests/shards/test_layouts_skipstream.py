"""What only skipstream promises: its bytes on disk, and that equal hashes are told apart."""

from __future__ import annotations

import pytest

from shards.engine import Op, StoreFailed
from shards.engine_memory import MemoryEngine
from shards.layouts.learned import hash_of
from shards.layouts.port import LayoutOptions
from shards.layouts.skipstream import SkipStream
from shards.messages import encode_message

MANY = 1 << 30
GOLDEN_H7 = "e75017cace788f82"
GOLDEN = [
    ("0000000000000000451d709d1a626917b0", "bda91198af13a133"),
    ("00000000000000004c0000000000000001706c616e74", "a5bf101d2b411454"),
    ("000000000000000050a5bf101d2b411454", "dbda840002b80618"),
    ("000000000000000050dbda840002b80618", "1d709d1a626917b0"),
    ("bda91198af13a13300000102030405060708", "76616c7565"),
    ("bda91198af13a1330001e75017cace788f820102030405060708", ""),
    ("bda91198af13a1330002ca73dcf5e072d4d60102030405060708", ""),
]


def opened(thresholds: tuple[int | None, ...]) -> tuple[MemoryEngine, SkipStream]:
    engine = MemoryEngine()
    engine.create_family(1)
    return engine, SkipStream.open(engine, 1, LayoutOptions(thresholds))


def test_the_keys_are_those_of_the_format_page() -> None:
    # Property: golden bytes; a change here is a new layout with a new name, never a change of this one.
    engine, layout = opened((9, 0))
    key = layout.key_of(b"plant/7/t")
    ops = layout.take_growth()
    layout.put(ops, key, 0x0102030405060708, b"value")
    layout.flush(ops)
    engine.write(ops)
    rows = [(k.hex(), v.hex()) for k, v in engine.scan(1, b"", b"\xff" * 40, 100)]
    assert rows == GOLDEN


def test_a_literal_message_is_one_op_and_each_varying_level_adds_one() -> None:
    # Property: the cost of a stored message is known: 1 key, and 1 more per varying level.
    _, layout = opened((9, 0))
    for topic, varying in ((b"a", 0), (b"a/b", 1), (b"a/b/c/d", 3)):
        ops: list[Op] = []
        layout.put(ops, layout.key_of(topic), 5, b"v")
        layout.flush(ops)
        assert len(ops) == 1 + varying


def test_index_keys_of_a_record_are_written_in_their_order() -> None:
    # Property: keys in their order are what RocksDB takes at half the price; none is left for the next record.
    _, layout = opened((9, 0))
    ops: list[Op] = []
    for position, topic in enumerate((b"a/9", b"a/3", b"b/7", b"a/3/1"), 1):
        layout.put(ops, layout.key_of(topic), position, b"v")
    assert len(ops) == 4
    layout.flush(ops)
    keys = [key for _, key, _ in ops[4:]]
    assert len(keys) == 5 and keys == sorted(keys)
    layout.flush(ops)
    assert len(ops) == 9


@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("topic_filter", [b"a/one/x", b"a/one/+", b"+/one/x"])
def test_values_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch, topic_filter: bytes) -> None:
    # Property: the index may lie, the message does not: a colliding topic is never delivered, and blocks nothing.
    for module in ("learned", "skipstream"):
        monkeypatch.setattr(f"shards.layouts.{module}.hash_of", lambda level: b"samehash")
    engine, layout = opened((0,))
    ops: list[Op] = []
    expected = []
    for position in range(1, 400):
        topic = b"a/one/x" if position % 50 == 0 else b"a/two/x"
        value = encode_message(0, position, b"", topic, b"\0")
        layout.put(ops, layout.key_of(topic), position, value)
        if topic == b"a/one/x":
            expected.append((position, value))
    layout.flush(ops)
    engine.write(ops)
    (stream,) = layout.streams(topic_filter)
    assert layout.read(stream, 0, 400, MANY, MANY, MANY).messages == expected
    place, found, reads = 0, [], 0
    while place < 400:
        read = layout.read(stream, place, 400, 2, MANY, 20)
        found += read.messages
        place = read.place
        reads += 1
    assert found == expected
    assert reads > 10, "examine_max counts what collided, too"


def test_a_search_without_matches_stops_in_time() -> None:
    # Property: examine_max holds for the intersection of lists: a search that finds nothing gives the loop back, and goes on
    # from its place.
    engine, layout = opened((0,))
    ops: list[Op] = []
    for position in range(1, 1001):
        topic = b"d/a/x" if position % 2 else b"d/b/y"
        layout.put(ops, layout.key_of(topic), position, encode_message(0, 0, b"", topic, b"\0"))
    layout.flush(ops)
    engine.write(ops)
    (stream,) = layout.streams(b"+/a/y")
    place, reads, done = 0, 0, False
    while not done:
        read = layout.read(stream, place, 1000, 10, MANY, 20)
        assert read.messages == []
        place, done, reads = read.place, read.done, reads + 1
    assert 1000 // 20 <= reads <= 4 * 1000 // 20


def test_an_index_without_its_message_is_loud() -> None:
    # Property: damage is reported, never skipped over as if nothing had been there.
    engine, layout = opened((0,))
    ops: list[Op] = []
    layout.put(ops, layout.key_of(b"a"), 7, encode_message(0, 0, b"", b"a", b"\0"))
    layout.flush(ops)
    engine.write([op for op in ops if op[2] == b""])
    (stream,) = layout.streams(b"a")
    with pytest.raises(StoreFailed, match="missing"):
        layout.read(stream, 0, 9, 1, 1, 1)


def test_levels_are_indexed_by_blake2b() -> None:
    # Property: golden vector of H8.
    assert hash_of(b"7").hex() == GOLDEN_H7


def test_moves_say_what_reading_has_cost() -> None:
    # Property: by one list, by several that agree now and then, and without any; what only shares a hash is told from what matches.
    engine, layout = opened((9, 0))
    ops: list[Op] = []
    for position in range(1, 101):
        topic = b"a/%d/%d" % (position % 2, position % 5)
        layout.put(ops, layout.key_of(topic), position, encode_message(1, 0, b"p", topic, b"\0"))
    layout.flush(ops)
    engine.write([*layout.take_growth(), *ops])

    def moved(topic_filter: bytes) -> dict[str, int]:
        before = layout.moves
        found = [layout.read(stream, 0, 200, MANY, MANY, MANY) for stream in layout.streams(topic_filter)]
        assert all(read.done for read in found)
        assert sum(len(read.messages) for read in found) == {b"#": 100, b"a/1/+": 50, b"a/1/3": 10}[topic_filter]
        return {kind: count - before[kind] for kind, count in layout.moves.items()}

    assert moved(b"#") == {"seek": 1, "next": 100, "hash_collision": 0, "hit": 0, "miss": 0, "end_of_stream": 1}
    one = moved(b"a/1/+")
    assert one["hit"] == one["next"] == 50 and one["miss"] == 0 and one["end_of_stream"] == 1
    two = moved(b"a/1/3")
    assert two["hit"] == 10 and two["miss"] > 0 and two["seek"] + two["next"] > 20 and two["hash_collision"] == 0
