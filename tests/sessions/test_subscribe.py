"""SUBSCRIBE and UNSUBSCRIBE: rows and routes in the order of PROTOCOLS 7; exact effects."""

from __future__ import annotations

import pytest

from mqtt.reason import ReasonCode
from sessions.events import AskShard, QueryShard, ToFeed, ToGateway, Wake, WorkReceived
from sessions.frames import Attached, Subacked, Subscribe, Unsubacked
from sessions.options import SessionOptions
from shards.frames import Commit, FeedWant, Own, Place, Poll, Route, Work, WorkDone
from shards.ids import sub_id
from shards.rows import (
    ACTIVE,
    ADDING,
    PLACE,
    PROGRESS,
    SUBSCRIPTION,
    WORK,
    ProgressRow,
    SubscriptionRow,
    pack_place,
    pack_progress,
    pack_row,
    pack_subscription,
    u64,
    unpack_as,
)
from tests.sessions.scripted import CLIENT, GATEWAY, Script, families

LATE = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
FRESH = pack_progress(ProgressRow(1, 0, 1, 0, 0, 1, 0, []))


def test_subscribe_over_three_shards_step_by_step() -> None:
    """Adding and work row, routes everywhere, active and places without the work row, then SUBACK, wants and polls."""
    s = Script(3)
    s.owned()
    conn = s.attached(receive_max=1000)
    sub = sub_id(2, 1, 1)
    key = u64(sub)

    assert s.gateway(Subscribe(conn, 11, [(b"a/#", 2, 3, 2)], 5)) == []
    adding = pack_subscription(SubscriptionRow(b"a/#", 2, 3, 5, ADDING, []))
    commit = Commit(1, CLIENT, conn, conn, [(SUBSCRIPTION, key, adding), (WORK, key, pack_row((b"a/#",))), (PROGRESS, b"", FRESH)], [])
    effects = s.tick()
    ask = s.asked[0]
    assert effects == [AskShard(2, ask.id, [commit]), Wake(9_999)]
    assert s.commit() == []

    effects = s.tick()
    assert effects == [AskShard(shard, ask.id + 1 + shard, [Route([(sub, b"a/#")], [], (CLIENT,))]) for shard in range(3)]
    s.answer()
    starts = [(shard, model.position) for shard, model in enumerate(s.shards)]

    active = pack_subscription(SubscriptionRow(b"a/#", 2, 3, 5, ACTIVE, starts))
    puts = [(SUBSCRIPTION, key, active)]
    puts += [(PLACE, key + bytes((shard,)), pack_place(Place(start))) for shard, start in starts]
    commit = Commit(1, CLIENT, conn, conn, [*puts, (PROGRESS, b"", FRESH)], [(WORK, key)])
    effects = s.tick()
    assert effects == [AskShard(2, ask.id + 4, [commit])]
    assert s.commit() == [ToGateway(GATEWAY, Subacked(conn, 11, [2]))]

    effects = s.tick()
    assert effects[:3] == [ToFeed(shard, FeedWant(1, [b"a/#"], [])) for shard in range(3)]
    assert effects[3:] == [QueryShard(shard, ask.id + 5 + shard, Poll(b"a/#", Place(start), 100, 1 << 20)) for shard, start in starts]


def test_a_route_is_not_added_behind_its_removal() -> None:
    """A clean start ends the session; the home pushes that work before it answers the commit that began the subscription."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"a/#", 1, 0, 2)], 0))
    s.tick()
    sub = sub_id(1, 1, 1)
    s.feed(WorkReceived(1, Work([(CLIENT, sub, b"a/#")])))
    s.tick()
    assert s.commit() == []
    s.tick()
    routes = [entry for ask in s.asked for entry in ask.entries if isinstance(entry, Route)]
    assert routes == [Route([], [(sub, b"a/#")])] * 2


def test_whoever_is_told_work_under_a_newer_token_owns_anew_and_then_does_it() -> None:
    """It was replaced by a process that is gone: with its own token it could report nothing as done."""
    s = Script(2)
    s.owned()
    s.feed(WorkReceived(1, Work([(CLIENT, sub_id(1, 2, 1), b"a/#")], 2)))
    s.tick()
    assert s.asked[-1].shard == 1 and s.asked[-1].entries == [Own()]
    assert not [entry for ask in s.asked for entry in ask.entries if isinstance(entry, Route)]


def test_messages_stored_between_route_and_suback_are_read() -> None:
    """Reading starts at the position at which the route held."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    s.tick()
    s.answer()
    s.tick()
    s.answer()
    s.publish(1)
    s.rest()
    assert s.delivered() == [(b"m0", 1, 0x32)]


