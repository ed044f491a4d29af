"""An honest shard without disk or commit delay: it does at once what a request says, and tells what it did.

Streams are the first level of a topic.  A poll is answered in position order or as a sweep, as `sweeps` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqtt.topics import matches
from shards.entries import Letter
from shards.frames import (
    NO_SESSION,
    OLD_CONN,
    OLD_TOKEN,
    TAKEN,
    Ask,
    Commit,
    CommitDone,
    Entry,
    Feed,
    FeedWant,
    Gone,
    Groups,
    GroupsFound,
    Load,
    Loaded,
    Own,
    Owned,
    Place,
    Poll,
    Polled,
    RangeRead,
    ReadRange,
    Reply,
    RetainedMessages,
    RetainedPage,
    Rewound,
    RewoundNoted,
    Route,
    Routed,
    Segment,
    Told,
    WorkDone,
    WorkTaken,
)
from shards.ids import conn_no
from shards.messages import encode_message
from shards.rows import LOSS, LOSSES_PER_SESSION_MAX, SUBSCRIPTION, WORK, pack_row, read_u64, u64, unpack_row

Row = tuple[bytes, bytes]


class ModelShard:
    def __init__(self, index: int, generation: int = 1) -> None:
        self.index = index
        self.generation = generation
        self.position = 1000
        self.log: list[tuple[int, tuple[int, bytes], bytes, bytes]] = []
        """(position, stream, topic, value)."""
        self.rows: dict[bytes, dict[Row, bytes]] = {}
        self.sessions: dict[bytes, int] = {}
        self.conns: dict[bytes, int] = {}
        self.counter = 0
        self.token = 0
        self.routes: dict[int, bytes] = {}
        self.fences: list[tuple[int, int]] = []
        self.retained: dict[bytes, bytes] = {}
        self.dropped: set[int] = set()
        """Generations that are gone."""
        self.sinces = {generation: 0}
        self.sweeps = False
        self.work_done: list[tuple[bytes, int]] = []
        self.rewound: list[int] = []
        self.letters: list[Letter] = []
        """Dead letters, in the order of their commits."""
        self.unlink()

    # ---------------------------------------------------------------- publishers and gateways
    def publish(self, publisher: bytes, topic: bytes, flags: int, body: bytes) -> bool:
        """Whether it was stored."""
        value = encode_message(flags, 1_700_000_000_000, publisher, topic, body)
        if flags & 4:
            self.retained[topic] = value
        if not any(matches(filter, topic) for filter in self.routes.values()):
            return False
        self.position += 3
        self.log.append((self.position, (self.generation, topic.split(b"/")[0]), topic, value))
        return True

    def connect(self, client: bytes, clean: bool = False) -> tuple[int, bool, int, list[tuple[bytes, int, bytes]]]:
        """(conn, present, session id, work for the owner)."""
        self.counter += 1
        conn = conn_no(self.counter, self.index)
        self.conns[client] = conn
        work: list[tuple[bytes, int, bytes]] = []
        if clean:
            work = self.end_session(client)
        present = client in self.sessions
        session_id = self.sessions.setdefault(client, conn)
        return conn, present, session_id, work

    def end_session(self, client: bytes) -> list[tuple[bytes, int, bytes]]:
        self.sessions.pop(client, None)
        rows = self.rows.pop(client, {})
        left: dict[Row, bytes] = {}
        work: list[tuple[bytes, int, bytes]] = []
        for (family, suffix), value in rows.items():
            if family == WORK:
                left[family, suffix] = value
            elif family == SUBSCRIPTION and unpack_row(value)[1]:
                left[WORK, suffix] = pack_row((unpack_row(value)[0],))
                work.append((client, read_u64(suffix), unpack_row(value)[0]))
        if left:
            self.rows[client] = left
        return work

    def work_of_ended_sessions(self) -> list[tuple[bytes, int, bytes]]:
        """What a Work frame says again when its owner's link is back: routes that no subscription row stands for."""
        return [
            (client, read_u64(suffix), unpack_row(value)[0])
            for client, rows in self.rows.items()
            for (family, suffix), value in rows.items()
            if family == WORK and (SUBSCRIPTION, suffix) not in rows
        ]

    def roll(self) -> None:
        self.generation += 1
        self.position += 1
        self.sinces[self.generation] = self.position

    def gone(self, after: int, upto: int, generations: Iterable[int] | None = None) -> list[Gone]:
        """What is not to be had any more between two positions, of these generations; the wall clock counts generations."""
        found: list[Gone] = []
        for generation in sorted(self.dropped if generations is None else self.dropped.intersection(generations)):
            first, last = self.sinces[generation], self.sinces[generation + 1] - 1
            if first <= upto and after < last:
                found.append(
                    Gone(generation, "default", max(after, first - 1), min(upto, last), generation * 100, generation * 100 + 99, "period")
                )
        return found

    # ---------------------------------------------------------------- numbered requests
    def request(self, entries: list[Entry]) -> list[Reply]:
        return [self._enter(entry) for entry in entries]

    def _enter(self, entry: Entry) -> Reply:
        match entry:
            case Own():
                self.token += 1
                work = [
                    (client, read_u64(suffix), unpack_row(value)[0])
                    for client, rows in self.rows.items()
                    for (family, suffix), value in rows.items()
                    if family == WORK
                ]
                return Owned(self.token, work)
            case Commit():
                return CommitDone(self._commit(entry))
            case Route(add, remove, _, fences):
                self.fences.extend(fences)
                self.routes.update(dict(add))
                for sub_id, _ in remove:
                    self.routes.pop(sub_id, None)
                self.position += 1
                return Routed(self.position)
            case WorkDone(token, done):
                if token != self.token:
                    return WorkTaken(OLD_TOKEN)
                for client, sub_id in done:
                    self.rows.get(client, {}).pop((WORK, u64(sub_id)), None)
                self.work_done += done
                return WorkTaken(TAKEN)
            case _:
                raise AssertionError(f"{type(entry).__name__} from a session actor")

    def _commit(self, entry: Commit) -> int:
        if entry.token != self.token:
            return OLD_TOKEN
        if self.sessions.get(entry.client) != entry.session_id:
            return NO_SESSION
        if entry.conn and self.conns.get(entry.client) != entry.conn:
            return OLD_CONN
        rows = self.rows.setdefault(entry.client, {})
        for family, suffix, value in entry.puts:
            rows[family, suffix] = value
        for family, suffix in entry.deletes:
            rows.pop((family, suffix), None)
        self.letters += [Letter(*letter) for letter in entry.letters]
        return TAKEN

    # ---------------------------------------------------------------- queries
    @property
    def watermark(self) -> int:
        return self.position

    def query(self, ask: Ask) -> Told:
        match ask:
            case Load(client):
                # Of losses only the last one there can be, as with the real one.
                rows = [
                    (family, suffix, value)
                    for (family, suffix), value in sorted(self.rows.get(client, {}).items())
                    if family != WORK and (family != LOSS or suffix == u64(LOSSES_PER_SESSION_MAX))
                ]
                return Loaded(self.conns.get(client, 0), self.sessions.get(client, 0), self.watermark, rows)
            case Poll():
                return self._poll(ask)
            case ReadRange(filter, streams, after, upto, merged):
                wanted = [(generation, static) for generation, static in streams]
                if any(generation in self.dropped for generation, _ in wanted):
                    return self._rest_of(ask, wanted)
                if merged:
                    found = self._between(filter, wanted, after, upto)
                else:
                    found = [item for stream in wanted for item in self._between(filter, [stream], after, upto)]
                return RangeRead(False, [position for position, _ in found], [value for _, value in found])
            case Groups():
                return GroupsFound([])
            case Rewound(position):
                self.rewound.append(position)
                return RewoundNoted(position)
            case RetainedPage(filter, after, count_max):
                topics = sorted(topic for topic in self.retained if matches(filter, topic) and topic > after)
                page = topics[:count_max]
                return RetainedMessages([self.retained[topic] for topic in page], page[-1] if len(topics) > len(page) else b"")
            case _:
                raise AssertionError(f"{type(ask).__name__} from a session actor")

    def _between(self, filter: bytes, streams: list[tuple[int, bytes]] | None, after: int, upto: int) -> list[tuple[int, bytes]]:
        return [
            (position, value)
            for position, stream, topic, value in self.log
            if after < position <= upto
            and stream[0] not in self.dropped
            and (streams is None or stream in streams)
            and matches(filter, topic)
        ]

    def _rest_of(self, ask: ReadRange, streams: list[tuple[int, bytes]]) -> RangeRead:
        """What was before the first message that is gone, and what was behind the last."""
        gone = self.gone(ask.after, ask.upto, [generation for generation, _ in streams])
        if ask.merged:
            found = self._between(ask.filter, streams, ask.after, ask.upto)
            before = [item for item in found if item[0] <= gone[0].after]
            behind = [item for item in found if item[0] > gone[-1].upto]
        else:
            lost = [index for index, (generation, _) in enumerate(streams) if generation in self.dropped]
            before, behind = [
                [item for stream in part for item in self._between(ask.filter, [stream], ask.after, ask.upto)]
                for part in (streams[: lost[0]], streams[lost[-1] + 1 :])
            ]
        rest = before + behind
        return RangeRead(True, [position for position, _ in rest], [value for _, value in rest], len(before), gone)

    def _streams(self, filter: bytes, after: int) -> list[tuple[int, bytes]]:
        found = {stream for position, stream, topic, _ in self.log if matches(filter, topic) and stream[0] not in self.dropped}
        return sorted(found)

    def _poll(self, ask: Poll) -> Polled:
        place = ask.place
        if place.horizon == 0:
            if place.cut >= self.watermark:
                return Polled(place, [], True)
            if not self.sweeps:
                found = self._between(ask.filter, None, place.cut, self.watermark)
                taken = self._bounded(found, ask)
                upto = self.watermark if len(taken) == len(found) else taken[-1][0]
                positions = {position for position, _ in taken}
                streams = list(dict.fromkeys(stream for position, stream, _, _ in self.log if position in positions))
                segments = []
                if taken:
                    segments = [Segment(streams, place.cut, upto, True, [p for p, _ in taken], [v for _, v in taken])]
                return Polled(Place(upto), segments, upto == self.watermark, self.gone(place.cut, upto))
            place = Place(place.cut, self.watermark)

        def over(generation: int) -> list[Gone]:
            return [one for one in self.gone(place.cut, place.horizon) if place.generation <= one.generation < generation]

        segments = []
        left = ask
        for stream in self._streams(ask.filter, place.cut):
            if stream < (place.generation, place.static):
                continue
            goes_on = stream == (place.generation, place.static)
            after = place.position if goes_on else place.cut
            found = self._between(ask.filter, [stream], after, place.horizon)
            if not found:
                continue
            taken = self._bounded(found, left)
            done = len(taken) == len(found)
            upto = place.horizon if done else taken[-1][0]
            segments.append(Segment([stream], after, upto, False, [p for p, _ in taken], [v for _, v in taken], [len(taken)]))
            left = left._replace(count_max=left.count_max - len(taken), bytes_max=left.bytes_max - sum(len(v) for _, v in taken))
            if not done or left.count_max <= 0 or left.bytes_max <= 0:
                return Polled(Place(place.cut, place.horizon, stream[0], stream[1], upto), segments, False, over(stream[0]))
        return Polled(Place(place.horizon), segments, place.horizon == self.watermark, over(self.generation))

    @staticmethod
    def _bounded(found: list[tuple[int, bytes]], ask: Poll) -> list[tuple[int, bytes]]:
        size = 0
        for count, (_, value) in enumerate(found):
            size += len(value)
            if count >= ask.count_max or (count and size > ask.bytes_max):
                return found[:count]
        return found

    # ---------------------------------------------------------------- the feed
    def unlink(self) -> None:
        self.wanted: dict[bytes, None] | None = None
        self.version = 0
        self.sent = 0
        self.credit = 4

    def want(self, frame: FeedWant) -> list[Feed]:
        out: list[Feed] = []
        if self.wanted is None:
            self.wanted, self.sent = {}, self.watermark
        assert frame.version == self.version + 1, f"want {frame.version} after {self.version}"
        out += self.feed(1 << 30)
        if self.sent < self.watermark:
            out.append(Feed(self.version, self.sent, self.watermark, [], [], [], []))
            self.sent = self.watermark
        for filter in frame.remove:
            del self.wanted[filter]
        for filter in frame.add:
            assert filter not in self.wanted, f"{filter!r} is wanted twice"
            self.wanted[filter] = None
        self.version = frame.version
        return out

    def feed(self, count_max: int) -> list[Feed]:
        """One frame with at most so many messages, if there is anything wanted."""
        if self.wanted is None:
            return []
        chosen = [
            (position, stream, value)
            for position, stream, topic, value in self.log
            if position > self.sent and any(matches(filter, topic) for filter in self.wanted)
        ]
        if not chosen:
            return []
        upto = self.watermark
        if len(chosen) > count_max:
            chosen = chosen[:count_max]
            upto = chosen[-1][0]
        streams = list(dict.fromkeys(stream for _, stream, _ in chosen))
        frame = Feed(
            self.version, self.sent, upto, streams, [streams.index(stream) for _, stream, _ in chosen],
            [position for position, _, _ in chosen], [value for _, _, value in chosen],
        )  # fmt: skip
        self.sent = upto
        return [frame]

    def leave_hole(self) -> list[Feed]:
        """The tail moved on: what was not sent is not in the feed any more, and an empty frame says so."""
        if self.wanted is None or self.sent == self.watermark:
            return []
        self.sent = self.watermark
        return [Feed(self.version, self.sent, self.sent, [], [], [], [])]

    def row(self, client: bytes, family: bytes, suffix: bytes = b"") -> list[Any]:
        return unpack_row(self.rows[client][family, suffix])
