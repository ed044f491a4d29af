"""What only record_batch promises: its bytes on disk, what becomes a batch, what is refused, and how its index lives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from shards.engine import Op, StoreFailed, StoreFull, index_of
from shards.engine_memory import MemoryEngine
from shards.layouts.batched.batch import cut
from shards.layouts.paged_index.merging import Merge, RunSource
from shards.layouts.paged_index.pages import (
    BadIndex,
    IndexState,
    Segment,
    decode_page,
    decode_state,
    encode_page,
    encode_state,
    segment_prefix,
    state_key,
)
from shards.layouts.port import Layout, LayoutOptions, Stream
from shards.layouts.record_batch import Bounds, RecordBatch
from shards.layouts.record_batch.values import (
    BATCH,
    KEY_BYTES,
    KIND_AT,
    SINGLE,
    BadValue,
    check_single,
    encode_batch,
    encode_single,
    messages_of,
    open_batch,
)
from shards.messages import encode_message

MANY = 1 << 40
STATIC = bytes.fromhex("a1a2a3a4a5a6a7a8")
SMALL = Bounds(
    run_entries=16, flush_runs=2, fold_segments=3, slice_entries=16, slice_pages=2, slice_messages=10, sampled_records=1, page_entries=4
)
GOLDEN_VARYING = ("bda91198af13a1330102030405060708", "1164f3f5f076616c7565")
GOLDEN_SINGLE = ("a1a2a3a4a5a6a7a8010203040506070811c5bb6c58", "76616c7565")
GOLDEN_BATCH = (
    "a1a2a3a4a5a6a7a8000000000000110221dfa7eae2",
    "030000002c000000001000000000000000000000010000000201000029000000290000002c00000061626300",
)


def opened(thresholds: tuple[int | None, ...], bounds: Bounds | None = None) -> tuple[MemoryEngine, RecordBatch]:
    engine = MemoryEngine()
    engine.create_family(1)
    return engine, RecordBatch.open(engine, 1, LayoutOptions(thresholds), bounds or Bounds())


def write(engine: MemoryEngine, layout: Layout, messages: list[tuple[int, bytes, bytes]]) -> list[Op]:
    """One record of (position, topic, message)."""
    ops: list[Op] = []
    for position, topic, message in messages:
        layout.put(ops, layout.key_of(topic), position, message)
    layout.flush(ops)
    ops = layout.take_growth() + ops
    engine.write(ops)
    return ops


def some(count: int, start: int, topic: bytes = b"a/b", size: int = 20) -> list[tuple[int, bytes, bytes]]:
    return [(start + n, topic, encode_message(1, n, b"c", topic, bytes(size))) for n in range(count)]


def kinds(ops: list[Op]) -> list[int]:
    """What each op with messages of a stream without varying levels is."""
    return [key[KIND_AT] for _, key, _ in ops if len(key) == KEY_BYTES]


def read(layout: Layout, topic_filter: bytes, upto: int = MANY) -> list[tuple[int, bytes]]:
    (stream,) = layout.streams(topic_filter)
    return layout.read(stream, 0, upto, MANY, MANY, MANY).messages


# ---- values


def test_single_values_are_those_of_the_format_page() -> None:
    # Property: golden bytes of both forms; a change here is a new kind, never a change of these.
    _, layout = opened((9, 0))
    ops: list[Op] = []
    layout.put(ops, layout.key_of(b"plant/7/t"), 0x0102030405060708, b"value")
    layout.flush(ops)
    ((_, key, value),) = ops
    assert value is not None
    assert (key.hex(), value.hex()) == GOLDEN_VARYING
    assert messages_of(key[:8], [(key, value)]) == [(0x0102030405060708, b"value")]
    key, value = encode_single(STATIC, 0x0102030405060708, b"value")
    assert (key.hex(), value.hex()) == GOLDEN_SINGLE
    check_single(key, value)
    ops = []
    literal = layout.key_of(b"plant")
    layout.put(ops, literal, 77, b"other")
    assert ops == [(1, *encode_single(literal.static, 77, b"other"))]


def test_a_batch_is_that_of_the_format_page() -> None:
    # Property: golden bytes, with an empty message in the middle and positions that are not next to each other.
    key, value = encode_batch(STATIC, [0x1000, 0x1001, 0x1102], [b"a", b"", b"bc\0"])
    assert (key.hex(), value.hex()) == GOLDEN_BATCH
    batch = open_batch(key, value)
    assert (batch.positions(0, 3), batch.messages(0, 3)) == ([0x1000, 0x1001, 0x1102], [b"a", b"", b"bc\0"])
    assert (batch.positions(1, 2), batch.messages(1, 2)) == ([0x1001], [b""])
    assert [batch.index_after(position) for position in (0, 0xFFF, 0x1000, 0x1001, 0x1101, 0x1102, MANY)] == [0, 0, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("kind", ["varying", "single", "batch"])
def test_every_flipped_bit_and_every_wrong_key_is_found(kind: str) -> None:
    # Property: no damaged value is ever read as a message, nor one that lies under the key of another.
    engine, layout = opened((0,) if kind == "varying" else (None,))
    many = 60 if kind == "batch" else 3
    write(engine, layout, some(many, 1))
    ops = write(engine, layout, some(many, 1000))
    number, key, value = ops[-1]
    assert value is not None and len(key) == (16 if kind == "varying" else KEY_BYTES)
    assert kind != "batch" or key[KIND_AT] == BATCH
    rng = random.Random(1)
    for place in {0, 1, 2, 3, 4, 5, 6, *[rng.randrange(len(value)) for _ in range(60)]}:
        damaged = bytearray(value)
        damaged[place] ^= 1 << rng.randrange(8)
        engine.write([(number, key, bytes(damaged))])
        with pytest.raises(BadValue):
            read(layout, b"#")
    for shorter in (0, 4, 5, 20, len(value) - 1):
        engine.write([(number, key, value[:shorter])])
        with pytest.raises(BadValue):
            read(layout, b"#")
    engine.write([(number, key, None)])
    for bit in range(8 * 8, 8 * len(key)):
        # A wrong position, kind or checksum; a wrong static key is another stream, so it is tried below.
        wrong = bytearray(key)
        wrong[bit // 8] ^= 1 << bit % 8
        if MANY > int.from_bytes(wrong[8:16], "big") > 0:
            engine.write([(number, bytes(wrong), value)])
            with pytest.raises(BadValue):
                read(layout, b"#")
            engine.write([(number, bytes(wrong), None)])
    if kind != "batch":
        with pytest.raises(BadValue):
            check_single(STATIC + key[8:], value)


def test_a_value_of_a_later_version_is_refused_with_a_sentence() -> None:
    # Property: what this program does not know is named, and never guessed at.
    for thresholds in ((None,), (0,)):
        engine, layout = opened(thresholds)
        number, key, value = write(engine, layout, some(1, 7))[-1]
        assert value is not None
        later = (key[:KIND_AT] + b"\x12" + key[KIND_AT + 1 :], value) if len(key) == KEY_BYTES else (key, b"\x12" + value[1:])
        engine.write([(number, key, None), (number, *later)])
        with pytest.raises(BadValue, match=r"position 7: a value of kind 0x12 found, this program reads 0x11 and 0x21"):
            read(layout, b"#")


def test_a_batch_holds_sixteen_to_sixtyfour_messages_and_64_kib() -> None:
    # Property: fewer than sixteen are single values; a batch is bounded in messages and bytes; large messages are single values.
    def sizes(count: int, size: int) -> list[int]:
        return [stop - at for at, stop in cut(range(count), [bytes(size)] * count)]

    assert sizes(15, 10) == [1] * 15
    assert sizes(16, 10) == [16]
    assert sizes(150, 10) == [64, 64, 22]
    assert sizes(70, 10) == [64] + [1] * 6
    assert sizes(40, 4096) == [16, 16] + [1] * 8
    assert sizes(40, 4097) == [1] * 40
    assert sizes(3, 1 << 20) == [1] * 3
    far = cut([n << 29 for n in range(100)], [b"m"] * 100)
    assert far == [(n, n + 1) for n in range(100)], "positions of a batch are within 32 bits"


def test_a_stream_without_varying_levels_is_batched_when_records_have_many_of_it() -> None:
    # Property: after a record with sixteen messages that was looked at, batches, until a record has fewer; nothing is lost on the way.
    engine, layout = opened((None,), Bounds(sampled_records=2))
    assert kinds(write(engine, layout, some(100, 1))) == [SINGLE] * 100
    assert kinds(write(engine, layout, some(100, 200))) == [BATCH] * 2
    assert kinds(write(engine, layout, some(70, 300))) == [BATCH] + [SINGLE] * 6
    assert kinds(write(engine, layout, some(3, 400))) == [SINGLE] * 3
    assert kinds(write(engine, layout, some(16, 500))) == [SINGLE] * 16, "looked at"
    assert kinds(write(engine, layout, some(16, 600))) == [BATCH]
    assert kinds(write(engine, layout, [])) == []
    assert kinds(write(engine, layout, some(16, 700))) == [SINGLE] * 16, "not looked at"
    assert kinds(write(engine, layout, some(16, 800))) == [SINGLE] * 16, "looked at"
    assert kinds(write(engine, layout, [*some(16, 900), *some(5, 950, b"x")])) == [SINGLE] * 5 + [BATCH]
    assert len(read(layout, b"a/b")) == 100 + 100 + 70 + 3 + 16 * 5
    assert len(read(layout, b"x")) == 5


def test_a_stream_with_varying_levels_is_never_batched() -> None:
    # Property: one device out of many is never paid for with the messages of others; a message is one op, however many levels vary.
    engine, layout = opened((0,), SMALL)
    for start in (1, 1000):
        ops = write(engine, layout, some(200, start, b"a/b/c"))
        assert len([key for _, key, value in ops if len(key) == 16]) == 200


# ---- index rows


def test_pages_and_states_are_those_of_the_format_page() -> None:
    # Property: golden bytes of the index rows, and both come back as they were.
    prefix = segment_prefix(STATIC, 2, 7)
    hashes, positions = np.array([5, 5, 9], "<u8").tobytes(), np.array([1, 4, 2], "<u8").tobytes()
    key, value = encode_page(prefix, hashes, positions)
    assert key.hex() == "00000000000000" + "03" + STATIC.hex() + "0002" + "00000007" + "0000000000000009" + "0000000000000002"
    assert value.hex() == "31000300" + value[4:8].hex() + hashes.hex() + positions.hex()
    page = decode_page(key, value)
    assert (list(page.hashes), list(page.positions)) == ([5, 5, 9], [1, 4, 2])
    state = IndexState(99, 8, (Segment(3, 256, 50), Segment(7, 20, 99)), (1, 2))
    row = encode_state(state_key(STATIC), 2, state)
    assert state_key(STATIC).hex() == "00000000000000" + "02" + STATIC.hex()
    assert decode_state(state_key(STATIC), row, 2) == state
    assert row.hex() == (
        "41020000" + row[4:8].hex() + "6300000000000000" + "08000000" + "02000200"
        "03000000" + "00010000" + "3200000000000000" + "07000000" + "14000000" + "6300000000000000" + "01000000" + "02000000"
    )  # fmt: skip
    for damaged in (value[:-1], b"\x32" + value[1:], value[:9] + b"x" + value[10:]):
        with pytest.raises(BadIndex):
            decode_page(key, damaged)
    for damaged in (row[:-1], b"\x42" + row[1:], row[:9] + b"x" + row[10:]):
        with pytest.raises(BadIndex):
            decode_state(state_key(STATIC), damaged, 2)
    with pytest.raises(BadIndex):
        decode_state(state_key(b"anotherk"), row, 2)


@pytest.mark.parametrize("seed", range(20))
def test_a_merge_in_slices_is_one_sort(seed: int) -> None:
    # Property: whatever the sources and slices, the pages together are all entries sorted by (hash, position), none twice.
    rng = random.Random(seed)
    position = 0
    entries: list[tuple[int, int]] = []
    sources = []
    for _ in range(rng.choice((1, 2, 5))):
        part = []
        for _ in range(rng.choice((0, 1, 30, 300))):
            position += rng.randint(1, 3)
            part.append((rng.choice((rng.randrange(4), rng.randrange(1 << 64))), position))
        part.sort()
        entries += part
        sources.append(RunSource(np.array([hashed for hashed, _ in part], np.uint64), np.array([at for _, at in part], np.uint64)))
    merge = Merge(1, STATIC, 1, 1, sources, rng.choice((1, 4, 256)))
    ops: list[Op] = []
    done = False
    while not done:
        more, done = merge.step(rng.choice((1, 10, 1000)))
        ops += more
    found = []
    for _, key, value in ops:
        assert value is not None
        page = decode_page(key, value)
        found += list(zip(page.hashes, page.positions, strict=True))
    assert found == sorted(entries)
    assert merge.entries == len(entries)
    assert [key for _, key, _ in ops] == sorted(key for _, key, _ in ops)


# ---- the life of an index


def devices(count: int, start: int, rng: random.Random, of: int = 12) -> list[tuple[int, bytes, bytes]]:
    found = []
    for n in range(count):
        topic = b"d/%d/%d" % (rng.randrange(of), rng.randrange(3))
        found.append((start + n, topic, encode_message(1, n, b"c" * 300, topic, b"\0")))
    return found


def pages(engine: MemoryEngine) -> list[bytes]:
    index = index_of(1)
    return [key for key, _ in engine.scan(index, bytes(7) + b"\x03", bytes(7) + b"\x04", MANY)] if engine.has_family(index) else []


def work(layout: Layout, upto: int) -> int:
    slices = 0
    while layout.idle_work(upto):
        slices += 1
        assert slices < 10_000
    return slices


def test_what_a_crash_left_of_a_segment_is_cleared_away_before_it_is_made_anew() -> None:
    # Property: pages of an unfinished segment never mix with those of the next one of its number.
    rng = random.Random(1)
    engine, layout = opened((0,), SMALL)
    write(engine, layout, devices(40, 1, rng))
    while not pages(engine):
        assert layout.idle_work(1000)
    ((_, stray, _),) = [(0, pages(engine)[0], b"")]
    engine = engine.crash(power=False)
    layout = RecordBatch.open(engine, 1, LayoutOptions((0,)), SMALL)
    kept = devices(60, 100, rng)
    write(engine, layout, kept)
    layout.seal()
    work(layout, 1000)
    ((_, row),) = engine.scan(index_of(1), bytes(7) + b"\x02", bytes(7) + b"\x03", MANY)
    (segment,) = decode_state(state_key(layout.streams(b"#")[0].static), row, 3).segments
    assert segment.entries == 100
    named = [key for key in pages(engine) if int.from_bytes(key[18:22], "big") == segment.number]
    assert named == pages(engine), "garbage is gone"
    total = 0
    for key in named:
        value = engine.get(index_of(1), key)
        assert value is not None
        total += len(decode_page(key, value).hashes)
    assert total == 3 * 100, f"entries of three levels, none from {stray.hex()}"


def test_the_index_is_written_for_committed_messages_only() -> None:
    # Property: a position above the watermark may be given to another message after a crash, so no entry of it is ever on disk.
    rng = random.Random(2)
    engine, layout = opened((0,), SMALL)
    write(engine, layout, devices(200, 1, rng))
    work(layout, 70)
    layout.seal()
    work(layout, 70)
    for key in pages(engine):
        value = engine.get(index_of(1), key)
        assert value is not None
        assert max(decode_page(key, value).positions) <= 70


def test_entries_in_ram_are_bounded_over_all_streams() -> None:
    # Property: many streams with few messages each are written out, too, when together they pass the bound.
    bounds = Bounds(run_entries=64, ram_entries_max=200, page_entries=16)
    engine, layout = opened((None, 0), bounds)
    position = 0
    for _ in range(40):
        record = []
        for _ in range(30):
            position += 1
            topic = b"s%d/%d" % (position % 20, position % 7)
            record.append((position, topic, encode_message(1, 1, b"c", topic, b"\0")))
        write(engine, layout, record)
        work(layout, position)
        held = sum(index.entries.count for index in layout._index._streams.values())
        assert held <= 200 + 64
    assert len(read(layout, b"s3/5")) == sum(1 for n in range(1, position + 1) if n % 20 == 3 and n % 7 == 5)


def test_streams_of_few_messages_cost_neither_pages_nor_ram() -> None:
    # Property: thousands of streams with a few messages each are not indexed on disk, leave RAM when it is short, and are found.
    bounds = Bounds(run_entries=64, ram_entries_max=500, slice_streams=100, page_entries=16, small_stream=10)
    engine, layout = opened((None, None, 0), bounds)
    position = 0
    most = 0
    for _ in range(100):
        record = []
        for _ in range(60):
            position += 1
            topic = b"a/s%d/%d" % (position % 1000, position % 7)
            record.append((position, topic, encode_message(1, 1, b"c", topic, b"\0")))
        write(engine, layout, record)
        while layout.idle_work(position):
            pass
        held = sum(index.entries.count for index in layout._index._streams.values())
        most = max(most, held)
        if position % 600 == 0:
            (stream,) = layout.streams(b"a/s3/5")
            wanted = sum(1 for n in range(1, position + 1) if n % 1000 == 3 and n % 7 == 5)
            assert len(layout.read(stream, 0, MANY, MANY, MANY, MANY).messages) == wanted
    assert most <= 500 + 1000 + 60, "the bound, and what is put between two looks at a thousand streams"
    assert not pages(engine)
    layout.seal()
    work(layout, position)
    assert not pages(engine)
    assert len(read(layout, b"a/s77/0")) == sum(1 for n in range(1, position + 1) if n % 1000 == 77 and n % 7 == 0)


@pytest.mark.slow
def test_a_full_disk_leaves_the_index_as_it_was() -> None:
    # Property: a refused slice is done again later; meanwhile everything is found.
    rng = random.Random(3)
    engine, layout = opened((0,), SMALL)
    messages = devices(100, 1, rng)
    write(engine, layout, messages)
    wanted = [(position, value) for position, topic, value in messages if topic.startswith(b"d/3/")]
    refused = 0
    for _ in range(2000):
        if rng.random() < 0.4:
            engine.fail_next_write()
        try:
            if not layout.idle_work(1000):
                break
        except StoreFull:
            refused += 1
        assert read(layout, b"d/3/+") == wanted
    assert refused > 3
    layout.seal()
    work(layout, 1000)
    assert read(layout, b"d/3/+") == wanted


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
def test_a_sealed_generation_ends_with_one_segment_per_stream(restart: bool) -> None:
    # Property: however it was written, reading it in the end costs one look-up per level, also when it is opened anew in between.
    rng = random.Random(4)
    engine, layout = opened((0,), SMALL)
    for start in range(1, 1000, 50):
        write(engine, layout, devices(50, start, rng))
        work(layout, start + 49)
    write(engine, layout, devices(70, 1000, rng))
    layout.idle_work(5000)  # so that it is sealed in the midst of something
    layout.seal()
    if restart:
        for _ in range(5):
            layout.idle_work(5000)
        layout = RecordBatch.open(engine.crash(power=False), 1, LayoutOptions((0,)), SMALL)
        layout.seal()
    work(layout, 5000)
    for index in layout._index._streams.values():
        assert len(index.segments) == 1 and not index.state.garbage and index.entries.count == 0
    assert layout.idle_work(5000) is False


def test_a_copy_that_only_applied_the_records_reads_the_same() -> None:
    # Property: the index is local: a replica that gets the ops of records and nothing else makes its own.
    rng = random.Random(5)
    engine, layout = opened((1, 0), SMALL)
    replica = MemoryEngine()
    replica.create_family(1)
    for start in range(1, 400, 40):
        replica.write(write(engine, layout, devices(40, start, rng)))
        work(layout, start + 39)
    assert pages(engine) and not pages(replica)
    copied = RecordBatch.open(replica, 1, LayoutOptions((1, 0)), SMALL)
    for topic_filter in (b"#", b"d/3/+", b"d/+/1", b"d/5/2"):
        for stream in layout.streams(topic_filter):
            again = copied.stream_of(stream.static, topic_filter)
            assert copied.read(again, 0, MANY, MANY, MANY, MANY) == layout.read(stream, 0, MANY, MANY, MANY, MANY)


@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("topic_filter", [b"a/one/x", b"a/one/+", b"+/one/x"])
@pytest.mark.parametrize("indexed", [False, True])
def test_values_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch, topic_filter: bytes, indexed: bool) -> None:
    # Property: the index may lie, the message does not: a colliding topic is never delivered, and blocks nothing.
    for module in ("learned", "record_batch.layout"):
        monkeypatch.setattr(f"shards.layouts.{module}.hash_of", lambda level: b"samehash")
    engine, layout = opened((0,), SMALL)
    messages = []
    for position in range(1, 400):
        topic = b"a/one/x" if position % 50 == 0 else b"a/two/x"
        messages.append((position, topic, encode_message(0, position, b"", topic, b"\0")))
    write(engine, layout, messages)
    if indexed:
        work(layout, 400)
    expected = [(position, value) for position, topic, value in messages if topic == b"a/one/x"]
    assert read(layout, topic_filter) == expected
    (stream,) = layout.streams(topic_filter)
    place, found, reads = 0, [], 0
    while place < 400:
        got = layout.read(stream, place, 400, 2, MANY, 20)
        found += got.messages
        place, reads = got.place, reads + 1
    assert found == expected
    assert reads > 10, "examine_max counts what collided, too"


def test_an_index_without_its_message_is_loud() -> None:
    # Property: damage is reported, never skipped over as if nothing had been there.
    engine, layout = opened((0,))
    ops = write(engine, layout, some(1, 7, b"a"))
    engine.write([(1, ops[-1][1], None)])
    with pytest.raises(StoreFailed, match="missing"):
        read(layout, b"a")


def test_what_a_reader_left_of_a_batch_is_kept_within_a_bound() -> None:
    # Property: small reads of many streams keep a bounded number of batches in RAM, and get every message.
    engine, layout = opened((None,), SMALL)
    for start in (1, 10_000):
        write(engine, layout, [each for n in range(60) for each in some(40, start + 100 * n, b"t%d" % n)])
    streams = layout.streams(b"#")
    places: dict[Stream, int] = dict.fromkeys(streams, 0)
    counts = dict.fromkeys(streams, 0)
    for _ in range(17):
        for stream in streams:
            got = layout.read(stream, places[stream], MANY, 5, MANY, MANY)
            places[stream] = got.place
            counts[stream] += len(got.messages)
            assert len(layout._scanner._partly_read) <= 32
    assert set(counts.values()) == {80}
