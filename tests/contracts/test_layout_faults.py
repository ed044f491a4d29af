"""What a layout finds wrong with what it has derived (shards.layouts.port.Layout.faults): nothing while nothing is, and each row that is
lost, damaged or made of something else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from shards.engine import Engine, Op, StoreFailed, index_of
from shards.layouts.paged_index.pages import PAGE_PREFIX, STATE_PREFIX, decode_page, decode_state, encode_page
from shards.layouts.port import LayoutOptions
from shards.messages import UnknownMessageFormat, encode_message
from tests.contracts.engines import Harness, MemoryHarness
from tests.contracts.layouts import settle
from tests.contracts.test_layout import FAMILY, MANY, Kept, filled, parts

__all__ = ["parts"]

PAGED = ("pagestream_small", "record_batch_small")
_END = b"\xff" * 40
_PREFIX_BYTES = 22
"""Of a page's key: what stands before its last entry."""


def of_devices(layout: str, harness: Harness) -> Kept:
    """Four hundred messages of streams with one, two and no varying levels, and all that idle work makes of them."""
    rng = random.Random(7)
    kept = Kept(layout, harness, LayoutOptions((2, 1)))
    for _ in range(20):
        kept.publish([rng.choice((b"a/%d", b"a/%d/on", b"b/c")).replace(b"%d", b"%d" % rng.randrange(30)) for _ in range(20)], rng)
        settle(kept.layout, kept.last, 500)
    return kept


def derived(engine: Engine) -> list[tuple[int, bytes, bytes]]:
    """(family, key, value) of what is an index, but for state rows, of which a missing one says that nothing is written yet."""
    found: list[tuple[int, bytes, bytes]] = []
    for family in (FAMILY, index_of(FAMILY)):
        if engine.has_family(family):
            for key, value in engine.scan(family, b"", _END, 1 << 30):
                apart = key[:7] == bytes(7)
                if key.startswith(PAGE_PREFIX) if apart else len(key) == 26 and key[8:10] != b"\0\0":
                    found.append((family, key, value))
    return found


def faults(kept: Kept) -> list[str]:
    return list(kept.open(FAMILY).faults(kept.last))


def with_ops(kept: Kept, *ops: Op) -> list[str]:
    """What is wrong once these are written; then they are undone."""
    engine = kept.harness.engine
    before = [(family, key, engine.get(family, key)) for family, key, _ in ops]
    engine.write(ops)
    found = faults(kept)
    engine.write(before)
    return found


@pytest.fixture(params=["skipstream", *PAGED])
def devices(request: pytest.FixtureRequest) -> Iterator[Kept]:
    harness = MemoryHarness()
    yield of_devices(request.param, harness)
    harness.close()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_wrong_with_what_a_layout_made_itself(parts: tuple[str, Harness], seed: int) -> None:
    """Whatever is derived already, before and after a crash."""
    kept, _ = filled(parts, seed)
    assert list(kept.layout.faults(kept.last)) == []
    kept.reopen()
    settle(kept.layout, kept.last, 500)
    assert list(kept.layout.faults(kept.last)) == []


def test_each_row_of_an_index_that_is_lost_is_found(devices: Kept) -> None:
    """One at a time, and it is the stream of that row that is named."""
    rows = derived(devices.harness.engine)
    assert len(rows) > 30 and faults(devices) == []
    for family, key, _ in rows:
        static = key[8:16] if key[:7] == bytes(7) else key[:8]
        found = with_ops(devices, (family, key, None))
        assert len(found) == 1 and static.hex() in found[0], found


def test_a_message_that_is_lost_or_of_another_topic_is_found_by_its_index(devices: Kept) -> None:
    """Of those that have an entry; a message without varying levels has none."""
    engine, seen = devices.harness.engine, 0
    for family, key, value in engine_rows(engine)[::4]:
        topic = next((topic for position, topic, _ in devices.messages if position.to_bytes(8, "big") in key and topic in value), None)
        if topic is None or not is_indexed(devices, key[:8], topic, key[10:18]):
            continue
        device = topic.split(b"/")[1]
        other = value.replace(topic, topic.replace(device, b"?" * len(device)))
        assert other != value
        for wrong in (other, None, encode_message(1, 0, b"p", b"z", b"\0")):
            found = with_ops(devices, (family, key, wrong))
            assert found and all(key[:8].hex() in sentence for sentence in found), found
        seen += 1
    assert seen > 50


def engine_rows(engine: Engine) -> list[tuple[int, bytes, bytes]]:
    """Of messages: they have values, and their keys are neither an index's nor the learned structure's."""
    return [(FAMILY, key, value) for key, value in engine.scan(FAMILY, b"", _END, 1 << 30) if value and key[:7] != bytes(7)]


def is_indexed(kept: Kept, static: bytes, topic: bytes, position: bytes) -> bool:
    leaf, _ = kept.layout.structure.learn(topic)
    if leaf.static != static or None not in leaf.levels:
        return False
    if kept.name not in PAGED:
        return True
    key = STATE_PREFIX + static
    row = kept.harness.engine.get(index_of(FAMILY), key)
    return row is not None and int.from_bytes(position, "big") <= decode_state(key, row, row[1]).covered


