"""The desk in the process of a gateway: its threads, its clock, and where its settings and its alarms are.

Life cycle: made -> took (the first bundle) -> ready -> stopped; asked from then on that it is ready, and before it lets nobody in who is to
be found in a file.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from typing import Final

from access.asked import Asked
from access.bundle import Bundle
from access.login import Login
from actors.access.secrets import read_secrets
from actors.access.watch import NONE
from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.auth.asked import LoopClock
from actors.auth.configured import auth_settings
from actors.auth.desk import Desk, Verdict
from actors.auth.settings import AuthSettings
from actors.auth.threads import Threads
from actors.endpoints import Endpoint
from actors.links import LinkClient
from actors.topology import Topology
from actors.wire import Wire
from config.schema import Config

FETCHERS: Final = 2
"""One for a set of keys, which may be slow to come, and one for the password file."""
_SCRAM = b"holdfast scram"


class ServedDesk:
    """name: of the process, as alarms have it.  feed: takes what is answered, in a turn of its own."""

    def __init__(self, topology: Topology, name: str, config: Config, feed: Callable[[Verdict], None]) -> None:
        self._run_dir = topology.run_dir
        self._name = name
        self._config = config
        self._bundle = NONE
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        settings = self._settings()
        self._checkers = Threads(settings.passwords.threads, "passwords")
        self._fetchers = Threads(FETCHERS, "fetching")
        secret = hmac.digest(topology.secret, _SCRAM, "sha256")
        self._desk = Desk(self, LoopClock(time.time), self._checkers, self._fetchers, secret, settings)
        self._threads = settings.passwords.threads
        self._link: LinkClient | None = None
        if settings.plugin is not None:
            # Whether there is one does not change while the broker runs.
            at = Endpoint(topology.plugin_endpoint())
            self._link = LinkClient(lambda: at, self._desk.plugin, Wire(topology.secret), "gateway", name)
            self._desk.plugin.wire = self._link
            self._link.start()

    async def ready(self) -> None:
        """Returns when the password file was read, or could not be."""
        ready = self._loop.create_future()
        self._desk.when_ready(lambda: ready.set_result(None))
        await ready

    async def stop(self) -> None:
        if self._link is not None:
            await self._link.stop()
        self._desk.stop()
        self._checkers.stop()
        self._fetchers.stop()

    def took(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._change()

    def reconfigure(self, config: Config) -> None:
        self._config = config
        self._change()

    def ask(self, socket: int, attempt: int, login: Login) -> None:
        self._desk.ask(socket, attempt, login)

    def go_on(self, socket: int, attempt: int, data: bytes) -> None:
        self._desk.go_on(socket, attempt, data)

    def ask_right(self, asker: int, key: tuple[int, bytes], asked: Asked) -> None:
        self._desk.rights.ask(asker, key, asked)

    def forget(self, socket: int) -> None:
        self._desk.forget(socket)

    # ------------------------------------------------------------------ DeskOwner

    def verdict(self, event: Verdict) -> None:
        # The core that has asked is still about to say the rest of what it said then.
        self._loop.call_soon(self._feed, event)

    def alarm(self, kind: str, cause: str) -> None:
        if cause:
            raise_alarm(self._run_dir, Alarm(self._name, kind, cause))
        else:
            clear_alarm(self._run_dir, self._name, kind)

    # ------------------------------------------------------------------ within

    def _change(self) -> None:
        settings = self._settings()
        if settings.passwords.threads != self._threads:
            self._threads = settings.passwords.threads
            self._checkers.resize(self._threads)
        self._desk.changed(settings)

    def _settings(self) -> AuthSettings:
        return auth_settings(self._config, self._bundle, read_secrets(self._run_dir), self._run_dir)
