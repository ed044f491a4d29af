"""Where bridges of a gate carry to, each the real thing: what it is, how it goes away and comes back, and what it has got.

made -> started -> (away -> back) -> ended. Nothing stays behind: directories are those of the gate, processes are ended by their pids.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from benchmarks.brokers import Mosquitto, find_mosquitto, free_port, wait_listening
from tests.bridge.databases import Cluster
from tests.broker.history import parse_payload
from tests.gates.bridge_ledger import Arrival
from tests.gates.gate import GateFailed
from tests.needs import ROOT, find_program

LISTENING_S = 30.0
ENDED_S = 30.0


class Sink(ABC):
    name: ClassVar[str]
    exactly_once: ClassVar[bool]
    with_identity: ClassVar[bool] = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory / self.name
        self.directory.mkdir()

    @property
    @abstractmethod
    def settings(self) -> list[str]:
        """Of a bridge that carries there, as KEY=VALUE."""

    async def start(self) -> None: ...  # noqa: B027  # a directory needs none

    @abstractmethod
    async def away(self) -> None: ...

    @abstractmethod
    async def back(self) -> None: ...

    @abstractmethod
    async def count(self) -> int:
        """Messages that are there now; 0 while it is away."""

    @abstractmethod
    async def arrivals(self) -> list[Arrival]:
        """In the order in which they came, as often as they are there."""

    async def end(self) -> None: ...  # noqa: B027


class Lines:
    """Whole lines of a file that grows, counted without reading any of it twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = self._count = 0

    def count(self) -> int:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._at)
                while data := file.read(1 << 20):
                    self._at += len(data)
                    self._count += data.count(b"\n")
        return self._count

    def received(self) -> Iterator[Arrival]:
        """As tests.gates.bridge_receiver writes them."""
        for line in self.path.read_bytes().splitlines():
            identity, _, payload = line.partition(b"\t")
            publisher, _, number = payload.partition(b" ")
            yield Arrival(identity.decode(), publisher.decode(), int(number))


