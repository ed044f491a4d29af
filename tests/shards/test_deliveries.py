"""What members of shared groups have at their home: given to the connection that is meant, by the owner that is newest."""

from __future__ import annotations

import pytest

from shards import deliveries
from shards.frames import (
    AWAY,
    FULL,
    GONE,
    IS_BACK,
    IS_GIVEN,
    IS_SETTLED,
    LOST,
    OLD_CONN,
    OLD_TOKEN,
    TAKEN,
    Commit,
    CommitDone,
    Connected,
    Disconnect,
    Give,
    Given,
    GroupNews,
    GroupTaken,
    Load,
    Loaded,
    Open,
    Own,
    Owned,
    Query,
    Result,
    Settle,
    TakeBack,
)
from shards.ids import sub_id
from shards.rows import (
    ACTIVE,
    BEGUN,
    DELIVERY,
    FINISHED,
    LEAVES,
    OUTCOME,
    SUBSCRIPTION,
    SubscriptionRow,
    delivery_suffix,
    pack_row,
    u64,
)  # fmt: skip
from tests.shards.harness import G, Harness, S, connect, linked

FILTER = b"$share/g/t"
GROUP = sub_id(3, 1, 1)
"""At home in another shard."""


def member() -> tuple[Harness, Connected, int]:
    """A shard, a member that is connected, and the token of the owner of its session."""
    h = linked()
    connected = connect(h, b"c", expiry_s=100)
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    row = SubscriptionRow(FILTER, 2, 0, 0, ACTIVE, [])
    commit(h, connected, owned.token, (SUBSCRIPTION, u64(sub_id(0, 1, 1)), pack_row(row)))
    return h, connected, owned.token


def commit(h: Harness, connected: Connected, token: int, *puts: tuple[bytes, bytes, bytes]) -> None:
    assert h.ask(S, Commit(token, b"c", connected.session_id, connected.conn, list(puts), [])) == [CommitDone(TAKEN)]


def say(h: Harness, connected: Connected, token: int, number: int, outcome: int) -> None:
    commit(h, connected, token, (OUTCOME, delivery_suffix(GROUP, number), pack_row((outcome,))))


def news(h: Harness) -> list[tuple[list[object], list[object]]]:
    return [([tuple(row) for row in one.members], [tuple(row) for row in one.deliveries]) for one in h.take(S, GroupNews)]


def give(conn: int, *numbers: int, token: int = 5) -> Give:
    return Give(GROUP, FILTER, token, b"c", conn, list(numbers), [b"m%d" % number for number in numbers])


def test_what_is_given_is_told_to_both_owners_when_it_is_committed() -> None:
    """Under the connection that was meant; under another one all of it is back."""
    h, connected, _ = member()
    assert h.ask(S, Open(GROUP, FILTER, 5, 1), give(connected.conn, 1, 2)) == [GroupTaken(TAKEN), GroupTaken(TAKEN)]
    assert h.take(S, Given) == [Given(b"c", GROUP, FILTER, [1, 2], [b"m1", b"m2"])]
    assert news(h) == [([(b"c", connected.conn)], [(b"c", 1, IS_GIVEN), (b"c", 2, IS_GIVEN)])]
    h.ask(S, give(connected.conn + 256, 3))
    assert h.take(S, Given) == [] and news(h) == [([], [(b"c", 3, IS_BACK)])]


@pytest.mark.parametrize("order", ["GL", "LG", "G.L", "L.G", "GLG", "G.LG", "GL.G", "LG.L", "G.L.G"])
@pytest.mark.parametrize("late", [False, True])
def test_what_is_told_before_an_answer_to_load_is_in_that_answer(order: str, late: bool) -> None:
    """So a session may drop what it is given while it waits to be loaded (sessions/given.py): in whatever turn, and however late the
    records are committed, both are told in the order in which they came to be.  G: something is given; L: asked for; a dot ends a turn."""
    h, connected, _ = member()
    h.ask(S, Open(GROUP, FILTER, 5, 1))
    h.sent[S].clear()
    given = 0
    for step in order:
        if step == "G":
            given += 1
            h.request(S, give(connected.conn, given))
        elif step == "L":
            h.receive(S, Query(9, Load(b"c")))
        else:
            h.tick(sync=not late)
    h.tick()
    told: set[int] = set()
    answers = 0
    for frame in h.sent[S]:
        if isinstance(frame, Given):
            told.update(frame.numbers)
        elif isinstance(frame, Result):
            assert isinstance(frame.told, Loaded)
            rows = {suffix for family, suffix, _ in frame.told.rows if family == DELIVERY}
            assert rows >= {delivery_suffix(GROUP, number) for number in told}
            answers += 1
    assert told == set(range(1, given + 1)) and answers == order.count("L")


