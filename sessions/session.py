"""One durable session in the memory of its session actor: a cache of its rows and what is under way.

No rules here: who changes what is in the modules named after it.  A session is in memory while a connection is attached,
and after that until what it still had to commit is answered.

What waits is in lists and dicts, also where its first one is taken away: empty they take 60 bytes, a deque 0.7 kB and a set 0.2, and most
sessions are idle.  They are short, and where one is not, as with 10^5 subscriptions that begin to read, that costs some 30 us a poll.
What an idle session never has is in parts of their own, which it has only while something is under way (sessions.underway).

Commits of one session are counted: `commits_done` are answered, number `commits_done + 1` is under way while `committing`,
and whatever is changed now goes with number `next_commit`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from mqtt.topics import is_shared
from sessions.deliveries import NO_DELIVERIES
from sessions.options import Reads
from sessions.ranges import Range, RangeLog, Terms
from sessions.seqno import SPAN_MAX, Track
from sessions.underway import NOT_ASKING, NOT_AWAITING, NOT_CHANGING, Asking, Awaiting, Changing
from sessions.window import Window
from shards.entries import Letter
from shards.frames import Gone, Place
from shards.rows import ACTIVE, LossRow, SubscriptionRow, pack_subscription, u64

if TYPE_CHECKING:
    from sessions.idle import Watch
    from sessions.retained import RetainedJob


class Doing(Enum):
    """What a cursor does: one thing at a time."""

    NOTHING = "nothing"
    """Nobody is connected, or it has just left the head."""
    HEAD = "at the head"
    """It takes what the feed brings."""
    WAITING = "waiting"
    """It is behind, and in the session's queue for a poll."""
    ASKED = "asked"
    """It is behind, and a poll is under way."""
    LATER = "later"
    """Its shard could not answer; it is asked again after a while."""


HEAD = Doing.HEAD


class Cursor:
    """How far one subscription has read one shard.

    cut: its place, or at the head what is the greater of that and the end of the feed.  sweep: the place in the middle of a sweep;
    else None, for then the cut says all of it.  saved: the cut of the place in the row, None when there is no row yet.
    moved, behind: whether it has since it was last looked at, and where it was then (sessions.idle).
    looking: it asks only because it had got nothing for a while.
    repeats: what it reads before it is at the head may have been sent by a process of ours that has died.
    full: its last poll brought as many messages as it asked for, so there are more.
    """

    __slots__ = ("behind", "cut", "doing", "full", "looking", "moved", "repeats", "saved", "shard", "sub", "sweep")

    def __init__(self, sub: Subscription, shard: int, place: Place, saved: Place | None) -> None:
        self.sub = sub
        self.shard = shard
        self.place = place
        self.saved = saved.cut if saved is not None else None
        self.doing = Doing.NOTHING
        self.looking: Look | None = None
        self.moved = False
        self.behind = False
        self.repeats = False
        self.full = False

    @property
    def place(self) -> Place:
        return self.sweep if self.sweep is not None else Place(self.cut)

    @place.setter
    def place(self, place: Place) -> None:
        self.cut = place.cut
        self.sweep = place if place.horizon else None
        self.moved = True

    @property
    def unsaved(self) -> bool:
        """Whether its row may say another place."""
        return self.sweep is not None or self.cut != self.saved

    @property
    def past(self) -> Past:
        """What of this shard is history of a replay."""
        return self.sub.past.get(self.shard, NOT_PAST)


class Look(NamedTuple):
    """how: as in sessions.events.TellStall.  at_ms: steady time; what was published later may be on its way."""

    how: str
    at_ms: int


class Past(NamedTuple):
    """Positions up to `upto` are history; of that, what was published since and until then is wanted (0: all)."""

    upto: int
    since_ms: int = 0
    until_ms: int = 0


NOT_PAST = Past(-1)
NO_REPLAY: Mapping[int, Past] = {}
NO_HISTORY: Mapping[int, Terms] = {}
NOTHING_AGAIN: Mapping[int, tuple[int, int]] = {}


