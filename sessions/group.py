"""One shared group in the memory of its dispatcher: its members, who has what, and who gets what is next (docs/groups.md).

No rules of links or rows here, see sessions.groups.

By stream, messages of one publisher and topic are with one member as long as it has one of them unfinished, and the next ones wait
for it when it has no room: so they are in order, and such a lease moves only when nothing of it is under way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from sessions.committing import Home
from sessions.options import BY_PUBLISHER, BY_STREAM, BY_TOPIC, ROUND_ROBIN, SessionOptions
from sessions.seqno import Track
from sessions.session import Session
from shards.frames import AWAY, FULL, GONE

COMPARED = 8
"""So many members are compared for the one with least under way, however large the group."""
HASHED_MAX = 10_000


Stream: TypeAlias = tuple[bytes, bytes]
"""Publisher and topic: what is in order."""


class Message(NamedTuple):
    stream: Stream
    value: bytes


class Held(NamedTuple):
    """Who has a message, or is to have it, and where that member is at home."""

    client: bytes
    shard: int


class Member(NamedTuple):
    """conn: its connection number, AWAY or FULL."""

    shard: int
    conn: int

    @property
    def takes(self) -> bool:
        """Whether it can be given anything."""
        return self.conn > FULL


class _Lease:
    """So many messages of one stream are with this client.  behind: numbers of those that wait for it, sorted."""

    __slots__ = ("behind", "client", "count")

    def __init__(self, client: bytes) -> None:
        self.client = client
        self.count = 0
        self.behind: list[int] = []


class Group:
    def __init__(self, home: Home, filter: bytes, id: int, session_id: int, options: SessionOptions, own_strategy: str = "") -> None:
        self.home = home
        self.filter = filter
        self.id = id
        self.session_id = session_id
        self.session: Session | None = None
        self.attaching = False
        self.dropped = False
        self.settles = False
        """Something that is settled has come again: it can be acknowledged in the next turn."""
        self.serials: dict[int, int] = {}
        self.ready: dict[int, None] = {}
        """Shards that have answered the last Open."""
        self.members: dict[bytes, Member] = {}
        self.messages: dict[int, Message] = {}
        self.held: dict[int, Held] = {}
        self.options = options
        self.own_strategy = own_strategy
        """By its declaration; empty: as it is configured."""
        self.strategy = own_strategy or options.group_strategy
        self._free: list[int] = []
        self._giving: dict[bytes, dict[int, None]] = {}
        """What was sent to the home of each client, which has not said yet that it is there."""
        self._barred: dict[bytes, None] = {}
        """Clients that have another connection since something was sent for them: some of it may come back, and what is behind it must
        not be there before."""
        self._count: dict[bytes, int] = {}
        """How many each client has."""
        self._leases: dict[Stream, _Lease] = {}
        self._waited_for: dict[bytes, dict[Stream, None]] = {}
        """Client -> its leases for which something waits."""
        self._settled: dict[int, Held] = {}
        self._bytes = 0
        self._watched: dict[bytes, int] = {}
        """Absent clients that have something, and are looked at again after a while: since when."""
        self._turn = 0
        self._were_online: list[bytes] = []
        self._hashed: dict[bytes, bytes] = {}
        """Publisher or topic -> its member, as long as the same ones are online."""

    def begin(self, session: Session) -> None:
        """Its session is loaded: what is not finished comes again, in order."""
        self.session = session
        self.messages.clear()
        self._free.clear()
        self._leases.clear()
        self._waited_for.clear()
        self._bytes = 0

    # ---------------------------------------------------------------- messages
    def arrived(self, number: int, publisher: bytes, topic: bytes, value: bytes) -> None:
        message = self.messages[number] = Message((publisher, topic), value)
        self._bytes += len(value)
        held = self.held.get(number)
        if held is not None:
            self._lease(message, held.client)
        elif number in self._settled:
            self.settles = True
        else:
            self._queue(number)

    def use(self, options: SessionOptions, own_strategy: str) -> None:
        if (options, own_strategy) == (self.options, self.own_strategy):
            return
        self.options, self.own_strategy = options, own_strategy
        self.strategy = own_strategy or options.group_strategy
        for stream in list(self._leases):
            self._let_go(stream)

    def may_read(self, bytes_max: int) -> bool:
        return self._bytes < bytes_max and any(member.takes for member in self.members.values())

    # ---------------------------------------------------------------- members
    def forget_members(self, shard: int) -> None:
        for client in [client for client, member in self.members.items() if member.shard == shard]:
            del self.members[client]

    def member(self, client: bytes, shard: int, presence: int) -> None:
        if presence == GONE:
            self.members.pop(client, None)
        else:
            self.members[client] = Member(shard, presence)
            if presence != AWAY:
                self._watched.pop(client, None)
        if client in self._giving:
            self._barred[client] = None

    def absent(self, now_ms: int) -> list[bytes]:
        """Clients that are away, have something, and are not watched yet."""
        found = [client for client in self._count if client not in self._watched and self._is_away(client)]
        self._watched.update(dict.fromkeys(found, now_ms))
        return found

    def still_absent(self, client: bytes, since_ms: int) -> int | None:
        """The shard of a client that is watched since then, has something and was never here; None: it is not, or is watched no more."""
        if self._watched.get(client) != since_ms:
            return None
        if client in self._count and self._is_away(client):
            return next(held.shard for held in self.held.values() if held.client == client)
        del self._watched[client]
        return None

    def _is_away(self, client: bytes) -> bool:
        member = self.members.get(client)
        return member is None or member.conn == AWAY

    # ---------------------------------------------------------------- who has what
    def numbers_at(self, shard: int) -> list[int]:
        return [number for number, held in self.held.items() if held.shard == shard]

    def given(self, number: int, client: bytes, shard: int) -> None:
        """Unless it is settled, which stays so: a client that has begun it at QoS 2 was away, and is back."""
        self._said(number, client)
        if number in self._settled or self.held.get(number) == (client, shard):
            return
        self._dequeue(number)
        self._hold(number, Held(client, shard))

    def settled(self, number: int, client: bytes, shard: int) -> None:
        self._said(number, client)
        self._release(number)
        self._dequeue(number)
        self._settled[number] = Held(client, shard)

    def _said(self, number: int, client: bytes) -> None:
        """The home of this client has said what became of what was sent."""
        giving = self._giving.get(client)
        if giving is not None:
            giving.pop(number, None)
            if not giving:
                del self._giving[client]
                self._barred.pop(client, None)

    def back(self, number: int, client: bytes) -> None:
        self._said(number, client)
        held = self.held.get(number)
        if held is None or held.client != client:
            return
        self._release(number)
        if number in self.messages:
            self._queue(number)

    def _queue(self, number: int) -> None:
        """It is to be given: as soon as somebody has room, or to who has the lease of its stream."""
        stream = self.messages[number].stream
        lease = self._leases.get(stream) if self.strategy == BY_STREAM else None
        if lease is None:
            insort(self._free, number)
        else:
            insort(lease.behind, number)
            self._waited_for.setdefault(lease.client, {})[stream] = None

    def _dequeue(self, number: int) -> None:
        message = self.messages.get(number)
        lease = self._leases.get(message.stream) if message is not None else None
        for numbers in (self._free, lease.behind) if lease is not None else (self._free,):
            at = bisect_left(numbers, number)
            if at < len(numbers) and numbers[at] == number:
                del numbers[at]

    def _let_go(self, stream: Stream) -> None:
        """What waits for a lease waits for it no more."""
        lease = self._leases[stream]
        waited_for = self._waited_for.get(lease.client)
        if waited_for is not None:
            waited_for.pop(stream, None)
            if not waited_for:
                del self._waited_for[lease.client]
        for number in lease.behind:
            insort(self._free, number)
        lease.behind = []

    def _hold(self, number: int, held: Held) -> None:
        self._release(number)
        self.held[number] = held
        self._count[held.client] = self._count.get(held.client, 0) + 1
        message = self.messages.get(number)
        if message is not None:
            self._lease(message, held.client)

    def _lease(self, message: Message, client: bytes) -> None:
        lease = self._leases.get(message.stream)
        if lease is None:
            lease = self._leases[message.stream] = _Lease(client)
        elif lease.client != client:
            # As it was given before: under another strategy, or by an owner that knew less.
            self._let_go(message.stream)
            lease.client = client
        lease.count += 1

    def _release(self, number: int) -> None:
        held = self.held.pop(number, None)
        if held is None:
            return
        self._count[held.client] -= 1
        if not self._count[held.client]:
            del self._count[held.client]
        message = self.messages.get(number)
        if message is not None:
            lease = self._leases[message.stream]
            lease.count -= 1
            if not lease.count:
                self._let_go(message.stream)
                del self._leases[message.stream]

    def take_settled(self, two: Track) -> tuple[list[tuple[int, Held]], list[tuple[int, Held]]]:
        """What can be acknowledged to the session, and what was before it was loaded; what has not come again waits."""
        self.settles = False
        if not self._settled:
            return [], []
        open = [(number, held) for number, held in self._settled.items() if two.is_open(number)]
        closed = [(number, held) for number, held in self._settled.items() if two.is_finished(number)]
        for number, _ in (*open, *closed):
            del self._settled[number]
        return open, closed

    def acknowledged(self, numbers: list[int]) -> None:
        for number in numbers:
            message = self.messages.pop(number, None)
            if message is not None:
                self._bytes -= len(message.value)

    # ---------------------------------------------------------------- who gets what is next
    def choose(self) -> dict[bytes, list[int]]:
        """What is given now: client -> numbers.  They count as held by them from here on."""
        given: dict[bytes, list[int]] = {}
        online = {client: None for client, member in self.members.items() if member.takes and member.shard in self.ready}
        if not online or not (self._free or self._waited_for):
            return given
        in_turns = list(online)
        if in_turns != self._were_online:
            self._were_online = in_turns
            self._hashed.clear()
        room = sum([max(0, self.options.group_given_max - self._count.get(client, 0)) for client in online if client not in self._barred])
        free, self._free = self._free, []
        left: list[int] = []
        waiting: dict[Stream, None] = {}
        for at, number in enumerate(free):
            if not room:
                left += free[at:]
                break
            message = self.messages[number]
            if self.strategy == BY_STREAM and message.stream in self._leases:
                # That of a message before it.
                self._queue(number)
                continue
            client = None if message.stream in waiting else self._next(message, in_turns)
            if client is None:
                left.append(number)
                if self.strategy != ROUND_ROBIN:
                    waiting[message.stream] = None
                continue
            room -= 1
            self._give(number, client, given)
        self._free = sorted(left + self._free) if self._free else left
        # Not before: what is free may be of a stream that has a lease now, and in front of what waits for that.
        self._follow(online, given)
        return given

    def _follow(self, online: dict[bytes, None], given: dict[bytes, list[int]]) -> None:
        """What waits for leases, as far as those who have them have room."""
        for client in [client for client in self._waited_for if client in online]:
            for stream in list(self._waited_for[client]):
                behind = self._leases[stream].behind
                while behind and self._has_room(client):
                    self._give(behind.pop(0), client, given)
                if behind:
                    break
                del self._waited_for[client][stream]
            if not self._waited_for[client]:
                del self._waited_for[client]

    def _give(self, number: int, client: bytes, given: dict[bytes, list[int]]) -> None:
        self._hold(number, Held(client, self.members[client].shard))
        self._giving.setdefault(client, {})[number] = None
        given.setdefault(client, []).append(number)

    def _next(self, message: Message, in_turns: list[bytes]) -> bytes | None:
        strategy = self.strategy
        if strategy in (BY_STREAM, ROUND_ROBIN):
            return self._least(in_turns, COMPARED if strategy == BY_STREAM else 1)
        assert strategy in (BY_PUBLISHER, BY_TOPIC)
        hashed = message.stream[0 if strategy == BY_PUBLISHER else 1]
        client = self._hashed.get(hashed)
        if client is None:
            if len(self._hashed) >= HASHED_MAX:
                self._hashed.clear()
            client = self._hashed[hashed] = max(in_turns, key=lambda each: blake2b(hashed + b"\x00" + each, digest_size=8).digest())
        return client if self._has_room(client) else None

    def _least(self, in_turns: list[bytes], compared: int) -> bytes | None:
        """Of so many members whose turn it is and who have room, the one with least under way."""
        least = None
        for _ in in_turns:
            self._turn += 1
            client = in_turns[self._turn % len(in_turns)]
            if self._has_room(client):
                if least is None or self._count.get(client, 0) < self._count.get(least, 0):
                    least = client
                compared -= 1
                if not compared:
                    break
        return least

    def _has_room(self, client: bytes) -> bool:
        return client not in self._barred and self._count.get(client, 0) < self.options.group_given_max

    def check(self) -> None:
        count: dict[bytes, int] = {}
        leases: dict[Stream, int] = {}
        for number, held in self.held.items():
            count[held.client] = count.get(held.client, 0) + 1
            if number in self.messages:
                stream = self.messages[number].stream
                leases[stream] = leases.get(stream, 0) + 1
        assert count == self._count
        assert all(self.held[number].client == client for client, numbers in self._giving.items() for number in numbers)
        assert all(client in self._giving for client in self._barred)
        assert leases == {stream: lease.count for stream, lease in self._leases.items()}
        waiting = [number for lease in self._leases.values() for number in lease.behind]
        waited_for = {(lease.client, stream) for stream, lease in self._leases.items() if lease.behind}
        assert waited_for == {(client, stream) for client, streams in self._waited_for.items() for stream in streams}
        assert self._free == sorted(self._free) and all(lease.behind == sorted(lease.behind) for lease in self._leases.values())
        queued = dict.fromkeys([*self._free, *waiting])
        assert len(queued) == len(self._free) + len(waiting) and all(number in self.messages for number in queued)
        for number in self.messages:
            assert (number in queued) + (number in self.held) + (number in self._settled) == 1, f"{number} of {self.filter!r}"
        assert self._bytes == sum([len(message.value) for message in self.messages.values()])
