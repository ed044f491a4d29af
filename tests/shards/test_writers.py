"""Messages of writers that are no clients (shards/writers.py): taken once, all or none, on the way of a will."""

from __future__ import annotations

from typing import Any

import pytest

from mqtt.body import make_body, message_expiry
from mqtt.packets import Properties
from shards import writers
from shards.engine_memory import MemoryEngine
from shards.events import QuotaChanged
from shards.frames import (
    APPEND_FORBIDDEN,
    APPEND_FULL,
    APPEND_REPEATED,
    APPEND_SENSELESS,
    APPEND_TAKEN,
    Answer,
    Append,
    Appended,
    Live,
    Place,
    Query,
    Result,
    RetainedMessages,
    RetainedPage,
)
from shards.messages import header, published_at_of, topic_of
from shards.options import ShardOptions
from shards.persistence import NOT_STORED, Persistence
from shards.rows import WRITER
from shards.slots import SlotTable
from shards.writers import UNUSED_KEPT_MS
from tests.shards.harness import G, Harness, S, connect, poll, publish, route

R = 3
QOS_1, RETAINED = 2, 3
DAY_MS = 86_400_000


def with_reader(role: str = "reader", shard: int = 0, n_shards: int = 1, **options: Any) -> Harness:
    h = Harness(shard=shard, n_shards=n_shards, options=ShardOptions(**options))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    h.link(R, role, "r0:a")
    return h


def block(
    number: int, *names: bytes, batch: int = 1, writer: bytes = b"w", flags: int = QOS_1, at_ms: int = 0, client: bytes = b"c",
    body: bytes = b"\0m",
) -> Append:  # fmt: skip
    n = len(names)
    return Append(writer, batch, number, at_ms, [client] * n, bytes((flags,)) * n, list(names), [body] * n)


def append(h: Harness, entry: Append) -> Appended:
    (reply,) = h.ask(R, entry)
    assert isinstance(reply, Appended)
    return reply


def stored(h: Harness) -> list[bytes]:
    """What a session can read of everything, by position."""
    found: list[tuple[int, bytes]] = []
    place, at_head = Place(-1), False
    while not at_head:
        place, segments, at_head, _ = poll(h, b"#", place)
        for segment in segments:
            found += zip(segment.positions, segment.values, strict=True)
    return [value for _, value in sorted(found)]


def names(h: Harness) -> list[bytes]:
    return [topic_of(value) for value in stored(h)]


def rows(h: Harness) -> list[tuple[bytes, bytes]]:
    return h.engine.scan(0, WRITER, b"B", 100_000)


def test_a_block_is_stored_like_messages_of_its_clients() -> None:
    # Property: what was wanted can be read by sessions, in the order of the block, with client, QoS and time; what was not is not there.
    h = with_reader()
    route(h, b"a/#")
    entry = block(0, b"a/1", b"b", b"a/2", at_ms=55)
    assert append(h, entry) == Appended(APPEND_TAKEN, 2)
    assert names(h) == [b"a/1", b"a/2"]
    assert [header(value)[:3] for value in stored(h)] == [(1, 55, b"c")] * 2


def test_a_block_is_taken_once_whatever_ends_in_between() -> None:
    # Property: repeated, or older than what was taken, by number of batch first: nothing is stored, also after a restart.
    h = with_reader()
    route(h, b"#")
    assert append(h, block(3, b"a", batch=2)).code == APPEND_TAKEN
    for again in (block(3, b"a", batch=2), block(2, b"x", batch=2), block(9, b"x", batch=1)):
        assert append(h, again) == Appended(APPEND_REPEATED, 0)
    h.reopen()
    h.link(S, "session", "s0:b")
    h.link(R, "reader", "r0:b")
    assert append(h, block(3, b"a", batch=2)) == Appended(APPEND_REPEATED, 0)
    assert append(h, block(0, b"b", batch=3)).code == APPEND_TAKEN
    assert append(h, block(3, b"c", batch=2, writer=b"another")).code == APPEND_TAKEN
    assert names(h) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_the_row_of_a_writer_is_in_the_record_of_its_messages(survivors: int) -> None:
    # Property: a power cut leaves both or neither, so what is sent again is there once.
    h = with_reader()
    route(h, b"#")
    append(h, block(0, b"a"))
    h.request(R, block(1, b"b", b"c"))
    h.tick(sync=False)
    assert not [frame for frame in h.take(R, Answer) if frame.number == 2], "nothing is answered before it is synced"
    assert isinstance(h.engine, MemoryEngine)
    h.engine = h.engine.crash(power=True, survivors=survivors)
    h.names.clear()
    h._open()
    h.link(S, "session", "s0:b")
    h.link(R, "reader", "r0:b")
    append(h, block(1, b"b", b"c"))
    assert names(h) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("role", ["gateway", "session", "shard"])
