"""One real broker with a reader: on demand, beside live writes and rolls, killed and back, idle and gone."""

from __future__ import annotations

import asyncio
import itertools
import signal
import struct
import threading
import time
from collections import Counter

import pytest

from actors.asking import NotReached
from actors.reader.demand import demand
from holdfast_spark.client import Client, Endpoint, Unit
from shards.messages import header
from tests.actors.hand import Hand
from tests.broker.running import QUIET_RAY, Options, RunningBroker

IDLE_S = 6
pytestmark = pytest.mark.parametrize(
    "broker",
    [
        Options(
            {
                **QUIET_RAY,
                "pipeline.listen": "127.0.0.1:0",
                "pipeline.idle_stop": f"{IDLE_S}s",
                "durable_storage.messages.n_shards": "2",
                "durable_storage.messages.capture": '["#"]',
                "durable_storage.messages.generation_length": "2s",
            }
        )
    ],
    indirect=True,
    ids=["two shards"],
)

LIVE_S = 10.0
WITHIN_S = 120.0
Row = tuple[int, int, int, bytes]
"""Shard, generation, position, payload."""


def client_of(broker: RunningBroker) -> Client:
    address = demand(broker.data_dir)
    token = (broker.data_dir / "pipeline.token").read_text().strip()
    return Client(Endpoint((address,), token), patience_s=WITHIN_S)


