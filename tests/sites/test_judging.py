"""What is asked of a history and of replicas after a campaign finds what it is for."""

from __future__ import annotations

from dataclasses import replace

from actors.inquiry.sites import Replica, ShardInfo, Sites
from tests.broker.history import Delivery, History, payload_of
from tests.sites.judging import repeated, unsettled


def history_of(qos: int, writings: int, dups: list[bool]) -> History:
    history = History()
    number = history.publish("p", "t", qos, 0)
    for _ in range(writings):
        history.written("p", number)
    history.subscribed("s", "t", qos, 0)
    for dup in dups:
        history.delivered("s", Delivery("t", payload_of("p", number), qos, dup))
    return history


def test_a_message_may_come_anew_as_often_as_it_was_written() -> None:
    """At QoS 1; more with DUP only."""
    assert repeated(history_of(1, 2, [False, False, True])) is None
    assert repeated(history_of(1, 1, [False, True, True])) is None
    assert repeated(history_of(1, 1, [False, False])) == "message 0 of p came to s 2 times anew, and was written 1 times"


def test_at_qos_2_it_comes_once_however_often_it_was_written() -> None:
    """DUP or not: what the client has under an id that is not released is no arrival."""
    assert repeated(history_of(2, 3, [True])) is None
    assert repeated(history_of(2, 3, [False, True])) is not None


def test_what_nobody_counted_is_not_judged() -> None:
    """A will is written by the broker."""
    assert repeated(history_of(1, 0, [False, False])) is None


def test_it_is_settled_when_replicas_are_where_they_shall_be_and_all_in_sync() -> None:
    """And when nothing moves."""
    shard = ShardInfo("messages", 0, (Replica("A1", True), Replica("B2", True)), leader="A1", epoch=3, in_sync=("A1", "B2"))
    seen = Sites("A1", (), (shard,))
    assert unsettled(seen, {"a1", "b2"}) == ""
    assert "were wanted" in unsettled(seen, {"a1"})
    assert "in sync" in unsettled(replace(seen, shards=(replace(shard, in_sync=("A1",)),)), {"a1", "b2"})
    assert "in sync" in unsettled(replace(seen, shards=(replace(shard, writable=False),)), {"a1", "b2"})
    assert "transitions" in unsettled(replace(seen, shards=(replace(shard, transitions=("-A1",)),)), {"a1", "b2"})
