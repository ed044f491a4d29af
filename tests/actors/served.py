"""A real reader over real RocksDB stores, in this process and without Ray: for tests of whoever speaks to a reader.

The stores are those of real shard cores, which the test drives by hand (tests/shards/harness.py); the reader is the shipped one, with its
threads and its sockets on 127.0.0.1. What is replaced is the link between the two, by a call under a lock.

    with served(said(b"plant/1/temp", b"20"), said(b"plant/2/temp", b"21")) as broker:
        client = Client(Endpoint(((broker.host, broker.port),), broker.token))
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from actors.reader.access import Keys
from actors.reader.limits import Pace, Slots
from actors.reader.shard_side import ShardAway
from actors.reader.tcp import Doors
from actors.reader.verbs import Desk
from actors.reader.views import Views
from config.pipeline import Token
from shards.engine_rocks import RocksEngine
from shards.events import TickEnded
from shards.frames import FRAMES_UNANSWERED_MAX, Answer, Ask, Connect, Connected, Entry, Publish, Published, Query, Reply, Result, Told
from shards.ids import EXPIRY_NEVER
from shards.options import ShardOptions, StoreOptions
from shards.slots import SlotTable
from tests.shards.harness import Harness

TOKEN = "the token of the broker"
STORE = "0123456789abcdef:1"
HOUR_MS = 3_600_000
NEVER_MS = 1 << 50
_GATEWAY, _READER = 1, 9


@dataclass(frozen=True, slots=True)
class Said:
    """A message as its publisher says it. properties: as in a PUBLISH of MQTT 5, with their length."""

    topic: bytes
    payload: bytes
    client: bytes = b"publisher"
    qos: int = 1
    retain: bool = False
    properties: bytes = b"\0"
    published_at_ms: int | None = None
    """None: now."""


def said(topic: bytes, payload: bytes = b"", client: bytes = b"publisher") -> Said:
    return Said(topic, payload, client)


class Core(Harness):
    """Whether it holds what it promises is for its own tests to ask, after each tick."""

    def tick(self, ms: int = 1, sync: bool = True) -> None:
        self.now_ms += ms
        self._carry_out(self.core.handle(TickEnded(self.now_ms * 1000, self.now_ms, self.now_ms)))
        if sync:
            self.commit()


class Shards:
    """Real shard cores over RocksDB, and the reader's way to them."""

    def __init__(self, directory: Path, n_shards: int, options: ShardOptions, store: StoreOptions) -> None:
        self.paths = [directory / str(shard) for shard in range(n_shards)]
        self.lock = threading.RLock()
        self.away: set[int] = set()
        """Shards that do not answer the reader."""
        self.asked: list[tuple[int, Ask | Entry]] = []
        self.table = SlotTable.initial(n_shards)
        self._ids = 0
        self._conns: dict[bytes, int] = {}
        self.cores: list[Core] = []
        for shard, path in enumerate(self.paths):
            core = Core(RocksEngine(str(path)), shard, n_shards, options, store)
            core.link(_GATEWAY, "gateway", "gateway-0:1")
            core.link(_READER, "reader", "admin-reader:1")
            self.cores.append(core)

    def close(self) -> None:
        for core in self.cores:
            core.engine.close()

    # ------------------------------------------------------------------ actors.reader.shard_side.ShardSide

    def query(self, shards: Iterable[int], ask: Ask) -> dict[int, Told]:
        return {shard: self._query(shard, ask) for shard in shards}

    def ask(self, entries: Mapping[int, Entry]) -> dict[int, Reply]:
        with self.lock:
            for shard in entries:
                self._reach(shard)
            self.asked += entries.items()
            return {shard: self.cores[shard].ask(_READER, entry)[0] for shard, entry in entries.items()}

    def _query(self, shard: int, ask: Ask) -> Told:
        with self.lock:
            self._reach(shard)
            self.asked.append((shard, ask))
            core = self.cores[shard]
            self._ids += 1
            core.receive(_READER, Query(self._ids, ask))
            core.tick()
            (told,) = [frame.told for frame in core.take(_READER, Result) if frame.id == self._ids]
            assert told is not None, ask
            return told

    def _reach(self, shard: int) -> None:
        if shard in self.away:
            raise ShardAway(shard, f"shard {shard} does not answer")

    # ------------------------------------------------------------------ what a test does to them

    def publish(self, messages: Sequence[Said]) -> None:
        """In this order within a shard; on disk and committed on return."""
        with self.lock:
            for client in dict.fromkeys(each.client for each in messages):
                if client not in self._conns:
                    self._connect(client)
            asked: dict[int, list[int]] = {}
            at = 0
            while at < len(messages):
                upto = at + 1
                while upto < len(messages) and upto - at < 1000 and messages[upto].client == messages[at].client:
                    upto += 1
                shard, number = self._say(messages[at:upto])
                asked.setdefault(shard, []).append(number)
                if len(asked[shard]) == FRAMES_UNANSWERED_MAX:
                    self._commit(shard, asked.pop(shard))
                at = upto
            for shard, numbers in asked.items():
                self._commit(shard, numbers)

    def _say(self, messages: Sequence[Said]) -> tuple[int, int]:
        """The shard, and the number of the frame that was sent to it."""
        client = messages[0].client
        shard = self.table.shard_of(client)
        core = self.cores[shard]
        flags = bytes(2 * each.qos | each.retain for each in messages)
        times = {core.now_ms if each.published_at_ms is None else each.published_at_ms for each in messages}
        assert len(times) == 1, "messages of one client that are published together are of one time"
        bodies = [each.properties + each.payload for each in messages]
        ids = [1 + number if each.qos else 0 for number, each in enumerate(messages)]
        topics = [each.topic for each in messages]
        return shard, core.request(_GATEWAY, Publish(client, self._conns[client], False, times.pop(), flags, ids, topics, bodies))

    def _connect(self, client: bytes) -> None:
        (connected,) = self.cores[self.table.shard_of(client)].ask(_GATEWAY, Connect(client, False, EXPIRY_NEVER, 5, None))
        assert isinstance(connected, Connected) and connected.conn
        self._conns[client] = connected.conn

    def _commit(self, shard: int, numbers: list[int]) -> None:
        core = self.cores[shard]
        core.tick()
        core.settle()
        answers = {frame.number: frame.replies for frame in core.sent[_GATEWAY] if isinstance(frame, Answer)}
        core.sent[_GATEWAY].clear()
        for number in numbers:
            (reply,) = answers[number]
            assert isinstance(reply, Published) and not reply.stale and not any(reply.codes), reply

    def pass_time(self, ms: int) -> None:
        with self.lock:
            for core in self.cores:
                core.pass_time(ms)

    def generations(self, shard: int = 0) -> list[int]:
        with self.lock:
            return [info.id for info in self.cores[shard].core.retention._store.generations()]