class Subscription:
    """An active subscription.  cursors: one for each shard, in their order, when it has a route, which it has at QoS 1 and 2, and at
    QoS 0 when it was made under store_qos0; else none.  starts: the positions in its row, of each shard.  reads: how it reads now.
    watch: by which somebody sees that nothing comes.  ended: it was removed.  past: of a replay, by shard; history: the terms of that,
    made of its own; ends: it is over when that has been read.

    retained_topics: while retained messages are being copied, the topics of newer ones that came through the store.  to_copy: what its row
    says of those that are still to be copied (sessions.retained); None: it has none.
    """

    __slots__ = (
        "cursors",
        "ended",
        "ends",
        "history",
        "past",
        "reads",
        "retained_topics",
        "session",
        "starts",
        "terms",
        "to_copy",
        "watch",
    )

    def __init__(self, session: Session, terms: Terms, starts: Iterable[int] = ()) -> None:
        self.session = session
        self.terms = terms
        self.starts = array("q", starts)
        self.reads = session.reads
        self.cursors: list[Cursor] = []
        self.past = NO_REPLAY
        self.history = NO_HISTORY
        self.ends = False
        self.ended = False
        self.retained_topics: dict[bytes, None] | None = None
        self.to_copy: RetainedJob | None = None
        self.watch: Watch | None = None

    @property
    def sub_id(self) -> int:
        return self.terms.sub_id

    @property
    def routed(self) -> bool:
        return bool(self.starts) or self.shared

    @property
    def shared(self) -> bool:
        """A member of a group: its routes are for that, it reads nothing by itself."""
        return is_shared(self.terms.filter)

    def let_go(self) -> None:
        """It does not read any more.  It and its cursors hold each other, and its session: of many that come and go, all would be
        there until garbage is collected."""
        self.cursors = []

    def add_cursor(self, place: Place, saved: Place | None) -> Cursor:
        """Of the next shard."""
        cursor = Cursor(self, len(self.cursors), place, saved)
        self.cursors.append(cursor)
        return cursor

    def row(self, state: int = ACTIVE) -> bytes:
        terms, starts = self.terms, list(enumerate(self.starts))
        past = (self.ends, [(shard, *past) for shard, past in self.past.items()]) if self.past else ()
        return pack_subscription(SubscriptionRow(terms.filter, terms.qos, terms.options, terms.identifier, state, starts, past))


class Reread:
    """A range that is read again after a reconnect.  values None: not told yet."""

    __slots__ = ("asked", "before", "gone", "lost", "positions", "range", "values")

    def __init__(self, range: Range) -> None:
        self.range = range
        self.asked = False
        # As in shards.queries.RangeRead.
        self.lost = False
        self.before = 0
        self.gone: Sequence[Gone] = ()
        self.positions: Sequence[int] = ()
        self.values: list[bytes] | None = None


