"""With hold_unread no generation goes that some session has not acknowledged, and each goes as soon as all have."""

from __future__ import annotations

from dataclasses import replace

from shards.events import ShardTold
from shards.frames import Query, Result, RetentionFound, RetentionState, Rewound, RewoundNoted, UnreadFound
from shards.retention import Held
from shards.rows import PLACE, pack_place, u64
from tests.shards.harness import S
from tests.shards.waiting import State, Stores


def settled(stores: Stores) -> None:
    """Every generation that is there now is sealed and its time is over, and everybody was asked."""
    stores.pass_time(8_000)


def states(stores: Stores, shard: int) -> dict[int, str]:
    """Who holds which sealed generation."""
    stores.shards[shard].receive(S, Query(3, RetentionState()))
    stores.turn(stores.shards[shard], 0)
    (result,) = stores.shards[shard].take(S, Result)
    assert isinstance(result.told, RetentionFound)
    return {row[0]: row[5] for row in result.told.generations if row[4] <= 0}


def filled(n_shards: int = 2, client: bytes = b"c", topic_filter: bytes = b"a/+", **options: int) -> Stores:
    """A session that has one message in generation 1 of each shard."""
    stores = Stores(n_shards, **options)
    stores.connect(client)
    stores.subscribe(client, topic_filter)
    for shard in stores.shards:
        stores.publish(shard, b"a/1")
    return stores


def test_a_generation_stays_until_its_messages_are_acknowledged() -> None:
    """Unread, read and not acknowledged, acknowledged: only then it goes, and the reason says that nobody lost anything."""
    stores = filled()
    settled(stores)
    assert stores.dropped == []
    assert "session c" in states(stores, 0)[1] and "a/+" in states(stores, 0)[1]
    for shard in stores.shards:
        assert stores.read(b"c", 0, shard, 10) == 1
    settled(stores)
    assert stores.dropped == []
    assert states(stores, 1)[1] == "session c"
    stores.acknowledge(b"c")
    stores.acknowledge(b"c")
    settled(stores)
    assert stores.gone(0)[0] == stores.gone(1)[0] == (1, "read")


def test_one_behind_a_held_one_stays() -> None:
    """Generation 2 has nothing for anybody, and waits for generation 1."""
    stores = filled()
    settled(stores)
    stores.publish(stores.shards[0], b"b")
    settled(stores)
    held = states(stores, 0)
    assert len(held) > 1 and held[2] == "generation 1, which is older"
    assert stores.dropped == []


def test_a_session_for_which_nothing_came_holds_nothing() -> None:
    """Its place is the one that it got with its subscription, for ever: that is no reason to keep what others wrote."""
    stores = filled(topic_filter=b"quiet/#")
    stores.connect(b"d")
    stores.subscribe(b"d", b"b/#")
    for shard in stores.shards:
        stores.publish(shard, b"b/1")
    settled(stores)
    assert stores.dropped == []
    assert "session d" in states(stores, 0)[1]
    stores.read_all(b"d")
    settled(stores)
    assert stores.gone(0)[0] == (1, "read")


def test_a_home_that_does_not_answer_holds() -> None:
    """Nothing is known of its sessions; when its link is back, it is asked again."""
    stores = Stores(2)
    one, other = stores.shards
    for _ in range(100):
        stores.turn(one, 100)
        one.asked.clear()
    assert stores.dropped == [] and states(stores, 0)[1] == "sessions that were not asked yet"
    stores.lose(one, other)
    settled(stores)
    assert stores.gone(0)[0] == (1, "read")


def test_without_the_setting_nobody_is_asked() -> None:
    """Age alone decides, and no page of sessions is looked at."""
    stores = Stores(2, hold_unread=False)
    stores.connect(b"c")
    stores.subscribe(b"c", b"#")
    one = stores.shards[0]
    stores.publish(one, b"a")
    for _ in range(80):
        for shard in stores.shards:
            shard.tick(100)
    assert not one.asked and one.core.counters["unread_pages"] == 0 and one.core.counters["generations_dropped"] >= 1


def test_a_subscription_that_is_being_made_holds() -> None:
    """It may have messages from the moment of its route on, and nobody knows yet where that was."""
    stores = Stores(2)
    stores.connect(b"c")
    adding = stores.begin_subscription(b"c", b"#")
    stores.route(adding, stores.shards[0])
    stores.publish(stores.shards[0], b"a")
    settled(stores)
    assert stores.dropped == [] and states(stores, 0)[1] == "session c"
    stores.route(adding, stores.shards[1])
    stores.activate(adding)
    settled(stores)
    assert stores.gone(0) == [] and stores.gone(1)[0] == (1, "read")


def test_a_subscription_that_was_never_made_holds_nothing() -> None:
    """Its owner ended meanwhile; the next one takes it back."""
    stores = Stores(2)
    stores.connect(b"c")
    stores.begin_subscription(b"c", b"#")
    stores.crash(stores.home(b"c"))
    settled(stores)
    assert stores.gone(0) and stores.gone(1)


