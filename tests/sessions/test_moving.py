"""Places that are moved by hand: one path online and offline, in one commit; nothing that is on its way is touched."""

from __future__ import annotations

import pytest

from sessions.events import Effect, FromInquirer, ShardLost, TellMoved, ToInquirer
from sessions.frames import SendPubrel
from sessions.idle import NEVER_MS
from sessions.inquiry_frames import (
    MOVE_BUSY,
    MOVE_DONE,
    MOVE_LATE,
    MOVE_NO_SESSION,
    MOVE_NO_SUBSCRIPTION,
    PURGE,
    REWIND,
    SKIP,
    UNMOVED,
    Move,
    Moved,
    decode_ask,
    encode,
)  # fmt: skip
from sessions.moving import MOVES_MAX, WITHIN_MS, rewound, skipped
from sessions.options import SessionOptions
from shards.frames import Load, Own, Place
from shards.rows import PLACE
from tests.sessions.scripted import CLIENT, Script, online

ASKER = 99


def ask(s: Script, verb: int, *to: int, filter: bytes = b"", client: bytes = CLIENT, session_id: int = 0) -> list[Moved]:
    """What the asker has been told when everything is at rest."""
    wanted = session_id or s.home.sessions.get(client, 0)
    told: list[Moved] = []

    def take(effects: list[Effect]) -> None:
        told.extend(effect.told for effect in effects if isinstance(effect, ToInquirer) and isinstance(effect.told, Moved))

    take(s.feed(FromInquirer(ASKER, Move(5, client, wanted, verb, filter, list(to), "cli:me"))))
    for _ in range(12):
        take(s.tick())
        for asked in list(s.asked):
            take(s.commit(asked))
        for query in list(s.queries):
            take(s.tell(query))
    return told


def payloads(s: Script) -> list[bytes]:
    return [payload for payload, _, _ in s.delivered()]


def away(qos: int = 1, count: int = 10, receive_max: int = 4) -> Script:
    """A session whose client has gone with the first of so many messages unacknowledged."""
    s, conn = online(qos, receive_max=receive_max, options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, batch_size=2))
    s.publish(count, qos=qos)
    s.live()
    s.rest()
    s.detach(conn)
    s.rest()
    assert not s.core.loaded
    s.sent.clear()
    return s


# ---------------------------------------------------------------------- places


def test_a_skip_never_goes_back_and_a_rewind_never_forward() -> None:
    """Also in a sweep: what was read of it is neither given again by a skip nor left out by a rewind."""
    sweep = Place(10, 50, 3, b"s", 30)
    assert skipped(Place(10), 9) == skipped(Place(10), 10) == Place(10)
    assert skipped(Place(10), 11) == Place(11)
    assert skipped(sweep, 5) is sweep
    assert skipped(sweep, 20) == Place(20, 50, 3, b"s", 30)
    assert skipped(sweep, 40) == Place(40, 50, 3, b"s", 40)
    assert skipped(sweep, 50) == Place(50)
    assert rewound(Place(10), 11) == rewound(Place(10), 10) == Place(10)
    assert rewound(Place(10), 9) == Place(9)
    assert rewound(sweep, 40) == Place(10)
    assert rewound(sweep, 3) == Place(3)


# ---------------------------------------------------------------------- online


def test_a_skip_leaves_out_what_was_not_given_yet() -> None:
    """A client that does not acknowledge: its window finishes, then comes what is behind the new place."""
    s, conn = online(receive_max=2, options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, batch_size=1))
    s.publish(10)
    s.live()
    s.rest()
    first = s.delivered()
    assert [payload for payload, _, _ in first] == [b"m0", b"m1"]
    (told,) = ask(s, SKIP, s.home.log[6][0])
    assert (told.code, told.moved) == (MOVE_DONE, 1)
    assert payloads(s) == []
    s.puback(conn, *[packet_id for _, packet_id, _ in first])
    s.rest()
    got = payloads(s)
    for _ in range(5):
        s.puback(conn, *range(1, 40))
        s.rest()
        got += payloads(s)
    assert got == [b"m7", b"m8", b"m9"]
    assert s.core.counters.acknowledged == 5 and not s.core.counters.ranges_differ


def test_the_answer_of_a_poll_that_was_under_way_is_not_taken() -> None:
    """It was asked from the old place."""
    s, conn = online()
    s.detach(conn)
    s.rest()
    s.publish(5)
    s.attach()
    s.stop_at(Load)  # type: ignore[arg-type]
    s.rest()
    s.sent.clear()
    s.feed(ShardLost(0))
    s.relink(0)
    s.publish(3)
    s.tick()
    assert s.polls()
    session_id = s.home.sessions[CLIENT]
    s.feed(FromInquirer(ASKER, Move(5, CLIENT, session_id, SKIP, b"", [s.home.log[-2][0]], "x")))
    s.rest()
    assert payloads(s)[-1:] == [b"m7"] and s.core.counters.assigned == 6