def test_filters_of_one_packet_are_added_together() -> None:
    """One SUBACK when all are done; the routes are one request to each shard."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 3, [(b"a", 1, 0, 2), (b"b", 0, 0, 2), (b"c", 2, 0, 2)], 0))
    routes = s.stop_at(Route)
    assert [[filter for _, filter in ask.entries[0].add] for ask in routes] == [[b"a", b"c"]] * 2  # type: ignore[union-attr]
    assert not [frame for frame in s.sent if isinstance(frame, Subacked)]
    s.rest()
    assert [frame for frame in s.sent if isinstance(frame, Subacked)] == [Subacked(conn, 3, [1, 0, 2])]


def test_qos_0_makes_no_route_and_no_place() -> None:
    """It is live only (PROTOCOLS 8): one row, committed before SUBACK."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 0, 1, 2)], 4))
    s.tick()
    (commit,) = s.commits()
    assert families(commit) == "qu"
    assert unpack_as(SubscriptionRow, commit.puts[0][2]) == (b"#", 0, 1, 4, ACTIVE, [], ())
    assert s.commit() == [ToGateway(GATEWAY, Subacked(conn, 1, [0]))]
    assert s.tick() == []


def test_resubscribing_changes_the_terms_in_place() -> None:
    """The same subscription id and places; no route is touched; messages read later have the new terms."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#", qos=1, identifier=1)
    (before,) = [key for key in s.home.rows[CLIENT] if key[0] == SUBSCRIPTION]
    s.publish(1, qos=2)
    s.gateway(Subscribe(conn, 2, [(b"#", 2, 2, 2)], 6))
    s.tick()
    (commit,) = s.commits()
    assert families(commit) == "qu"
    assert s.commit() == [ToGateway(GATEWAY, Subacked(conn, 2, [2]))]
    assert [key for key in s.home.rows[CLIENT] if key[0] == SUBSCRIPTION] == [before]
    s.live()
    s.rest()
    assert s.delivered() == [(b"m0", 0x8001, 0x34)]


def test_ranges_keep_the_terms_under_which_they_were_read() -> None:
    """A later change of the subscription does not change what is sent again, nor does its removal."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#", qos=1, identifier=1)
    s.publish(1, qos=2)
    s.live()
    s.rest()
    assert s.delivered() == [(b"m0", 1, 0x32)]
    s.subscribed(conn, b"#", qos=2, identifier=2)
    s.unsubscribe(conn, b"#")
    s.rest()
    s.detach(conn)
    s.rest()
    s.take_sent()
    conn = s.attach()
    s.rest()
    assert s.sent[0] == Attached(conn, 0, [])
    assert s.delivered() == [(b"m0", 1, 0x3A)]
    s.puback(conn, 1)
    s.rest()
    assert s.range_rows() == []


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_a_change_between_qos_0_and_others_switches_the_route(first: int, second: int) -> None:
    """A new subscription takes the place of the old one in one commit; the retained rule sees no new subscription.  A route
    that is not needed any more goes with the connection."""
    s = Script(2)
    s.owned()
    s.home.retained[b"x"] = b""
    conn = s.attached()
    s.subscribed(conn, b"#", qos=first)
    s.gateway(Subscribe(conn, 2, [(b"#", second, 0, 1)], 0))
    s.rest()
    assert s.sent == [Subacked(conn, 2, [second])]
    if not second:
        assert all(shard.routes for shard in s.shards)
        s.attach()
        s.rest()
    (key,) = [suffix for family, suffix in s.home.rows[CLIENT] if family == SUBSCRIPTION]
    routes = {int.from_bytes(key, "big"): b"#"} if second else {}
    assert [shard.routes for shard in s.shards] == [routes, routes]
    assert not [key for key in s.home.rows[CLIENT] if key[0] == WORK]
    assert len([key for key in s.home.rows[CLIENT] if key[0] == PLACE]) == (2 if second else 0)


