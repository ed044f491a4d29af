"""Servers that are real processes with real listeners and no broker in them: each gateway answers CONNECT and nothing else.

They let the life cycle be tested for itself: what starts, dies and comes back does not depend on what it serves.
A directory `break-<name>` in the data directory makes that server's start fail; `stick-0` makes gateway 0's loop stand still.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import cast

import ray

from actors.deploy import Table, prepare
from actors.heartbeat import Heartbeat
from actors.host import Host
from actors.topology import Announcement, Health, ListenerInfo, Role, Topology, announce, member_name
from config.schema import Config

BEAT_S = 0.1


class EchoServer:
    def __init__(self, topology: Topology, role: Role, index: int) -> None:
        self._topology = topology
        self._role: Role = role
        self._index = index
        self._name = member_name(role, index)
        self._server: asyncio.Server | None = None

    async def start(self) -> Announcement:
        if (self._topology.data_dir / f"break-{self._name}").exists():
            raise RuntimeError("it was told to break")
        listeners: tuple[ListenerInfo, ...] = ()
        if self._role == "gateway":
            host, _, port = json.loads(self._topology.config_json)["listeners"]["tcp"]["bind"].rpartition(":")
            self._server = await asyncio.get_running_loop().create_server(_Answering, host, int(port), reuse_port=True)
            listeners = (ListenerInfo(self._index, "tcp", host, int(port), True),)
            self._heart = Heartbeat(self._topology.heartbeat_path(self._index))
            self._beat()
        announcement = Announcement(self._role, self._name, os.getpid(), listeners)
        announce(self._topology, announcement)
        return announcement

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        (self._topology.data_dir / f"stopped-{self._name}").write_text(str(time.monotonic()))

    async def health(self) -> Health:
        return Health(True, "")

    def reconfigure(self, config: Config) -> None:
        (self._topology.data_dir / f"level-{self._name}").write_text(config.log.level)

    def _beat(self) -> None:
        self._heart.beat()
        stick = self._topology.data_dir / f"stick-{self._index}"
        if stick.exists():
            stick.rmdir()
            time.sleep(3600)
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not of asyncio's class.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if data[0] == 0x10:
            self._transport.write(b"\x20\x02\x00\x00")


class EchoShard(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        super().__init__(
            topology, "shard", index, EchoServer(topology, "shard", index), restarted=prepare(topology, member_name("shard", index))
        )


class EchoSession(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        super().__init__(
            topology, "session", index, EchoServer(topology, "session", index), restarted=prepare(topology, member_name("session", index))
        )


class EchoGateway(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        super().__init__(
            topology, "gateway", index, EchoServer(topology, "gateway", index), restarted=prepare(topology, member_name("gateway", index))
        )


TABLE = Table(shard=ray.remote(EchoShard), session=ray.remote(EchoSession), gateway=ray.remote(EchoGateway))
