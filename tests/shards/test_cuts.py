"""How far a reader of the files may read (shards/cuts.py)."""

from __future__ import annotations

from pathlib import Path

from shards.engine import HOME_FAMILY
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine
from shards.engine_secondary import SecondaryEngine
from shards.frames import Cut, CutFound, Query, Result
from shards.generations import Generations
from shards.options import ShardOptions, StoreOptions
from shards.store import Store
from tests.shards.harness import G, Harness, S, connect, linked, publish, route

R = 3


def cut(h: Harness, sync: bool = True) -> CutFound:
    h.receive(R, Query(5, Cut()))
    h.tick(sync=sync)
    (result,) = h.take(R, Result)
    assert isinstance(result.told, CutFound)
    return result.told


def with_reader(**options: int | bool) -> Harness:
    h = linked(**options)
    h.link(R, "reader", "r0:a")
    return h


def edges(h: Harness, generation: int = 1) -> int:
    """What the rows say that are written."""
    assert isinstance(h.engine, MemoryEngine)
    return len(h.engine.scan(generation, bytes(8), bytes(7) + b"\x01", 1 << 20))


def test_the_cut_is_what_is_committed_and_not_what_is_written() -> None:
    # Property: the watermark is the synced one; a record that waits for its sync is not below the cut.
    h = with_reader()
    route(h, b"#")
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"a"))
    before = cut(h)
    assert before.watermark == h.core.watermark
    h.request(G, publish(b"p", conn, b"a", b"b"))
    h.tick(sync=False)
    during = cut(h, sync=False)
    assert during.watermark == before.watermark and during.sequence > before.sequence
    h.commit()
    assert cut(h).watermark > before.watermark


def test_edges_are_told_when_their_record_is_committed_and_all_of_them_are_in_the_rows() -> None:
    # Property: whoever loads the rows at the told sequence finds at least as many edges as were told, so it is never told of an edge that
    # it believes to have; and once a record is committed its edges are told.
    h = with_reader()
    route(h, b"#")
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"a/b"))
    known = dict(cut(h).written)
    assert known == {1: edges(h)} and known[1] == 3
    # Asked in the very tick that learns: the rows are not there when the answer is made.
    h.request(G, publish(b"p", conn, b"a/c"))
    during = cut(h, sync=False)
    assert dict(during.written) == known
    assert dict(cut(h, sync=False).written) == known and edges(h) == 5
    h.commit()
    assert dict(cut(h).written) == {1: 5}


def test_edges_grow_with_every_growth_and_with_nothing_else() -> None:
    # Property: over varying levels, special topics and topics that end within others, the number told is the number of rows.
    h = with_reader()
    route(h, b"#")
    route(h, b"$x/#", 8)
    conn = connect(h, b"p").conn
    seen = [0]
    for number, topic in enumerate([b"a", b"a/b", b"$x/a", *(b"a/%d/t" % n for n in range(30)), b"a", b"a/7/t"]):
        h.ask(G, publish(b"p", conn, topic, ids=[number + 1]))
        told = dict(cut(h).written)
        assert told == {1: edges(h)}
        seen.append(told[1])
    assert seen == sorted(seen) and seen[-1] == seen[-3]


def test_after_a_roll_and_after_a_restart_the_current_generation_is_told() -> None:
    # Property: a reader learns of a new generation with the roll's commit, with the edges it has inherited; a restart changes nothing.
    h = with_reader(generation_ms=1000)
    route(h, b"#")
    conn = connect(h, b"p").conn
    for n in range(120):
        h.ask(G, publish(b"p", conn, b"a/%d/t" % n, ids=[n + 1]))
    h.tick(2000, sync=False)
    assert [generation for generation, _ in cut(h, sync=False).written] == [1], "the roll is not committed"
    h.commit()
    told = cut(h)
    assert dict(told.written) == {2: edges(h, 2)} and edges(h, 2) > 0
    h.reopen()
    h.link(R, "reader", "r0:b")
    again = cut(h)
    assert again.written == told.written and again.watermark >= told.watermark and again.sequence >= told.sequence


def test_a_secondary_at_the_told_sequence_shows_everything_up_to_the_cut(tmp_path: Path) -> None:
    # Property: the number means the same on both sides: one view is too old by it, and the next one, which is not, has the message.
    path = str(tmp_path / "store")
    engine = RocksEngine(path)
    h = Harness(engine, options=ShardOptions(), store=StoreOptions())
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    h.link(R, "reader", "r0:a")
    route(h, b"#")
    conn = connect(h, b"p").conn
    older = SecondaryEngine(path, str(tmp_path / "older"))
    try:
        h.ask(G, publish(b"p", conn, b"a/b"))
        told = cut(h)
        assert older.latest_sequence() < told.sequence
        newer = SecondaryEngine(path, str(tmp_path / "newer"))
        try:
            assert newer.latest_sequence() >= told.sequence
            store = Store(newer, Generations.view(newer))
            ((generation, stream),) = store.streams(b"#", -1)
            assert len(store.read(generation, stream, -1, told.watermark, 10, 1 << 20, 100).messages) == 1
            assert dict(store.edges()) == dict(told.written)
            assert newer.get(HOME_FAMILY, b"mposition") is not None
        finally:
            newer.close()
    finally:
        older.close()
        engine.close()