def test_a_shard_that_is_away_for_too_long_fails_the_filter() -> None:
    """0x83 after ten seconds; another filter of the packet succeeds only if it needs no shard; the rest is removed later."""
    s = Script(3)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"a", 1, 0, 2), (b"b", 0, 0, 2)], 0))
    for ask in s.stop_at(Route)[1:]:
        s.commit(ask)
    s.tick(9_000)
    assert s.sent == []
    assert ToGateway(GATEWAY, Subacked(conn, 1, [LATE, 0])) in s.tick(1_000)
    for _ in range(4):
        s.tick()
        for ask in [ask for ask in s.asked if ask.shard]:
            s.commit(ask)
    families_left = sorted(family for family, _ in s.home.rows[CLIENT])
    assert families_left == [PROGRESS, SUBSCRIPTION, WORK], "the subscription of QoS 0, and work that waits for the shard"
    assert [shard.routes for shard in s.shards[1:]] == [{}, {}]
    # The shard comes back: it gets the addition and behind it the removal, and then the work is over.
    s.rest()
    assert s.shards[0].routes == {}
    assert sorted(family for family, _ in s.home.rows[CLIENT]) == [PROGRESS, SUBSCRIPTION]


def test_a_late_switch_leaves_the_earlier_subscription_as_it_was() -> None:
    """QoS 0 before, QoS 1 asked for, a shard away: 0x83, and the subscription at QoS 0 is still there after a restart."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#", qos=0, identifier=3)
    s.gateway(Subscribe(conn, 2, [(b"#", 1, 0, 2)], 4))
    s.stop_at(Route)
    s.tick(10_000)
    assert s.sent == [Subacked(conn, 2, [LATE])]
    s.rest()
    s.start()
    s.owned()
    conn = s.attach()
    s.rest()
    assert s.sent[0] == Attached(conn, 0, [(b"#", 0, 0, 3)])
    assert [shard.routes for shard in s.shards] == [{}, {}]


def test_the_last_commit_may_be_late_too() -> None:
    """Routes are there, but the home does not answer: what is in flight is undone by what is sent behind it."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    s.stop_at(Route)
    s.answer()
    s.tick()
    (last,) = s.asked
    assert families(s.commits()[0]) == "ppqu-w"
    s.tick(10_000)
    assert s.sent == [Subacked(conn, 1, [LATE])]
    s.commit(last)
    s.rest()
    assert [family for family, _ in s.home.rows[CLIENT]] == [PROGRESS]
    assert [shard.routes for shard in s.shards] == [{}, {}]


def test_an_interrupted_subscribe_is_undone_when_the_session_is_loaded() -> None:
    """The process died between the routes and the last commit: no SUBACK came, so nothing is owed."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    s.stop_at(Route)
    s.answer()
    assert all(shard.routes for shard in s.shards)
    s.start()
    s.link()
    s.stop_at(Route)
    conn = s.attach()
    s.rest()
    assert Attached(conn, 0, []) in s.sent
    assert [family for family, _ in s.home.rows[CLIENT]] == [PROGRESS]
    assert [shard.routes for shard in s.shards] == [{}, {}]


def test_unsubscribe_is_answered_after_its_commit_and_before_the_routes_go() -> None:
    """Rows end with the work row put, UNSUBACK, routes removed everywhere, work done; unknown filters get 0x11."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#")
    s.tick(10_000)
    s.answer()
    sub = sub_id(1, 1, 1)
    s.unsubscribe(conn, b"#", b"other", b"#")
    effects = s.tick()
    assert effects[:2] == [ToFeed(0, FeedWant(2, [], [b"#"])), ToFeed(1, FeedWant(2, [], [b"#"]))]
    (commit,) = s.commits()
    assert families(commit) == "qw-ppu"
    assert s.commit() == [ToGateway(GATEWAY, Unsubacked(conn, 2, [0, 0x11, 0x11]))]
    effects = s.tick()
    assert [effect.entries for effect in effects if isinstance(effect, AskShard)] == [[Route([], [(sub, b"#")])]] * 2
    s.answer()
    s.tick()
    assert [ask.entries for ask in s.asked] == [[WorkDone(1, [(CLIENT, sub)])]]
    s.rest()
    assert [family for family, _ in s.home.rows[CLIENT]] == [PROGRESS]