def test_only_readers_and_commands_may_append(role: str) -> None:
    # Property: whoever serves clients has no way around the checks of a connection.
    h = with_reader(role)
    route(h, b"#")
    assert append(h, block(0, b"a")) == Appended(APPEND_FORBIDDEN, 0)
    assert names(h) == [] and rows(h) == []
    assert append(with_reader("admin"), block(0, b"a")).code == APPEND_TAKEN


def test_what_makes_no_sense_is_refused_whole() -> None:
    # Property: one bad message and none is taken, no row is made, and the shard goes on.
    h = with_reader()
    route(h, b"#")
    good = block(0, b"a", b"b")
    alias = make_body(Properties(content_type="t"), b"m")
    alias = bytes((alias[0] + 3,)) + b"\x23\x00\x01" + alias[1:]
    wrong = [
        good._replace(clients=[b"c"]),
        good._replace(flags=b"\x02"),
        good._replace(topics=[b"a"]),
        good._replace(bodies=[b"\0m"]),
        good._replace(bodies=[b"\0m", b""]),
        good._replace(bodies=[b"\0m", b"\x05"]),
        good._replace(bodies=[b"\0m", b"\x02\x7f\x00"]),
        good._replace(bodies=[b"\0m", alias]),
        good._replace(topics=[b"a", b"b/#"]),
        good._replace(topics=[b"a", b""]),
        good._replace(topics=[b"a", b"\xff"]),
        good._replace(topics=[b"a", b"$SYS/x"]),
        good._replace(clients=[b"c", b"\xff"]),
        good._replace(clients=[b"c", b"c" * 65_536]),
        good._replace(flags=b"\x02\x06"),
        good._replace(flags=bytes((2, 2 | NOT_STORED))),
        good._replace(writer=b""),
        good._replace(writer=b"w" * 257),
        good._replace(batch=-1),
        good._replace(published_at_ms=1 << 63),
        block(0, *[b"a"] * (writers.MESSAGES_MAX + 1)),
    ]
    for entry in wrong:
        assert append(h, entry) == Appended(APPEND_SENSELESS, 0), entry
    assert names(h) == [] and rows(h) == []
    assert append(h, good) == Appended(APPEND_TAKEN, 2)


def test_a_client_that_is_at_home_elsewhere_makes_no_sense() -> None:
    # Property: the messages of a client enter in one shard, which is what keeps their order.
    slots = SlotTable.initial(2)
    here = next(name for name in (b"c%d" % n for n in range(100)) if slots.shard_of(name) == 0)
    there = next(name for name in (b"c%d" % n for n in range(100)) if slots.shard_of(name) == 1)
    h = with_reader(n_shards=2)
    entry = block(0, b"a", b"b", client=here)
    assert append(h, entry._replace(clients=[here, there])).code == APPEND_SENSELESS
    assert append(h, entry).code == APPEND_TAKEN


def test_without_room_nothing_is_taken_and_the_block_may_come_again() -> None:
    # Property: the quota, and a disk that is getting full, refuse a block without a trace.
    h = with_reader()
    route(h, b"#")
    for full in (lambda: h.core.handle(QuotaChanged(2)), lambda: h.space(1)):
        full()
        assert append(h, block(0, b"a")) == Appended(APPEND_FULL, 0) and rows(h) == []
        h.core.handle(QuotaChanged(0))
        h.space(0)
    assert append(h, block(0, b"a")) == Appended(APPEND_TAKEN, 1)


def test_there_is_a_bound_to_writers_and_those_who_stopped_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: one too many is refused, one that is known goes on; after 30 days without a block a row goes, and makes room.
    monkeypatch.setattr(writers, "WRITERS_MAX", 3)
    h = with_reader()
    for name in (b"x", b"y", b"z"):
        assert append(h, block(0, b"a", writer=name)).code == APPEND_TAKEN
    assert append(h, block(0, b"a", writer=b"more")) == Appended(APPEND_FULL, 0)
    h.pass_time(10 * DAY_MS)
    assert append(h, block(1, b"a", writer=b"x")).code == APPEND_TAKEN
    h.reopen()
    h.link(R, "reader", "r0:b")
    h.pass_time(UNUSED_KEPT_MS - 9 * DAY_MS)
    assert [key for key, _ in rows(h)] == [b"Ax"] and h.core.counters["writers"] == 1
    assert append(h, block(0, b"a", writer=b"more")).code == APPEND_TAKEN


