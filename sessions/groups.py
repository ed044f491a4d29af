"""The dispatcher of shared groups at home in the served shards: from a group's session to members, and back (docs/groups.md).

A group's session is one of the sessions here; what it sends comes to `GroupOutput` instead of a gateway.  Who has which number the
homes of the members say, each in the order in which it happened; this is a cache of that, made anew by Open.

    free -> giving (a Give is on its way) -> given -> settled: acknowledged to the group's session -> committed: Settle
                                          -> back: free again

Holds after every call (see check):
1. a number that has come and is not acknowledged is either free or held by one member, and its message is here;
2. nothing is given to a member whose shard has not answered the last Open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sessions.acks import Acks
from sessions.attaching import Attaching
from sessions.bodies import REPLAYED
from sessions.committing import Committing, Home
from sessions.declaring import Declaring
from sessions.frames import PUBREC, Acked, Attach, Attached, SessionClosed
from sessions.frames import Frame as GatewayFrame
from sessions.group import Group, Held
from sessions.output import Output
from sessions.routes import Routes
from sessions.session import Session
from sessions.state import GROUPS, Later, State, earlier
from sessions.window import Batch
from shards.frames import (
    IS_BACK,
    IS_GIVEN,
    IS_SETTLED,
    Entry,
    Give,
    GroupFound,
    GroupMade,
    GroupNews,
    Groups,
    GroupsFound,
    GroupTaken,
    Open,
    Reply,
    Settle,
    TakeBack,
    Told,
)
from shards.messages import encode_message

_VERSION = 5
_ENTRIES_AT_ONCE = 1_000
"""So many at most go to a shard in one frame."""
_BYTES_MIN = 64 << 10
"""So much a group may have in memory, however many there are."""


class GroupOutput(Output):
    """In place of a gateway's link: what group sessions send."""

    __slots__ = ("_arrived",)

    def __init__(self, arrived: Callable[[int, Batch, int, int], None]) -> None:
        super().__init__(GROUPS, "", 0)
        self._arrived = arrived

    def deliver(self, conn: int, batch: Batch, start: int, stop: int) -> None:
        self._arrived(conn, batch, start, stop)

    def pubrel(self, conn: int, packet_ids: list[int]) -> None: ...

    def pubrel_unknown(self, conn: int, packet_ids: list[int]) -> None: ...


