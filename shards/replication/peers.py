"""What a leader knows of the other copies in its epoch: how far each has its log, and what is on its way there.

Nothing of an earlier epoch counts, so all of it is made anew when an epoch begins.

Always holds (see check): match <= sent <= the end of the log; no more than WINDOW_APPENDS messages are unanswered.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shards.replication.bounds import APPEND_BYTES, APPEND_ENTRIES, HEARTBEAT_MS, RESEND_MS, WINDOW_APPENDS
from shards.replication.configuration import Rid
from shards.replication.messages import Append
from shards.replication.own import Own
from shards.replication.ports import Log


@dataclass(slots=True)
class Peer:
    """match: acknowledged. sent: the end of what was sent. window: the ends of unanswered messages. goal: where the log ended when it was
    last caught up, and goal_ms when that was. lacks: the log does not go back to where it is."""

    rid: Rid
    sent: int
    goal: int
    goal_ms: int
    match: int = 0
    window: deque[int] = field(default_factory=deque)
    sent_ms: int = -HEARTBEAT_MS
    moved_ms: int = 0
    lacks: bool = False
    hello_ms: int = 0

    def acked(self, upto: int, last: int, now_ms: int) -> None:
        if upto > self.match:
            self.match, self.moved_ms = upto, now_ms
        self.sent = max(self.sent, self.match)
        while self.window and self.window[0] <= upto:
            self.window.popleft()
        if self.match >= self.goal:
            self.goal, self.goal_ms = last, now_ms

    def refused(self, hint: int, last: int) -> None:
        """It has not what a message built on. A hint that comes late may be too high; the next answer is lower then."""
        self.sent = max(self.match, min(hint, last))
        self.window.clear()

    def behind_ms(self, now_ms: int) -> int:
        """For how long it has not reached what was the end of the log."""
        return now_ms - self.goal_ms

    def check(self, last: int) -> None:
        assert self.match <= self.sent <= last, (self, last)
        assert len(self.window) <= WINDOW_APPENDS


def replicate(own: Own, epoch: int, peer: Peer) -> None:
    """Send what it lacks, as far as the window goes, or a heartbeat when it is time."""
    log = own.writing.log
    if peer.window and own.now_ms - max(peer.moved_ms, peer.sent_ms) >= RESEND_MS:
        peer.sent = peer.match
        peer.window.clear()
    peer.lacks = log.epoch_at(peer.sent) is None
    while peer.sent < log.last and len(peer.window) < WINDOW_APPENDS and not peer.lacks:
        entries = log.read(peer.sent + 1, APPEND_ENTRIES, APPEND_BYTES)
        own.send(peer.rid, Append(epoch, peer.sent, _epoch_at(log, peer.sent), tuple(entries), own.commit))
        peer.sent += len(entries)
        peer.window.append(peer.sent)
        peer.sent_ms = own.now_ms
    if own.now_ms - peer.sent_ms >= HEARTBEAT_MS:
        before = log.last if peer.lacks else peer.sent
        own.send(peer.rid, Append(epoch, before, _epoch_at(log, before), (), own.commit))
        peer.sent_ms = own.now_ms


def _epoch_at(log: Log, index: int) -> int:
    found = log.epoch_at(index)
    assert found is not None, f"entry {index} is not in the log from {log.first} to {log.last}"
    return found
