"""Many messages of a frame that are taken all at once (shards/publishing.py): what is stored and answered is what it is one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from shards.classes import ClassMap, RetentionClass
from shards.engine import Op, index_of
from shards.engine_memory import MemoryEngine
from shards.frames import NOBODY, Published, Release
from shards.frames import Publish as Entry
from shards.layouts.port import LayoutOptions
from shards.layouts.registry import LAYOUTS
from shards.options import ShardOptions, StoreOptions
from shards.persistence import NOT_STORED, PERSIST
from shards.store import StaleKey, Store, TopicKey
from tests.shards.harness import G, Harness, S, connect, publish, route

_END = b"\xff" * 40
NEVER = 1 << 30
NAMES = ([b"a/1"], [b"a/%d" % n for n in range(30)], [b"gold/%d" % n for n in range(5)], [b"a/1", b"gold/1", b"nobody/here"])


def rows(engine: Any) -> list[tuple[int, bytes, bytes]]:
    families = [each for family in engine.families() for each in (family, index_of(family)) if engine.has_family(each)]
    return [(family, key, value) for family in families for key, value in engine.scan(family, b"", _END, 1 << 30)]


def crowd(rng: random.Random, conns: dict[bytes, int]) -> list[Entry | Release]:
    """Of many connections, a message or two each; at times of one that is over, or with something else among them."""
    clients = rng.choices(list(conns), k=rng.choice((2, 5, 30)))
    flags, names = rng.choice((2, 2, 2, 0, 2 | PERSIST)), rng.choice(NAMES)
    block = rng.choice((b"\0", b"\0", b"\x02\x01\1", b"\x05\x02\0\0\0\x09"))
    made: list[Entry | Release] = []
    for client in clients:
        count = rng.choice((1, 1, 1, 1, 1, 2))
        bodies = [block + rng.randbytes(rng.randrange(9)) for _ in range(count)]
        at_ms = rng.randrange(1, 1 << 40)
        made.append(Entry(client, conns[client], True, at_ms, bytes([flags] * count), [1, 2][:count], rng.choices(names, k=count), bodies))
    if rng.random() < 0.5:
        one = rng.randrange(len(made))
        client = clients[one]
        conn = conns[client]
        body = rng.choice((b"\0other", b"\x02\x01\0other"))
        other = Entry(client, conn, True, 5, bytes([rng.choice((2, 3, 4))]), [7], rng.choices(names), [body])
        made[one] = rng.choice((other, other, frame(rng, client, conn), other._replace(conn=conn - 1), Release(client, conn, [1])))
    return made


def frame(rng: random.Random, client: bytes, conn: int) -> Entry:
    """Mostly of one kind, at times with something in it that is not."""
    count = rng.choice((1, 3, 8, 9, 40))
    names = rng.choice(NAMES)
    flags = bytearray([rng.choice((2, 2, 2, 10, 0, 4, 3, 2 | NOT_STORED, 2 | PERSIST))]) * count
    bodies = [b"\0" + rng.randbytes(rng.randrange(9)) for _ in range(count)]
    if rng.random() < 0.2:
        flags[rng.randrange(count)] = rng.choice((3, 4, 10))
    if rng.random() < 0.3:
        block = rng.choice((b"\x02\x01\1", b"\x05\x02\0\0\0\x09", b"\x80\1\x09\0\x7d" + bytes(125)))
        bodies = [block + body[1:] for body in bodies]
    if rng.random() < 0.2:
        bodies[rng.randrange(count)] = b"\x05\x02\0\0\0\x09expiring"
    ids = rng.sample(range(1, 1000), count)
    return Entry(client, conn, True, rng.randrange(1, 1 << 40), bytes(flags), ids, rng.choices(names, k=count), bodies)


def history(seed: int, layout: str, run_min: int) -> tuple[list[Any], list[Any], dict[str, int], list[Any]]:
    """Replies, rows, counters and the tail of what happens with this seed."""
    rng = random.Random(seed)
    classes = ClassMap((RetentionClass("gold", b"gold/#", 5),)) if seed % 2 else ClassMap(())
    of_layout = LayoutOptions((100, 3) if seed % 3 else (2, 0))
    h = Harness(
        options=ShardOptions(store_qos0=bool(seed % 2), run_min=run_min),
        store=StoreOptions(layout=layout, thresholds=of_layout.thresholds, classes=classes),
    )
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conns = {client: connect(h, client, expiry_s=99).conn for client in (b"p", b"q")}
    route(h, b"a/#")
    replies: list[Any] = []
    for step in range(40):
        client = rng.choice((b"p", b"q"))
        if rng.random() < 0.5:
            entries = crowd(rng, conns)
        else:
            entries = [frame(rng, client, conns[client]) for _ in range(rng.choice((1, 1, 3)))]
        replies.append(h.ask(G, *entries))
        if step == 8:
            route(h, b"gold/#", sub=8)
        if rng.random() < 0.1:
            klass = rng.choice([info.klass for info in h.core._store.currents()])
            h.core._draft.ops.extend(h.core._store.roll(h.core._clock.take(), 0, 0, klass))
            h.tick()
        h.space(int(rng.random() < 0.1))
    tail = h.core._tail
    return replies, rows(h.engine), h.core.counters, [tail.positions, tail.topics, tail.values, tail.streams]


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("seed", range(8))
def test_what_is_taken_at_once_is_what_is_taken_one_by_one(layout: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: answers, all rows of the store, what is counted and what is in memory are the same, whatever comes between.
    taken: list[int] = []
    append_all = Store.append_all

    def noted(self: Store, ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
        taken.append(len(keys))
        append_all(self, ops, keys, positions, values)

    apart = history(seed, layout, run_min=NEVER)
    monkeypatch.setattr(Store, "append_all", noted)
    at_once = history(seed, layout, run_min=2)
    assert len(taken) > 5 and at_once == apart


def test_a_message_each_of_many_connections_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody among them is not there any more, who alone is told so."""
    calls: list[int] = []
    append_all = Store.append_all

    def noted(self: Store, ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
        calls.append(len(keys))
        append_all(self, ops, keys, positions, values)

    monkeypatch.setattr(Store, "append_all", noted)
    h = Harness()
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    clients = [b"p%d" % n for n in range(h.options.run_min)]
    conns = {client: connect(h, client).conn for client in clients}
    route(h, b"a/#")
    stored = h.ask(G, *[publish(client, conns[client], b"a/" + client) for client in clients])
    assert stored == [Published(False, b"")] * len(clients) and calls == [len(clients)]
    assert h.core._publishing.taken == len(clients), "they count for how many messages a record takes"
    conns[clients[3]] -= 1
    answers = h.ask(G, *[publish(client, conns[client], b"a/" + client) for client in clients])
    assert [answer.stale for answer in answers if isinstance(answer, Published)] == [n == 3 for n in range(len(clients))]
    assert calls == [len(clients)] and h.core.counters["messages_stored"] == 2 * len(clients) - 1


def test_frames_of_few_messages_and_of_what_nobody_wants_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a topic that one of many does not want is not learned by asking."""
    calls: list[int] = []
    h = Harness()
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"p").conn
    route(h, b"wanted/#")
    monkeypatch.setattr(Store, "append_all", lambda self, ops, keys, positions, values: calls.append(len(keys)))
    names = [b"wanted/%d" % n for n in range(h.options.run_min)]
    h.ask(G, publish(b"p", conn, *names[1:]))
    (answer,) = h.ask(G, publish(b"p", conn, *names[1:], b"unwanted"))
    assert isinstance(answer, Published) and answer.codes[-1] == NOBODY and not calls
    h.ask(G, publish(b"p", conn, *names))
    assert calls == [len(names)]


def test_keys_of_a_generation_that_is_sealed_are_refused() -> None:
    """As they are one by one: nothing is ever written to one."""
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions())
    keys = [store.key_of(b"a"), store.key_of(b"b")]
    engine.write(store.roll(5, 0, 0))
    with pytest.raises(StaleKey):
        store.append_all([], keys, range(6, 8), [b"x", b"y"])


@pytest.mark.parametrize("run_min", [1, NEVER])
def test_equal_topics_are_one_object_in_memory(run_min: int) -> None:
    """However many messages have them, and of whatever frames and clients these are."""
    h = Harness(options=ShardOptions(run_min=run_min))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conns = {client: connect(h, client, expiry_s=99).conn for client in (b"p", b"q")}
    route(h, b"a/#")
    for client in (b"p", b"q", b"p"):
        topics = [b"a/%d" % (number % 3) for number in range(9)]
        h.ask(G, Entry(client, conns[client], True, 1, bytes([2] * 9), list(range(1, 10)), topics, [b"\0x"] * 9))
    assert len(h.core._tail.topics) == 27
    assert len({id(topic) for topic in h.core._tail.topics}) == 3
