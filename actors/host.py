"""What stands between Ray and a server: it starts the server, and keeps at it until it has started.

A server is a plain class; a host has one inside and is what actors.deploy turns into an actor. Ray restarts a killed actor by its
constructor alone, so a host that finds itself restarted begins by itself: coming back takes no call from anybody, and works
while the controller or Ray's own head is away.

Always holds: at most one start is under way, and there is one stop; after it nothing is started again. What is stopped while it starts has
nothing to finish, but for the controller: those whose start it waits for may serve already, and the others do.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import structlog

from actors import fatal
from actors.logs import set_level
from actors.main_thread import Resting
from actors.metrics.meter import Meter
from actors.snapshot import confirm, read_snapshot
from actors.topology import Announcement, Health, Role, Topology, member_name, write_whole
from config.load import from_json
from config.schema import Config

if TYPE_CHECKING:
    from actors.chaos.exposure import Exposure
    from actors.metrics.sheet import Sheet

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
NOT_STARTED = -1


class RunEnded(Exception):
    """This actor was restarted by a Ray that does not know that its broker has stopped, or has started anew."""


class Server(Protocol):
    """What every server of this floor is."""

    async def start(self) -> Announcement:
        """Open everything on the running loop; one that fails leaves nothing open. May be called again, after it failed or succeeded."""

    async def stop(self) -> None:
        """Finish what is under way, commit, close."""

    async def health(self) -> Health: ...

    def reconfigure(self, config: Config) -> None:
        """Go on with these settings. Asked only when it has started; those that cannot change while it runs are as they were."""


@runtime_checkable
class Measured(Protocol):
    """A server that has figures of its own beside those of its process."""

    def measure(self, sheet: Sheet) -> None:
        """Write them. Asked once a second, on the loop, when it has started."""


class Host:
    """Runs one server in this process."""

    _called = "holdfast"
    """Of the class too: Ray asks for it when a constructor raises, and takes a failure of that for a crash, and starts the actor again."""

    def __init__(
        self,
        topology: Topology,
        role: Role,
        index: int,
        server: Server,
        *,
        restarted: bool,
        first_pause: float = FIRST_PAUSE_S,
        shares: bool = False,
        leads: bool = False,
    ) -> None:
        """shares: the process with other hosts; what is of the whole process is their owner's (actors.compact).  leads: others, who are
        there before it has started, and are to be stopped by it all the same."""
        self._called = f"{member_name(role, index)} of {topology.data_dir}"
        if not topology.current():
            # Raised in a constructor this is final: Ray gives the actor up instead of starting it again.
            raise RunEnded(f"{member_name(role, index)} belongs to a run that has ended")
        self._name = member_name(role, index)
        self._error_path = topology.run_dir / f"{self._name}.error"
        self._topology = topology
        self._server = server
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._started = False
        self._stopped = False
        self._version = 0
        """Of the settings (actors.snapshot) that the server has, or an older one."""
        self._confirmed = NOT_STARTED
        """The version that it has said to have."""
        self._first_pause = first_pause
        self._exposure: Exposure | None = None
        self._shares = shares
        self._leads = leads
        self._resting = Resting()
        self._meter = Meter(topology.run_dir, self._name, server.measure if isinstance(server, Measured) else None, shares=shares)
        self._log = structlog.get_logger()
        if restarted:
            # The constructor of an async actor runs on the actor's loop.
            self._starting = asyncio.get_running_loop().create_task(self._keep_starting())

    def __repr__(self) -> str:
        """What Ray's dashboard shows, of several brokers too."""
        return self._called

    async def begin(self) -> None:
        """Returns when the server has started; calling again is free."""
        if self._stopped:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._keep_starting())
        # The caller may give up waiting; the start goes on.
        await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """Returns when it has stopped; calling again waits for the same."""
        if self._stopping is None:
            self._stopped = True
            self._resting.end()
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        if self._started or self._leads:
            await self._server.stop()
            self._log.info("server.stopped")
        if self._started:
            self._meter.stop()
        if self._exposure is not None:
            self._exposure.stop()

    async def health(self) -> Health:
        if not self._started:
            return Health(False, "starting")
        return await self._server.health()

    async def reconfigure(self, version: int, config: str) -> int:
        """Take this snapshot if it is a newer one. The version that the server has said to have then, which may be older: ask again;
        NOT_STARTED: it reads them when it starts."""
        if not self._started:
            return NOT_STARTED
        if version > self._version:
            settings = from_json(config)
            self._server.reconfigure(settings)
            set_level(settings.log.level)
            self._version = version
            self._log.info("settings.changed", version=version)
        self._confirm()
        return self._confirmed

    def _confirm(self) -> None:
        if self._confirmed == self._version:
            return
        try:
            confirm(self._topology.run_dir, self._name, self._version)
            self._confirmed = self._version
        except OSError as error:
            self._log.warning("settings.not_confirmed", version=self._version, cause=str(error))

    def _tell_why(self, sentence: str) -> None:
        """Why it has not started; empty: it has."""
        try:
            if sentence:
                write_whole(self._error_path, sentence)
            else:
                self._error_path.unlink(missing_ok=True)
        except OSError as error:
            # The log has it.
            self._log.warning("server.not_told", cause=str(error))

    async def _keep_starting(self) -> None:
        pause = self._first_pause
        if self._topology.chaos and self._exposure is None and not self._shares:
            from actors.chaos.installing import expose  # only what may be broken loads it

            self._exposure = expose(self._topology, [self._name])
        while not self._stopped:
            if not self._topology.current():
                # Our run ended between our constructor and now. Started again, we shall not get past the constructor.
                os._exit(1)
            try:
                # Before the server reads them: what it has is not older.
                version = read_snapshot(self._topology).version
                announcement = await self._server.start()
            except Exception as error:  # Whatever it is: it may pass (a port, a lock, a disk), and the operator reads it in `up`.
                sentence = str(error) or type(error).__name__
                self._log.error("server.start_failed", reason=sentence, again_in_s=pause, exc_info=True)
                self._tell_why(sentence)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            else:
                self._started = True
                fatal.before_death.append(self._meter.write)
                self._meter.start()
                if not self._shares:
                    self._resting.begin()
                self._version = version
                self._confirm()
                self._tell_why("")
                self._log.info("server.started", listeners=len(announcement.listeners))
                return