class Dispatcher:
    def __init__(
        self, state: State, homes: dict[int, Home], committing: Committing, attaching: Attaching, acks: Acks, routes: Routes
    ) -> None:  # fmt: skip
        self._state = state
        self._homes = homes
        self._committing = committing
        self._attaching = attaching
        self._acks = acks
        self._declaring = Declaring(state, routes, attaching.replaced)
        self._groups: dict[int, Group] = {}
        self._by_conn: dict[int, Group] = {}
        self._serial = 0
        self._early: dict[Home, None] = {}
        """Of which something was made before their token came: in the same record, or long ago and gone since."""
        self._stirred: dict[Group, None] = {}
        """Of which something has changed in this turn."""
        self._entries: dict[int, list[tuple[Home, int, Entry]]] = {}
        """What goes to each shard at the end of this turn, with the home of the group and its token."""
        self._again: Later[Home] = Later(state.options.retry_ms)
        self._to_look: dict[Home, None] = {}
        """Those in `_again`."""
        self._away: Later[tuple[Group, bytes, int]] = Later(state.options.redelivery_after_ms)
        self.queries: dict[int, int] = {}
        state.outputs[GROUPS] = GroupOutput(self._arrived)
        state.to_groups = self._from_sessions

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def attached(self) -> int:
        return sum(group.session is not None for group in self._groups.values())

    def settings_changed(self) -> None:
        self._away.change(self._state.now_ms, self._state.options.redelivery_after_ms)
        for group in self._groups.values():
            group.use(self._state.options, group.own_strategy)
            self._stirred[group] = None

    # ---------------------------------------------------------------- which groups there are
    def owner_changed(self, home: Home) -> None:
        if home.token:
            for row in home.groups:
                self._found(home, GroupFound(*row))
            home.groups = ()
            if home in self._early:
                del self._early[home]
                self._look(home)
        else:
            self._declaring.owner_gone(home)
            for left in [group for group in self._groups.values() if group.home is home]:
                self._drop(left)

    def shard_linked(self, shard: int) -> None:
        home = self._homes.get(shard)
        if home is not None and home.token:
            # What was made meanwhile we have not heard of.
            self._look_later(home)
        for group in self._groups.values():
            self._open(group, shard)

    def shard_lost(self, shard: int) -> None:
        for group in self._groups.values():
            group.ready.pop(shard, None)

    def made(self, shard: int, frame: GroupMade) -> None:
        home = self._homes.get(shard)
        if home is not None and home.token:
            self._found(home, GroupFound(*frame))
        elif home is not None:
            self._early[home] = None

    def ended(self, group: int) -> None:
        """Its own subscription is to be removed everywhere: the group is no more."""
        self._declaring.ended(group)
        found = self._groups.get(group)
        if found is not None:
            self._drop(found)
            self._close(found)

    def _look_later(self, home: Home) -> None:
        if home not in self._to_look:
            self._to_look[home] = None
            self._again.add(self._state.now_ms, home)

    def _look(self, home: Home) -> None:
        token = home.token

        def told(told: Told | None) -> None:
            if not isinstance(told, GroupsFound):
                self._look_later(home)
            elif home.token == token:
                found = [GroupFound(*row) for row in told.groups]
                there = {one.group for one in found}
                for gone in [group for group in self._groups.values() if group.home is home and group.id not in there]:
                    self._drop(gone)
                    self._close(gone)
                for one in found:
                    self._found(home, one)

        self._state.query(home.shard, Groups(), self, told)

    def _found(self, home: Home, found: GroupFound) -> None:
        if found.lays:
            self._declaring.lay(home, found)
        if found.begun:
            self._begin(home, found)

    def _begin(self, home: Home, found: GroupFound) -> None:
        options = self._state.options
        if found.group in self._groups:
            group = self._groups[found.group]
            group.use(options, found.strategy)
            self._stirred[group] = None
            if group.session is None and not group.attaching and len(group.ready) == self._state.n_shards:
                self._attach(group)
            return
        group = Group(home, found.filter, found.group, found.session_id, options, found.strategy)
        self._groups[group.id] = self._by_conn[group.session_id] = group
        for shard in range(self._state.n_shards):
            self._open(group, shard)

    def _open(self, group: Group, shard: int) -> None:
        self._serial += 1
        group.serials[shard] = self._serial
        group.ready.pop(shard, None)
        self._ask(group, shard, Open(group.id, group.filter, group.home.token, self._serial))

    def _ask(self, group: Group, shard: int, entry: Entry) -> None:
        self._entries.setdefault(shard, []).append((group.home, group.home.token, entry))

    def _send(self) -> None:
        """Everything of one turn in few frames."""
        entries, self._entries = self._entries, {}
        for shard, asked in entries.items():
            some: list[tuple[Home, int, Entry]] = []
            size = 0
            for row in asked:
                entry = row[2]
                size += sum(map(len, entry.values)) if isinstance(entry, Give) else 0
                some.append(row)
                if size >= self._state.options.deliver_bytes_max or len(some) == _ENTRIES_AT_ONCE:
                    self._state.ask(shard, [each[2] for each in some], partial(self._taken, some))
                    some, size = [], 0
            if some:
                self._state.ask(shard, [each[2] for each in some], partial(self._taken, some))

    def _taken(self, asked: list[tuple[Home, int, Entry]], replies: list[Reply]) -> None:
        for (home, token, _), reply in zip(asked, replies, strict=True):
            assert isinstance(reply, GroupTaken)
            if reply.code and home.token == token:
                # Somebody else gives the messages of this home now.
                self._attaching.replaced(home)

    # ---------------------------------------------------------------- the session of a group
    def _attach(self, group: Group) -> None:
        """Every shard has answered: what is loaded from now on is newer than all that they have told."""
        group.attaching = True
        window = self._state.options.group_inflight_max
        self._attaching.attach(GROUPS, Attach(group.filter, group.session_id, group.session_id, True, _VERSION, window))

    def _from_sessions(self, frame: GatewayFrame) -> None:
        if isinstance(frame, Attached):
            group = self._by_conn.get(frame.conn)
            if group is None:
                return
            group.attaching = False
            if frame.code:
                self._look_later(group.home)
            else:
                group.begin(self._state.by_conn[frame.conn])
                self._stirred[group] = None
        elif isinstance(frame, SessionClosed):
            group = self._by_conn.get(frame.conn)
            if group is not None:
                # What it had acknowledged may not be committed: who has what is asked anew.
                self._drop(group)
                self._look_later(group.home)

    def _close(self, group: Group) -> None:
        session, group.session = group.session, None
        if session is not None and session.attached:
            self._attaching.detach(session)

    def _drop(self, group: Group) -> None:
        group.dropped = True
        del self._groups[group.id], self._by_conn[group.session_id]

    def _arrived(self, conn: int, batch: Batch, start: int, stop: int) -> None:
        group = self._by_conn.get(conn)
        if group is None:
            return
        self._stirred[group] = None
        bodies = batch.bodies
        for at in range(start, stop):
            index = batch.indexes[at]
            topic, body, published_at_ms, flags = bodies.messages[index]
            publisher = bodies.publishers[index]
            # Where the group begins is not its members' doing: what is history for it is a message for them.
            value = encode_message(flags & ~REPLAYED, published_at_ms, publisher, topic, body)
            group.arrived(batch.numbers[at], publisher, topic, value)

    # ---------------------------------------------------------------- what members' homes tell
    def news(self, shard: int, frame: GroupNews) -> None:
        group = self._groups.get(frame.group)
        if group is None or frame.serial != group.serials[shard]:
            return
        before = group.numbers_at(shard) if frame.whole else []
        if frame.whole:
            group.forget_members(shard)
        for client, presence in frame.members:
            group.member(client, shard, presence)
        told: dict[int, None] = {}
        for client, number, what in frame.deliveries:
            told[number] = None
            if what == IS_GIVEN:
                group.given(number, client, shard)
            elif what == IS_SETTLED:
                group.settled(number, client, shard)
            else:
                assert what == IS_BACK
                group.back(number, client)
        for number in before:
            if number not in told:
                group.back(number, group.held[number].client)
        if frame.whole:
            group.ready[shard] = None
            if len(group.ready) == self._state.n_shards and group.session is None and not group.attaching:
                self._attach(group)
        self._stirred[group] = None
        for client in group.absent(self._state.now_ms):
            self._away.add(self._state.now_ms, (group, client, self._state.now_ms))

    # ---------------------------------------------------------------- a turn
    def turn(self) -> None:
        """Before sessions are pumped: acknowledge, and let groups read that can give."""
        for home in self._again.due(self._state.now_ms):
            del self._to_look[home]
            if home.token:
                self._look(home)
        for group, client, since_ms in self._away.due(self._state.now_ms):
            self._late(group, client, since_ms)
        for group in self._stirred:
            session = group.session
            if session is None or group.dropped:
                continue
            self._acknowledge(group, session)
            self._regulate(group, session)

    def dispatch(self) -> None:
        """What has come goes to members."""
        if not self._stirred and not self._entries:
            return
        stirred, self._stirred = self._stirred, {}
        for group in stirred:
            if group.session is None or group.dropped:
                continue
            for client, numbers in group.choose().items():
                self._give(group, client, numbers)
            self._regulate(group, group.session)
            if group.settles:
                self._stirred[group] = None
        self._send()

    def _regulate(self, group: Group, session: Session) -> None:
        """It reads while somebody is there to take what it brings, and not too much is in memory."""
        options = self._state.options
        share = max(_BYTES_MIN, options.groups_bytes_max // max(1, len(self._groups)))
        held = not group.may_read(min(share, options.group_bytes_max))
        if held != session.held:
            session.held = held
            if not held:
                self._state.stir(session)

    def _give(self, group: Group, client: bytes, numbers: list[int]) -> None:
        member = group.members[client]
        values: list[bytes] = []
        some: list[int] = []
        size = 0
        for number in numbers:
            value = group.messages[number].value
            if some and size + len(value) > self._state.options.deliver_bytes_max:
                self._ask(group, member.shard, Give(group.id, group.filter, group.home.token, client, member.conn, some, values))
                some, values, size = [], [], 0
            some.append(number)
            values.append(value)
            size += len(value)
        self._ask(group, member.shard, Give(group.id, group.filter, group.home.token, client, member.conn, some, values))
        self._state.counters.group_given += len(numbers)

    def _acknowledge(self, group: Group, session: Session) -> None:
        open, closed = group.take_settled(session.two)
        if open:
            packet_ids = [session.two.packet_id(number) for number, _ in open]
            self._acks.acked(session, Acked(session.conn, PUBREC, packet_ids, True))
            group.acknowledged([number for number, _ in open])
            self._committing.lazily(session)
            session.on_commit(lambda: self._settle(group, open))
        if closed:
            # Their homes say it again, or they were finished in what was loaded; in either case that may still wait for its commit.
            session.progress_dirty = True
            self._committing.soon(session)
            session.on_commit(lambda: self._settle(group, closed))

    def _settle(self, group: Group, settled: list[tuple[int, Held]]) -> None:
        if group.dropped:
            return
        by_shard: dict[int, list[tuple[bytes, int]]] = {}
        for number, held in settled:
            by_shard.setdefault(held.shard, []).append((held.client, number))
        for shard, deliveries in by_shard.items():
            self._ask(group, shard, Settle(group.id, group.home.token, deliveries))

    def _late(self, group: Group, client: bytes, since_ms: int) -> None:
        """Its client is away for long, or was and is back."""
        shard = group.still_absent(client, since_ms)
        if shard is not None and not group.dropped:
            self._state.counters.group_taken_back += 1
            self._ask(group, shard, TakeBack(group.id, group.home.token, client))
            self._away.add(self._state.now_ms, (group, client, since_ms))

    @property
    def next_ms(self) -> int | None:
        due_ms = earlier(self._again.next_ms, self._away.next_ms)
        return earlier(due_ms, self._state.now_ms) if self._stirred or self._entries else due_ms

    def check(self) -> None:
        for group in self._groups.values():
            group.check()
            assert self._by_conn[group.session_id] is group
            if group.session is not None:
                assert self._state.by_conn.get(group.session_id) is group.session
