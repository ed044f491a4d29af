"""Other options while a shard runs: each takes effect where its setting says, and what is stored stays as it is."""

from __future__ import annotations

from dataclasses import replace

from shards.events import SettingsChanged
from shards.frames import Answer, Place
from shards.options import ShardOptions, StoreOptions
from tests.shards.harness import G, Harness, connect, linked, poll, publish, route, topics


def change(h: Harness, store: StoreOptions | None = None, **options: int) -> None:
    h.options = replace(h.options, **options)  # type: ignore[arg-type]
    h.store = store or h.store
    assert h.core.handle(SettingsChanged(h.options, h.store)) == []
    h.core.check()


def layouts(h: Harness) -> list[str]:
    return [info.layout for info in h.core._store.generations()]


def test_a_layout_is_that_of_the_next_generation_also_after_a_crash_before_it() -> None:
    """The current generation goes on in the layout it has; one place reads over both, in order, whatever dies in between."""
    for crash in (False, True):
        h = linked(generation_ms=60_000)
        conn = connect(h, b"p").conn
        position = route(h, b"t/+")
        h.ask(G, publish(b"p", conn, b"t/1", b"t/2"))
        change(h, StoreOptions("record_batch"))
        h.ask(G, publish(b"p", conn, b"t/3"))
        assert len(layouts(h)) == 1
        before = layouts(h)
        if crash:
            h.reopen()
            h.link(1, "gateway", "g0:a")
            h.link(2, "session", "s0:a")
        h.pass_time(61_000)
        h.ask(G, publish(b"p", conn, b"t/4", b"t/5"))
        assert layouts(h) == [*before, "record_batch"] and before != ["record_batch"]
        found: list[bytes] = []
        place = Place(position)
        while len(found) < 5:
            polled = poll(h, b"t/+", place)
            assert polled.place != place or topics(polled)
            found += topics(polled)
            place = polled.place
        # Stream by stream within a generation.
        assert (sorted(found[:3]), sorted(found[3:])) == ([b"t/1", b"t/2", b"t/3"], [b"t/4", b"t/5"])


def test_a_shorter_generation_and_a_shorter_period_count_at_once() -> None:
    """Also for what is there already: it is as old as it is."""
    h = linked(generation_ms=10_000_000, retention_ms=10_000_000)
    conn = connect(h, b"p").conn
    route(h, b"t")
    h.ask(G, publish(b"p", conn, b"t"))
    h.tick(20_000)
    assert [info.id for info in h.core._store.generations()] == [1]
    change(h, generation_ms=15_000)
    h.tick(2_000)
    h.tick(2_000)
    assert [info.id for info in h.core._store.generations()] == [1, 2]
    change(h, retention_ms=1_000)
    h.tick(2_000)
    h.tick(2_000)
    assert 1 not in [info.id for info in h.core._store.generations()]


def test_a_smaller_tail_gives_back_what_is_over_it() -> None:
    """At the next commit, and reading is as before."""
    h = linked(tail_bytes_max=1 << 20)
    conn = connect(h, b"p").conn
    position = route(h, b"t")
    h.ask(G, publish(b"p", conn, *[b"t"] * 50))
    held = h.core.counters["tail_bytes"]
    change(h, tail_bytes_max=held // 2)
    h.ask(G, publish(b"p", conn, b"t", ids=[60]))
    assert h.core.counters["tail_bytes"] <= held // 2
    assert len(topics(poll(h, b"t", Place(position)))) == 51


def test_a_record_takes_no_further_frame_once_it_has_so_many_messages() -> None:
    """`local_write_buffer.max_items`: what comes behind is in the next record, and a change counts from the next one on."""
    h = linked(messages_per_record_max=2)
    conn = connect(h, b"p").conn
    route(h, b"#")

    def records(frames: int) -> list[int]:
        """How many frames each record answers."""
        for _ in range(frames):
            h.request(G, publish(b"p", conn, b"t"))
        found: list[int] = []
        while sum(found) < frames:
            h.tick()
            found.append(len(h.take(G, Answer)))
        return found

    h.take(G, Answer)
    assert records(5) == [2, 2, 1]
    change(h, messages_per_record_max=4)
    assert records(5) == [4, 1]


def test_the_next_sweep_comes_after_the_new_interval() -> None:
    """It was ten days away, and now it is ten seconds."""
    h = linked(gc_interval_ms=10 * 86_400_000)
    h.tick()
    sweep = h.core._housekeeping._sweep
    change(h, gc_interval_ms=10_000)
    h.pass_time(9_000)
    assert sweep.sweeps == 0
    h.pass_time(10_000)
    for _ in range(200):
        h.tick(20)
    assert sweep.sweeps >= 1


def test_options_that_are_the_same_change_nothing() -> None:
    """A reload that is about gateways reaches shards too, and must not put off their sweep for ever."""
    h = linked(gc_interval_ms=10_000)
    h.tick()
    sweep = h.core._housekeeping._sweep
    for _ in range(4):
        h.pass_time(5_000)
        change(h)
    for _ in range(200):
        h.tick(20)
    assert sweep.sweeps >= 1 and h.options == ShardOptions(gc_interval_ms=10_000)
