"""A subscription that hears nothing asks its shard by itself: a lost wake-up delays a message, and no more."""

from __future__ import annotations

import gc

import pytest

from sessions.events import ASLEEP, UNANSWERED, UNTOLD, Effect, TellStall, ToFeed, ToldBy, Wake
from sessions.frames import Attach, Hold, Subscribe
from sessions.idle import ASKING_PER_SLOT, NEVER_MS, SLOT_MS
from sessions.options import ReadOverrides, SessionOptions
from sessions.session import Cursor
from sessions.stalls import FED_WITHIN_MS
from shards.frames import FeedTaken, Place, Poll, Polled, ReadRange, RetainedPage
from shards.messages import RETAIN
from tests.sessions.scripted import CLIENT, Script

PUBLISHED_MS = 1_700_000_000_000
"""When the shards of scripts say that every message was published."""


def online(options: SessionOptions, filters: int = 1) -> Script:
    """One session with so many filters of which none sees what the others do, at the head."""
    s = Script(options=options)
    s.owned()
    conn = s.attached()
    for n in range(filters):
        s.subscribed(conn, b"a/%d" % n if filters > 1 else b"#")
    s.rest()
    return s


def asked_after(s: Script, ms: int, step_ms: int = 50) -> int:
    """Polls that are asked in this time; they stay unanswered."""
    before = s.core.counters.polls
    for _ in range(ms // step_ms):
        s.tick(step_ms)
    return s.core.counters.polls - before


@pytest.mark.parametrize("interval_ms", [1_000, 3_000])
def test_a_message_whose_wake_up_was_lost_comes_after_the_interval(interval_ms: int) -> None:
    """The feed never tells it, and moves on with others: the poll starts at the last place that something came for."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=interval_ms))
    s.wall_ms = PUBLISHED_MS + FED_WITHIN_MS
    s.publish(1)
    s.home.feed(1000)  # told into the void
    assert asked_after(s, interval_ms - 100) == 0
    asked_after(s, 100 + SLOT_MS)
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"]
    assert s.core.counters.stalls_healed == 1


def healed(s: Script, interval_ms: int = 1_000) -> list[TellStall]:
    """What is said while three intervals pass in which everything is answered."""
    said: list[Effect] = []
    for _ in range(3 * (interval_ms + SLOT_MS) // 50):
        said += s.tick(50)
        for query in list(s.queries):
            said += s.tell(query)
        for asked in list(s.asked):
            said += s.commit(asked)
    s.rest()
    return [effect for effect in said if isinstance(effect, TellStall)]


def test_the_log_tells_the_story_of_a_stall_and_the_shard_may_send_again() -> None:
    """Who, where, since when, how much; and frames that never came are taken, or no more would ever follow."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    s.wall_ms = PUBLISHED_MS + 7_000
    place = s.home.watermark
    s.publish(2)
    s.home.feed(1000)
    taken: list[int] = []
    said: list[TellStall] = []
    for _ in range(60):
        for effect in [*s.tick(50), *(effect for query in list(s.queries) for effect in s.tell(query))]:
            if isinstance(effect, ToFeed) and isinstance(effect.frame, FeedTaken):
                taken.append(effect.frame.upto)
            elif isinstance(effect, TellStall):
                said.append(effect)
    assert said == [TellStall(CLIENT, b"#", 0, UNTOLD, place, 2, 7_000)]
    assert taken == [s.home.watermark]


def behind(s: Script) -> None:
    """It comes back to 3 messages, and has not asked for them yet."""
    (session,) = s.core._state.sessions.values()
    s.detach(session.conn)
    s.rest()
    s.wall_ms = PUBLISHED_MS + 7_000
    s.publish(3)
    s.attach()
    while not s.polls():
        s.tick()
        for query in list(s.queries):
            if not isinstance(query.ask, Poll):
                s.tell(query)


def test_a_poll_that_is_not_answered_is_asked_once_more() -> None:
    """The link is whole, and the question or its answer is lost; the second of two answers is not heard."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    behind(s)
    (lost,) = s.queries
    s.queries.clear()
    said = healed(s)
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1", b"m2"]
    assert [(one.how, one.messages) for one in said] == [(UNANSWERED, 3)]
    assert s.core.counters.asked_again == s.core.counters.stalls_healed == 1
    s.queries.append(lost)
    s.tell()
    s.rest()
    assert s.delivered() == []


def test_a_range_that_is_not_told_again_is_asked_for_once_more() -> None:
    """After a reconnect nothing new comes before what is unfinished."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    s.publish(1)
    s.live()
    s.rest()
    s.delivered()
    (session,) = s.core._state.sessions.values()
    s.detach(session.conn)
    s.rest()
    s.attach()
    while not any(isinstance(query.ask, ReadRange) for query in s.queries):
        s.tick()
        for query in list(s.queries):
            if not isinstance(query.ask, ReadRange):
                s.tell(query)
    s.queries.clear()
    healed(s)
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"] and s.core.counters.asked_again >= 1


def test_a_subscription_that_is_behind_and_does_not_ask_is_woken() -> None:
    """A word within this process that got lost."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    (session,) = s.core._state.sessions.values()
    s.wall_ms = PUBLISHED_MS + 7_000
    s.publish(1)
    (cursor,) = session.subs[b"#"].cursors
    s.core._reading.feeds[0].leave(cursor)
    s.core._reading._wait(session, cursor)
    assert [(one.how, one.messages) for one in healed(s)] == [(ASLEEP, 1)]
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"]


def test_who_waits_for_his_client_or_for_a_shard_is_not_stuck() -> None:
    """A full window, a client that does not read, a shard that is away: nothing is asked, nothing counted."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000, batch_size=1, max_inflight=1))
    s.wall_ms = PUBLISHED_MS + 7_000
    s.publish(9)
    s.live()
    s.rest()
    assert len(s.delivered()) == 1
    (session,) = s.core._state.sessions.values()
    assert healed(s) == []
    session.held = True
    assert healed(s) == []
    session.held = False
    s.core._state.linked[0] = False
    assert healed(s) == []
    assert s.core.counters.stalls_healed == s.core.counters.asked_again == 0


def test_retained_messages_that_are_not_told_are_asked_for_once_more() -> None:
    """By a subscription that stands at the head already."""
    s = Script(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    s.owned()
    s.publish(1, flags=RETAIN)
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"a/1", 1, 0, 0)], 0))
    while not any(isinstance(query.ask, RetainedPage) for query in s.queries):
        s.answer()
        s.tick()
    s.queries = [query for query in s.queries if not isinstance(query.ask, RetainedPage)]
    s.rest()
    assert s.delivered() == []
    healed(s)
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"] and s.core.counters.asked_again == 1


