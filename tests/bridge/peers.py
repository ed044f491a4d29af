"""The other side of each kind of target: the real thing, behind a connection that can be cut, and what it has got.

All pass tests/bridge/test_target_contract.py.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.parse
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

import aiomqtt
from aiohttp import web

from benchmarks.brokers import Mosquitto
from bridge.port import Batch, Message, Target
from bridge.targets.http import HttpTarget
from bridge.targets.jsonl import JsonlTarget
from bridge.targets.mqtt import MqttTarget
from bridge.targets.origins import IDENTITY
from bridge.targets.parquet import ParquetTarget
from bridge.targets.postgresql import PostgresqlTarget
from config.bridge_kinds import Http, Mqtt, Parquet, Postgresql
from config.bridge_targets import Jsonl
from config.values import Size
from tests.bridge.batches import STORE, context, message
from tests.bridge.databases import Cluster
from tests.bridge.proxy import Proxy
from tests.needs import find_program

ARRIVED_S = 30.0

Got = tuple[str, bytes]
"""The identity of a message, and its payload."""


def identity(sent: Message) -> str:
    return f"{STORE}/{sent.shard}/{sent.position}"


def what(batch: Batch) -> list[Got]:
    return [(identity(each), each.payload) for each in batch.messages]


class Peer(ABC):
    """made -> started -> (away -> back) -> ended.  cuts: whether its connection can be cut.  refused: a message that it refuses."""

    cuts = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.proxy: Proxy | None = None

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    def target(self) -> Target: ...

    @abstractmethod
    async def got(self) -> list[Got]:
        """In the order in which they came, as often as they came."""

    async def end(self) -> None:  # noqa: B027  # most have nothing to end
        ...

    def refused(self, number: int) -> Message | None:
        return None

    async def away(self) -> None:
        assert self.proxy is not None
        await self.proxy.cut()

    async def back(self) -> None:
        assert self.proxy is not None
        await self.proxy.start()

    def lose_answers(self) -> None:
        """Until it is away, none of its answers arrives that says that messages are accepted."""
        if self.proxy is not None:
            self.proxy.deaf = True

    async def until(self, count: int) -> list[Got]:
        """As soon as it has so many."""
        async with asyncio.timeout(ARRIVED_S):
            while len(found := await self.got()) < count:  # noqa: ASYNC110  # the other side tells nobody
                await asyncio.sleep(0.01)
        return found


class MosquittoPeer(Peer):
    """Debian's mosquitto, and a subscriber that keeps what it gets."""

    version: Literal["3.1.1", "5"] = "5"

    async def start(self) -> None:
        program = find_program("mosquitto")
        assert program is not None
        self._broker = Mosquitto(self.directory, program)
        await asyncio.to_thread(self._broker.start)
        self._got: list[Got] = []
        self.messages: list[aiomqtt.Message] = []
        self._subscribed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        await self._subscribed.wait()
        self.proxy = Proxy(("127.0.0.1", self._broker.port))
        await self.proxy.start()

    def target(self) -> Target:
        assert self.proxy is not None
        return MqttTarget(Mqtt(url=f"mqtt://127.0.0.1:{self.proxy.port}", version=self.version, window=50), context(self.directory))

    def refused(self, number: int) -> Message | None:
        return message(number, "plant/+/no/topic")

    async def got(self) -> list[Got]:
        return list(self._got)

    async def end(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        assert self.proxy is not None
        await self.proxy.cut()
        await asyncio.to_thread(self._broker.stop)

    async def _read(self) -> None:
        async with aiomqtt.Client("127.0.0.1", self._broker.port, protocol=aiomqtt.ProtocolVersion.V5) as client:
            await client.subscribe("#", qos=1)
            self._subscribed.set()
            async for each in client.messages:
                assert isinstance(each.payload, bytes)
                self.messages.append(each)
                said = dict(getattr(each.properties, "UserProperty", []))
                # 3.1.1 carries no identity: the payload is it, for which the batches of these tests are made.
                self._got.append((said.get(IDENTITY, _by_payload(each.payload)), each.payload))


def _by_payload(payload: bytes) -> str:
    number = payload.rpartition(b" ")[2]
    return identity(message(int(number))) if number.isdigit() else ""


class Mosquitto3Peer(MosquittoPeer):
    version = "3.1.1"


class WebPeer(Peer):
    """A server of aiohttp, which answers as a test says."""

    body: Literal["payload", "message", "batch"] = "payload"

    async def start(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._got: list[Got] = []
        self.answers: list[web.Response] = []
        """What the next requests are answered, whatever is in them."""
        application = web.Application()
        application.router.add_route("*", "/in", self._take)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.proxy = Proxy(("127.0.0.1", self._runner.addresses[0][1]))
        await self.proxy.start()

    def settings(self, **more: Any) -> Http:
        assert self.proxy is not None
        return Http(url=f"http://127.0.0.1:{self.proxy.port}/in", body=self.body, **{"connections": 1, **more})

    def target(self) -> Target:
        return HttpTarget(self.settings(), context(self.directory))

    def refused(self, number: int) -> Message | None:
        return message(number, payload=b"not wanted")

    async def got(self) -> list[Got]:
        return list(self._got)

    async def end(self) -> None:
        assert self.proxy is not None
        await self.proxy.cut()
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        if self.answers:
            return self.answers.pop(0)
        if b"not wanted" in body:
            return web.Response(status=422)
        self._got += self._inside(request, body)
        return web.Response(status=204)

    def _inside(self, request: web.Request, body: bytes) -> list[Got]:
        return [(urllib.parse.unquote(request.headers["Idempotency-Key"]), body)]


class WebBatchPeer(WebPeer):
    body = "batch"

    def _inside(self, request: web.Request, body: bytes) -> list[Got]:
        return [(f"{each['store']}/{each['shard']}/{each['position']}", each["payload"].encode()) for each in json.loads(body)]


class PostgresqlPeer(Peer):
    cluster: Cluster
    """Given by the test's fixture, and shared by tests: each has a database of its own."""

    async def start(self) -> None:
        self.database = f"t{abs(hash(self.directory)) % 10**9}"
        await asyncio.to_thread(self.sql, f"CREATE DATABASE {self.database}", "postgres")
        self.proxy = Proxy(self.cluster.socket)
        await self.proxy.start()

    def sql(self, statement: str, database: str = "") -> list[list[str]]:
        program = find_program("psql")
        assert program is not None
        name = database or self.database
        command = [
            program,
            "-X",
            "-At",
            "-F",
            "\t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(self.cluster.directory),
            "-U",
            self.cluster.user,
            name,
        ]
        done = subprocess.run([*command, "-c", statement], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    @property
    def url(self) -> str:
        assert self.proxy is not None
        return f"postgresql://{self.cluster.user}@127.0.0.1:{self.proxy.port}/{self.database}?sslmode=disable"

    def target(self) -> Target:
        return PostgresqlTarget(Postgresql(url=self.url), context(self.directory))

    def lose_answers(self) -> None:
        assert self.proxy is not None
        self.proxy.deaf_after = b"COMMIT"

    def refused(self, number: int) -> Message | None:
        return message(number, "plant/\0")

    async def got(self) -> list[Got]:
        known = await asyncio.to_thread(self.sql, "SELECT to_regclass('holdfast_messages')")
        if known == [[""]] or not known:
            return []
        rows = await asyncio.to_thread(
            self.sql, "SELECT store, shard, position, encode(payload, 'hex') FROM holdfast_messages ORDER BY shard, position"
        )
        return [(f"{store}/{shard}/{position}", bytes.fromhex(payload)) for store, shard, position, payload in rows]

    async def end(self) -> None:
        assert self.proxy is not None
        await self.proxy.cut()
        await asyncio.to_thread(self.sql, f"DROP DATABASE {self.database} WITH (FORCE)", "postgres")


class JsonlPeer(Peer):
    cuts = False

    async def start(self) -> None:
        self.path = self.directory / "out.jsonl"

    def target(self) -> Target:
        return JsonlTarget(Jsonl(path="out.jsonl", file_bytes_max=Size(16_384)), context(self.directory))

    async def got(self) -> list[Got]:
        """Files that are full in the order of their numbers, then the one that is written."""
        full = sorted(self.directory.glob("out.jsonl.*"), key=lambda path: int(path.suffix[1:]))
        rows = [json.loads(line) for path in [*full, self.path] if path.exists() for line in path.read_text().splitlines()]
        return [(f"{STORE}/{row['shard']}/{row['position']}", row["payload"].encode()) for row in rows]


class ParquetPeer(Peer):
    cuts = False

    async def start(self) -> None:
        self.path = self.directory / "out"

    def target(self, **more: Any) -> Target:
        return ParquetTarget(Parquet(path="out", **{"file_rows_max": 40, **more}), context(self.directory))

    async def got(self) -> list[Got]:
        """What is in files: what is accepted and in none yet becomes one when it is old, which is at once."""
        finishing = self.target(file_age_max="100ms")
        await finishing.open()
        async with asyncio.timeout(ARRIVED_S):
            while finishing._files.spool.rows:  # type: ignore[attr-defined]  # noqa: ASYNC110  # nor does a file
                await asyncio.sleep(0.01)
        await finishing.close()
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[Got]:
        import pyarrow.parquet

        found: list[Got] = []
        for path in sorted(self.path.glob("*.parquet")):
            for row in pyarrow.parquet.read_table(path).to_pylist():
                found.append((f"{row['store']}/{row['shard']}/{row['position']}", row["payload"]))
        return found
