"""What is gone is told: a session that did not get it has a loss row, once, in the commit that goes on without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessions.events import ToldBy
from sessions.frames import Attach, Attached, SendPubrel
from sessions.options import SessionOptions
from sessions.seqno import SPAN_MAX
from shards.frames import Commit, Gone, Place, Polled, RangeRead
from shards.queries import told_fields
from shards.rows import LOSSES_PER_SESSION_MAX, NOT_COUNTED, LossRow
from tests.sessions.scripted import CLIENT, Script, families, online
from tests.sessions.test_resume import crash

Published = list[bytes]


def away(qos: int = 1, sweeps: bool = False) -> tuple[Script, int]:
    """A session that has read everything and is offline; the place up to which it has read."""
    s, conn = online(qos=qos)
    s.home.sweeps = sweeps
    s.detach(conn)
    s.rest()
    return s, s.home.position


def back(s: Script) -> Published:
    """It comes, in a new process, and gets what there is."""
    crash(s)
    return [payload for payload, _, _ in s.delivered()]


def sub_id(s: Script) -> int:
    return next(iter(s.home.routes))


SWEEPS = pytest.mark.parametrize("sweeps", [False, True], ids=["from the tail", "in a sweep"])


@SWEEPS
def test_an_unread_generation_that_is_gone_is_one_loss_and_everything_else_comes_in_order(sweeps: bool) -> None:
    """With the positions and times of what lies between; nobody can count it."""
    s, read = away(sweeps=sweeps)
    s.publish(3)
    s.home.roll()
    ended = s.home.position
    s.publish(4)
    s.home.dropped.add(1)
    s.wall_ms = 777
    conn = crash(s)
    assert [payload for payload, _, _ in s.delivered()] == [b"m3", b"m4", b"m5", b"m6"]
    lost = LossRow(sub_id(s), b"#", 0, 1, "default", read, ended - 1, NOT_COUNTED, 100, 199, 777, "period")
    assert s.loss_rows() == [(1, lost)]
    assert s.told == [lost] and (s.core.counters.losses, s.core.counters.lost) == (1, 0)
    s.puback(conn, 1, 2, 3, 4)
    s.detach(conn)
    s.rest()
    assert back(s) == [] and len(s.loss_rows()) == 1, "it is not met again"


def test_the_loss_is_in_the_commit_that_moves_the_place_over_it_and_said_when_that_is_taken() -> None:
    """Neither without the other, whatever crashes."""
    s, _ = away()
    s.home.roll()
    s.home.roll()
    s.home.dropped.update((1, 2))
    s.start()
    s.owned()
    s.attach()
    s.tell()
    s.tick()
    s.tell()
    s.tick()
    (commit,) = s.commits()
    assert families(commit) == "pqx"
    assert s.told == [] and s.core.counters.losses == 0
    s.commit()
    assert [loss.generation for loss in s.told] == [2]


def test_a_gap_that_is_met_in_pieces_is_one_loss() -> None:
    """A sweep ends at a horizon, and the next one goes on in the same generation that is gone."""
    s, read = away()
    s.publish(9)
    s.attach()
    s.tell()
    s.tick()
    for after, upto in ((read, read + 5), (read + 5, read + 9)):
        gone = [Gone(1, "default", after, upto, 100, 199, "period")]
        (query,) = s.queries
        s.queries.remove(query)
        s.feed(ToldBy(0, query.id, Polled(Place(upto), [], False, gone)))
        s.tick()
        s.commit()
        s.tick()
    ((number, row),) = s.loss_rows()
    assert (number, row.after, row.upto, row.more) == (1, read, read + 9, 0)


def test_who_had_read_everything_has_lost_nothing() -> None:
    """A session at the head, one that was away while nothing came, and a new subscription above what is gone."""
    s, conn = online()
    s.publish(3)
    s.live()
    s.rest()
    s.puback(conn, 1, 2, 3)
    s.detach(conn)
    s.rest()
    s.home.roll()
    s.home.dropped.add(1)
    other = s.attached(b"other")
    s.subscribed(other, b"a/#")
    s.publish(1)
    s.live()
    s.rest()
    s.delivered()
    assert back(s) == [b"m3"]
    assert s.loss_rows() == s.loss_rows(b"other") == [] and s.told == []
    assert not s.progress().losses


def steps(s: Script) -> list[Callable[[], object]]:
    """Everything that can happen while the session comes back, one after the other."""
    return [s.tick, lambda: s.answer_one(), s.tick, lambda: s.answer_one(), s.tick, lambda: s.answer_one(), s.tick]


@SWEEPS
@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("qos", [1, 2])
def test_a_crash_between_any_two_steps_makes_no_second_loss(after: int, qos: int, sweeps: bool) -> None:
    """Between telling and commit the place has not moved: it is told again, and becomes the same row."""
    s, _ = away(qos=qos, sweeps=sweeps)
    s.publish(2, qos=qos)
    s.home.roll()
    s.publish(2, qos=qos)
    s.home.dropped.add(1)
    s.start()
    s.owned()
    s.attach()
    for step in steps(s)[:after]:
        step()
    s.take_sent()
    assert back(s)[-2:] == [b"m2", b"m3"]
    assert [(number, row.generation) for number, row in s.loss_rows()] == [(1, 1)]


# ---------------------------------------------------------------------------------------------- ranges


def under_way(qos: int, count: int = 3) -> tuple[Script, int]:
    """A session whose messages m0, m1, ... were sent and not answered."""
    s, conn = online(qos=qos)
    s.publish(count, qos=qos)
    s.live()
    s.rest()
    assert len(s.delivered()) == count
    return s, conn


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_assigned_is_counted_when_it_is_lost(qos: int) -> None:
    """Its numbers are closed and used no more; what is newer is delivered; once, also over another crash."""
    s, conn = under_way(qos)
    if qos == 1:
        s.puback(conn, 1)
    s.detach(conn)
    s.rest()
    row = s.range_rows()[0]
    s.home.roll()
    s.publish(1, qos=qos)
    s.home.dropped.add(1)
    conn = crash(s)
    base = 0 if qos == 1 else 0x8000
    assert [(payload, packet_id - base) for payload, packet_id, _ in s.delivered()] == [(b"m3", 4)]
    count = 2 if qos == 1 else 3
    lost = LossRow(row.sub_id, b"#", 0, 1, "default", row.after, row.upto, count, 100, 199, 0, "period")
    assert s.loss_rows() == [(1, lost)]
    assert (s.core.counters.losses, s.core.counters.lost) == (1, count)
    crash(s)
    assert len(s.loss_rows()) == 1 and [payload for payload, _, _ in s.delivered()] == [b"m3"]


@pytest.mark.parametrize("again", [False, True])
def test_after_pubrec_a_lost_message_is_completed_with_pubrel(again: bool) -> None:
    """It was received, so it is not lost; only what was not received is counted. Also after another crash."""
    s, conn = under_way(2)
    s.pubrec(conn, 0x8001)
    s.detach(conn)
    s.rest()
    s.home.roll()
    s.home.dropped.add(1)
    for _ in range(2 if again else 1):
        s.take_sent()
        conn = crash(s)
        assert SendPubrel(conn, [0x8001]) in s.sent and s.delivered() == []
    assert [row.lost for _, row in s.loss_rows()] == [2]
    s.pubcomp(conn, 0x8001)
    s.tick(5_000)
    s.rest()
    assert s.range_rows() == [] and s.progress().committed2 == 3


def test_numbers_lost_behind_one_that_is_under_way_are_lost_once() -> None:
    """Which of them are closed is in the row of their range, as the row of progress knows of QoS 1 only the first gap."""
    s, conn = under_way(1, 2)
    s.home.roll()
    s.publish(2, topic=b"b")
    s.live()
    s.rest()
    assert len(s.delivered()) == 2
    s.unsubscribe(conn, b"#")
    s.rest()
    s.detach(conn)
    s.rest()
    s.home.roll()
    s.home.dropped.add(2)
    for _ in range(3):
        conn = crash(s)
        assert [(payload, packet_id) for payload, packet_id, _ in s.delivered()] == [(b"m0", 1), (b"m1", 2)]
        assert [(row.generation, row.lost) for _, row in s.loss_rows()] == [(2, 2)]
    s.puback(conn, 1, 2)
    s.rest()
    s.tick(5_000)
    s.rest()
    assert s.range_rows() == [] and s.progress().committed1 == 4


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.parametrize("sweeps", [False, True])
def test_of_a_range_over_three_generations_only_what_is_gone_is_lost(gone: int, qos: int, sweeps: bool) -> None:
    """The others come again under the numbers they had."""
    s, _ = away(qos=qos, sweeps=sweeps)
    for _ in range(3):
        s.publish(2, qos=qos)
        s.home.roll()
    conn = crash(s)
    base = 0 if qos == 1 else 0x8000
    assert [packet_id - base for _, packet_id, _ in s.delivered()] == [1, 2, 3, 4, 5, 6]
    s.detach(conn)
    s.rest()
    s.home.dropped.add(gone)
    kept = [number for number in range(1, 7) if (number + 1) // 2 != gone]
    for _ in range(2):
        crash(s)
        assert [(payload, packet_id - base) for payload, packet_id, _ in s.delivered()] == [(b"m%d" % (n - 1), n) for n in kept]
    assert [(row.generation, row.lost) for _, row in s.loss_rows()] == [(gone, 2)]


def test_what_is_between_two_gaps_is_lost_too_and_counted() -> None:
    """Nobody knows which numbers it had. What was lost before is not counted again."""
    s, _ = away()
    for _ in range(3):
        s.publish(2)
        s.home.roll()
    conn = crash(s)
    s.detach(conn)
    s.rest()
    s.delivered()
    s.home.dropped.add(3)
    assert back(s) == [b"m0", b"m1", b"m2", b"m3"]
    s.home.dropped.add(1)
    assert back(s) == []
    assert [row.lost for _, row in s.loss_rows()] == [2, 4]
    assert s.progress().committed1 == 6 and s.range_rows() == []


def test_an_identifier_is_not_used_again_while_it_is_unanswered() -> None:
    """Losses close numbers around one that is under way, and any number of messages follow: its identifier stands for it alone."""
    s, conn = under_way(1, 1)
    s.home.roll()
    s.publish(5, topic=b"b")
    s.live()
    s.rest()
    s.detach(conn)
    s.rest()
    s.home.roll()
    s.home.dropped.add(2)
    conn = crash(s)
    assert [packet_id for _, packet_id, _ in s.delivered()] == [1]
    session = s.core._state.sessions[CLIENT]
    assert session.one.open == 6 and len(session.one.done) == 5
    taken: list[int] = []
    while (room := session.room(1 << 20)) > 0:
        first = session.one.assign(room)
        taken += session.one.packet_ids(first, room)
    assert len(taken) + 6 == SPAN_MAX and not {1, *range(2, 7)} & set(taken)


def test_a_range_that_reads_differently_says_so() -> None:
    """A fault of ours or of the disk is no retention: its reason is another."""
    s, conn = under_way(1)
    s.detach(conn)
    s.rest()
    del s.home.log[0]
    crash(s)
    ((_, row),) = s.loss_rows()
    assert (row.reason, row.lost, row.generation) == ("unlike", 3, 1)


# ---------------------------------------------------------------------------------------------- many


def lose(s: Script, times: int) -> int:
    """Generations that nobody has read go, one after the other, and the session comes each time; the last position lost."""
    for _ in range(times):
        s.publish(1)
        s.home.roll()
        s.home.dropped.add(s.home.generation - 1)
        conn = crash(s)
        s.detach(conn)
        s.rest()
    return s.home.position - 1


def test_the_hundredth_row_grows() -> None:
    """There are never more; the last one reaches as far as what was lost, and says how many losses it stands for."""
    s, _ = away()
    lose(s, LOSSES_PER_SESSION_MAX)
    before = s.loss_rows()
    assert [number for number, _ in before] == list(range(1, LOSSES_PER_SESSION_MAX + 1))
    upto = lose(s, 3)
    after = s.loss_rows()
    assert after[:-1] == before[:-1]
    number, row = after[-1]
    assert number == LOSSES_PER_SESSION_MAX
    assert row == before[-1][1]._replace(generation=103, upto=upto, to_wall_ms=103 * 100 + 99, more=3)
    assert s.progress().losses == LOSSES_PER_SESSION_MAX and len(s.told) == 103


def test_counts_add_in_the_last_row() -> None:
    """As long as all that it stands for was counted."""
    s, conn = under_way(1, 4)
    s.detach(conn)
    s.rest()
    session_losses(s, LOSSES_PER_SESSION_MAX, lost=7)
    s.home.roll()
    s.home.dropped.add(1)
    crash(s)
    ((_, row),) = s.loss_rows()
    assert (row.lost, row.more) == (11, 1)
    lose(s, 1)
    ((_, row),) = s.loss_rows()
    assert (row.lost, row.more) == (NOT_COUNTED, 2)


def session_losses(s: Script, number: int, lost: int) -> None:
    """As if it had lost so much before."""
    crash(s)
    s.delivered()
    session = s.core._state.sessions[CLIENT]
    session.losses = number - 1
    row = LossRow(sub_id(s), b"#", 0, 1, "default", 1, 2, lost, 100, 199, 0, "period")
    s.core._reading._losses._put(session, row)
    s.core._committing.soon(session)
    s.rest()


# ---------------------------------------------------------------------------------------------- the rest


def test_a_place_at_the_head_is_saved_now_and_then() -> None:
    """Nothing comes for a subscription for days; after a crash it has not lost what was dropped meanwhile."""
    s, _ = online(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    for _ in range(5):
        s.home.position += 400_000_000
        s.tick(1_000)
        s.rest()
        s.tick(1_000)
        s.rest()
    s.home.roll()
    s.home.dropped.add(1)
    crash(s)
    assert all(row.after > s.home.position - 900_000_000 for _, row in s.loss_rows())


def test_what_tells_of_no_loss_travels_as_it_always_did() -> None:
    """The fields are there only when they say something."""
    s, _ = away()
    s.publish(1)
    s.attach()
    s.tell()
    s.tick()
    told = s.home.query(s.polls()[0])
    assert isinstance(told, Polled) and len(told_fields(told)) == 3
    assert len(told_fields(told._replace(gone=[Gone(1, "default", 1, 2, 0, 0, "period")]))) == 4
    assert len(told_fields(RangeRead(False, [], []))) == 3


def test_a_commit_that_is_refused_says_nothing() -> None:
    """Somebody else has the session now, and meets the loss."""
    s, _ = away()
    s.publish(1)
    s.home.roll()
    s.home.dropped.add(1)
    s.attach()
    s.stop_at(Commit)
    s.home.connect(CLIENT)
    s.rest()
    assert s.told == [] and s.loss_rows() == [] and s.core.counters.losses == 0


def attached(s: Script, version: int = 5) -> bool:
    """Whether the CONNACK of its next connection says that messages were lost."""
    conn, present, session_id, _ = s.home.connect(CLIENT, False)
    s.gateway(Attach(CLIENT, conn, session_id, present, version, 100))
    s.rest()
    (answer,) = [frame for frame in s.take_sent() if isinstance(frame, Attached)]
    s.detach(conn)
    s.rest()
    return answer.lost


@pytest.mark.parametrize("restarts", [False, True])
def test_the_next_connack_tells_of_a_loss_and_those_behind_it_do_not(restarts: bool) -> None:
    """Whatever process answers it.  A client of 3.1.1 cannot be told: the next one of MQTT 5 is.  Another loss is told anew."""
    s, _ = away()
    for generation in (1, 2):
        s.publish(1)
        s.home.roll()
        s.home.dropped.add(generation)
        assert not attached(s), "it is met behind this CONNACK"
        for version, told in ((4, False), (5, True), (5, False)):
            if restarts:
                s.start()
                s.owned()
            assert attached(s, version) is told