class _Files(Sink):
    """Goes away as a volume does: its directory is somewhere else, and what stands in its place is none. Whoever has a file open there
    keeps it until he closes it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.place = self.directory / "volume"
        self._elsewhere = self.directory / "unmounted"
        self.place.mkdir()

    async def away(self) -> None:
        self.place.rename(self._elsewhere)
        self.place.touch()

    async def back(self) -> None:
        self.place.unlink()
        self._elsewhere.rename(self.place)

    @property
    def at(self) -> Path:
        return self._elsewhere if self._elsewhere.exists() else self.place


class JsonlSink(_Files):
    name = "jsonl"
    exactly_once = True

    @property
    def settings(self) -> list[str]:
        return ["type=jsonl", f"jsonl.path={self.place}/out.jsonl", "jsonl.file_bytes_max=4GiB"]

    async def count(self) -> int:
        self._lines = getattr(self, "_lines", None) or Lines(self.place / "out.jsonl")
        return await asyncio.to_thread(self._lines.count) if self.place.is_dir() else 0

    async def arrivals(self) -> list[Arrival]:
        return await asyncio.to_thread(lambda: list(self._read()))

    def _read(self) -> Iterator[Arrival]:
        for line in (self.place / "out.jsonl").read_text().splitlines():
            row = json.loads(line)
            yield _arrival(f"{row['shard']}/{row['position']}", row["payload"].encode())


class ParquetSink(_Files):
    name = "parquet"
    exactly_once = True

    @property
    def settings(self) -> list[str]:
        return ["type=parquet", f"parquet.path={self.place}/out", "parquet.file_rows_max=10000", "parquet.file_age_max=3s"]

    async def count(self) -> int:
        return await asyncio.to_thread(self._count) if self.place.is_dir() else 0

    def _count(self) -> int:
        import pyarrow.parquet

        return sum(pyarrow.parquet.read_metadata(path).num_rows for path in self._paths())

    def _paths(self) -> list[Path]:
        """By name, which is the order of their numbers within an epoch; epochs by their first file."""
        paths = list((self.place / "out").glob("*.parquet"))
        began: dict[str, float] = {}
        for path in paths:
            epoch = path.name.rsplit("-", 2)[0]
            began[epoch] = min(began.get(epoch, float("inf")), path.stat().st_mtime)
        return sorted(paths, key=lambda path: (began[path.name.rsplit("-", 2)[0]], path.name))

    async def arrivals(self) -> list[Arrival]:
        return await asyncio.to_thread(lambda: list(self._read()))

    def _read(self) -> Iterator[Arrival]:
        import pyarrow.parquet

        for path in self._paths():
            rows = pyarrow.parquet.read_table(path, columns=["shard", "position", "payload"]).to_pydict()
            for shard, position, payload in zip(rows["shard"], rows["position"], rows["payload"], strict=True):
                yield _arrival(f"{shard}/{position}", payload)


class PostgresqlSink(Sink):
    """Debian's server, killed with -9."""

    name = "postgresql"
    exactly_once = True

    async def start(self) -> None:
        self.cluster = await asyncio.to_thread(Cluster)
        await self.back()

    @property
    def settings(self) -> list[str]:
        return ["type=postgresql", f"postgresql.url={self.url}"]

    @property
    def url(self) -> str:
        return f"postgresql://{self.cluster.user}@/postgres?host={self.cluster.directory}"

    async def away(self) -> None:
        await asyncio.to_thread(self.cluster.kill)

    async def back(self) -> None:
        await asyncio.to_thread(self.cluster.start)

    async def count(self) -> int:
        if not self.cluster.runs or (await self.rows("SELECT to_regclass('holdfast_messages')"))[0][0] == "":
            return 0
        return int((await self.rows("SELECT count(*) FROM holdfast_messages"))[0][0])

    async def arrivals(self) -> list[Arrival]:
        """By the transactions in which they came; those of one are there at the same moment, and stand by their key."""
        start = "encode(substr(payload, 1, 64), 'escape')"
        rows = await self.rows(f"SELECT shard, position, {start} FROM holdfast_messages ORDER BY xmin::text::bigint, shard, position")
        return [_arrival(f"{shard}/{position}", payload.encode()) for shard, position, payload in rows]

    async def end(self) -> None:
        await asyncio.to_thread(self.cluster.end)

    async def rows(self, statement: str) -> list[list[str]]:
        program = find_program("psql")
        assert program is not None
        process = await asyncio.create_subprocess_exec(
            program, "-X", "-At", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", str(self.cluster.directory), "-U", self.cluster.user,
            "postgres", "-c", statement, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        if process.returncode:
            raise GateFailed(f"PostgreSQL: {' '.join(err.decode().split())}")
        return [line.split("\t") for line in out.decode().split("\n")[:-1]]


class Receiver:
    """A program that receives, such as tests.gates.bridge_receiver, with a log beside its file."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._words = words
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self, word: str) -> bool:
        return word in self._log.read_text()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(ENDED_S)


def receiver(kind: str, port: int, file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.gates.bridge_receiver", kind, str(port), str(file), *more]


class HttpSink(Sink):
    """A web server, killed with -9."""

    name = "http"
    exactly_once = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._lines = Lines(self.directory / "got")
        self._server = Receiver(receiver("web", self.port, self._lines.path), self.directory / "log")

    @property
    def settings(self) -> list[str]:
        return ["type=http", f"http.url=http://127.0.0.1:{self.port}/in"]

    async def start(self) -> None:
        await self.back()

    async def away(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def back(self) -> None:
        self._server.start()
        await asyncio.to_thread(wait_listening, "127.0.0.1", self.port, LISTENING_S)

    async def count(self) -> int:
        return await asyncio.to_thread(self._lines.count)

    async def arrivals(self) -> list[Arrival]:
        return await asyncio.to_thread(lambda: list(self._lines.received()))

    async def end(self) -> None:
        await self.away()


class BrokerSink(Sink):
    """Debian's mosquitto, stopped as an operator would: killed with -9 it forgets what it has acknowledged. A durable subscriber of it
    keeps what comes, and stays."""

    version: ClassVar[str]
    exactly_once = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        program = find_mosquitto()
        if program is None:
            raise GateFailed("there is no mosquitto (make system-deps)")
        self.broker = Mosquitto(self.directory, program)
        self.lines = Lines(self.directory / "got")
        self.subscriber = Receiver(receiver("mqtt", self.broker.port, self.lines.path, "--version", self.version), self.directory / "log")

    @property
    def settings(self) -> list[str]:
        return ["type=mqtt", f"mqtt.url=mqtt://127.0.0.1:{self.broker.port}", f"mqtt.version={self.version}"]

    async def start(self) -> None:
        await self.back()
        self.subscriber.start()
        async with asyncio.timeout(LISTENING_S):
            while not self.subscriber.said("subscribed"):  # noqa: ASYNC110  # another process says so in its log
                await asyncio.sleep(0.1)

    async def away(self) -> None:
        await asyncio.to_thread(self.broker.stop)

    async def back(self) -> None:
        await asyncio.to_thread(self.broker.start)

    async def count(self) -> int:
        return await asyncio.to_thread(self.lines.count)

    async def arrivals(self) -> list[Arrival]:
        return await asyncio.to_thread(lambda: list(self.lines.received()))

    async def end(self) -> None:
        await asyncio.to_thread(self.subscriber.kill)
        await self.away()


class Mqtt5Sink(BrokerSink):
    name = "mqtt5"
    version = "5"


class Mqtt3Sink(BrokerSink):
    name = "mqtt3"
    version = "3.1.1"
    with_identity = False


SINKS: tuple[type[Sink], ...] = (JsonlSink, ParquetSink, PostgresqlSink, Mqtt5Sink, Mqtt3Sink, HttpSink)


def _arrival(identity: str, payload: bytes) -> Arrival:
    key = parse_payload(payload) or parse_payload(b" ".join(payload.split(b" ", 2)[:2]) + b" ")
    if key is None:
        raise GateFailed(f"{identity} has a payload that nobody has sent")
    return Arrival(identity, *key)
