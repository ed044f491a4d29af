"""The real servers of one broker on one event loop, with real sockets and RocksDB but without Ray.

What the cluster tests do with processes, these do in a second: everything between two sockets is the shipped code.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from actors.access.publishing import publish
from actors.gateway import GatewayServer
from actors.session import SessionServer
from actors.shard import ShardServer
from actors.topology import RayPlan, Topology, write_whole
from config.dump import dump_json
from config.load import load
from tests.access.test_passwords import pbkdf2

PATIENT_MS = 60_000
"""Bounds after which a gateway goes on without a client, a shard or another gateway.  Here nobody is gone: the machine stood still."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class OneLoop:
    def __init__(
        self,
        data_dir: Path,
        n_shards: int = 1,
        n_gateways: int = 1,
        sets: tuple[str, ...] = (),
        users: Mapping[str, bytes] | None = None,
        compact: bool = False,
        site: str = "0" * 16,
    ) -> None:
        """users: with their passwords.  compact: linked with each other as the parts of one process are, and not by sockets.  site: id of
        the store."""
        self.port = free_port()
        self._run = tempfile.TemporaryDirectory(prefix="hf")
        passwords = Path(self._run.name) / "configured-passwords"
        if users is not None:
            sets = (*sets, f"access.password.file={passwords}")
            passwords.write_text("".join([f"{user}:{pbkdf2(password)}\n" for user, password in users.items()]))
            passwords.chmod(0o600)
        self._always = (f"listeners.tcp.bind=127.0.0.1:{self.port}", "gateway.connect_timeout=60s", "access.deadline=60s")
        config = load(sets=(*self._always, *sets), environ={})
        self.topology = Topology(
            data_dir=data_dir,
            run_dir=Path(self._run.name),
            site=site,
            incarnation=1,
            secret=b"secret",
            config_json=dump_json(config),
            store_dir=data_dir / "shards",
            n_shards=n_shards,
            n_sessions=1,
            n_gateways=n_gateways,
            ray=RayPlan("local", "holdfast-test", False, 8265, 100 << 20),
            compact=compact,
        )
        write_whole(self.topology.run_dir / "topology.json", self.topology.to_json())
        if users is not None:
            publish(self.topology.run_dir, config)
        self.shards = [ShardServer(self.topology, i) for i in range(n_shards)]
        self.sessions = [SessionServer(self.topology, 0)]
        self.gateways = [GatewayServer(self.topology, i) for i in range(n_gateways)]

    async def __aenter__(self) -> OneLoop:
        with warnings.catch_warnings():
            # The servers collect garbage as they start. What a test that failed has left open would fail the next one by that.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        servers: list[ShardServer | SessionServer | GatewayServer] = [*self.shards, *self.sessions, *self.gateways]
        for server in servers:
            await server.start()
        self._be_patient()
        while not all(self._has_heard_all(gateway) for gateway in self.gateways):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self

    def _be_patient(self) -> None:
        for gateway in self.gateways:
            state = gateway._core._state
            state.options = replace(state.options, home_wait_ms=PATIENT_MS, suback_wait_ms=PATIENT_MS)

    def sets_of_bridges(self, *sets: str) -> None:
        """What a bridge process that starts later finds."""
        self.topology = replace(self.topology, config_json=dump_json(load(sets=(*self._always, *sets), environ={})))
        write_whole(self.topology.run_dir / "topology.json", self.topology.to_json())

    def reconfigure(self, *sets: str) -> None:
        """As the controller does it after a reload; what is not said has its default."""
        config = load(sets=(*self._always, *sets), environ={})
        servers: list[ShardServer | SessionServer | GatewayServer] = [*self.shards, *self.sessions, *self.gateways]
        for server in servers:
            server.reconfigure(config)
        self._be_patient()

    @staticmethod
    def _has_heard_all(gateway: GatewayServer) -> bool:
        """One that was too slow to hear from everybody listens all the same."""
        linked = all(client.linked for client in gateway._shards) and all(client.linked for client in gateway._sessions)
        return linked and gateway._core.ready()

    async def ranges_committed(self) -> None:
        """What was assigned is in the rows: at QoS 1 it may be sent before, and is then sent again as new after a crash."""
        sessions = self.sessions[0].core._state.sessions
        while any(session.ranges.has_fresh or session.committing for session in sessions.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def forgotten(self, client: str, within_s: float = 60) -> None:
        """The connection of this client is over, and all that its session had to commit is committed."""
        deadline = time.monotonic() + within_s
        while client.encode() in self.sessions[0].core._state.sessions:
            assert time.monotonic() < deadline, f"{client} is still in memory after {within_s} s"
            await asyncio.sleep(0.01)

    async def gone(self, client: str) -> None:
        """No gateway takes this client for connected."""
        while any(client.encode() in gateway._core._state.by_client for gateway in self.gateways):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def kill_session(self) -> None:
        """The session actor dies at once: nothing that it still had to say is heard.  A new one starts."""
        dead = self.sessions[0]._serving
        assert dead is not None
        for name in ("_feed", "_tick", "_carry_out"):
            setattr(dead, name, lambda *_: None)
        dead._pump.stop()
        await dead._server.stop()
        for client in dead.shards:
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

    def later(self, ms: int) -> None:
        """The clocks of all that is stored go on by so much; what has become due is done in the next second."""
        for shard in self.shards:
            shard._age._age_at_base += ms
        for steady in [*(session._steady for session in self.sessions), *(gateway._steady for gateway in self.gateways)]:
            steady.now_ms()
            assert steady._base_ms is not None
            steady._base_ms += ms

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
