"""Connections: owner tokens, loading, takeover, detaching; exact effects."""

from __future__ import annotations

from mqtt.control import DISCONNECT_REASONS
from mqtt.reason import ReasonCode
from sessions.events import AskShard, GatewayLinked, GatewayLost, QueryShard, Replied, ShardLinked, ToFeed, ToGateway, Wake, WorkReceived
from sessions.frames import Attach, Attached, Detach, SessionClosed, Subscribe
from shards.frames import TAKEN, CommitDone, FeedWant, Load, Own, Owned, Place, Poll, Route, Work, WorkDone
from shards.ids import sub_id
from shards.rows import PLACE, unpack_place
from tests.sessions.scripted import CLIENT, GATEWAY, Script, families

TAKEN_OVER, UNAVAILABLE = ReasonCode.SESSION_TAKEN_OVER, ReasonCode.SERVER_UNAVAILABLE
SHUTTING_DOWN = ReasonCode.SERVER_SHUTTING_DOWN


def test_a_served_shard_is_owned_as_soon_as_it_is_linked() -> None:
    """Own is asked once; a shard that is served by another process is left alone."""
    s = Script(3, served=[0, 2])
    assert s.feed(ShardLinked(0)) == [AskShard(0, 1, [Own()])]
    assert s.feed(ShardLinked(1)) == []
    s.relink(0)
    assert s.asked == [AskShard(0, 1, [Own()])]


def test_nothing_is_loaded_before_the_token_is_known() -> None:
    """Attach waits for Owned, then loads, then the client is attached."""
    s = Script(3)
    s.link()
    conn = s.attach()
    assert s.queries == []
    own = next(ask for ask in s.asked if ask.shard == 2)
    s.asked.remove(own)
    effects = s.feed(Replied(2, own.id, [Owned(1, [])]))
    assert effects == [QueryShard(2, 4, Load(CLIENT))]
    assert s.tell() == [ToGateway(GATEWAY, Attached(conn, 0, []))]
    assert s.tick() == []


def test_a_client_of_a_shard_that_is_not_served_here_is_refused() -> None:
    """The gateway asked the wrong process: 0x88, so the client comes again."""
    s = Script(3, served=[0])
    s.owned()
    conn = s.attach()
    assert s.sent == [Attached(conn, UNAVAILABLE, [])]


def test_who_was_overtaken_at_the_home_is_refused() -> None:
    """The rows say that another session, or a newer connection, is there by now."""
    s = Script()
    s.owned()
    late = s.attach()
    s.home.connect(CLIENT)
    s.tell()
    assert s.take_sent() == [Attached(late, UNAVAILABLE, [])]
    late = s.attach()
    s.home.connect(CLIENT, clean=True)
    s.tell()
    assert s.take_sent() == [Attached(late, UNAVAILABLE, [])]
    assert s.core._state.sessions == {}


def test_a_connection_older_than_the_attached_one_is_refused() -> None:
    """Connection numbers only grow: what comes late changes nothing."""
    s = Script()
    s.owned()
    older, present, session_id, _ = s.home.connect(CLIENT)
    conn = s.attached()
    s.gateway(Attach(CLIENT, older, session_id, present, 5, 100))
    assert s.sent == [Attached(older, UNAVAILABLE, [])]
    assert s.core._state.by_conn[conn].attached


def test_an_actor_that_was_replaced_learns_it_from_the_connection_before_it_loads_or_reuses_anything() -> None:
    """The home's newest token comes with every connection: what is in memory may be old by then, and what is loaded would be
    sent beside the other owner [MQTT-3.3.1-1]."""
    s = Script()
    s.owned()
    old = s.attached()
    conn, present, session_id, _ = s.home.connect(CLIENT)
    s.gateway(Attach(CLIENT, conn, session_id, present, 5, 100, owner=2))
    assert s.sent == [SessionClosed(old, SHUTTING_DOWN)]
    assert s.queries == [] and [ask.entries for ask in s.asked] == [[Own()]]
    assert s.core._state.sessions == {}


def test_of_two_that_wait_the_newer_is_attached() -> None:
    """Each gets one answer, and the rows are loaded for the newer one."""
    s = Script()
    s.owned()
    first, second = s.attach(), s.attach()
    s.answer()
    assert s.sent == [Attached(first, UNAVAILABLE, []), Attached(second, 0, [])]