def test_single_writes_that_are_over_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: a job that writes every few minutes never fills the table; no other row goes before its time, and none of this day.
    monkeypatch.setattr(writers, "WRITERS_MAX", 3)
    h = with_reader()
    for name in (b"stream/0", b"once-1/0", b"once-2/0"):
        assert append(h, block(0, b"a", writer=name)).code == APPEND_TAKEN
    h.pass_time(DAY_MS // 2)
    assert append(h, block(1, b"a", writer=b"once-2/0")).code == APPEND_TAKEN
    assert append(h, block(0, b"a", writer=b"once-3/0")) == Appended(APPEND_FULL, 0)
    h.pass_time(DAY_MS // 2 + 1000)
    assert append(h, block(0, b"a", writer=b"once-3/0")).code == APPEND_TAKEN
    assert [key for key, _ in rows(h)] == [b"Aonce-2/0", b"Aonce-3/0", b"Astream/0"]
    assert append(h, block(0, b"a", writer=b"stream/1")) == Appended(APPEND_FULL, 0)
    h.reopen()


def test_live_subscribers_are_told_of_each_message_when_it_is_committed() -> None:
    # Property: gateways and session actors, nobody else, and nobody before the commit; in the order of the block.
    h = with_reader()
    h.request(R, block(0, b"a", b"b", flags=QOS_1))
    h.tick(sync=False)
    assert not h.take(G, Live)
    h.commit()
    for link in (G, S):
        assert h.take(link, Live) == [Live(b"c", QOS_1, name, b"\0m") for name in (b"a", b"b")]
    assert not h.take(R, Live)
    append(h, block(0, b"a"))
    assert not h.take(G, Live), "it was told once"


def test_live_subscribers_get_what_is_left_of_the_expiry() -> None:
    # Property: an old message has as much less time to live, and one whose time is over is told to nobody [MQTT-3.3.2-6].
    h = with_reader()
    body = make_body(Properties(message_expiry_interval=100), b"m")
    append(h, block(0, b"a", body=body, at_ms=h.now_ms - 40_500))
    (live,) = h.take(G, Live)
    assert message_expiry(live.body) == 60
    append(h, block(1, b"a", body=body, at_ms=h.now_ms - 100_500))
    assert not h.take(G, Live)
    append(h, block(2, b"a", body=body))
    (live,) = h.take(G, Live)
    assert live.body == body


def test_no_message_is_younger_than_now() -> None:
    # Property: a time in the future is the shard's now, and so is none: what is read by time would end before it.
    h = with_reader()
    route(h, b"#")
    append(h, block(0, b"a", at_ms=h.now_ms + DAY_MS))
    append(h, block(1, b"a"))
    values = stored(h)
    assert len(values) == 2 and all(1_000_000 <= published_at_of(value) <= h.now_ms for value in values)


def test_a_retained_message_is_kept_and_the_answer_waits_until_it_is_home() -> None:
    # Property: retained here, at once; retained elsewhere, the answer waits for its arrival, as a PUBACK would.
    h = with_reader()
    append(h, block(0, b"a", flags=RETAINED))
    h.receive(G, Query(1, RetainedPage(b"a", b"", 10)))
    h.tick()
    (result,) = h.take(G, Result)
    assert isinstance(result.told, RetainedMessages) and len(result.told.values) == 1
    slots = SlotTable.initial(2)
    client = next(name for name in (b"c%d" % n for n in range(100)) if slots.shard_of(name) == 0)
    away = next(name for name in (b"t%d" % n for n in range(100)) if slots.shard_of(name) == 1)
    h = with_reader(n_shards=2)
    h.request(R, block(0, away, flags=RETAINED, client=client))
    h.tick()
    assert not h.take(R, Answer)
    ((item,),) = [sent.items for sent in h.forwarded]
    h._carry_out(h.core.outbox_arrived(1, item[0]))
    (answer,) = h.take(R, Answer)
    assert answer.replies == [Appended(APPEND_TAKEN, 0)]


def test_what_settings_exclude_is_not_stored_and_is_told_as_such() -> None:
    # Property: a writer is no way around the persistence of topics: excluded ones are told live, marked, and stored for nobody.
    h = with_reader(persistence=Persistence(except_prefixes=(b"a",)))
    route(h, b"#")
    assert append(h, block(0, b"a", b"b")) == Appended(APPEND_TAKEN, 1)
    assert names(h) == [b"b"]
    assert [live.flags for live in h.take(G, Live)] == [QOS_1 | NOT_STORED, QOS_1]
    assert append(h, block(1, b"b", flags=0)) == Appended(APPEND_TAKEN, 0), "QoS 0 is stored only where that is set"


def test_a_block_counts_for_the_bound_of_a_record() -> None:
    # Property: with a record full of them, what comes behind waits for the next.
    h = with_reader(messages_per_record_max=10)
    route(h, b"#")
    for number in range(3):
        h.request(R, block(number, *[b"a"] * 6))
    h.tick()
    assert len(h.take(R, Answer)) == 2 and h.core.busy
    h.tick()
    assert len(h.take(R, Answer)) == 1


def test_order_with_messages_of_connections_is_that_of_their_frames() -> None:
    # Property: a block and a publish in one record are stored in the order in which they came, over a roll as well.
    h = with_reader(generation_ms=1000)
    route(h, b"#")
    conn = connect(h, b"p").conn
    h.request(G, publish(b"p", conn, b"a", ids=[1]))
    h.request(R, block(0, b"b"))
    h.tick()
    h.tick(2000)
    h.request(R, block(1, b"c"))
    h.request(G, publish(b"p", conn, b"d", ids=[2]))
    h.tick()
    assert names(h) == [b"a", b"b", b"c", b"d"]