def test_an_owner_that_was_replaced_gives_nothing() -> None:
    """From the record on in which a newer one has opened the group, also over a restart."""
    h, connected, _ = member()
    h.ask(S, Open(GROUP, FILTER, 6, 1))
    h.reopen(power=True)
    h.link(S, "session", "s0:b")
    h.link(G, "gateway", "g0:a")
    assert h.ask(S, Open(GROUP, FILTER, 5, 1), give(connected.conn, 1)) == [GroupTaken(OLD_TOKEN), GroupTaken(OLD_TOKEN)]
    assert h.take(S, GroupNews) == [] and h.take(S, Given) == []


def test_only_what_is_not_begun_is_taken_back_and_only_from_who_is_away() -> None:
    """What was begun at QoS 2 is settled when its client goes, and forgotten when it is finished [MQTT-4.8.2-4]."""
    h, connected, token = member()
    h.ask(S, Open(GROUP, FILTER, 5, 1), give(connected.conn, 1, 2))
    say(h, connected, token, 1, BEGUN)
    h.ask(S, TakeBack(GROUP, 5, b"c"))
    assert [rows for _, rows in news(h)] == [[(b"c", 1, IS_GIVEN), (b"c", 2, IS_GIVEN)]]
    h.ask(G, Disconnect(b"c", connected.conn, LOST, None))
    assert news(h) == [([(b"c", AWAY)], [(b"c", 1, IS_SETTLED)])]
    h.ask(S, TakeBack(GROUP, 5, b"c"), Settle(GROUP, 5, [(b"c", 1)]))
    assert news(h) == [([], [(b"c", 2, IS_BACK)])]
    say(h, connected, token, 1, FINISHED)
    say(h, connected, token, 2, FINISHED)
    assert news(h) == [] and h.core._deliveries._there == {}


def test_what_is_finished_is_kept_until_its_group_knows_also_when_the_session_ends() -> None:
    """And what was not begun is back at once."""
    h, connected, token = member()
    h.ask(S, Open(GROUP, FILTER, 5, 1), give(connected.conn, 1, 2, 3))
    say(h, connected, token, 1, FINISHED)
    say(h, connected, token, 2, BEGUN)
    news(h)
    h.ask(G, Disconnect(b"c", connected.conn, LOST, 0))
    ((members, deliveries),) = news(h)
    assert members == [(b"c", GONE)] and deliveries == [(b"c", 2, IS_SETTLED), (b"c", 3, IS_BACK)]
    h.reopen(power=True)
    h.link(S, "session", "s0:b")
    h.ask(S, Open(GROUP, FILTER, 5, 2))
    assert news(h) == [([], [(b"c", 1, IS_SETTLED), (b"c", 2, IS_SETTLED)])]
    h.ask(S, Settle(GROUP, 5, [(b"c", 1), (b"c", 2)]))
    assert h.core._deliveries._there == {}


@pytest.mark.parametrize("outcome", [BEGUN, LEAVES])
def test_what_was_taken_back_is_not_begun_any_more(outcome: int) -> None:
    """A connection that is over and does not know it is told so, before anything leaves; that something is finished may come late."""
    h, connected, token = member()
    h.ask(S, Open(GROUP, FILTER, 5, 1), give(connected.conn, 1, 2))
    h.ask(G, Disconnect(b"c", connected.conn, LOST, None))
    h.ask(S, TakeBack(GROUP, 5, b"c"))
    late = [(OUTCOME, delivery_suffix(GROUP, 1), pack_row((outcome,)))]
    assert h.ask(S, Commit(token, b"c", connected.session_id, connected.conn, late, [])) == [CommitDone(OLD_CONN)]
    say(h, connected, token, 2, FINISHED)
    assert h.core._deliveries._there == {}


def test_who_has_too_much_is_given_nothing_until_half_of_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over a restart."""
    monkeypatch.setattr(deliveries, "HELD_BYTES_MAX", 100)
    h, connected, token = member()
    h.ask(S, Open(GROUP, FILTER, 5, 1), give(connected.conn, 1, 2, 3, 4, 5, 6, 7, 8))
    news(h)
    h.ask(S, give(connected.conn, 9))
    assert news(h) == [([], [(b"c", 9, IS_BACK)])]
    h.reopen(power=True)
    h.link(S, "session", "s0:b")
    h.link(G, "gateway", "g0:a")
    h.ask(S, Open(GROUP, FILTER, 5, 2))
    assert set(news(h)[0][0]) == {(b"c", FULL)}
    for number in range(1, 6):
        say(h, connected, token, number, FINISHED)
    assert news(h) == [([], [(b"c", number, IS_SETTLED)]) for number in range(1, 6)]
    say(h, connected, token, 6, FINISHED)
    assert news(h) == [([(b"c", connected.conn)], [(b"c", 6, IS_SETTLED)])]
    h.ask(S, give(connected.conn, 9))
    assert news(h) == [([], [(b"c", 9, IS_GIVEN)])]
