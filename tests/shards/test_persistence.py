"""What the store keeps for durable sessions: by QoS, by the mark of the gateway, and for wills by the filter itself."""

from __future__ import annotations

import pytest

from shards.frames import LOST, NOBODY, STORED, Disconnect, Live, Place, Poll, Polled, Publish, Published, Query, Result, Will
from shards.persistence import NOT_STORED, Persistence, stored_flags
from tests.shards.harness import G, Harness, S, connect, linked, poll, publish, route, topics


def message(conn: int, *rows: tuple[int, bytes]) -> Publish:
    """(flags, topic) of each message."""
    flags = bytes([row[0] for row in rows])
    packet_ids = [index + 1 if flags[index] & 6 else 0 for index in range(len(rows))]
    return Publish(b"p", conn, True, 0, flags, packet_ids, [row[1] for row in rows], [b"\0x"] * len(rows))


@pytest.mark.parametrize(
    ("persistence", "kept"),
    [
        (Persistence(), ["0 a/x", "1 a/x", "2 a/x", "0 b", "1 b", "2 b"]),
        (Persistence(min_qos=2), ["2 a/x", "2 b"]),
        (Persistence(prefixes=(b"a/",)), ["0 a/x", "1 a/x", "2 a/x"]),
        (Persistence(except_prefixes=(b"a/",)), ["0 b", "1 b", "2 b"]),
        (Persistence(prefixes=(b"a", b"b"), except_prefixes=(b"a/",)), ["0 b", "1 b", "2 b"]),
        (Persistence(rules=(((b"a/",), False),)), ["0 b", "1 b", "2 b"]),
        (Persistence(rules=(((b"a/x",), True), ((b"a", b"b"), False))), ["0 a/x", "1 a/x", "2 a/x"]),
        # A rule decides only against: what it lets through meets the rest of the filter.
        (Persistence(min_qos=2, rules=(((b"a/",), True),)), ["2 a/x", "2 b"]),
    ],
)
def test_what_a_filter_lets_through(persistence: Persistence, kept: list[str]) -> None:
    """Each part alone and with others."""
    found = [f"{qos} {topic.decode()}" for topic in (b"a/x", b"b") for qos in range(3) if not persistence.excludes(qos, topic)]
    assert found == kept


def test_the_table_says_who_brings_a_message() -> None:
    """QoS 1 and 2 come from the store, QoS 0 only with the option, marked ones never; RETAIN and DUP have no say."""
    for other in (0, 1, 8, 9):
        assert [stored_flags(False)[qos << 1 | other] for qos in range(3)] == [0, 1, 1]
        assert [stored_flags(True)[qos << 1 | other] for qos in range(3)] == [1, 1, 1]
        assert [stored_flags(True)[NOT_STORED | qos << 1 | other] for qos in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("store_qos0", [False, True])
def test_a_marked_message_is_answered_as_one_that_nobody_wants(store_qos0: bool) -> None:
    """It is not stored though a route matches; its id is kept, and it is retained."""
    h = linked(store_qos0=store_qos0)
    conn = connect(h, b"p", expiry_s=60).conn
    position = route(h, b"#")
    rows = [(2, b"a"), (2 | NOT_STORED, b"b"), (4 | NOT_STORED, b"c"), (NOT_STORED, b"d"), (0, b"e"), (3 | NOT_STORED, b"f")]
    (reply,) = h.ask(G, message(conn, *rows))
    assert reply == Published(False, bytes([STORED, NOBODY, NOBODY, NOBODY, STORED if store_qos0 else NOBODY, NOBODY]))
    assert topics(poll(h, b"#", Place(position))) == ([b"a", b"e"] if store_qos0 else [b"a"])
    assert list(h.core._homes.live[b"p"].incoming or ()) == [3]
    assert h.core._retained.page(h.core._draft, b"#", b"", 10).values


@pytest.mark.parametrize(("excluded", "store_qos0"), [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_will_is_stored_or_live_by_the_same_rule(excluded: bool, store_qos0: bool, qos: int) -> None:
    """It enters in the shard, so the shard marks it for the gateways: who gets it from the store does not get it live."""
    h = linked(store_qos0=store_qos0, persistence=Persistence(except_prefixes=(b"w",)) if excluded else None)  # type: ignore[arg-type]
    position = route(h, b"w/#")
    conn = connect(h, b"c", will=Will(b"w/1", qos, False, 0, b"\0gone")).conn
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    stored = not excluded and (store_qos0 or qos > 0)
    assert topics(poll(h, b"w/#", Place(position))) == ([b"w/1"] if stored else [])
    (live,) = h.take(G, Live)
    assert bool(stored_flags(store_qos0)[live.flags]) == stored
    assert live.flags & 7 == qos << 1


# ------------------------------------------------------------------ renew_streams_interval
def swept(h: Harness, renew_ms: int, pause_ms: int) -> int:
    """How often the filter was matched while a history was read in four polls, with pauses in between."""
    before = h.core.counters["filters_matched"]
    place, found = Place(0), 0
    for _ in range(4):
        h.receive(S, Query(9, Poll(b"#", place, 2, 1 << 20, renew_ms)))
        h.tick()
        (result,) = h.take(S, Result)
        assert isinstance(result.told, Polled)
        place = result.told.place
        found += len(topics(result.told))
        h.tick(pause_ms)
    assert found == 6 and place.horizon == 0
    return h.core.counters["filters_matched"] - before


@pytest.mark.parametrize(
    ("renew_ms", "pause_ms", "matched"), [(1_000, 10, 1), (1_000, 600, 2), (500, 600, 4), (0, 0, 4), (1 << 62, 9_000, 1)]
)
def test_streams_are_matched_anew_when_the_interval_is_over(renew_ms: int, pause_ms: int, matched: int) -> None:
    """Six streams, two to a poll, and a last one that finds the end: what is read is the same, how often the filter is matched is not."""
    h = linked(tail_bytes_max=1)
    conn = connect(h, b"p").conn
    route(h, b"#")
    for n in range(6):
        h.ask(G, publish(b"p", conn, b"t%d" % n))
    assert swept(h, renew_ms, pause_ms) == matched