def test_a_sweep_that_is_under_way_holds_what_it_has_not_come_to() -> None:
    """Its place has a horizon behind the generation, and streams of the generation that were not read."""
    stores = filled(topic_filter=b"a/#", tail_bytes_max=1)
    one = stores.shards[0]
    for topic in (b"a/2", b"a/3"):
        stores.publish(one, topic)
    # Sealed, so that the horizon is behind its end.
    settled(stores)
    for left in (2, 1):
        assert stores.read(b"c", 0, one, 1) == 1
        stores.acknowledge(b"c")
        assert dict(stores.state(b"c").subs[0].places)[0].horizon, "there is a sweep under way"
        settled(stores)
        assert stores.gone(0) == [] and "session c" in states(stores, 0)[1], f"{left} messages are unread"
    stores.read_all(b"c")
    settled(stores)
    assert stores.gone(0)[0] == (1, "read")


def test_a_home_tells_only_of_what_is_committed() -> None:
    """An acknowledgement that a crash may undo holds until it cannot be undone any more."""
    stores = Stores(2)
    client = next(b"c%d" % n for n in range(9) if stores.home(b"c%d" % n) is stores.shards[1])
    stores.connect(client)
    stores.subscribe(client, b"a/+")
    one, home = stores.shards
    stores.publish(one, b"a/1")
    stores.read(client, 0, one, 10)
    settled(stores)
    assert stores.gone(0) == []
    stores.acknowledge(client, sync=False)
    for _ in range(40):
        stores.turn(one, 100)
        stores.carry(one)
        stores.turn(home, 0, sync=False)
        stores.tell(home)
    assert stores.gone(0) == []
    home.commit()
    stores.tell(home)
    settled(stores)
    assert stores.gone(0)[0] == (1, "read")


def test_an_answer_to_another_question_is_none() -> None:
    """Of a link that is gone, or of somebody else."""
    stores = Stores(2)
    one = stores.shards[0]
    for _ in range(60):
        stores.turn(one, 100)
    (asked, *_) = one.asked
    for shard, number in ((1, asked.query.id + 1), (0, asked.query.id)):
        one.core.handle(ShardTold(shard, Result(number, UnreadFound([], [], b""))))
    for _ in range(60):
        stores.turn(one, 100)
    assert stores.gone(0) == []
    one.core.handle(ShardTold(1, Result(asked.query.id, UnreadFound([], [], b""))))
    for _ in range(20):
        stores.turn(one, 100)
    assert stores.gone(0)[0] == (1, "read")


def test_a_session_that_goes_back_is_asked_again() -> None:
    """It wanted nothing when its home was asked, and another home has not answered yet."""
    stores = Stores(2)
    client = next(b"c%d" % n for n in range(9) if stores.home(b"c%d" % n) is stores.shards[0])
    stores.connect(client)
    stores.subscribe(client, b"a/+")
    one, other = stores.shards
    start = dict(stores.state(client).subs[0].places)[0]
    stores.publish(one, b"a/1")
    stores.read_all(client)
    for _ in range(80):
        stores.turn(one, 100)
    assert one.asked and stores.dropped == [], "only the other home is waited for"
    sub = stores.state(client).subs[0]
    places = {**dict(sub.places), 0: start}
    back = replace(sub, places=tuple(sorted(places.items())), read=frozenset())
    stores.commit(client, State((back,)), [(PLACE, u64(sub.number) + bytes((0,)), pack_place(start))], [])
    one.receive(S, Query(7, Rewound(start.cut)))
    stores.turn(one, 0)
    assert [result.told for result in one.take(S, Result)] == [RewoundNoted(start.cut)]
    stores.carry(one)
    stores.turn(other, 0)
    stores.tell(other)
    settled(stores)
    assert stores.gone(0) == [] and "session" in states(stores, 0)[1]


def test_a_session_that_is_held_is_told_once() -> None:
    """The log has one line for a generation that stays, however long that is."""
    stores = filled()
    settled(stores)
    settled(stores)
    assert [item.generation for item in stores.news if isinstance(item, Held)] == [1, 1]


def test_many_sessions_are_gone_over_in_pages() -> None:
    """More than fit into a page; the last one holds, and no page is asked for twice when it lets go."""
    stores = Stores(2)
    clients = [b"client-%03d" % n for n in range(60)]
    for client in clients:
        stores.connect(client)
        stores.subscribe(client, b"a/#")
    for shard in stores.shards:
        stores.publish(shard, b"a/1")
    for client in clients[:-1]:
        stores.read_all(client)
    settled(stores)
    assert stores.dropped == [] and "client-059" in states(stores, 0)[1]
    stores.read_all(clients[-1])
    settled(stores)
    assert stores.gone(0)[0] == stores.gone(1)[0] == (1, "read")