def test_who_was_answered_since_is_not_stuck() -> None:
    """It reads through what matches nothing, and its newest question was asked a moment ago."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    behind(s)
    for _ in range(12):
        (query,) = s.queries
        s.queries.clear()
        assert isinstance(query.ask, Poll)
        s.feed(ToldBy(0, query.id, Polled(query.ask.place, [], False)))
        asked_after(s, 300)
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1", b"m2"]
    assert s.core.counters.asked_again == s.core.counters.stalls_healed == 0


def test_a_question_is_asked_once_more_in_each_interval_however_many_wait() -> None:
    """There is room for two polls, and five subscriptions stand still."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000), filters=5)
    behind(s)
    asked = len(s.polls())
    assert asked == 2
    asked_after(s, 6 * (1_000 + SLOT_MS))
    assert 4 * asked <= s.core.counters.asked_again <= 6 * asked


def test_what_came_while_nobody_could_ask_is_no_stall() -> None:
    """A client that does not read, while its subscription wants to look; and one whose place was moved back meanwhile."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    (session,) = s.core._state.sessions.values()
    s.wall_ms = PUBLISHED_MS
    s.gateway(Hold(session.conn, True))
    assert asked_after(s, 1_000 + SLOT_MS) == 0 and s.core.counters.polls_idle == 1
    s.wall_ms += 60_000
    s.publish(1)
    s.gateway(Hold(session.conn, False))
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"]
    assert asked_after(s, 2 * (1_000 + SLOT_MS)) > 0
    s.core._reading.move(session.subs[b"#"].cursors[0], Place(0))
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"]
    assert s.core.counters.stalls_healed == 0


def test_a_message_that_is_still_on_its_way_is_no_stall() -> None:
    """It is too young for one when the question is answered; nor is a question that finds nothing."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    asked_after(s, 1_000 + SLOT_MS)
    s.rest()
    s.wall_ms = PUBLISHED_MS + FED_WITHIN_MS - 1
    s.publish(1)
    asked_after(s, 1_000 + SLOT_MS)
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0"]
    assert s.core.counters.polls_idle == 2 and s.core.counters.stalls_healed == 0


