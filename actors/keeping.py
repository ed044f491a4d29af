"""Keeps a process that others do without, the plugin's, the admin's or that of bridges, while settings want it: makes it, begins it, brings
it settings, replaces it when it stands still, and ends it when it is not wanted any more.

Run by the controller, beside everything else that it does: nobody there waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from actors.ports import Gone, Member, Unavailable
from actors.snapshot import Watched
from actors.topology import Health, Role, member_name
from config.load import from_json
from config.schema import Config

ROUND_S: Final = 1.0
ANSWER_S: Final = 3.0
STOP_S: Final = 3.0
SILENT_MAX: Final = 3
"""So many rounds without an answer, and it is ended and made anew."""
COMING_UP_MAX: Final = 20
"""The same before its first answer: a Ray worker takes two seconds of CPU to come up, for which a busy machine may take a minute."""
PLUGIN: Final[tuple[Role, int]] = ("plugin", 0)
ADMIN: Final[tuple[Role, int]] = ("admin", 0)
BRIDGE: Final[tuple[Role, int]] = ("bridge", 0)
WANTED: Final[dict[tuple[Role, int], Callable[[Config], bool]]] = {
    PLUGIN: lambda config: config.access.plugin.kind != "none",
    ADMIN: lambda config: config.admin.enable,
    BRIDGE: lambda config: bool(config.bridges),
}

log = structlog.get_logger(__name__)


class Deployment(Protocol):
    def create(self, role: Role, index: int) -> Member: ...

    def find(self, role: Role, index: int) -> Member | None:
        """One that is there."""


class Keeper:
    """Of one of WANTED. settings: what the controller looks at too."""

    def __init__(self, deployment: Deployment, settings: Watched, kept: tuple[Role, int], round_s: float = ROUND_S) -> None:
        self._deployment = deployment
        self._settings = settings
        self._kept = kept
        self._name = member_name(*kept)
        self._round_s = round_s
        self._member: Member | None = None
        self._silent = 0
        self._came_up = False
        self._taken = -1
        self._wanted = (-1, False)
        """As of this version of the settings."""

    async def run(self) -> None:
        while True:
            if self._is_wanted():
                await self._round()
            else:
                await self.stop()
            await asyncio.sleep(self._round_s)

    def find(self) -> None:
        """Take over what a controller before this one has made."""
        if self._member is None:
            self._member = self._deployment.find(*self._kept)
            self._came_up = self._member is not None

    async def stop(self) -> None:
        member, self._member = self._member, None
        if member is None:
            return
        if self._came_up:
            # What has not answered yet has nothing to finish, and would answer only when it has come up.
            try:
                await member.stop(STOP_S)
            except (Gone, Unavailable) as error:
                log.warning("member.not_stopped", member=self._name, reason=str(error))
        member.end()

    def _is_wanted(self) -> bool:
        snapshot = self._settings.snapshot
        if self._wanted[0] != snapshot.version:
            self._wanted = snapshot.version, WANTED[self._kept](from_json(snapshot.config))
        return self._wanted[1]

    async def _round(self) -> None:
        if self._member is None:
            self._member = self._deployment.create(*self._kept)
            self._silent, self._came_up, self._taken = 0, False, -1
        try:
            health = await self._member.health(ANSWER_S)
        except Gone as error:
            log.error("member.gone", member=self._name, reason=str(error))
            self._member = None
        except Unavailable as error:
            self._unanswered(self._member, str(error))
        else:
            self._silent, self._came_up = 0, True
            await self._tend(self._member, health)

    async def _tend(self, member: Member, health: Health) -> None:
        snapshot = self._settings.snapshot
        try:
            if not health.ready:
                # Returns late or never while it cannot start, for its plugins or its port: the host tries again, and says why.
                await member.begin(ANSWER_S)
            if self._taken < snapshot.version:
                self._taken = await member.reconfigure(snapshot.version, snapshot.config, ANSWER_S)
        except (Gone, Unavailable) as error:
            log.info("member.unavailable", member=self._name, reason=str(error))

    def _unanswered(self, member: Member, reason: str) -> None:
        self._silent += 1
        if self._came_up:
            log.warning("member.unavailable", member=self._name, reason=reason)
        else:
            log.info("member.coming_up", member=self._name, reason=reason)
        if self._silent >= (SILENT_MAX if self._came_up else COMING_UP_MAX):
            log.error("member.replaced", member=self._name, reason=f"no answer in {self._silent} rounds")
            member.end()
            self._member = None
