"""One shard core on an in-memory engine, driven tick by tick; a peer is a link number and what it was sent."""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

from shards.core import ShardCore
from shards.engine import Engine
from shards.engine_memory import MemoryEngine
from shards.events import (
    Adopted,
    CloseLink,
    Committed,
    Contended,
    Effect,
    FrameReceived,
    GroupDeclared,
    GroupDropped,
    LinkDown,
    LinkUp,
    Notice,
    Peace,
    Send,
    SendToShard,
    SpaceChanged,
    Submit,
    TickEnded,
)
from shards.frames import (
    Answer,
    Beat,
    Connect,
    Connected,
    Entry,
    Frame,
    Place,
    Poll,
    Polled,
    Publish,
    Query,
    Reply,
    Request,
    Result,
    Route,
    Routed,
    Will,
    decode,
    encode,
)
from shards.messages import topic_of
from shards.options import ShardOptions, StoreOptions
from shards.slots import SlotTable
from shards.store import Store

T = TypeVar("T", bound=Frame)


class Harness:
    """`sync=False` holds commits back until `commit()`."""

    def __init__(
        self, engine: Engine | None = None, shard: int = 0, n_shards: int = 1, options: ShardOptions | None = None,
        store: StoreOptions | None = None, replicated: bool = False,
    ) -> None:  # fmt: skip
        self.replicated = replicated
        self.store = store or StoreOptions()
        self.engine: Engine = engine if engine is not None else MemoryEngine()
        self.now_ms = 1_000_000
        self.options = options or ShardOptions()
        self.shard, self.n_shards = shard, n_shards
        self.sent: dict[int, list[Frame]] = defaultdict(list)
        self.closed: dict[int, str] = {}
        self.forwarded: list[SendToShard] = []
        self.notices: list[Notice] = []
        self.numbers: dict[str, int] = defaultdict(int)
        self.names: dict[int, str] = {}
        self._open()

    def _open(self) -> None:
        store = Store.open(self.engine, self.store, self.now_ms, self.now_ms, derives=not self.replicated)
        self.core = ShardCore(self.shard, SlotTable.initial(self.n_shards), self.engine, store, self.options, replicated=self.replicated)
        self.uncommitted: list[int] = []
        self.engine.sync()
        self._carry_out(self.core.handle(Committed(self.core.recovered)))

    def reopen(self, power: bool = False) -> None:
        """A crash: RAM is gone, the disk stays (with `power`, only what was synced)."""
        assert isinstance(self.engine, MemoryEngine)
        self.engine = self.engine.crash(power=power)
        self.names.clear()
        self.sent.clear()
        self._open()

    def link(self, link: int, role: str, name: str) -> None:
        self.names[link] = name
        self._carry_out(self.core.handle(LinkUp(link, role, name)))

    def unlink(self, link: int) -> None:
        self.core.handle(LinkDown(link))

    def receive(self, link: int, frame: Frame) -> None:
        self._carry_out(self.core.handle(FrameReceived(link, decode(encode(frame)))))

    def request(self, link: int, *entries: Entry) -> int:
        """A numbered frame; it is taken at the next tick."""
        name = self.names[link]
        self.numbers[name] += 1
        self.receive(link, Request(self.numbers[name], list(entries)))
        return self.numbers[name]

    def ask(self, link: int, *entries: Entry) -> list[Reply]:
        """A numbered frame, a tick and a sync: the replies."""
        number = self.request(link, *entries)
        self.tick()
        answer = [frame for frame in self.sent[link] if isinstance(frame, Answer) and frame.number == number]
        assert len(answer) == 1, f"frame {number} has {len(answer)} answers"
        return answer[0].replies

    def tick(self, ms: int = 1, sync: bool = True) -> None:
        self.now_ms += ms
        self._carry_out(self.core.handle(TickEnded(self.now_ms * 1000, self.now_ms, self.now_ms)))
        if sync:
            self.commit()
        self.core.check()

    def pass_time(self, ms: int) -> None:
        """In steps, so that nobody who is linked counts as silent; every tick that the shard asks for is taken."""
        until = self.now_ms + ms
        step = max(10_000, ms // 20)
        while self.now_ms < until:
            for link in self.names:
                self.receive(link, Beat())
            self.tick(min(step, until - self.now_ms))
            self.settle()

    def settle(self) -> None:
        """As many ticks, without time, as the core asks for."""
        for _ in range(10_000):
            if not self.core.busy:
                return
            self.tick(0)
        raise AssertionError("the core never comes to rest")

    def commit(self) -> None:
        self.engine.sync()
        if self.uncommitted:
            position = self.uncommitted[-1]
            self.uncommitted = []
            self._carry_out(self.core.handle(Committed(position)))

    def space(self, level: int) -> None:
        self.core.handle(SpaceChanged(level))

    def take(self, link: int, kind: type[T]) -> list[T]:
        """Frames of this kind that the link was sent, and forget them."""
        found: list[T] = [frame for frame in self.sent[link] if isinstance(frame, kind)]
        self.sent[link] = [frame for frame in self.sent[link] if not isinstance(frame, kind)]
        return found

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link, frame):
                    self.sent[link].append(decode(encode(frame)))
                case Submit(record):
                    self.engine.write(record.ops)
                    self.uncommitted.append(record.position)
                case CloseLink(link, why):
                    self.closed[link] = why
                case SendToShard():
                    self.forwarded.append(effect)
                case Adopted() | Contended() | Peace() | GroupDeclared() | GroupDropped():
                    self.notices.append(effect)


G, S = 1, 2
"""The links of a gateway and of a session actor in every `linked` harness."""


def linked(**options: int | bool) -> Harness:
    made = Harness(options=ShardOptions(**options))  # type: ignore[arg-type]
    made.link(G, "gateway", "g0:a")
    made.link(S, "session", "s0:a")
    return made


def connect(h: Harness, client: bytes, expiry_s: int = 0, clean: bool = False, will: Will | None = None, link: int = G) -> Connected:
    (reply,) = h.ask(link, Connect(client, clean, expiry_s, 5, will))
    assert isinstance(reply, Connected)
    return reply


def publish(
    client: bytes, conn: int, *topics: bytes, qos: int = 1, ids: list[int] | None = None, keep: bool = False, retain: int = 0
) -> Publish:
    n = len(topics)
    flags = bytes([qos << 1 | retain]) * n
    return Publish(client, conn, keep, 77, flags, ids or list(range(1, n + 1)), list(topics), [b"\0" + b"m%d" % i for i in range(n)])


def poll(h: Harness, topic_filter: bytes, place: Place, count: int = 100, size: int = 1 << 20) -> Polled:
    h.receive(S, Query(9, Poll(topic_filter, place, count, size)))
    h.tick()
    (result,) = h.take(S, Result)
    assert isinstance(result.told, Polled)
    return result.told


def route(h: Harness, topic_filter: bytes, sub: int = 7) -> int:
    (reply,) = h.ask(S, Route([(sub, topic_filter)], []))
    assert isinstance(reply, Routed)
    return reply.position


def topics(polled: Polled) -> list[bytes]:
    return [topic_of(value) for segment in polled.segments for value in segment.values]