def test_a_waiting_connection_that_goes_is_forgotten() -> None:
    """Detach and the loss of the gateway both end the wait; a late answer to the query does nothing."""
    s = Script()
    s.owned()
    conn = s.attach()
    (query,) = s.queries
    s.detach(conn)
    s.tell(query)
    s.attach()
    s.feed(GatewayLost(GATEWAY))
    s.answer()
    assert s.sent == [] and s.core._state.sessions == {}


def test_attach_brings_the_subscriptions_and_reads_on_from_the_places() -> None:
    """After a restart of this process everything comes from the rows: wants first, then polls, on each shard's link."""
    s = Script(2)
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"a/+", qos=2, options=2, identifier=9)
    s.subscribed(conn, b"b", qos=0)
    starts = [unpack_place(s.home.rows[CLIENT][PLACE, suffix]).cut for family, suffix in sorted(s.home.rows[CLIENT]) if family == PLACE]
    s.start()
    s.owned()
    conn = s.attach()
    s.tell()
    assert s.take_sent() == [Attached(conn, 0, [(b"a/+", 2, 2, 9), (b"b", 0, 0, 0)])]
    effects = s.tick()
    assert effects == [
        ToFeed(0, FeedWant(1, [b"a/+"], [])),
        ToFeed(1, FeedWant(1, [b"a/+"], [])),
        QueryShard(0, effects[2].id, Poll(b"a/+", Place(starts[0]), 100, 1 << 20)),  # type: ignore[union-attr]
        QueryShard(1, effects[3].id, Poll(b"a/+", Place(starts[1]), 100, 1 << 20)),  # type: ignore[union-attr]
    ]


def test_a_session_in_memory_is_taken_over_without_loading() -> None:
    """The older connection is told, the unacknowledged message comes again with DUP, its acknowledgement ends it."""
    s = Script()
    s.owned()
    old = s.attached()
    s.subscribed(old, b"#")
    s.publish(1)
    s.live()
    s.tick()
    assert s.delivered() == [(b"m0", 1, 0x32)]
    s.answer()
    conn = s.attach()
    assert s.take_sent() == [SessionClosed(old, TAKEN_OVER), Attached(conn, 0, [(b"#", 1, 0, 0)])]
    assert not [query for query in s.queries if isinstance(query.ask, Load)]
    s.puback(old, 1)
    s.rest()
    assert s.delivered() == [(b"m0", 1, 0x3A)]
    s.puback(conn, 1)
    s.rest()
    assert s.range_rows() == [] and s.progress().committed1 == 1


def test_a_takeover_waits_for_the_commit_under_way() -> None:
    """Taken: the memory is still true and is reused."""
    s = Script()
    s.owned()
    old = s.attached()
    s.subscribed(old, b"#", qos=2)
    s.publish(1, qos=2)
    s.live()
    s.tick()
    (ask,) = s.asked
    s.shards[0].request(ask.entries)
    conn = s.attach()
    assert s.take_sent() == [SessionClosed(old, TAKEN_OVER)]
    s.asked.remove(ask)
    s.feed(Replied(0, ask.id, [CommitDone(TAKEN)]))
    assert s.take_sent() == [Attached(conn, 0, [(b"#", 2, 0, 0)])]
    assert s.core.counters.resumed_in_ram == 1
    s.rest()
    assert s.delivered() == [(b"m0", 0x8001, 0x34)]


def test_a_refused_commit_makes_the_takeover_load() -> None:
    """The home took the new connection first: what the memory holds was never committed, so the rows are read again."""
    s = Script()
    s.owned()
    old = s.attached()
    s.subscribed(old, b"#", qos=2)
    s.publish(1, qos=2)
    s.live()
    s.tick()
    conn = s.attach()
    assert s.commit() == [QueryShard(0, s.queries[0].id, Load(CLIENT))]
    assert s.take_sent() == [SessionClosed(old, TAKEN_OVER)]
    s.rest()
    assert s.sent[0] == Attached(conn, 0, [(b"#", 2, 0, 0)])
    assert s.delivered() == [(b"m0", 0x8001, 0x34)]


