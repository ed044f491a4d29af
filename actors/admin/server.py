"""The admin process: a socket, uvicorn on the loop of the actor, and the app.

A port that somebody else has keeps only this from starting: an alarm says so, and the host tries again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from actors.admin.app import App
from actors.admin.errors import bad_request
from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.snapshot import settings_in_force
from actors.topology import ADMIN, Announcement, Health, ListenerInfo, Topology, announce, member_name, write_whole
from config.schema import Config

CONNECTIONS_MAX = 64
"""Further ones are told 503."""
KEEP_ALIVE_S = 75
STOP_S = 1
HEAD_BYTES_MAX = 256 << 10
"""A cursor, which has a client id of 64 KiB at most in it, and what is asked beside it (actors.admin.shapes)."""
NOT_HTTP = bad_request(f"this is not HTTP, or its head has more than {HEAD_BYTES_MAX >> 10} KiB")
BACKLOG = 64
_PORT_FILE = "admin.port"
_ALARM = "listen"

log = structlog.get_logger(__name__)


class PortTaken(Exception):
    """One sentence for the operator."""


class AdminServer:
    """Life cycle: made -> started -> stopped; a start that failed may be tried again."""

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._name = member_name("admin", index)
        self._started: Announcement | None = None

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology, config = self._topology, settings_in_force(self._topology)
        listen = config.admin.listen
        try:
            listening = listening_at(listen.host, listen.port or _port_before(topology.run_dir))
        except PortTaken as error:
            raise_alarm(topology.run_dir, Alarm(self._name, _ALARM, f"{error}; there is no /metrics until it is free"))
            raise
        clear_alarm(topology.run_dir, self._name, _ALARM)
        port = int(listening.getsockname()[1])
        started = Announcement("admin", self._name, os.getpid(), (ListenerInfo(0, ADMIN, listen.host, port, shared=False),))
        try:
            # Any free port was asked for: that one stays ours, as those who scrape know it.
            write_whole(topology.run_dir / _PORT_FILE, str(port))
            announce(topology, started)
        except OSError:
            listening.close()
            raise
        self._app = App(topology, config, self._name)
        self._serving = _Serving(
            uvicorn.Config(
                self._app.asgi, loop="none", http=_Protocol, ws="none", lifespan="off",
                log_config=None, access_log=False, server_header=False, proxy_headers=False,
                limit_concurrency=CONNECTIONS_MAX, backlog=BACKLOG, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=STOP_S,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            )
        )  # fmt: skip
        self._task = asyncio.get_running_loop().create_task(self._serving.serve(sockets=[listening]))
        self._app.start()
        self._started = started
        log.info("admin.started", host=listen.host, port=port)
        return started

    async def stop(self) -> None:
        if self._started is None:
            return
        self._started = None
        (self._topology.run_dir / f"{self._name}.json").unlink(missing_ok=True)
        self._serving.should_exit = True
        await self._task
        await self._app.stop()

    async def health(self) -> Health:
        if self._started is None:
            return Health(False, "")
        return Health(not self._task.done(), "nobody accepts connections" if self._task.done() else "")

    def reconfigure(self, config: Config) -> None:
        """Where it listens changes at the next start."""
        self._app.reconfigure(config)


class _Protocol(H11Protocol):
    """With answers of our form for what never becomes a request."""

    def send_400_response(self, msg: str) -> None:
        body = NOT_HTTP.answer().body
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()


class _Serving(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are Ray's, and the host's."""
        yield


def listening_at(host: str, port: int) -> socket.socket:
    """Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise PortTaken(f"the port {port} on {host} cannot be used: {os.strerror(error.errno or 0)} (admin.listen)") from error


def _port_before(run_dir: Path) -> int:
    """Of this run; 0: there was none."""
    try:
        return int((run_dir / _PORT_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