class Follower(threading.Thread):
    """Reads from cut to cut, as a stream does."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self.rows: list[Row] = []
        self.rounds = 0
        self.failure: BaseException | None = None
        self.done = threading.Event()
        self._client = client_of(broker)

    def has_seen_enough(self) -> bool:
        """Rounds, and generations that rolled meanwhile; or it has failed."""
        return self.failure is not None or (self.rounds > 5 and len({generation for _, generation, _, _ in list(self.rows)}) >= 3)

    def run(self) -> None:
        try:
            with self._client as client:
                place: dict[int, int] = {0: 0, 1: 0}
                last = False
                while not last:
                    last = self.done.is_set()
                    cuts = {int(shard): int(found["cut"]) for shard, found in client.cuts()["shards"].items()}
                    assert all(cuts[shard] >= at for shard, at in place.items()), "a cut never goes back"
                    plan = client.plan(place, cuts, ["#"], None, None, 500)
                    assert plan["gaps"] == []
                    for unit in plan["units"]:
                        self.rows += scanned(client, unit)
                    place = cuts
                    self.rounds += 1
        except BaseException as error:
            self.failure = error


def scanned(client: Client, unit: dict[str, int]) -> list[Row]:
    rows: list[Row] = []
    asked = Unit(unit["shard"], unit["generation"], unit["from"], unit["to"])
    for block in client.scan(str(client.hello()["store"]), asked, ["#"]):
        at = 0
        positions = struct.unpack(f"<{block.rows}Q", block.positions)
        for position, length in zip(positions, struct.unpack(f"<{block.rows}I", block.lengths), strict=True):
            assert unit["from"] <= position < unit["to"]
            rows.append((unit["shard"], unit["generation"], position, header(bytes(block.values[at : at + length]))[4][1:]))
            at += length
    return rows


async def test_scans_beside_live_writes_rolls_and_kills_are_exact(broker: RunningBroker) -> None:
    """Every acknowledged message once, for each who follows, in the order of its publisher; the reader and a shard are killed meanwhile."""
    hands = [await Hand.connect(broker.port, f"publisher-{number}", 5, clean=True, expiry_s=0) for number in range(3)]
    followers = [await asyncio.to_thread(Follower, broker) for _ in range(2)]
    for follower in followers:
        follower.start()
    acknowledged: list[bytes] = []
    until = time.monotonic() + LIVE_S

    async def publish(number: int, hand: Hand) -> None:
        for count in itertools.count():
            payloads = [f"{number}:{10 * count + each}" for each in range(10)]
            await hand.published(f"plant/{number}/t{count % 7}", *payloads)
            acknowledged.extend(payload.encode() for payload in payloads)
            if time.monotonic() > until and all(follower.has_seen_enough() for follower in followers):
                return
            await asyncio.sleep(0.02)

    async def kill() -> None:
        await asyncio.sleep(LIVE_S / 4)
        await asyncio.to_thread(lambda: broker.kill(broker.status().pids("reader")[0]))
        await asyncio.sleep(LIVE_S / 4)
        await asyncio.to_thread(lambda: broker.kill(broker.status().pids("shard")[0]))

    await asyncio.gather(kill(), *[publish(number, hand) for number, hand in enumerate(hands)])
    for hand in hands:
        await hand.close()
    for follower in followers:
        follower.done.set()
        await asyncio.to_thread(follower.join, WITHIN_S)
        assert follower.failure is None and not follower.is_alive()
        assert Counter(payload for _, _, _, payload in follower.rows) == Counter(acknowledged)
        positions = Counter((shard, position) for shard, _, position, _ in follower.rows)
        assert set(positions.values()) == {1} and follower.rounds > 5
        assert len({generation for _, generation, _, _ in follower.rows}) >= 3, "it rolled meanwhile"
        for number in range(3):
            mine = sorted((row for row in follower.rows if row[3].startswith(b"%d:" % number)), key=lambda row: row[2])
            told = [int(payload.partition(b":")[2]) for _, _, _, payload in mine]
            assert told == sorted(told)


def test_all_who_demand_a_reader_get_the_same_one_and_status_shows_it(broker: RunningBroker) -> None:
    """It listens where its announcement says, and is one process."""
    found: list[tuple[str, int]] = []
    threads = [threading.Thread(target=lambda: found.append(demand(broker.data_dir))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
    with client_of(broker) as client:
        # It stays while somebody is connected, however long a status takes.
        client.hello()
        status = broker.ready_status()
    (listener,) = [each for each in status.listeners if each.kind == "pipeline"]
    assert (listener.gateway, (listener.host, listener.port)) == ("reader-0", found[0])
    assert len(status.pids("reader")) == 1
    assert (broker.data_dir / "pipeline.token").stat().st_mode & 0o777 == 0o600


def test_a_killed_reader_is_back_at_its_port_and_an_idle_one_ends(broker: RunningBroker) -> None:
    """Whoever was reading goes on, and how one ended that a library has ended is beside its log; when nobody has been there for a while,
    nothing of it is left, and it comes again when it is wanted."""
    with client_of(broker) as client:
        before = client.cuts()
        (pid,) = broker.status().pids("reader")
        broker.kill(pid)
        assert client.cuts()["store"] == before["store"]
        (pid,) = broker.status().pids("reader")
        broker.signal(pid, signal.SIGABRT)
        address = demand(broker.data_dir)
        deadline = time.monotonic() + 60
        last_words = broker.data_dir / "logs" / "reader-0.err"
        while "Fatal Python error: Aborted" not in last_words.read_text():
            assert time.monotonic() < deadline, "how it ended is beside its log"
            time.sleep(0.2)
        # The next one writes there too; a broker that closes with such a stack in it is a failure.
        last_words.write_text("")
        assert client.cuts()["store"] == before["store"]
    deadline = time.monotonic() + IDLE_S + 60
    while broker.status().pids("reader"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert broker.unlisted() == []
    broker.ready_status()
    assert demand(broker.data_dir) == address
    with client_of(broker) as client:
        assert client.cuts()["store"] == before["store"]


def test_after_the_broker_there_is_no_reader_and_whoever_wants_one_is_told(broker: RunningBroker) -> None:
    """`down` ends it with the others, and a broker that is started again has one when somebody wants it."""
    demand(broker.data_dir)
    broker.down()
    with pytest.raises(NotReached, match="nothing runs in"):
        demand(broker.data_dir, within=1.0)
    broker.up()
    assert broker.status().pids("reader") == []
    with client_of(broker) as client:
        assert set(client.cuts()["shards"]) == {"0", "1"}