def test_who_hears_something_does_not_ask() -> None:
    """Every message puts the question off by an interval."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    for _ in range(8):
        s.publish(1)
        s.live()
        asked = asked_after(s, 500)
        assert asked == 0
        s.answer()


def test_a_silent_subscription_asks_once_in_each_interval() -> None:
    """That its own question was answered is not hearing something."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    for _ in range(4):
        assert asked_after(s, 1_000 + SLOT_MS) == 1
        s.answer()


def test_many_silent_subscriptions_ask_a_few_at_a_time() -> None:
    """No shard is asked by more than a few in each slot; all have their turn."""
    filters = 3 * ASKING_PER_SLOT
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000, batch_size=1), filters=filters)
    asked_after(s, 1_000 - 50)
    most = total = 0
    for _ in range(8):
        asked = asked_after(s, SLOT_MS)
        most, total = max(most, asked), total + asked
        s.answer()
    assert 0 < most <= ASKING_PER_SLOT
    assert total >= filters


def test_with_infinity_nobody_asks_and_nothing_wakes_the_process() -> None:
    """The setting turned off."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS))
    assert asked_after(s, 60_000, 1_000) == 0
    assert not [effect for effect in s.tick() if isinstance(effect, Wake)]


def test_the_process_wakes_for_it() -> None:
    """Nothing else happens to an idle process: it has to say when it wants its next turn."""
    s = Script(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000))
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    wakes: list[int] = []
    for _ in range(20):
        wakes += [effect.after_ms for effect in s.tick() if isinstance(effect, Wake)]
        s.answer()
    assert [ms for ms in wakes if 900 <= ms <= 1_000 + SLOT_MS]


def test_a_zone_has_an_interval_of_its_own() -> None:
    """Said with the connection, and for topics by the options."""
    options = SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, topic_zones=(((b"t/",), ReadOverrides(idle_poll_ms=5_000)),))
    s = Script(options=options)
    s.owned()
    conn, present, session_id, _ = s.home.connect(CLIENT)
    s.gateway(Attach(CLIENT, conn, session_id, present, 5, 100, idle_poll_ms=1_000))
    s.rest()
    s.subscribed(conn, b"x")
    s.subscribed(conn, b"t/x")
    s.rest()
    assert asked_after(s, 1_500) == 1
    assert [poll.filter for poll in s.polls()] == [b"x"]
    assert asked_after(s, 4_000) == 1
    assert list(dict.fromkeys([poll.filter for poll in s.polls()])) == [b"x", b"t/x"]


def test_a_subscription_that_ended_is_not_asked_for() -> None:
    """Neither after UNSUBSCRIBE nor after the connection; and after a reconnect once, not twice."""
    s = online(SessionOptions(lazy_commit_ms=0, idle_poll_ms=1_000), filters=2)
    (session,) = s.core._state.sessions.values()
    s.unsubscribe(session.conn, b"a/0")
    s.rest()
    s.detach(session.conn)
    s.rest()
    assert asked_after(s, 3_000) == 0
    s.attached()
    assert asked_after(s, 1_000 + SLOT_MS) == 1


def test_a_session_that_went_is_not_held_until_its_look_is_due() -> None:
    """With many clients that come and go that would be all that came within an interval.  Nor until garbage is collected."""
    gc.collect()
    gc.disable()
    try:
        s = Script(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=60_000))
        s.owned()
        conn = s.attached()
        s.subscribed(conn, b"held/until/later")
        s.rest()
        s.detach(conn)
        asked_after(s, 20_000)
    finally:
        gc.enable()
    assert [each.place for each in gc.get_objects() if isinstance(each, Cursor) and each.sub.terms.filter == b"held/until/later"] == []
