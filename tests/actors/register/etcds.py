"""Real etcd processes on loopback, and a proxy in front of one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from actors.register.etcd import EtcdRegister
from actors.register.etcd_http import EtcdHttp, Failed, Tls
from shards.replication.ports import RegisterAway
from tests.needs import find_program

WITHIN_S = 60.0
ELECTION_MS = 500


def free_ports(count: int) -> list[int]:
    """All at once, so that none is found twice."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Etcd:
    """One member: started -> stopped (SIGSTOP) -> killed -> started again with what it had."""

    def __init__(self, directory: Path, arguments: list[str], endpoint: str) -> None:
        self.endpoint = endpoint
        self._log = directory / "log"
        directory.mkdir(parents=True, exist_ok=True)
        program = find_program("etcd")
        assert program is not None
        self._command = [program, "--data-dir", str(directory / "data"), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self._process is None
        # Variables of the machine that begin with ETCD_ are settings too.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def etcds(count: int, scheme: str = "http", extra: Sequence[str] = ()) -> Iterator[list[Etcd]]:
    """A new cluster of so many members, on a disk in memory where there is one; killed at the end.  scheme: of the client port."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-etcd-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    ports = free_ports(2 * count)
    peers = [f"http://127.0.0.1:{port}" for port in ports[count:]]
    cluster = ",".join(f"n{number}={peer}" for number, peer in enumerate(peers))
    members: list[Etcd] = []
    for number, peer in enumerate(peers):
        endpoint = f"{scheme}://127.0.0.1:{ports[number]}"
        arguments = ["--name", f"n{number}", "--listen-client-urls", endpoint, "--advertise-client-urls", endpoint]
        arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster]
        arguments += ["--heartbeat-interval", "50", "--election-timeout", str(ELECTION_MS), *extra]
        members.append(Etcd(directory / str(number), arguments, endpoint))
    try:
        for member in members:
            member.start()
        yield members
    finally:
        for member in members:
            member.kill()
        shutil.rmtree(directory)


async def ready(members: Sequence[Etcd], tls: Tls | None = None) -> None:
    """Each of them answers for itself."""
    for member in members:
        http = EtcdHttp(tls, 5.0)
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    try:
                        await http.ask(member.endpoint, "/v3/kv/range", {"key": b64encode(b"ready").decode()})
                        break
                    except Failed as error:
                        if error.mistake:
                            break  # it answers: that it wants a user is for the test
                        await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{member.endpoint} is not ready: {member.said()[-2000:]}") from None
        finally:
            await http.close()


async def asked(member: Etcd, path: str, body: dict[str, object], tls: Tls | None = None, token: str = "") -> dict[str, Any]:
    """What an administrator asks of one member."""
    http = EtcdHttp(tls, 10.0)
    try:
        return (await http.ask(member.endpoint, path, body, token)).body
    finally:
        await http.close()


async def leader(members: Sequence[Etcd]) -> Etcd:
    """The member that says it leads."""
    for member in members:
        status = await asked(member, "/v3/maintenance/status", {})
        if status["header"]["member_id"] == status.get("leader"):
            return member
    raise AssertionError("no member leads")


async def until_it_answers(register: EtcdRegister) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            with suppress(RegisterAway):
                await register.read("any")
                return
            await asyncio.sleep(0.02)


class Proxy:
    """In front of one endpoint.  delay_s: of every answer.  swallow: requests go through and answers do not."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition("//")[2].partition(":")
        self._target = host, int(port)
        self.delay_s = 0.0
        self.swallow = False
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.endpoint = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, there_writer, answers=False))
                both.create_task(self._pass(there_reader, writer, answers=True))
        except* OSError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            there_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65536):
            if answers:
                await asyncio.sleep(self.delay_s)
                if self.swallow:
                    continue
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def joined_learner(members: Sequence[Etcd]) -> AsyncIterator[Etcd]:
    """A fourth member that has no vote."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-etcd-"))
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    added: dict[str, Any] = {}
    async with asyncio.timeout(WITHIN_S):
        while not added:
            # Members that have not known each other for long are no healthy cluster yet.
            with suppress(Failed):
                added = await asked(await leader(members), "/v3/cluster/member/add", {"peerURLs": [peer], "isLearner": True})
            await asyncio.sleep(0.1)
    names = {url: each.get("name", "learner") for each in added["members"] for url in each["peerURLs"]}
    cluster = ",".join(f"{name}={url}" for url, name in names.items())
    arguments = ["--name", "learner", "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    arguments += ["--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--initial-cluster-state", "existing"]
    learner = Etcd(directory, [*arguments, "--heartbeat-interval", "50", "--election-timeout", str(ELECTION_MS)], client)
    learner.start()
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                with suppress(Failed):
                    if (await asked(learner, "/v3/maintenance/status", {})).get("isLearner"):
                        break
                await asyncio.sleep(0.05)
        yield learner
    finally:
        learner.kill()
        shutil.rmtree(directory)