def test_a_rewind_brings_messages_again_under_new_numbers() -> None:
    """Online, at the head, all acknowledged; and the shard is told before the answer."""
    s, conn = online()
    s.publish(5)
    s.live()
    s.rest()
    s.puback(conn, *[packet_id for _, packet_id, _ in s.delivered()])
    s.rest()
    (told,) = ask(s, REWIND, s.home.log[1][0])
    assert told == Moved(5, MOVE_DONE, 1, 0)
    assert s.home.rewound == [s.home.log[1][0]]
    again = s.delivered()
    assert [payload for payload, _, _ in again] == [b"m2", b"m3", b"m4"]
    assert not any(first & 8 for _, _, first in again), "they have new numbers, and DUP means the same number"


def test_what_was_read_on_both_sides_of_a_move_is_never_one_range() -> None:
    """After a crash it is read again: what lies between was skipped, and must not be in it."""
    s, conn = online(options=SessionOptions(lazy_commit_ms=50, idle_poll_ms=NEVER_MS))
    s.publish(2)
    s.live()
    s.publish(4)
    s.tick()
    ask(s, SKIP, s.home.log[4][0])
    s.live()
    s.rest()
    before = payloads(s)
    assert before == [b"m0", b"m1", b"m5"]
    s.start()
    s.owned()
    s.attached()
    s.rest()
    assert s.core.counters.ranges_differ == 0
    conn = s.attach()
    s.rest()
    assert sorted(payloads(s)) == before
    assert conn


def test_a_purge_closes_what_waits_for_the_window_and_not_what_is_on_its_way() -> None:
    """A client that acknowledges nothing is purged: it finishes what it has, and is at the head."""
    s, conn = online(2, receive_max=2)
    s.publish(8, qos=2)
    s.live()
    s.rest()
    first = s.delivered()
    assert len(first) == 2
    (told,) = ask(s, PURGE, s.home.watermark)
    assert told == Moved(5, MOVE_DONE, 0, 6)
    ids = [packet_id for _, packet_id, _ in first]
    s.pubrec(conn, *ids)
    s.rest()
    s.pubcomp(conn, *ids)
    s.publish(1, qos=2)
    s.live()
    s.rest()
    assert payloads(s) == [b"m8"]
    assert s.core.counters.closed == 6


# ---------------------------------------------------------------------- offline


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_that_is_away_is_loaded_moved_and_forgotten(qos: int) -> None:
    """What it was given before is closed as far as the skip leaves it out; the client gets what is behind the new place, and what was sent
    at QoS 2: it may have the identifier, and wait for PUBREL."""
    s = away(qos)
    (told,) = ask(s, SKIP, s.home.log[-1][0])
    assert told.code == MOVE_DONE and told.closed > 0
    assert not s.core.loaded
    s.publish(2)
    s.start()
    s.owned()
    s.attached()
    s.sent.clear()
    s.detach(next(iter(s.core._state.by_conn)))
    s.rest()
    s.attach()
    s.rest()
    assert payloads(s) == [*([b"m0", b"m1", b"m2", b"m3"] if qos == 2 else []), b"m10", b"m11"]


def test_a_rewind_of_a_session_that_is_away_brings_each_message_once() -> None:
    """What it was given and has not got is closed where it comes again anyway."""
    s = away()
    (told,) = ask(s, REWIND, 0)
    assert told.code == MOVE_DONE and told.closed > 0
    conn = s.attach(receive_max=100)
    s.rest()
    assert payloads(s) == [b"m%d" % n for n in range(10)]
    assert conn and s.core.counters.ranges_differ == 0


def test_a_rewind_to_the_middle_keeps_what_was_given_before_it_and_not_got() -> None:
    """Nothing is lost by it."""
    s = away()
    ask(s, REWIND, s.home.log[7][0])
    s.attach(receive_max=100)
    s.rest()
    assert set(payloads(s)) == {b"m%d" % n for n in range(10)}


def test_after_pubrec_an_exchange_goes_on_through_a_purge() -> None:
    """PUBREL comes at the next connection, and the others that were sent come again."""
    s, conn = online(2, receive_max=3)
    s.publish(3, qos=2)
    s.live()
    s.rest()
    ids = [packet_id for _, packet_id, _ in s.delivered()]
    s.pubrec(conn, ids[1])
    s.rest()
    s.detach(conn)
    s.rest()
    (told,) = ask(s, PURGE, s.home.watermark)
    assert told.closed == 0
    s.start()
    s.owned()
    conn = s.attach()
    s.rest()
    assert [frame.packet_ids for frame in s.sent if isinstance(frame, SendPubrel)] == [[ids[1]]]
    assert payloads(s) == [b"m0", b"m2"]
    s.pubcomp(conn, ids[1])
    s.pubrec(conn, ids[0], ids[2])
    s.rest()
    s.pubcomp(conn, ids[0], ids[2])
    s.detach(conn)
    s.rest()
    assert s.progress().committed2 == 3


