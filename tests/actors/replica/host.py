"""The shard process of one site, as an actor runs it, without Ray: ``python -m tests.actors.replica.host TOPOLOGY [REGISTER [FAULT]]``.

TOPOLOGY: a file.  REGISTER: a socket; without one, or with an empty word, it asks the register that its settings ask for.  FAULT: the name
of one that is planted in this process (tests.actors.replica.planted).

It prints a line when it has started.  It is killed, or ends itself; the end of its input ends it in order.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import structlog
import uvloop

from actors.endpoints import Endpoint
from actors.register.linked import LinkedRegister
from actors.replica.server import ReplicaServer
from actors.topology import Topology
from actors.wire import Wire
from shards.replication.bounds import Retained

RETAINED = Retained(entries=40, bytes=1 << 30, sync_data_ms=300)


async def serve(topology: Topology, register: str) -> None:
    asked = LinkedRegister(lambda: Endpoint(path=register), Wire.of(topology), f"shard-0@{topology.site}", 1.0) if register else None
    if asked is not None:
        asked.start()
    server = ReplicaServer(topology, 0, asked, RETAINED)
    await server.start()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("started", flush=True)
    await reader.read()
    await server.stop()


def main(arguments: list[str]) -> None:
    topology = Topology.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20), logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if fault := "".join(arguments[2:3]):
        from tests.actors.replica.planted import plant

        plant(fault, topology.run_dir)
    uvloop.run(serve(topology, *arguments[1:2] or [""]))


if __name__ == "__main__":
    main(sys.argv[1:])
