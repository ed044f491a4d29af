"""When sessions end: to the second while the shard runs, by elapsed time over a restart, and with everything that is theirs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.engine import Op
from shards.events import TickEnded
from shards.frames import (
    LOST,
    NORMAL,
    Answer,
    Beat,
    Connect,
    Connected,
    Disconnect,
    Own,
    Owned,
    Will,
    Work,
)  # fmt: skip
from shards.homes import ROWS_AT_ONCE
from shards.housekeeping import IN_FLIGHT_MAX, ROWS_ERASED_PER_RECORD, TIMERS_PER_RECORD
from shards.ids import EXPIRY_NEVER
from shards.owners import WORK_UNDER_WAY_MAX
from tests.shards.ended import KEPT_MS, fill, own, owner, rows, work_through
from tests.shards.harness import G, Harness, S, connect, linked


@pytest.mark.parametrize("expiry_s", [1, 60, 86_400])
@pytest.mark.parametrize("when", ["timer", "connect"])
def test_a_session_ends_at_its_time_and_not_a_millisecond_before(expiry_s: int, when: str) -> None:
    """By its timer, and by a CONNECT in the very millisecond, which has not waited for the timer."""
    h = linked()
    connected = connect(h, b"c", expiry_s=expiry_s)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    due_ms = h.now_ms + expiry_s * 1000
    h.pass_time(due_ms - 1 - h.now_ms)
    assert h.core.counters["sessions_expired"] == 0 and h.core.wait_ms == 1
    if when == "timer":
        h.tick(1)
        assert h.core.counters["sessions_expired"] == 1
        h.tick(1)
    # With the tick that `connect` takes the age is that of the due time.
    assert not connect(h, b"c", expiry_s=expiry_s).present
    assert h.core.counters["sessions_expired"] == 1


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_no_step_of_the_wall_clock_moves_an_end(step_ms: int) -> None:
    """It steps a day after the disconnect and back again, many times; the end comes when the time has passed."""
    h = linked()
    connected = connect(h, b"c", expiry_s=10)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    for second in range(1, 11):
        assert "s" in rows(h.engine)
        h.now_ms += 1_000 - (second == 1)
        wall_ms = h.now_ms + 10 * 86_400_000 + step_ms * (second % 2)
        h._carry_out(h.core.handle(TickEnded(h.now_ms * 1000, h.now_ms, wall_ms)))
        h.commit()
    assert "s" in rows(h.engine)
    h.tick(1)
    assert "s" not in rows(h.engine)


def test_a_connect_one_millisecond_before_the_end_resumes() -> None:
    """And the session does not end at the old time after that."""
    h = linked()
    connected = connect(h, b"c", expiry_s=10)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    h.pass_time(9_998)
    assert connect(h, b"c", expiry_s=10).present
    h.pass_time(30_000)
    assert connect(h, b"c", expiry_s=10).present and h.core.counters["timers_fired"] == 0


def test_the_shell_is_told_when_the_next_timer_is_due() -> None:
    """Otherwise a timer would be up to half a second late, the longest wait between two ticks."""
    h = linked()
    assert h.core.wait_ms == 500
    connected = connect(h, b"c", expiry_s=1)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    h.tick(700)
    assert h.core.wait_ms == 300


def test_a_timer_that_waits_for_a_hanging_sync_does_not_have_the_shell_spin() -> None:
    """Until a record is committed no timer is taken; the commit calls for the next turn, and the clock need not."""
    h = linked()
    conn = connect(h, b"c", expiry_s=1).conn
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    for n in range(IN_FLIGHT_MAX):
        h.request(G, Connect(b"d%d" % n, False, 0, 5, None))
        h.tick(sync=False)
    h.tick(2_000, sync=False)
    assert "s" in rows(h.engine) and h.core.wait_ms == 500 and not h.core.busy
    h.commit()
    assert h.core.busy
    h.settle()
    assert "s" not in rows(h.engine)


def test_thousands_that_end_in_one_second_end_in_it() -> None:
    """In turns without waiting, each record bounded; the core says that it wants them, and not more while the disk is behind."""
    h = linked()
    count = 2_000
    clients = [b"c%d" % n for n in range(count)]
    answers = h.ask(G, *(Connect(client, False, 10, 5, None) for client in clients))
    conns = [reply.conn for reply in answers if isinstance(reply, Connected)]
    h.ask(G, *(Disconnect(client, conn, NORMAL, None) for client, conn in zip(clients, conns, strict=True)))
    h.tick(10_000, sync=False)
    turns = 1
    while h.core.busy:
        h.tick(0, sync=False)
        turns += 1
    assert turns == IN_FLIGHT_MAX, "no more records while these wait for their sync"
    assert h.core.counters["sessions_expired"] == IN_FLIGHT_MAX * TIMERS_PER_RECORD
    h.commit()
    h.settle()
    assert h.core.counters["sessions_expired"] == count and h.core.counters["timers_late_ms_max"] == 0
    h.pass_time(KEPT_MS)
    assert rows(h.engine) == {}


def test_an_expiry_that_disconnect_brings_counts_from_there() -> None:
    """Longer, shorter, for ever, and none at all [MQTT-3.14.2-2]."""
    h = linked()
    for client, expiry_s in ((b"longer", 100), (b"shorter", 1), (b"never", EXPIRY_NEVER), (b"now", 0)):
        connected = connect(h, client, expiry_s=10)
        h.ask(G, Disconnect(client, connected.conn, NORMAL, expiry_s))
    assert not connect(h, b"now", expiry_s=10).present
    h.pass_time(2_000)
    assert not connect(h, b"shorter", expiry_s=10).present
    h.pass_time(90_000)
    assert connect(h, b"longer", expiry_s=10).present
    h.pass_time(100_000_000)
    assert connect(h, b"never", expiry_s=10).present


# ---------------------------------------------------------------------------------------------- everything goes


def test_of_an_ended_session_nothing_is_left() -> None:
    """No row of any kind, once its routes are removed and its connection is 10 minutes old."""
    h = linked()
    subscriptions = 3
    token = owner(h)
    before = rows(h.engine)
    connected = connect(h, b"c", expiry_s=60, will=Will(b"w", 1, False, 5, b"\0gone"))
    subs = fill(h, b"c", connected, token, subscriptions)
    assert set(rows(h.engine)) == set("csuprqixvR")
    h.ask(G, Disconnect(b"c", connected.conn, LOST, None))
    h.pass_time(60_001)
    assert rows(h.engine) == {"w": subscriptions, "R": subscriptions, "c": 1, "T": 1}
    assert work_through(h, token) == subs
    h.pass_time(KEPT_MS - 70_000)
    assert rows(h.engine) == {"c": 1, "T": 1}
    h.pass_time(10_000)
    assert rows(h.engine) == before == {}
    assert h.core.counters["routes"] == 0 and h.core.counters["connections"] == 0


def test_the_row_of_a_connection_that_is_old_enough_goes_with_its_session() -> None:
    """It stayed for ever, since nothing asked for it any more."""
    h = linked()
    connected = connect(h, b"c", expiry_s=86_400)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    h.pass_time(86_400_001)
    assert rows(h.engine) == {}


def test_a_client_that_comes_and_goes_leaves_no_timers_behind() -> None:
    """Will delays, ends of connection rows and expiries of connections that were resumed used to wait for their time."""
    h = linked()
    for expiry_s in (0, 3_600):
        for _ in range(20):
            connected = connect(h, b"c%d" % expiry_s, expiry_s=expiry_s, will=Will(b"w", 1, False, 600, b"\0gone"))
            h.ask(G, Disconnect(b"c%d" % expiry_s, connected.conn, LOST, None))
    assert rows(h.engine) == {"c": 2, "s": 1, "T": 3}


LARGE = ROWS_AT_ONCE * 4


@pytest.mark.parametrize("how", ["expiry", "clean start", "expiry 0"])
def test_a_huge_session_ends_at_once_and_is_erased_in_parts(how: str) -> None:
    """Each record is bounded; the client has no session from the first on, and gets a new one when the last row is gone."""
    h = linked()
    token = owner(h)
    connected = connect(h, b"c", expiry_s=60)
    subs = fill(h, b"c", connected, token, LARGE)
    written: list[int] = []
    write = h.engine.write

    def count(ops: Sequence[Op]) -> None:
        written.append(len(ops))
        write(ops)

    h.engine.write = count  # type: ignore[method-assign]
    if how == "expiry":
        h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
        h.tick(60_000)
    elif how == "expiry 0":
        h.ask(G, Disconnect(b"c", connected.conn, NORMAL, 0))
    (answer,) = h.ask(G, Connect(b"c", True, 60, 5, None))
    assert isinstance(answer, Connected) and not answer.conn, "the old rows are still there"
    assert "s" not in rows(h.engine) and rows(h.engine)["e"] == 1
    asked = 1
    while isinstance(answer, Connected) and not answer.conn:
        (answer,) = h.ask(G, Connect(b"c", True, 60, 5, None))
        asked += 1
    assert isinstance(answer, Connected) and not answer.present and answer.session_id == answer.conn > connected.conn
    h.settle()
    assert asked > 2 and max(written) < 2 * (ROWS_ERASED_PER_RECORD + ROWS_AT_ONCE) + 100
    assert sorted(work_through(h, token)) == subs
    assert rows(h.engine) == {"c": 1, "s": 1}


@settings(max_examples=25, deadline=None)
@given(crashes=st.lists(st.integers(0, 6), max_size=4), power=st.booleans(), many=st.booleans())
def test_a_crash_at_any_step_leaves_no_half_of_a_session(crashes: list[int], power: bool, many: bool) -> None:
    """Over crashes between all the steps of the end the session is whole or it is no more, and in the end nothing is left."""
    h = linked()
    token = owner(h)
    connected = connect(h, b"c", expiry_s=60)
    fill(h, b"c", connected, token, ROWS_AT_ONCE + 100 if many else 3)
    before = rows(h.engine)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    h.pass_time(59_000)
    for name, ticks in enumerate(crashes):
        for _ in range(ticks):
            h.tick(500, sync=not power)
        h.reopen(power=power)
        h.link(G, "gateway", f"g0:{name}")
        h.link(S, "session", f"s0:{name}")
        now = rows(h.engine)
        whole = {**before, "T": 1} == now
        ended = "s" not in now and (("e" in now) == any(kind in now for kind in "upqri"))
        assert whole or ended, now
        own(h)
    h.pass_time(61_000)
    last = own(h)
    work_through(h, last.token, last.work)
    h.pass_time(KEPT_MS)
    assert rows(h.engine) == {}


def test_an_ended_session_goes_on_being_erased_after_a_restart() -> None:
    """Also when nobody connects any more, and the owner is told of its routes, in parts."""
    h = linked()
    token = owner(h)
    connected = connect(h, b"c", expiry_s=60)
    subs = fill(h, b"c", connected, token, LARGE)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, 0))
    assert rows(h.engine)["e"] == 1
    h.reopen()
    h.link(S, "session", "s0:b")
    h.tick()
    h.settle()
    # It does not own yet, and so does nothing of what it is told.
    assert h.take(S, Work)
    assert not any(kind in rows(h.engine) for kind in "seupqri")
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned) and len(owned.work) <= 1_000
    assert sorted(work_through(h, owned.token, owned.work)) == subs
    assert rows(h.engine) == {"c": 1, "T": 1}


def test_the_owner_is_given_no_more_work_at_once_than_it_can_have_under_way() -> None:
    """However much there is; the rest follows as it reports what is done, and nothing is forgotten or told twice."""
    h = linked()
    token = owner(h)
    connected = connect(h, b"c", expiry_s=60)
    subs = fill(h, b"c", connected, token, 7_000)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, 0))
    for _ in range(20):
        h.tick()
        h.settle()
    assert rows(h.engine)["w"] == 7_000
    told = [item for frame in h.take(S, Work) for item in frame.work]
    assert WORK_UNDER_WAY_MAX <= len(told) < WORK_UNDER_WAY_MAX + 1_500
    assert sorted(work_through(h, token, told)) == subs
    assert rows(h.engine) == {"c": 1, "T": 1}


def test_work_is_never_told_before_the_token_that_it_is_done_under() -> None:
    """An owner that does not know its token yet has to ignore it, and it would be told of it no more."""
    h = linked()
    token = owner(h)
    connected = connect(h, b"c", expiry_s=60)
    subs = fill(h, b"c", connected, token, 2_500)
    h.unlink(S)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, 0))
    h.settle()
    h.link(S, "session", "s0:b")
    h.sent[S].clear()
    h.request(S, Own())
    h.tick()
    kinds = [type(frame) for frame in h.sent[S]]
    assert kinds == [Answer]
    (answer,) = h.take(S, Answer)
    (owned,) = answer.replies
    assert isinstance(owned, Owned)
    h.tick()
    assert sorted(work_through(h, owned.token, owned.work)) == subs


@pytest.mark.slow
def test_ten_thousand_clients_that_come_once_leave_nothing() -> None:
    """Neither rows nor memory of the shard grow with clients that are gone."""
    h = linked()
    token = owner(h)
    for wave in range(10):
        clients = [b"once-%d-%d" % (wave, n) for n in range(1_000)]
        answers = h.ask(G, *(Connect(client, False, n % 2 * 5, 5, None) for n, client in enumerate(clients)))
        conns = [reply.conn for reply in answers if isinstance(reply, Connected)]
        fill(h, clients[1], Connected(conns[1], False, conns[1]), token, 2, first=wave * 2 + 1)
        h.ask(G, *(Disconnect(client, conn, LOST, None) for client, conn in zip(clients, conns, strict=True)))
        h.pass_time(6_000)
        work_through(h, token)
    h.pass_time(KEPT_MS)
    assert rows(h.engine) == {}
    homes = h.core._homes
    assert not homes.live and not homes.by_gateway and not homes.ending.clients and not homes.lost
    assert not h.core._owners._under_way and not h.core._draft._overlay and len(h.core._draft._keys) < 10_000
    assert h.core.counters["sessions_expired"] == 5_000


# ---------------------------------------------------------------------------------------------- clocks and disks


def suspended_tick(h: Harness, ms: int) -> None:
    h.now_ms += ms
    h._carry_out(h.core.handle(TickEnded(h.now_ms * 1000, h.now_ms, h.now_ms, True)))
    h.commit()


def test_while_the_clock_is_not_accepted_nothing_expires() -> None:
    """Neither by a timer nor by a CONNECT, and everything that is due does when it is accepted."""
    h = linked()
    for client in (b"a", b"b"):
        connected = connect(h, client, expiry_s=5)
        h.ask(G, Disconnect(client, connected.conn, NORMAL, None))
    suspended_tick(h, 100_000)
    assert h.core.counters["expiry_suspended"] == 1 and rows(h.engine)["s"] == 2
    number = h.request(G, Connect(b"a", False, 5, 5, None))
    suspended_tick(h, 1)
    (answer,) = [frame for frame in h.sent[G] if getattr(frame, "number", 0) == number]
    assert answer.replies[0].present  # type: ignore[union-attr]
    h.receive(G, Beat())
    h.tick(1)
    assert rows(h.engine)["s"] == 1 and h.core.counters["sessions_expired"] == 1


def test_what_has_ended_is_erased_while_the_clock_is_not_accepted() -> None:
    """Ending is a matter of time, erasing is not."""
    h = linked()
    connected = connect(h, b"c", expiry_s=60)
    fill(h, b"c", connected, owner(h), LARGE)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, 0))
    assert rows(h.engine)["e"] == 1
    for _ in range(20):
        suspended_tick(h, 1)
    assert not any(kind in rows(h.engine) for kind in "seupqri")


def test_a_disk_that_takes_nothing_gets_no_work_from_timers() -> None:
    """What they do would only be held in memory; it is done when there is room."""
    h = linked()
    connected = connect(h, b"c", expiry_s=5)
    h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    h.space(2)
    h.tick(6_000)
    assert "s" in rows(h.engine) and not h.core.busy and h.core.wait_ms == 500
    h.space(0)
    h.tick(1)
    assert "s" not in rows(h.engine)