def test_a_takeover_in_the_middle_of_a_subscribe_loads_and_undoes_it() -> None:
    """Nobody waits for that SUBACK any more: its route is removed everywhere, its rows end."""
    s = Script(3)
    s.owned()
    old = s.attached()
    s.gateway(Subscribe(old, 1, [(b"#", 1, 0, 2)], 0))
    routes = s.stop_at(Route)
    assert len(routes) == 3
    conn = s.attach()
    s.rest()
    assert s.take_sent() == [SessionClosed(old, TAKEN_OVER), Attached(conn, 0, [])]
    assert all(shard.routes == {} for shard in s.shards)
    assert [family for family, _ in s.home.rows[CLIENT]] == [b"q"]


def test_a_commit_refused_for_a_newer_connection_closes_the_older() -> None:
    """The gateway of the new connection may need some time; until then nothing of the old one counts."""
    s = Script()
    s.owned()
    old = s.attached()
    s.subscribed(old, b"#", qos=2)
    s.publish(1, qos=2)
    s.live()
    s.tick()
    s.home.connect(CLIENT)
    assert s.commit() == [ToGateway(GATEWAY, SessionClosed(old, TAKEN_OVER))]
    s.pubrec(old, 0x8001)
    s.rest()
    assert s.asked == [] and s.core._state.sessions == {}


def test_a_session_that_ended_elsewhere_is_dropped() -> None:
    """NO_SESSION: the client has begun anew, with an empty session."""
    s = Script()
    s.owned()
    old = s.attached()
    s.subscribed(old, b"#", qos=2)
    s.publish(1, qos=2)
    s.live()
    s.tick()
    conn = s.attach(clean=True)
    assert s.take_sent() == [SessionClosed(old, TAKEN_OVER)]
    s.rest()
    assert s.take_sent() == [Attached(conn, 0, [])]


def test_detach_commits_at_once_and_forgets_when_it_is_answered() -> None:
    """The last acknowledgements and the places are in the rows; nothing stays in memory or in the feed's wants."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#")
    s.publish(3)
    s.live()
    s.rest()
    s.puback(conn, 1, 2)
    s.detach(conn)
    effects = s.tick()
    assert [type(effect) for effect in effects] == [ToFeed, AskShard, Wake]
    assert effects[0] == ToFeed(0, FeedWant(2, [], [b"#"]))
    (commit,) = s.commits()
    assert (families(commit), commit.conn) == ("q", conn)
    s.answer()
    assert s.core._state.sessions == {}
    assert s.progress().committed1 == 2 and s.progress().sent1 == 3
    assert [row.count1 for row in s.range_rows()] == [3]


def test_an_idle_session_detaches_without_a_commit() -> None:
    """Nothing has changed since the last one."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"#")
    s.tick(10_000)
    s.answer()
    s.detach(conn)
    s.tick()
    assert s.asked == [] and s.core._state.sessions == {}


def test_the_loss_of_a_gateway_detaches_its_connections() -> None:
    """Those of other gateways stay."""
    s = Script()
    s.owned()
    s.feed(GatewayLinked(8, "gateway-b"))
    s.attached(b"c1")
    conn = s.attach(b"c2", link=8)
    s.rest()
    s.feed(GatewayLost(GATEWAY))
    assert list(s.core._state.by_conn) == [conn]