def test_what_is_under_way_survives_an_unsubscribe() -> None:
    """[MQTT-3.10.4-3]: deliveries that were begun are completed; nothing new comes."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#", qos=2)
    s.publish(2, qos=2)
    s.live()
    s.rest()
    assert len(s.delivered()) == 2
    s.unsubscribe(conn, b"#")
    s.publish(1, qos=2)
    s.live()
    s.rest()
    s.pubrec(conn, 0x8001, 0x8002)
    s.rest()
    s.pubcomp(conn, 0x8001, 0x8002)
    s.rest()
    assert s.delivered() == [] and s.range_rows() == []
    assert s.progress().committed2 == 2


def test_an_unsubscribe_of_nothing_is_answered_at_once() -> None:
    """There is nothing to commit."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.unsubscribe(conn, b"a", b"b")
    assert s.sent == [Unsubacked(conn, 2, [0x11, 0x11])]


def test_packets_with_the_same_filter_wait_for_each_other() -> None:
    """Subscribe, unsubscribe, subscribe without waiting for answers: each takes effect, in order; another filter overtakes none."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    s.unsubscribe(conn, b"#")
    s.gateway(Subscribe(conn, 3, [(b"#", 2, 0, 2)], 0))
    s.rest()
    assert s.sent == [Subacked(conn, 1, [1]), Unsubacked(conn, 2, [0]), Subacked(conn, 3, [2])]
    (route,) = s.shards[0].routes
    assert s.shards[1].routes == {route: b"#"}


def test_a_filter_named_twice_in_one_packet_counts_once() -> None:
    """As if the packet had been two: the last one holds."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"a", 1, 0, 2), (b"a", 2, 0, 2)], 0))
    s.rest()
    assert s.sent == [Subacked(conn, 1, [1, 2])]
    assert len(s.home.routes) == 1
    s.publish(1, qos=2, topic=b"a")
    s.live()
    s.rest()
    assert s.delivered() == [(b"m0", 0x8001, 0x34)]


def test_the_bound_on_subscriptions() -> None:
    """0x97 for those beyond it; changing a known one is no new one."""
    s = Script(options=SessionOptions(max_subscriptions=2, lazy_commit_ms=0))
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"a", 1, 0, 2), (b"b", 0, 0, 2), (b"c", 1, 0, 2)], 0))
    s.rest()
    s.gateway(Subscribe(conn, 2, [(b"a", 2, 0, 2), (b"c", 0, 0, 2)], 0))
    s.rest()
    assert s.sent == [Subacked(conn, 1, [1, 0, 0x97]), Subacked(conn, 2, [2, 0x97])]


def test_a_shard_link_that_breaks_does_not_disturb_a_subscribe() -> None:
    """Requests are sent again by the shell; the poll of the new subscription waits for the link."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    for shard in (0, 1, 0):
        s.relink(shard)
        s.tick()
        s.relink(shard)
        for ask in list(s.asked):
            s.commit(ask)
    s.relink(1)
    s.publish(1)
    s.rest()
    assert s.sent[0] == Subacked(conn, 1, [1])
    assert s.delivered() == [(b"m0", 1, 0x32)]