class Session:
    __slots__ = (
        "again", "asking", "attached", "awaiting", "changing", "client", "commits_done", "committing", "conn", "dropped", "given", "held",
        "home", "in_heartbeat", "in_lazy", "letters", "link", "losses", "newest_loss", "one", "places", "progress_dirty", "ranges",
        "reader", "reads", "received", "reload", "rows", "said_online", "sends", "session_id", "subs", "two", "uncertain", "untold",
        "window",
    )  # fmt: skip

    def __init__(self, client: bytes, session_id: int, home: int, one: Track, two: Track, ranges: RangeLog) -> None:
        self.client = client
        self.reader = client.partition(b"\0")[0]
        """Whose own messages a subscription with No Local leaves out: behind a zero, which is in no client id, gateways name a second
        session of a client (gateway.second)."""
        self.session_id = session_id
        self.home = home
        # The connection: `conn` stays after it is gone, because what it caused is committed in its name.
        self.conn = 0
        self.link = 0
        self.reads = Reads()
        """How its subscriptions read, by what was said for everybody and the zone of its connection."""
        self.attached = False
        self.held = False
        """The client does not read: nothing more is assigned."""
        self.dropped = False
        # Deliveries.
        self.one = one
        self.two = two
        self.ranges = ranges
        self.window = Window(0)
        self.received: dict[int, int] = {}
        """QoS 2 numbers above committed for which PUBREC came, and after which commit PUBREL may leave."""
        self.again = NOTHING_AGAIN
        """By QoS, the oldest delivery of a track, and how many connections ended with it sent and not acknowledged."""
        self.letters: tuple[Letter, ...] = ()
        """Dead letters that the next commit takes along."""
        # Reading.
        self.subs: dict[bytes, Subscription] = {}
        self.asking = NOT_ASKING
        self.given = NO_DELIVERIES
        """Of shared groups."""
        # Changes of subscriptions.
        self.changing = NOT_CHANGING
        self.uncertain = False
        """A change was under way when the connection ended: the rows know more than the memory."""
        self.reload = False
        """What it had of shared groups may have been taken from it since."""
        # What is to be committed.
        self.rows: dict[tuple[bytes, bytes], bytes | None] = {}
        self.places: dict[Cursor, None] = {}
        self.progress_dirty = False
        self.sends = False
        """On this connection messages have left at QoS 1, or may have, whose numbers are committed lazily.  said_online: the last commit
        says so."""
        self.said_online = False
        self.in_heartbeat = False
        self.in_lazy = False
        self.commits_done = 0
        self.committing = False
        self.awaiting = NOT_AWAITING
        # What is lost.
        self.untold = False
        """It has lost something since the last CONNACK that said so."""
        self.losses = 0
        """How many loss rows it has.  newest_loss: the last of them, when it is known."""
        self.newest_loss: LossRow | None = None

    @property
    def next_commit(self) -> int:
        return self.commits_done + (2 if self.committing else 1)

    @property
    def has_changes(self) -> bool:
        return bool(self.progress_dirty or self.rows or self.places or self.ranges.has_fresh or self.ranges.dead)

    def room(self, count_max: int) -> int:
        """How many more messages may be assigned, polls under way counted, when `count_max` may wait unsent."""
        return min(count_max - self.window.unsent, SPAN_MAX - self.one.open, SPAN_MAX - self.two.open) - self.asking.reserved

    def finish_two(self, number: int) -> bool:
        """The delivery of this QoS 2 number is over; whether that moved `committed`."""
        before = self.two.committed
        if not self.two.finish(number):
            return False
        for below in range(before + 1, self.two.committed + 1):
            self.received.pop(below, None)
        return True

    def on_commit(self, then: Callable[[], None]) -> None:
        """Call this when everything that is changed now is committed."""
        self.awaits().after_commit.append((self.next_commit, then))

    def tell_when_committed(self, tell: Callable[[], None]) -> None:
        self.awaits().removals.append((self.next_commit, tell))

    def release_when_committed(self, gate: int, packet_ids: list[int]) -> None:
        """PUBREL of these may leave after this commit."""
        self.awaits().releases.append((gate, packet_ids))

    def committed(self) -> list[int]:
        """The commit that was under way is taken: what waited for it goes on.  The identifiers whose PUBREL may leave."""
        self.commits_done += 1
        awaiting = self.awaiting
        if awaiting is NOT_AWAITING:
            return []
        released: list[int] = []
        for waiting in (awaiting.after_commit, awaiting.removals):
            while waiting and waiting[0][0] <= self.commits_done:
                waiting.pop(0)[1]()
        while awaiting.releases and awaiting.releases[0][0] <= self.commits_done:
            released += awaiting.releases.pop(0)[1]
        if awaiting.over:
            self.awaiting = NOT_AWAITING
        return released

    # ---------------------------------------------------------------- what is under way
    def asks(self) -> Asking:
        if self.asking is NOT_ASKING:
            self.asking = Asking()
        return self.asking

    def changes(self) -> Changing:
        if self.changing is NOT_CHANGING:
            self.changing = Changing()
        return self.changing

    def awaits(self) -> Awaiting:
        if self.awaiting is NOT_AWAITING:
            self.awaiting = Awaiting()
        return self.awaiting

    def drop(self) -> None:
        """Not attached, and not in memory any more."""
        self.dropped = True
        self.awaiting.after_commit.clear()
        self.places.clear()
        for sub in self.subs.values():
            sub.let_go()
        self.subs = {}

    def check(self) -> None:
        self.one.check()
        self.two.check()
        self.ranges.check()
        self.window.check()
        assert all(self.two.committed < number <= self.two.sent for number in self.received)
        assert self.asking.reserved >= 0 and self.asking.reserved_bytes >= 0
        waiting = dict.fromkeys(self.asking.starving)
        assert len(waiting) == len(self.asking.starving)
        for sub in self.subs.values():
            assert not sub.ended
            for cursor in sub.cursors:
                assert (cursor.doing is Doing.WAITING) == (cursor in waiting), "it is in the queue exactly while it waits"
                assert (cursor.doing is not Doing.NOTHING) == self.attached
        if self.attached:
            under_way = sum(not self.two.is_finished(number) for number in self.received if number > self.two.out)
            for track in (self.one, self.two):
                under_way += track.out - track.committed - sum(number <= track.out for number in track.done)
            assert self.window.inflight == under_way, f"{self.window.inflight} in the window, {under_way} under way"


def sub_key(sub_id: int) -> bytes:
    return u64(sub_id)


def place_key(sub_id: int, shard: int) -> bytes:
    return u64(sub_id) + bytes((shard,))
