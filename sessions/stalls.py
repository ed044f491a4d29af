"""What is done about a subscription that gets nothing, and what is said of it (docs/session-tools.md).

A fault of ours, of which nobody has thought: a frame of the feed, a question, an answer or a word within this process is lost though
every link is whole.  sessions.idle sees who does not move; here is whether he may stand where he stands, and what he asks.

    at the head            it polls from its own place                        untold
    behind, has asked      what is as old as that is asked once more          unanswered
    behind, has not asked  its session is looked at, as if it was stirred     asleep

Holds: a question is asked once more in each interval, however many wait for it; what is found is a stall only when it could have come
before the look.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.events import ASLEEP, UNANSWERED, UNTOLD, TellStall, ToFeed
from sessions.feed import ShardFeed
from sessions.session import Cursor, Doing, Look, Session
from sessions.state import State
from shards.frames import FeedTaken, Poll, Polled
from shards.messages import published_at_of

FED_WITHIN_MS = 1_000
"""A message that was so old when the subscription looked should have come before."""


class Stalls:
    def __init__(self, state: State, feeds: Sequence[ShardFeed]) -> None:
        self._state = state
        self._feeds = feeds

    def look_again(self, cursor: Cursor, before_ms: int) -> int:
        """It is at the head, and nothing has come since then; how many questions are asked."""
        self._state.counters.polls_idle += 1
        cursor.looking = Look(UNTOLD, self._state.wall_ms)
        self._feeds[cursor.shard].look_again(cursor)
        return 1 + self._ask_once_more(cursor.sub.session, before_ms)

    def wake(self, cursor: Cursor, before_ms: int) -> int:
        """It is behind, and has not moved since then.  A client that does not acknowledge, or a shard that is away, is waited for."""
        session, state = cursor.sub.session, self._state
        if session.held or session in state.stirred or cursor.doing is Doing.LATER or not state.linked[cursor.shard]:
            return 0
        state.stir(session)
        if session.asking.queries:
            return self._ask_once_more(session, before_ms)
        asking, window = session.asking, session.window
        if asking.rereads or asking.retained or window.unsent or window.inflight >= window.size:
            return 0
        if session.room(window.size + cursor.sub.reads.batch_size) <= 0:
            return 0
        cursor.looking = Look(ASLEEP, state.wall_ms)
        return 1

    def looked(self, cursor: Cursor, look: Look, told: Polled) -> None:
        """What it was told, before its place moves."""
        state = self._state
        published = [published_at_of(value) for segment in told.segments for value in segment.values]
        if not published or look.at_ms - min(published) < FED_WITHIN_MS:
            return
        state.counters.stalls_healed += 1
        sub, oldest_ms = cursor.sub, state.wall_ms - min(published)
        state.effects.append(TellStall(sub.session.client, sub.terms.filter, cursor.shard, look.how, cursor.cut, len(published), oldest_ms))
        if look.how == UNTOLD:
            # Frames that never came are not taken either, and the shard sends only so many more.
            state.effects.append(ToFeed(cursor.shard, FeedTaken(told.place.cut)))

    def _ask_once_more(self, session: Session, before_ms: int) -> int:
        """Whatever this session has asked for, not only this cursor: all of it waits for the same room."""
        again = self._state.ask_once_more(session.asking, before_ms)
        self._state.counters.asked_again += len(again)
        for shard, ask in again:
            sub = session.subs.get(ask.filter) if isinstance(ask, Poll) else None
            for cursor in sub.cursors if sub is not None else ():
                if cursor.shard == shard and cursor.doing is Doing.ASKED:
                    cursor.looking = Look(UNANSWERED, self._state.wall_ms)
        return len(again)
