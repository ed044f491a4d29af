"""Three shard processes on 127.0.0.x with real logs and stores, a register, a producer, and who starts again whoever has ended.

What the site process does elsewhere is done here: the first register record is made when all three copies have named themselves, and
who leads is read from what the replicas say.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from actors.endpoints import Endpoint
from actors.links import LinkServer
from actors.register.linked import RegisterHost
from actors.register.local import open_register
from actors.replica.status import EVERY_S
from actors.shard_client import ShardClient
from actors.sites.keys import copy_key, shard_key
from actors.sites.whereabouts import LedBy, SiteAt, Sites, tell_sites
from actors.topology import RayPlan, SitesPlan, Topology, write_whole
from actors.wire import Wire
from config.dump import dump_json
from config.load import load
from mqtt.body import strip_properties
from shards.engine import HOME_FAMILY
from shards.engine_rocks import RocksEngine
from shards.frames import Connect, Connected, Entry, Frame, Publish, Published, Reply, Route
from shards.generations import Generations
from shards.housekeeping import AGE_ROW, POSITION_ROW
from shards.messages import header
from shards.replication.applying import APPLIED_ROW
from shards.replication.configuration import Configuration, Rid, first, site_of, targeted
from shards.replication.ports import Outcome
from shards.replication.register import NO_VALUE, Register
from shards.steady import WALL_ROW
from shards.store import Store
from tests.actors.two_sites import until

NAMES = ("a" * 16, "b" * 16, "c" * 16)
HOSTS = dict(zip(NAMES, ("127.0.0.2", "127.0.0.3", "127.0.0.4"), strict=True))
SECRET = b"secret"
STORE = "0123456789abcdef:1"
TAKEOVER_S = 10
_NOT_COMPARED = {AGE_ROW, POSITION_ROW, WALL_ROW, APPLIED_ROW}
"""They go on with time."""


def free_ports(host: str, count: int = 4) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
        if port + count < 65536 and all(_free(host, port + offset) for offset in range(count)):
            return port


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) != 0


class Site:
    def __init__(self, name: str, directory: Path, register: str) -> None:
        self.name = name
        self.port = free_ports(HOSTS[name])
        self.directory = directory / name[0]
        run_dir = directory / f"run-{name[0]}"
        run_dir.mkdir()
        self.topology = Topology(
            data_dir=self.directory, run_dir=run_dir, site=name, incarnation=1, secret=SECRET, config_json=dump_json(load(environ={})),
            store_dir=self.directory / "shards", n_shards=1, n_sessions=1, n_gateways=0,
            ray=RayPlan("local", "holdfast-test", False, 8265, 100 << 20), sites=SitesPlan(3, 3, HOSTS[name], self.port),
        )  # fmt: skip
        self._register = register
        self.log = directory / f"{name[0]}.log"
        self.more: list[str] = []
        """Arguments of its process."""
        self.environment: dict[str, str] | None = None
        """Of its process; None: that of this one."""
        write_whole(run_dir / "topology.json", self.topology.to_json())
        self.process: asyncio.subprocess.Process | None = None
        self.wanted = True
        """It is started again when it has ended."""
        self.starts = 0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def at(self) -> SiteAt:
        return SiteAt(self.name, HOSTS[self.name], self.port, 0, up=True)

    def keep(self) -> None:
        self.wanted = True
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while self.wanted:
            self.starts += 1
            with open(self.log, "ab") as said:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.actors.replica.host", str(self.topology.run_dir / "topology.json"), self._register,
                    *self.more, env=self.environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=said,
                    cwd=Path(__file__).parents[3],
                )  # fmt: skip
            if not self.wanted:
                # Whoever wanted its end met the one before it, which was gone.
                self.kill()
            await self.process.wait()
            await self.ended()

    async def ended(self) -> None:
        """Before it is started again."""
        # One that ends at once does so for a reason that is in its log.
        await asyncio.sleep(0.2)

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    def send(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    async def down(self) -> None:
        """Killed, and not started again."""
        self.wanted = False
        self.kill()
        if self._keeper is not None:
            await self._keeper

    async def stop(self) -> None:
        """Ended in order, and not started again."""
        self.wanted = False
        assert self.process is not None and self.process.stdin is not None and self._keeper is not None
        self.process.stdin.close()
        await self._keeper

    def says(self) -> dict[str, Any]:
        try:
            row: dict[str, Any] = json.loads((self.topology.run_dir / "replica-0.json").read_text())
        except (OSError, ValueError):
            return {"role": "", "epoch": 0, "leader": "", "applied": 0, "last": 0, "isr": [], "rid": ""}
        return row


class ThreeSites:
    def __init__(self, directory: Path, made: Callable[[str, Path, str], Site] = Site) -> None:
        self._directory = directory
        self._sockets = directory / "register.sock"
        self.sites = {name: made(name, directory, str(self._sockets)) for name in NAMES}
        self._telling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def asked(self, register: Register) -> Register:
        """What the processes ask."""
        return register

    async def _begin(self) -> None:
        self.register = open_register(self._directory / "register")
        self._links = LinkServer(
            [Endpoint(path=str(self._sockets))], RegisterHost(self.asked(self.register)), Wire(SECRET), "register", "register"
        )
        await self._links.start()
        for site in self.sites.values():
            site.keep()
        self._tell()
        rids = await self._named()
        await self.register.cas(shard_key(0), NO_VALUE, first(rids, "first").pack())
        self._telling = asyncio.get_running_loop().create_task(self._keep_telling())
        await self.whole()

    async def __aexit__(self, *_: object) -> None:
        if self._telling is not None:
            self._telling.cancel()
        for site in self.sites.values():
            await site.down()
        await self._links.stop()
        await self.register.close()

    async def _named(self) -> frozenset[Rid]:
        async with asyncio.timeout(60):
            while True:
                held = [await self.register.read(copy_key(0, name)) for name in NAMES]
                if all(each is not None for each in held):
                    return frozenset(Rid(each.value.decode()) for each in held if each is not None)
                await asyncio.sleep(0.05)

    async def record(self) -> Configuration:
        held = await self.register.read(shard_key(0))
        assert held is not None
        return Configuration.unpack(held.value)

    def leader(self) -> Site | None:
        """Of the newest epoch of which somebody says so."""
        said = max((site.says() for site in self.sites.values()), key=lambda row: int(row["epoch"]) if row["leader"] else 0)
        return self.sites.get(site_of(Rid(said["leader"]))) if said["leader"] else None

    def endpoint(self) -> Endpoint | None:
        leader = self.leader()
        return None if leader is None else Endpoint(host=HOSTS[leader.name], port=leader.port + 1)

    async def target(self, *names: str) -> None:
        """As an operator says it: copies shall be on these sites."""
        while True:
            held = await self.register.read(shard_key(0))
            assert held is not None
            new = targeted(Configuration.unpack(held.value), names, secrets.token_hex(8))
            if await self.register.cas(shard_key(0), held.version, new.pack()) is Outcome.DONE:
                break
        async with asyncio.timeout(60):
            while {site_of(rid) for rid in (await self.record()).replicas} != set(names):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def in_sync(self, within_s: float = 60) -> None:
        """All copies are."""
        async with asyncio.timeout(within_s):
            while len((await self.record()).isr) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def whole(self, within_s: float = 60) -> None:
        """At rest: all copies are in sync, and have the same.  What they say may be EVERY_S old, so they have to say it for longer."""
        said, since_s = None, 0.0
        async with asyncio.timeout(within_s):
            while said is None or time.monotonic() < since_s + 1.5 * EVERY_S:
                await asyncio.sleep(0.1)
                now = await self._have_all()
                if now != said:
                    said, since_s = now, time.monotonic()

    async def _have_all(self) -> tuple[int, ...] | None:
        """Epoch, end, commit and applied of all three; None as long as they are not the same or somebody is not in sync."""
        now = await self.record()
        rows = [site.says() for site in self.sites.values()]
        same = {(row["epoch"], row["last"], row["commit"], row["applied"]) for row in rows if "commit" in row}
        in_sync = now.isr == now.replicas and len(now.isr) == 3 and {row["rid"] for row in rows} == now.isr
        return same.pop() if in_sync and len(same) == 1 else None

    def _tell(self) -> None:
        leader = self.leader()
        epoch = max(int(site.says()["epoch"]) for site in self.sites.values())
        leads = {} if leader is None else {0: LedBy(epoch, leader.name)}
        for name, site in self.sites.items():
            tell_sites(site.topology.run_dir, Sites(name, 1, {each: self.seen(name, each) for each in NAMES}, leads, STORE))

    def seen(self, here: str, there: str) -> SiteAt:
        """Where the one site reaches the other."""
        return self.sites[there].at

    async def _keep_telling(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(0.1)

    # ---- what is on the disks, of processes that have ended

    def rows(self, name: str) -> dict[int, list[tuple[bytes, bytes]]]:
        engine = RocksEngine(str(self.sites[name].directory / "shards" / "0" / "data"))
        try:
            found = {family: engine.scan(family, b"", b"\xff" * 64, 1 << 30) for family in engine.families()}
        finally:
            engine.close()
        found[HOME_FAMILY] = [row for row in found[HOME_FAMILY] if row[0] not in _NOT_COMPARED]
        return found

    def stored(self, name: str) -> list[bytes]:
        """Payloads in the order of their positions."""
        engine = RocksEngine(str(self.sites[name].directory / "shards" / "0" / "data"))
        try:
            store = Store(engine, Generations.view(engine))
            streams = [(generation, stream.static) for generation, stream in store.streams(b"#", 0)]
            return [strip_properties(header(value)[4]) for _, value in store.read_range(b"#", streams, 0, 1 << 62)]
        finally:
            engine.close()


class Producer:
    """A gateway with one publisher: numbered messages, so many unanswered at a time, until it is told to stop."""

    def __init__(self, sites: ThreeSites, window: int = 8, body: int = 100) -> None:
        self._sites = sites
        self._window = window
        self._filler = b"." * body
        name = f"gateway-0@x:{time.time_ns():016x}{secrets.token_hex(4)}"
        self._client = ShardClient(0, sites.endpoint, self, Wire(SECRET), "gateway", name)
        self._waiting: deque[asyncio.Future[list[Reply]]] = deque()
        self._asked = 0
        self.sent = 0
        self.acknowledged: list[int] = []
        self.last_s = time.monotonic()
        self.longest_s = 0.0
        """The longest between two acknowledgements."""

    async def __aenter__(self) -> Producer:
        self._client.start()
        self._moving = asyncio.get_running_loop().create_task(self._move())
        await self.ask([Route([(1, b"#")], [], [b"reader"])])
        connected = (await self.ask([Connect(b"publisher", True, 0, 5, None)]))[0]
        assert isinstance(connected, Connected)
        self._conn = connected.conn
        self.last_s = time.monotonic()
        self._running = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        self._moving.cancel()
        await self._client.stop()

    async def reaches(self, count: int, within_s: float = 60) -> None:
        """So many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(within_s):
            while len(self.acknowledged) < wanted:
                if self._running.done():
                    self._running.result()
                await asyncio.sleep(0.01)

    def grow(self, window: int, body: int) -> None:
        """So many unanswered, and so large, from now on."""
        self._window, self._filler = window, b"." * body

    async def finish(self) -> None:
        """No more is sent; everything is acknowledged."""
        self._window = 0
        await until(lambda: len(self.acknowledged) == self.sent)

    def ask(self, entries: list[Entry]) -> asyncio.Future[list[Reply]]:
        self._asked += 1
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._client.ask(self._asked, entries)
        return future

    async def _run(self) -> None:
        under_way: deque[tuple[int, asyncio.Future[list[Reply]]]] = deque()
        while True:
            while len(under_way) < self._window:
                self.sent += 1
                under_way.append((self.sent, self.ask(self._publish(self.sent))))
            if not under_way:
                return
            await asyncio.wait([under_way[0][1]], timeout=0.05)
            if not under_way[0][1].done():
                continue
            number, future = under_way.popleft()
            reply = future.result()[0]
            assert isinstance(reply, Published) and not reply.stale and not reply.codes, reply
            self.acknowledged.append(number)
            now_s = time.monotonic()
            self.longest_s, self.last_s = max(self.longest_s, now_s - self.last_s), now_s

    def _publish(self, number: int) -> list[Entry]:
        now_ms = time.time_ns() // 1_000_000
        body = b"\0%d %b" % (number, self._filler)
        return [Publish(b"publisher", self._conn, False, now_ms, bytes((2,)), [number % 60_000 + 1], [b"t/%d" % (number % 7)], [body])]

    async def _move(self) -> None:
        while True:
            self._client.look_again()
            await asyncio.sleep(0.05)

    # ---- ShardListener

    def shard_linked(self, shard: int) -> None:
        pass

    def shard_lost(self, shard: int) -> None:
        pass

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        self._waiting.popleft().set_result(replies)

    def shard_told(self, shard: int, frame: Frame) -> None:
        pass


def check_disks(sites: ThreeSites, producer: Producer) -> None:
    """Of processes that have all been killed: what was acknowledged is there once, in order, in copies that are equal."""
    leader = sites.rows(NAMES[0])
    for name in NAMES[1:]:
        assert sites.rows(name) == leader, f"{name} holds something else than {NAMES[0]}"
    numbers = [int(payload.split()[0]) for payload in sites.stored(NAMES[0])]
    assert numbers == sorted(set(numbers)), "something is there twice, or not in its order"
    assert set(producer.acknowledged) <= set(numbers), "something acknowledged is lost"


__all__ = ["NAMES", "TAKEOVER_S", "Producer", "ThreeSites", "check_disks"]