def test_the_same_connection_may_attach_again_over_a_new_link() -> None:
    """The gateway's link broke before Attached came; it asks again, and the old link's loss is heard later."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.feed(GatewayLinked(8, "gateway-a"))
    s.gateway(Attach(CLIENT, conn, conn, True, 5, 100), link=8)
    assert s.take_sent() == [Attached(conn, 0, [])]
    s.feed(GatewayLost(GATEWAY))
    assert list(s.core._state.by_conn) == [conn]


def test_an_old_token_ends_everything_of_that_shard() -> None:
    """Another process owns the sessions: all attachments of the home are closed, those of other homes stay.

    The code was 0x88, which CONNACK has and DISCONNECT has not: clients took it for a violation by the broker.
    """
    s = Script(2)
    s.owned()
    name = next(name for name in (b"c%d" % n for n in range(9)) if s.slots.shard_of(name) != s.home.index)
    there = s.attached(name)
    conn = s.attached()
    s.subscribed(conn, b"#")
    s.home.request([Own()])
    s.gateway(Subscribe(conn, 5, [(b"x", 1, 0, 2)], 0))
    s.tick()
    assert s.commit() == [ToGateway(GATEWAY, SessionClosed(conn, SHUTTING_DOWN))]
    assert SHUTTING_DOWN in DISCONNECT_REASONS
    assert list(s.core._state.by_conn) == [there]
    # It does not take the token back by itself, not even when the link breaks; a client that comes here makes it.
    s.relink(s.home.index)
    s.tick()
    assert not any(isinstance(ask.entries[0], Own) for ask in s.asked)
    conn = s.attach()
    assert s.asked[-1].entries == [Own()]
    s.rest()
    assert s.sent[-1] == Attached(conn, 0, [(b"#", 1, 0, 0)])


def test_who_is_being_loaded_when_the_token_turns_out_old_is_loaded_again() -> None:
    """Another owner has written since; and what is subscribed under no token has a route that nobody may add."""
    s = Script()
    s.owned()
    conn = s.attach()
    (load,) = s.queries
    s.home.request([Own()])
    other = s.shards[0].connect(b"other", False)[0]
    s.gateway(Attach(b"other", other, other, False, 5, 100, owner=2))
    s.tell(load)
    assert s.take_sent() == [] and not s.core._state.by_conn
    s.rest()
    assert sorted(s.core._state.by_conn) == [conn, other]
    s.subscribed(conn, b"#")
    assert list(s.home.routes) == [sub_id(0, 3, 1)]


def test_a_token_that_is_older_than_one_we_have_heard_of_owns_nothing() -> None:
    """Another process has asked behind us, and we hear of that before the answer to our own question."""
    s = Script()
    s.feed(ShardLinked(0))
    s.feed(WorkReceived(0, Work([], 2)))
    s.asked.clear()
    assert s.feed(Replied(0, 1, [Owned(1, [])])) == []
    s.feed(GatewayLinked(GATEWAY, "gateway-a"))
    s.attach()
    assert [ask.entries for ask in s.asked] == [[Own()]], "for a client that wants it"
    s.feed(Replied(0, s.asked[0].id, [Owned(3, [])]))
    assert [query.ask for query in s.queries] == [Load(CLIENT)]


def test_whoever_was_left_alone_before_it_had_its_token_asks_again() -> None:
    """The one that had asked behind it has gone."""
    s = Script()
    s.feed(ShardLinked(0))
    s.feed(WorkReceived(0, Work([], 2, left=True)))
    assert s.feed(Replied(0, 1, [Owned(1, [])])) == [AskShard(0, 2, [Own()])]


def test_work_told_with_the_token_is_done_in_every_shard() -> None:
    """An earlier owner died between the UNSUBACK and the removal of the routes."""
    s = Script(3)
    for shard in s.shards:
        shard.routes[77] = b"#"
    s.feed(ShardLinked(0))
    s.asked.clear()
    s.feed(Replied(0, 1, [Owned(5, [(CLIENT, 77, b"#")])]))
    effects = s.tick()
    assert effects == [AskShard(shard, 2 + shard, [Route([], [(77, b"#")], (), ((0, 5),))]) for shard in range(3)]
    s.answer()
    assert s.tick() == [AskShard(0, 5, [WorkDone(5, [(CLIENT, 77)])])]
    assert all(shard.routes == {} for shard in s.shards)


def test_frames_of_unknown_connections_are_dropped_whole() -> None:
    """A late frame of a connection that is gone, or over another link than its own, changes nothing."""
    s = Script()
    s.owned()
    conn = s.attached()
    s.feed(GatewayLinked(8, "gateway-b"))
    assert s.gateway(Detach(conn), link=8) == []
    assert s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 0)], 0), link=8) == []
    assert s.gateway(Subscribe(conn + 256, 1, [(b"#", 1, 0, 0)], 0)) == []
    assert s.puback(conn + 256, 1) == []
    s.rest()
    assert s.sent == [] and list(s.core._state.by_conn) == [conn]
