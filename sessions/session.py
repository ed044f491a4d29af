"""One durable session in the memory of its session actor: a cache of its rows and what is under way.

No rules here: who changes what is in the modules named after it.  A session is in memory while a connection is attached,
and after that until what it still had to commit is answered.

What waits is in lists and dicts, also where its first one is taken away: empty they take 60 bytes, a deque 0.7 kB and a set 0.2, and most
sessions are idle.  They are short, and where one is not, as with 10^5 subscriptions that begin to read, that costs some 30 us a poll.

Commits of one session are counted: `commits_done` are answered, number `commits_done + 1` is under way while `committing`,
and whatever is changed now goes with number `next_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mqtt.topics import is_shared
from sessions.deliveries import NO_DELIVERIES
from sessions.options import Reads
from sessions.ranges import Range, RangeLog, Terms
from sessions.seqno import SPAN_MAX, Track
from sessions.window import Window
from shards.entries import Letter
from shards.frames import Gone, Place
from shards.rows import ACTIVE, LossRow, SubscriptionRow, pack_subscription, u64

if TYPE_CHECKING:
    from sessions.idle import Watch
    from sessions.retained import RetainedJob
    from sessions.subscriptions import Operation


class Cursor:
    """How far one subscription has read one shard.

    head: it takes what the feed brings, and its place is the greater of `place.cut` and the end of the feed.  Otherwise it
    is behind and polls: `asked` while a poll is under way, `waiting` while it is in the session's queue for one.
    saved: the place in the row, None when there is no row yet.
    looking: it asks only because it had got nothing for a while.  watch: by which somebody sees that.
    repeats: what it reads before it is at the head may have been sent by a process of ours that has died.
    past: what of this shard is history of a replay.  history: the terms of that, made of those of the subscription.
    """

    __slots__ = ("asked", "head", "history", "looking", "past", "place", "repeats", "saved", "shard", "sub", "waiting", "watch")

    def __init__(self, sub: Subscription, shard: int, place: Place, saved: Place | None) -> None:
        self.sub = sub
        self.shard = shard
        self.place = place
        self.saved = saved
        self.head = False
        self.asked = False
        self.waiting = False
        self.looking: Look | None = None
        self.watch: Watch | None = None
        self.past = NOT_PAST
        self.repeats = False
        self.history: Terms | None = None


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


class Subscription:
    """An active subscription.  cursors: one per shard when it has a route, which it has at QoS 1 and 2, and at QoS 0 when it was
    made under store_qos0; else none.  starts: as in its row.  reads: how it reads now.  ended: it was removed.  past: of a replay, by
    shard; ends: it is over when that has been read.

    retained_topics: while retained messages are being copied, the topics of newer ones that came through the store.
    """

    __slots__ = ("cursors", "ended", "ends", "past", "reads", "retained_topics", "session", "starts", "sub_id", "terms")

    def __init__(self, session: Session, terms: Terms, starts: list[tuple[int, int]]) -> None:
        self.session = session
        self.sub_id = terms.sub_id
        self.terms = terms
        self.starts = starts
        self.reads = session.reads
        self.cursors: list[Cursor] = []
        self.past = NO_REPLAY
        self.ends = False
        self.ended = False
        self.retained_topics: dict[bytes, None] | None = None

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

    def add_cursor(self, shard: int, place: Place, saved: Place | None) -> Cursor:
        cursor = Cursor(self, shard, place, saved)
        cursor.past = self.past.get(shard, NOT_PAST)
        self.cursors.append(cursor)
        return cursor

    def row(self, state: int = ACTIVE) -> bytes:
        terms = self.terms
        past = (self.ends, [(shard, *past) for shard, past in self.past.items()]) if self.past else ()
        return pack_subscription(SubscriptionRow(terms.filter, terms.qos, terms.options, terms.identifier, state, self.starts, past))


class Reread:
    """A range that is read again after a reconnect.  values None: not told yet."""

    __slots__ = ("asked", "before", "gone", "lost", "range", "values")

    def __init__(self, range: Range) -> None:
        self.range = range
        self.asked = False
        # As in shards.queries.RangeRead.
        self.lost = False
        self.before = 0
        self.gone: Sequence[Gone] = ()
        self.values: list[bytes] | None = None


class Session:
    __slots__ = (
        "adding", "after_commit", "again", "attached", "busy", "client", "commits_done", "committing", "conn", "dropped", "given", "held",
        "home", "in_heartbeat", "in_lazy", "later", "letters", "link", "losses", "newest_loss", "one", "operations", "places",
        "progress_dirty", "queries", "ranges", "reader", "reads", "received", "releases", "reload", "removals", "rereads", "reserved",
        "reserved_bytes", "retained", "rows", "running", "said_online", "sends", "session_id", "starving", "subs", "two", "uncertain",
        "untold", "window",
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
        self.releases: list[tuple[int, list[int]]] = []
        """PUBRELs that wait for their commit."""
        self.again: dict[int, tuple[int, int]] = {}
        """By QoS, the oldest delivery of a track, and how many connections ended with it sent and not acknowledged."""
        self.letters: list[Letter] = []
        """Dead letters that the next commit takes along."""
        # Reading.
        self.subs: dict[bytes, Subscription] = {}
        self.starving: list[Cursor] = []
        """Cursors that are behind and have no poll under way."""
        self.rereads: list[Reread] = []
        self.later: dict[Cursor, None] = {}
        """Cursors whose shard could not answer; they are asked again after a while."""
        self.reserved = 0
        self.reserved_bytes = 0
        """Room for the answers of polls under way."""
        self.queries: dict[int, int] = {}
        self.retained: list[RetainedJob] = []
        self.given = NO_DELIVERIES
        """Of shared groups."""
        # Changes of subscriptions.
        self.busy: dict[bytes, None] = {}
        self.operations: list[Operation] = []
        self.running = 0
        self.adding = 0
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
        self.after_commit: list[tuple[int, Callable[[], None]]] = []
        self.removals: list[tuple[int, Callable[[], None]]] = []
        """Routes to be removed, and losses to be told, after a commit: also when the session is dropped while it is under way."""
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
        return bool(self.progress_dirty or self.rows or self.places or self.ranges.fresh or self.ranges.dead)

    def room(self, count_max: int) -> int:
        """How many more messages may be assigned, polls under way counted, when `count_max` may wait unsent."""
        return min(count_max - self.window.unsent, SPAN_MAX - self.one.open, SPAN_MAX - self.two.open) - self.reserved

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
        self.after_commit.append((self.next_commit, then))

    def tell_when_committed(self, tell: Callable[[], None]) -> None:
        self.removals.append((self.next_commit, tell))

    def committed(self) -> None:
        """The commit that was under way is taken: what waited for it goes on."""
        self.commits_done += 1
        for waiting in (self.after_commit, self.removals):
            while waiting and waiting[0][0] <= self.commits_done:
                waiting.pop(0)[1]()

    def drop(self) -> None:
        """Not attached, and not in memory any more."""
        self.dropped = True
        self.after_commit.clear()
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
        assert self.reserved >= 0 and self.reserved_bytes >= 0
        for sub in self.subs.values():
            assert not sub.ended
            for cursor in sub.cursors:
                assert cursor.head + cursor.asked + cursor.waiting <= 1, "a cursor does one thing at a time"
                if self.attached:
                    assert cursor.head or cursor.asked or cursor.waiting or cursor in self.later
        if self.attached:
            under_way = sum(not self.two.is_finished(number) for number in self.received if number > self.two.out)
            for track in (self.one, self.two):
                under_way += track.out - track.committed - sum(number <= track.out for number in track.done)
            assert self.window.inflight == under_way, f"{self.window.inflight} in the window, {under_way} under way"


def sub_key(sub_id: int) -> bytes:
    return u64(sub_id)


def place_key(sub_id: int, shard: int) -> bytes:
    return u64(sub_id) + bytes((shard,))
