"""The real servers of one broker on one event loop, with real sockets and RocksDB but without Ray.

What the cluster tests do with processes, these do in a second: everything between two sockets is the shipped code.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from actors.access.publishing import publish
from actors.gateway import GatewayServer
from actors.session import SessionServer
from actors.shard import ShardServer
from actors.topology import RayPlan, Topology, write_whole
from config.dump import dump_json
from config.load import load
from tests.access.test_passwords import pbkdf2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class OneLoop:
    def __init__(
        self, data_dir: Path, n_shards: int = 1, n_gateways: int = 1, sets: tuple[str, ...] = (), users: Mapping[str, bytes] | None = None
    ) -> None:
        """users: with their passwords."""
        self.port = free_port()
        self._run = tempfile.TemporaryDirectory(prefix="hf")
        passwords = Path(self._run.name) / "configured-passwords"
        if users is not None:
            sets = (*sets, f"access.password.file={passwords}")
            passwords.write_text("".join([f"{user}:{pbkdf2(password)}\n" for user, password in users.items()]))
            passwords.chmod(0o600)
        config = load(sets=(f"listeners.tcp.bind=127.0.0.1:{self.port}", *sets), environ={})
        self.topology = Topology(
            data_dir=data_dir,
            run_dir=Path(self._run.name),
            site="0" * 16,
            incarnation=1,
            secret=b"secret",
            config_json=dump_json(config),
            store_dir=data_dir / "shards",
            n_shards=n_shards,
            n_sessions=1,
            n_gateways=n_gateways,
            ray=RayPlan("local", "holdfast-test", False, 8265, 100 << 20),
        )
        write_whole(self.topology.run_dir / "topology.json", self.topology.to_json())
        if users is not None:
            publish(self.topology.run_dir, config)
        self.shards = [ShardServer(self.topology, i) for i in range(n_shards)]
        self.sessions = [SessionServer(self.topology, 0)]
        self.gateways = [GatewayServer(self.topology, i) for i in range(n_gateways)]

    async def __aenter__(self) -> OneLoop:
        servers: list[ShardServer | SessionServer | GatewayServer] = [*self.shards, *self.sessions, *self.gateways]
        for server in servers:
            await server.start()
        return self

    async def ranges_committed(self) -> None:
        """What was assigned is in the rows: at QoS 1 it may be sent before, and is then sent again as new after a crash."""
        sessions = self.sessions[0]._core._state.sessions
        while any(session.ranges.fresh or session.committing for session in sessions.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def forgotten(self, client: str, within_s: float = 5) -> None:
        """The connection of this client is over, and all that its session had to commit is committed."""
        deadline = time.monotonic() + within_s
        while client.encode() in self.sessions[0]._core._state.sessions:
            assert time.monotonic() < deadline, f"{client} is still in memory after {within_s} s"
            await asyncio.sleep(0.01)

    async def kill_session(self) -> None:
        """The session actor dies at once: nothing that it still had to say is heard.  A new one starts."""
        dead = self.sessions[0]
        for name in ("_feed", "_tick", "_carry_out"):
            setattr(dead, name, lambda *_: None)
        dead._pump.stop()
        await dead._server.stop()
        for client in dead._shards:
            await client.stop()
        self.sessions[0] = SessionServer(self.topology, 0)
        await self.sessions[0].start()

    async def pass_time(self, ms: int) -> None:
        """Everything stored is older by so much, and every shard has begun another generation for it."""
        before = [len(shard._store.generations()) for shard in self.shards]
        for shard in self.shards:
            shard._age._age_at_base += ms
        while any(len(shard._store.generations()) == count for shard, count in zip(self.shards, before, strict=True)):
            self.housekeep()
            await asyncio.sleep(0.005)

    def housekeep(self) -> None:
        """Shards do at once what they do every second: roll, drop."""
        for shard in self.shards:
            shard._core._housekeeping._housekept_us = -(1 << 62)
            shard._pump.soon()

    async def restart_shard(self, index: int = 0) -> None:
        await self.shards[index].stop()
        self.shards[index] = ShardServer(self.topology, index)
        await self.shards[index].start()

    async def __aexit__(self, *_: object) -> None:
        servers: list[ShardServer | SessionServer | GatewayServer] = [*self.gateways, *self.sessions, *self.shards]
        for server in servers:
            await server.stop()
        self._run.cleanup()
