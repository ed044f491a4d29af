"""Keeps the plugin's process while access.plugin.kind is set: makes it, begins it, brings it settings, and replaces one that stands still.

Run by the controller, beside everything else that it does: nobody there waits for a plugin.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from actors.ports import Gone, Member, Unavailable
from actors.snapshot import Watched
from actors.topology import Health, Role, member_name

ROUND_S: Final = 1.0
ANSWER_S: Final = 3.0
STOP_S: Final = 3.0
SILENT_MAX: Final = 3
"""So many rounds without an answer, and it is ended and made anew."""
PLUGIN: Final[tuple[Role, int]] = ("plugin", 0)

log = structlog.get_logger(__name__)


class Deployment(Protocol):
    def create(self, role: Role, index: int) -> Member: ...


class PluginKeeper:
    """settings: what the controller looks at too."""

    def __init__(self, deployment: Deployment, settings: Watched, round_s: float = ROUND_S) -> None:
        self._deployment = deployment
        self._settings = settings
        self._round_s = round_s
        self._member: Member | None = None
        self._silent = 0
        self._taken = -1

    async def run(self) -> None:
        """Called while a plugin is wanted."""
        while True:
            if self._member is None:
                self._member = self._deployment.create(*PLUGIN)
                self._silent, self._taken = 0, -1
            try:
                health = await self._member.health(ANSWER_S)
            except Gone as error:
                log.error("member.gone", member=member_name(*PLUGIN), reason=str(error))
                self._member = None
            except Unavailable as error:
                self._unanswered(self._member, str(error))
            else:
                self._silent = 0
                await self._tend(self._member, health)
            await asyncio.sleep(self._round_s)

    async def stop(self) -> None:
        if self._member is None:
            return
        try:
            await self._member.stop(STOP_S)
        except (Gone, Unavailable) as error:
            log.warning("member.not_stopped", member=member_name(*PLUGIN), reason=str(error))
        self._member.end()

    async def _tend(self, member: Member, health: Health) -> None:
        snapshot = self._settings.snapshot
        try:
            if not health.ready:
                # Returns late or never while plugins cannot be loaded: the host tries again, and says why.
                await member.begin(ANSWER_S)
            if self._taken < snapshot.version:
                self._taken = await member.reconfigure(snapshot.version, snapshot.config, ANSWER_S)
        except (Gone, Unavailable) as error:
            log.info("member.unavailable", member=member_name(*PLUGIN), reason=str(error))

    def _unanswered(self, member: Member, reason: str) -> None:
        self._silent += 1
        log.warning("member.unavailable", member=member_name(*PLUGIN), reason=reason)
        if self._silent >= SILENT_MAX:
            log.error("plugin.replaced", reason=f"no answer in {self._silent} rounds")
            member.end()
            self._member = None
