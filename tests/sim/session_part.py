"""A session actor: the shipped core, with actors.session's order of calls on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sessions.core import SessionCore
from sessions.events import (
    AskShard,
    Effect,
    Event,
    FeedReceived,
    FromGateway,
    GatewayLinked,
    GatewayLost,
    LiveEntered,
    OfGroup,
    QueryShard,
    Replied,
    ShardLinked,
    ShardLost,
    TickEnded,
    ToFeed,
    ToGateway,
    ToldBy,
    Wake,
    WorkReceived,
)  # fmt: skip
from sessions.frames import Acked, Attach, Attached, decode, encode
from sessions.options import SessionOptions
from shards.frames import OLD_TOKEN, CommitDone, Feed, Frame, Given, GroupMade, GroupNews, Live, Owned, Reply, Result, Work
from shards.slots import SlotTable
from tests.sim.asker import Asker
from tests.sim.network import End, Network, taken
from tests.sim.process import Process, Turns


@dataclass(frozen=True, slots=True)
class SessionSetting:
    n_shards: int
    n_sessions: int
    options: SessionOptions
    made: Callable[[SessionCore], None]
    check_every: int
    owned: Callable[[int, int], None]
    """Told of every owner token that a shard has issued."""


class SessionPart:
    """One incarnation of a session actor's process."""

    def __init__(self, process: Process, network: Network, setting: SessionSetting) -> None:
        self.process = process
        self.index = process.index
        self._world = process.world
        self._network = network
        self._setting = setting
        self._links: dict[int, End] = {}
        self._turns_taken = 0
        self._acked: dict[int, dict[int, None]] = {}
        """Connection -> the packet ids that it has acknowledged in any way."""
        self._finished: dict[int, list[tuple[int, dict[int, None]]]] = {}
        """Connection -> what was finished of each track when it was attached."""
        self._newest: dict[int, int] = {}
        """Home -> the newest owner token that this process has heard of."""
        n_shards = setting.n_shards
        self._served = served = frozenset(shard for shard in range(n_shards) if shard % setting.n_sessions == self.index)
        self._slots = SlotTable.initial(n_shards)
        self.core = SessionCore(n_shards, served, self._slots, setting.options)
        setting.made(self.core)
        self._pump = Turns(process, self._tick)
        self._shards = [Asker(network, process, shard, self) for shard in range(n_shards)]

    def start(self) -> None:
        self._network.listen(("session", self.index), self.process, lambda: self)
        for asker in self._shards:
            asker.start()

    def leave_home(self) -> None:
        """The homes that it serves are led elsewhere: the copies that it is linked with serve nobody any more."""
        for shard in self._served:
            self._shards[shard].leave()

    # ------------------------------------------------------------------ the core

    def _feed(self, event: Event) -> None:
        self._carry_out(self.core.handle(event))
        if self.core.patient:
            self._pump.patiently()
        else:
            self._pump.soon()

    def _tick(self) -> None:
        self._carry_out(self.core.handle(TickEnded(self._world.now_ms, self._world.steady_ms)))
        self._turns_taken += 1
        if self._turns_taken % self._setting.check_every == 0:
            self.check()

    def check(self) -> None:
        self.core.check()
        self._own_acknowledgements()
        self._owned_by_nobody_else()
        assert not self.core.counters.routes_collected, "the sweep found routes without a subscription"

    def _own_acknowledgements(self) -> None:
        """What is finished since a connection was attached, this very connection has acknowledged (PROTOCOLS 5)."""
        by_conn = self.core._state.by_conn
        for conn in [conn for conn in self._finished if conn not in by_conn]:
            del self._finished[conn]
            self._acked.pop(conn, None)
        for conn, before in self._finished.items():
            session, acked = by_conn[conn], self._acked.get(conn, {})
            for track, (committed, done) in zip((session.one, session.two), before, strict=True):
                for number in (*range(committed + 1, track.committed + 1), *track.done):
                    if number not in done and track.packet_id(number) not in acked:
                        raise AssertionError(
                            f"{session.client!r}: {number} of QoS {track.qos} is finished, and {conn} has not acknowledged it"
                        )

    def _owned_by_nobody_else(self) -> None:
        """Who has heard of a newer owner serves nobody under an older token (PROTOCOLS 6)."""
        homes = self.core._attaching._homes
        for session in self.core._state.by_conn.values():
            token = homes[session.home].token
            if token < self._newest.get(session.home, 0):
                raise AssertionError(f"{session.client!r} is served under token {token}, and {self._newest[session.home]} is known here")

    def _heard(self, shard: int, token: int) -> None:
        self._newest[shard] = max(self._newest.get(shard, 0), token)

    def _attached(self, conn: int) -> None:
        session = self.core._state.by_conn[conn]
        self._finished[conn] = [(track.committed, dict.fromkeys(track.done)) for track in (session.one, session.two)]

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToGateway(link, frame):
                    if isinstance(frame, Attached) and not frame.code and frame.conn in self.core._state.by_conn:
                        self._attached(frame.conn)
                    peer = self._links.get(link)
                    if peer is not None:
                        peer.hand_on(frame, encode)
                case AskShard(shard, id, entries):
                    self._shards[shard].ask(id, entries)
                case QueryShard(shard, id, ask):
                    self._shards[shard].query(id, ask)
                case ToFeed(shard, frame):
                    self._shards[shard].feed(frame)
                case Wake(after_ms):
                    self._pump.within(after_ms)

    # ------------------------------------------------------------------ Owner: gateways

    def link_up(self, end: End) -> None:
        self._links[end.number] = end
        self._feed(GatewayLinked(end.number, end.peer_name))

    def link_frame(self, end: End, data: bytes) -> None:
        frame = taken(data, decode)
        self._world.note(self.process.name, f"<{end.peer_name}", frame, data)
        if isinstance(frame, Acked):
            self._acked.setdefault(frame.conn, {}).update(dict.fromkeys(frame.packet_ids))
        elif isinstance(frame, Attach) and not frame.memory:
            self._heard(self._slots.shard_of(frame.client), frame.owner)
        self._feed(FromGateway(end.number, frame))

    def link_down(self, end: End) -> None:
        del self._links[end.number]
        self._feed(GatewayLost(end.number))

    # ------------------------------------------------------------------ ShardListener

    def shard_linked(self, shard: int) -> None:
        self._feed(ShardLinked(shard))

    def shard_lost(self, shard: int) -> None:
        self._feed(ShardLost(shard))

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Owned):
                self._setting.owned(shard, reply.token)
            elif isinstance(reply, CommitDone) and reply.code == OLD_TOKEN:
                self._heard(shard, self.core._attaching._homes[shard].token + 1)
        self._feed(Replied(shard, id, replies))

    def shard_told(self, shard: int, frame: Frame) -> None:
        match frame:
            case Result(id, told):
                self._feed(ToldBy(shard, id, told))
            case Feed():
                self._feed(FeedReceived(shard, frame))
            case Work():
                self._heard(shard, frame.owner)
                self._feed(WorkReceived(shard, frame))
            case Live():
                self._feed(LiveEntered(shard, frame))
            case Given() | GroupNews() | GroupMade():
                self._feed(OfGroup(shard, frame))
            case _:
                raise AssertionError(f"shard {shard} told {self.process.name} {type(frame).__name__}")
