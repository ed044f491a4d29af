"""A leader and one copy that has other entries at its end: what they say to each other until both have the same."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from shards.replication.bounds import APPEND_BYTES, HEARTBEAT_MS, WINDOW_APPENDS
from shards.replication.configuration import Rid
from shards.replication.entry import Entry, Kind
from shards.replication.events import Send
from shards.replication.follower import Following
from shards.replication.messages import Ack, Append, Message, Nak
from shards.replication.own import Applied, Own
from shards.replication.peers import Peer, replicate
from shards.replication.writing import Writing
from tests.replication.disk import MemoryLog

SAME = 100
LEADER, OTHER = Rid("a/1"), Rid("b/1")


def copy(rid: Rid, behind: int, epoch: int, payload: bytes) -> Own:
    """It has SAME entries of epoch 1 and so many of another epoch behind them, on its disk, and has promised epoch 3."""
    log = MemoryLog()
    log.promise(3)
    log.append([Entry(index, 1 if index <= SAME else epoch, Kind.RECORD, payload) for index in range(1, SAME + behind + 1)])
    writing = Writing(log)
    writing.stable, writing.stable_epoch = log.last, 3
    return Own(rid, writing, Applied(SAME, 1, 0), Random(1), commit=SAME)


def said(own: Own) -> list[Message]:
    messages = [effect.message for effect in own.out if isinstance(effect, Send)]
    own.out.clear()
    return messages


@pytest.mark.parametrize("other", [1, 4, 12])
@pytest.mark.parametrize("ahead", [1, WINDOW_APPENDS, 3 * WINDOW_APPENDS])
def test_a_copy_with_other_entries_is_told_each_entry_about_once(ahead: int, other: int) -> None:
    """Not again for each answer to what was on its way: over a link that is slow but loses nothing, answers come in sevens."""
    leader, follower = copy(LEADER, ahead, 3, b"x" * APPEND_BYTES), copy(OTHER, other, 2, b"y")
    last = leader.writing.log.last
    peer, following = Peer(OTHER, last, last, 0), Following(follower)
    there: deque[Message] = deque()
    back: deque[Message] = deque()
    appends = 0
    leader.now_ms = HEARTBEAT_MS
    while peer.match < last:
        replicate(leader, 3, peer)
        peer.check(last)
        there.extend(said(leader))
        if not there:
            leader.now_ms += HEARTBEAT_MS
        else:
            message = there.popleft()
            assert isinstance(message, Append)
            appends += bool(message.entries)
            assert appends <= ahead + other + 2 * WINDOW_APPENDS
            following.take(LEADER, message)
            follower.writing.stable = follower.writing.log.last
            following.settle()
            back.extend(said(follower))
        while len(back) >= 7 or (back and not there):
            answer = back.popleft()
            if isinstance(answer, Ack):
                peer.acked(answer.upto, last, leader.now_ms)
            else:
                assert isinstance(answer, Nak)
                peer.refused(answer.hint, last, leader.now_ms)
            replicate(leader, 3, peer)
            there.extend(said(leader))
    assert [follower.writing.log.epoch_at(index) for index in (SAME, SAME + 1)] == [1, 3]