class Served:
    """Life cycle: made -> served -> closed."""

    def __init__(
        self, directory: Path, n_shards: int, options: ShardOptions, store: StoreOptions, tokens: Sequence[Token], **bounds: int
    ) -> None:
        self.host = "127.0.0.1"
        self.token = TOKEN
        self.store = STORE
        self.shards = Shards(directory / "shards", n_shards, options, store)
        self.generation_ms = options.generation_ms
        self._scratch = directory / "scratch"
        self.views = Views(self.shards.paths, self._scratch, self.shards, within_s=60.0)
        slots, pace = Slots(bounds.get("max_scans", 4)), Pace(bounds.get("bytes_per_s", 0))
        self.desk = Desk(
            STORE,
            "test",
            self.views,
            self.shards,
            Keys(TOKEN, tokens),
            slots,
            pace,
            slot_within_s=0.05,
        )
        self._connections_max = bounds.get("max_connections", 100)
        self.port = 0
        self._doors: Doors | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def open(self) -> None:
        """Listen, again at the same port."""
        self._doors = Doors(self.host, self.port, self.desk.converse, self._connections_max)
        self.port = self._doors.open()

    def shut(self) -> None:
        """The reader is gone, and every connection with it."""
        if self._doors is not None:
            self._doors.stop()
            self._doors = None

    def close(self) -> None:
        self.shut()
        self.views.close()
        self.shards.close()

    def restart(self, store: str = STORE) -> None:
        """Another reader process at the same port; store: it may have another one."""
        self.shut()
        self.views.close()
        self.views = Views(self.shards.paths, self._scratch, self.shards, within_s=60.0)
        self.desk = replace(self.desk, store=store, views=self.views)
        self.open()

    def publish(self, *messages: Said) -> None:
        self.shards.publish(messages)

    def roll(self) -> None:
        """Every shard goes on in a new generation, unless there is nothing in its newest one."""
        before = [self.shards.generations(shard) for shard in range(len(self.shards.cores))]
        self.shards.pass_time(self.generation_ms + 1000)
        after = [self.shards.generations(shard) for shard in range(len(self.shards.cores))]
        assert before != after, before

    def drop(self, generation: int, shard: int = 0, reason: str = "period") -> None:
        """A sealed generation goes, as retention would have it go."""
        with self.shards.lock:
            core = self.shards.cores[shard]
            store = core.core.retention._store
            core.engine.write(store.drop(generation, 0, reason))
            core.engine.sync()
            store.erase(generation)


@contextmanager
def served(
    *messages: Said,
    n_shards: int = 1,
    tokens: Sequence[Token] = (),
    layout: str = "skipstream",
    generation_ms: int = HOUR_MS,
    retention_ms: int = NEVER_MS,
    store: StoreOptions | None = None,
    **bounds: int,
) -> Iterator[Served]:
    """A reader that answers, over shards that hold these messages. bounds: max_scans, max_connections, bytes_per_s."""
    with tempfile.TemporaryDirectory(prefix="hf") as directory:
        options = ShardOptions(generation_ms=generation_ms, retention_ms=retention_ms, capture=(b"#", b"$app/#"))
        (Path(directory) / "shards").mkdir()
        broker = Served(Path(directory), n_shards, options, store or StoreOptions(layout), tokens, **bounds)
        try:
            broker.publish(*messages)
            broker.open()
            yield broker
        finally:
            broker.close()
