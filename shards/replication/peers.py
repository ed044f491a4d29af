"""What a leader knows of the other copies in its epoch: how far each has its log, and what is on its way there.

Nothing of an earlier epoch counts, so all of it is made anew when an epoch begins.

A copy that has not what a message built on says so to each message that was on its way to it. If each of these answers were followed by a
window of messages, there would be ever more of them. So after the first one message at a time looks for where both logs agree, and answers
to what was sent before it are not heard.

Always holds (see check): match <= sent <= the end of the log; no more than WINDOW_APPENDS messages are unanswered, one while it is looked
for (`probe`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shards.replication.bounds import ACK_MS, APPEND_BYTES, APPEND_ENTRIES, HEARTBEAT_MS, RESEND_MS, WINDOW_APPENDS
from shards.replication.configuration import Rid
from shards.replication.messages import Append
from shards.replication.own import Own
from shards.replication.ports import Log


@dataclass(slots=True)
class Peer:
    """match: acknowledged. sent: the end of what was sent. window: the ends of unanswered messages. goal: where the log ended when it was
    last caught up, and goal_ms when that was. lacks: the log does not go back to where it is. probe: behind which entry the one message was
    sent that looks for where both agree; None: that is known. heard_ms: when it has answered last."""

    rid: Rid
    sent: int
    goal: int
    goal_ms: int
    match: int = 0
    window: deque[int] = field(default_factory=deque)
    sent_ms: int = -HEARTBEAT_MS
    moved_ms: int = 0
    lacks: bool = False
    probe: int | None = None
    hello_ms: int = 0
    heard_ms: int = -ACK_MS

    def acked(self, upto: int, last: int, now_ms: int) -> None:
        self.heard_ms = now_ms
        if upto > self.match:
            self.match, self.moved_ms = upto, now_ms
        self.sent = max(self.sent, self.match)
        if self.probe is not None and upto >= self.probe:
            self.probe = None
        while self.window and self.window[0] <= upto:
            self.window.popleft()
        if self.match >= self.goal:
            self.goal, self.goal_ms = last, now_ms

    def refused(self, hint: int, last: int, now_ms: int) -> None:
        """It has not what a message built on. A hint that is no lower than what is being tried comes late; but one whose log was taken for
        too short is believed."""
        self.heard_ms = now_ms
        at = max(self.match, min(hint, last))
        if self.probe is None or self.lacks or at < self.probe:
            self.probe = self.sent = at
            self.window.clear()

    def behind_ms(self, now_ms: int) -> int:
        """For how long it has not reached what was the end of the log."""
        return now_ms - self.goal_ms

    def check(self, last: int) -> None:
        assert self.match <= self.sent <= last, (self, last)
        assert len(self.window) <= self.window_max

    @property
    def window_max(self) -> int:
        return WINDOW_APPENDS if self.probe is None else 1

    @property
    def known(self) -> int:
        """Behind which entry it is asked whether it has what comes before."""
        return self.sent if self.probe is None else self.probe


def replicate(own: Own, epoch: int, peer: Peer) -> None:
    """Send what it lacks, as far as the window goes, or a heartbeat when it is time."""
    log = own.writing.log
    if peer.window and own.now_ms - max(peer.moved_ms, peer.sent_ms) >= RESEND_MS:
        peer.sent = peer.match
        peer.probe = None
        peer.window.clear()
    peer.lacks = log.epoch_at(peer.known) is None
    while peer.sent < log.last and len(peer.window) < peer.window_max and not peer.lacks:
        entries = log.read(peer.sent + 1, APPEND_ENTRIES, APPEND_BYTES)
        own.send(peer.rid, Append(epoch, peer.sent, _epoch_at(log, peer.sent), tuple(entries), own.commit))
        peer.sent += len(entries)
        peer.window.append(peer.sent)
        peer.sent_ms = own.now_ms
    if own.now_ms - peer.sent_ms >= HEARTBEAT_MS:
        before = log.last if peer.lacks else peer.known
        own.send(peer.rid, Append(epoch, before, _epoch_at(log, before), (), own.commit))
        peer.sent_ms = own.now_ms


def _epoch_at(log: Log, index: int) -> int:
    found = log.epoch_at(index)
    assert found is not None, f"entry {index} is not in the log from {log.first} to {log.last}"
    return found