@pytest.mark.parametrize("devices", PAGED, indirect=True)
def test_pages_that_are_damaged_out_of_order_or_of_other_entries_are_told_apart(devices: Kept) -> None:
    """Also where the checksum is right."""
    rows, others = derived(devices.harness.engine)[::5], 0
    for family, key, value in rows:
        page = decode_page(key, value)
        prefix = key[:_PREFIX_BYTES]
        hashes, positions = (b"".join(number.to_bytes(8, "little") for number in column) for column in (page.hashes, page.positions))
        (found,) = with_ops(devices, (family, key, value[:-1] + bytes((value[-1] ^ 1,))))
        assert "is damaged" in found
        forged = encode_page(prefix, hashes, (page.positions[0] - 1).to_bytes(8, "little") + positions[8:])
        (found,) = with_ops(devices, (family, key, None), (family, *forged))
        others += "not those of the messages" in found
        assert "not those of the messages" in found or "not in order" in found, found
        if len(page.hashes) > 1:
            falling = sorted(page.positions[:2], reverse=True)
            turned = encode_page(
                prefix, hashes[:8] * 2 + hashes[16:], b"".join(at.to_bytes(8, "little") for at in falling) + positions[16:]
            )
            found = "; ".join(with_ops(devices, (family, key, None), (family, *turned)))
            assert "not in order" in found, found
    assert others > len(rows) // 2


@pytest.mark.parametrize("devices", PAGED, indirect=True)
def test_a_damaged_state_is_told_and_the_other_streams_are_looked_at(devices: Kept) -> None:
    """One sentence for each stream whose state cannot be read."""
    engine, family = devices.harness.engine, index_of(FAMILY)
    states = engine.scan(family, STATE_PREFIX, STATE_PREFIX + _END, 100)
    assert len(states) >= 2
    for key, value in states:
        found = with_ops(devices, (family, key, value[:-1] + bytes((value[-1] ^ 1,))))
        assert len(found) == 1 and key[8:].hex() in found[0] and "is damaged" in found[0]


FILTERS = (b"#", b"a/+", b"a/3", b"a/3/on", b"a/+/on", b"+/7", b"b/c")


def found(kept: Kept) -> dict[bytes, list[tuple[int, bytes]]]:
    """What a reader of each filter gets; of a stream that cannot be read whatever comes before the fault."""
    layout, out = kept.open(FAMILY), {}
    for topic_filter in FILTERS:
        messages: list[tuple[int, bytes]] = []
        for stream in layout.streams(topic_filter):
            with suppress(StoreFailed):
                messages += layout.read(stream, -1, kept.last, MANY, MANY, MANY).messages
        out[topic_filter] = sorted(messages)
    return out


def mend(kept: Kept, expected: dict[bytes, list[tuple[int, bytes]]]) -> None:
    """Record by record, any of which may be the last before a crash: reads never find less than before, and all in the end."""
    before = found(kept)
    for ops in kept.open(FAMILY).mended(kept.last):
        kept.harness.engine.write(ops)
        now = found(kept)
        assert all(set(before[each]) <= set(now[each]) <= set(expected[each]) for each in FILTERS)
        before = now
    assert faults(kept) == [] and before == expected


def test_whatever_is_lost_of_an_index_is_made_anew(devices: Kept) -> None:
    # Property: of what each reader finds nothing is missing then, and what comes later is indexed as ever.
    rng, expected = random.Random(3), found(devices)
    assert expected == {each: devices.expected(each, -1, devices.last) for each in FILTERS}
    for lost in (slice(None, None, 7), slice(None), slice(1)):
        devices.harness.engine.write([(family, key, None) for family, key, _ in derived(devices.harness.engine)[lost]])
        assert faults(devices) != []
        mend(devices, expected)
        devices.reopen()
        devices.publish([b"a/%d" % rng.randrange(30) for _ in range(40)], rng)
        settle(devices.layout, devices.last, 500)
        expected = {each: devices.expected(each, -1, devices.last) for each in FILTERS}
        assert faults(devices) == [] and found(devices) == expected


def test_entries_that_no_message_has_are_taken_away(devices: Kept) -> None:
    """Of another level, or of a position at which nothing lies: readers of those would be told that a message is missing."""
    engine, expected = devices.harness.engine, found(devices)
    for family, key, value in derived(engine)[::9]:
        if value:
            page = decode_page(key, value)
            columns = (page.hashes, [page.positions[0] - 1, *page.positions[1:]])
            hashes, positions = (b"".join(number.to_bytes(8, "little") for number in column) for column in columns)
            engine.write([(family, key, None), (family, *encode_page(key[:_PREFIX_BYTES], hashes, positions))])
        else:
            engine.write([(family, key[:10] + b"another!" + key[18:], b""), (family, key[:18] + (5).to_bytes(8, "big"), b"")])
    assert faults(devices) != []
    mend(devices, expected)


def test_an_index_stays_as_it_is_where_a_message_cannot_be_read(devices: Kept) -> None:
    """It could not be made anew: nothing of it is taken away."""
    engine = devices.harness.engine
    lost = derived(engine)[0]
    static = lost[1][8:16] if lost[1][:7] == bytes(7) else lost[1][:8]
    message = next(row for row in engine_rows(engine) if row[1][:8] == static)
    engine.write([(lost[0], lost[1], None), (FAMILY, message[1], b"\x01 short")])
    before = derived(engine)
    mended = devices.open(FAMILY).mended(devices.last)
    with pytest.raises((UnknownMessageFormat, StoreFailed)):
        next(mended)
    assert derived(engine) == before


def test_what_is_right_is_left_alone(parts: tuple[str, Harness]) -> None:
    """Nothing is written then."""
    kept, _ = filled(parts, 1)
    assert list(kept.open(FAMILY).mended(kept.last)) == []