def test_who_connects_while_it_is_moved_waits_for_the_commit() -> None:
    """And then has the session as it was moved."""
    s = away()
    session_id = s.home.sessions[CLIENT]
    s.feed(FromInquirer(ASKER, Move(5, CLIENT, session_id, PURGE, b"", [s.home.watermark], "x")))
    s.tick()
    s.tell()  # loaded
    s.tick()
    assert [entry.conn for entry in s.commits()] == [0]
    s.attach()
    s.tick()
    s.rest()
    assert payloads(s) == []
    assert s.core.online == 1


def test_who_is_being_attached_is_moved_then() -> None:
    """Its rows are loaded once."""
    s = away()
    s.attach()
    session_id = s.home.sessions[CLIENT]
    s.feed(FromInquirer(ASKER, Move(5, CLIENT, session_id, SKIP, b"", [s.home.watermark], "x")))
    assert sum(isinstance(query.ask, Load) for query in s.queries) == 1
    s.rest()
    assert s.core.online == 1 and s.core.counters.moved == 1
    s.publish(1)
    s.live()
    s.rest()
    assert payloads(s)[-1:] == [b"m10"]


# ---------------------------------------------------------------------- refused, late, told


def test_what_is_not_there_is_said() -> None:
    """Another session of this client, none, a filter that it does not have."""
    s, _ = online()
    assert [one.code for one in ask(s, SKIP, 0, session_id=12345)] == [MOVE_NO_SESSION]
    assert [one.code for one in ask(s, SKIP, 0, client=b"nobody", session_id=1)] == [MOVE_NO_SESSION]
    assert [one.code for one in ask(s, SKIP, 0, filter=b"x")] == [MOVE_NO_SUBSCRIPTION]


def test_a_shard_that_is_not_meant_stays() -> None:
    """A position is of one shard."""
    s, _ = online()
    assert ask(s, SKIP, UNMOVED) == [Moved(5, MOVE_DONE, 0, 0)]


def test_what_cannot_be_done_in_time_is_told_as_late_and_is_never_told_twice() -> None:
    """The home does not answer; it may be done all the same."""
    s = away()
    session_id = s.home.sessions[CLIENT]
    s.feed(FromInquirer(ASKER, Move(5, CLIENT, session_id, PURGE, b"", [s.home.watermark], "x")))
    s.tick()
    s.tell()
    s.tick()
    told = [effect.told for effect in s.tick(WITHIN_MS) if isinstance(effect, ToInquirer)]
    assert [one.code for one in told if isinstance(one, Moved)] == [MOVE_LATE]
    effects = s.commit()
    assert not any(isinstance(effect, ToInquirer) for effect in effects)
    assert [effect.by for effect in effects if isinstance(effect, TellMoved)] == ["x"]


def test_there_are_at_most_so_many_at_once() -> None:
    """The next one is told to come again."""
    s = Script()
    s.link()
    codes = []
    for n in range(MOVES_MAX + 1):
        effects = s.feed(FromInquirer(ASKER, Move(n, CLIENT, 1, SKIP, b"", [0], "x")))
        codes += [effect.told.code for effect in effects if isinstance(effect, ToInquirer) and isinstance(effect.told, Moved)]
    assert codes == [MOVE_BUSY]
    assert any(isinstance(asked.entries[0], Own) for asked in s.asked)


def test_it_is_said_who_has_moved_what_when_it_is_committed() -> None:
    """For the log, once."""
    s, conn = online()
    s.publish(3)
    s.detach(conn)
    s.rest()
    session_id = s.home.sessions[CLIENT]
    s.feed(FromInquirer(ASKER, Move(5, CLIENT, session_id, SKIP, b"#", [s.home.watermark], "key:ops")))
    s.tick()
    s.tell()
    s.tick()
    (commit,) = s.commits()
    assert [family for family, _, _ in commit.puts if family == PLACE] == [PLACE]
    effects = s.commit()
    assert [effect for effect in effects if isinstance(effect, TellMoved)] == [
        TellMoved(CLIENT, SKIP, "key:ops", b"#", [s.home.watermark], 1, 0)
    ]


def test_a_move_travels_and_a_senseless_one_is_refused() -> None:
    """As a frame."""
    wanted = Move(1, CLIENT, 2, REWIND, b"a/#", [5, UNMOVED], "cli:me")
    assert decode_ask(encode(wanted)) == wanted
    with pytest.raises(ValueError, match="a move"):
        decode_ask(encode(wanted._replace(verb=9)))
