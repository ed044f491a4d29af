"""The real servers of one broker on one event loop, with real sockets and RocksDB but without Ray.

What the cluster tests do with processes, these do in a second: everything between two sockets is the shipped code.
"""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

from actors.gateway import GatewayServer
from actors.session import SessionServer
from actors.shard import ShardServer
from actors.topology import RayPlan, Topology
from config.dump import dump_json
from config.load import load


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class OneLoop:
    def __init__(self, data_dir: Path, n_shards: int = 1, n_gateways: int = 1, sets: tuple[str, ...] = ()) -> None:
        self.port = free_port()
        config = load(sets=(f"listeners.tcp.bind=127.0.0.1:{self.port}", *sets), environ={})
        self._run = tempfile.TemporaryDirectory(prefix="hf")
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
        self.shards = [ShardServer(self.topology, i) for i in range(n_shards)]
        self.sessions = [SessionServer(self.topology, 0)]
        self.gateways = [GatewayServer(self.topology, i) for i in range(n_gateways)]

    async def __aenter__(self) -> OneLoop:
        servers: list[ShardServer | SessionServer | GatewayServer] = [*self.shards, *self.sessions, *self.gateways]
        for server in servers:
            await server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        servers: list[ShardServer | SessionServer | GatewayServer] = [*self.gateways, *self.sessions, *self.shards]
        for server in servers:
            await server.stop()
        self._run.cleanup()
