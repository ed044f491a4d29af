"""The controller: makes every actor of this broker, has them started in order, and puts back what Ray has given up.

The reader is one of them while it is wanted (actors.reader.keeping), and nobody waits for it. A plugin and the admin process are kept
beside them (actors.keeping), by tasks that nothing here waits for, and made when all others have begun.

Also brings changed settings (actors.snapshot) to those that run: it looks for a newer snapshot twice a second, and tells whoever has not
said that it has it, until it has. A controller that is started anew tells everybody again, which changes nothing.  Files of access that
change by themselves are looked at here too (actors.access.keeping).

Control side only. Restarting a process that died is Ray's work, starting the server in it is its host's (actors.host), and finding
each other again is the links': with the controller dead all of that goes on, nothing is published through here.
Does not watch Ray itself; that is the launcher.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

import structlog

from actors.access.keeping import AccessKeeper
from actors.fatal import dies_with
from actors.keeping import WANTED, Keeper
from actors.logs import set_level
from actors.ports import Gone, Member, Unavailable
from actors.reader.keeping import is_wanted
from actors.reader.options import reader_options
from actors.snapshot import Watched
from actors.topology import Announcement, Health, Role, Topology, announce, member_name
from config.load import from_json
from config.schema import Config

ROUND_S = 2.0
SETTINGS_EVERY_S = 0.5
READER_EVERY_S = 0.25
ANSWER_S = 5.0
PAUSE_S = 0.1
BEGIN_ORDERLY_S = 20.0
"""How long the next kind waits for the one it builds on. Not a condition: links redial, and a broken shard must not keep others down."""
STOP_S: dict[Role, float] = {"reader": 6.0, "gateway": 9.0, "session": 4.0, "shard": 10.0, "site": 4.0}
"""A gateway takes 8 s at most, of which it gives its clients 5: until then it needs those beneath it."""
READER: tuple[Role, int] = ("reader", 0)
STOPPED_TOGETHER: tuple[tuple[Role, ...], ...] = (("reader", "gateway"), ("session",), ("shard",), ("site",))
"""Those first who would still give the others work."""


class Deployment(Protocol):
    """Makes actors. Asked for one that is there already, it gives that one."""

    def create(self, role: Role, index: int) -> Member: ...

    def find(self, role: Role, index: int) -> Member | None:
        """One that is there."""


class ControllerServer:
    """Holds one reference per actor; its loop asks each for its health every two seconds."""

    def __init__(self, topology: Topology, index: int, deployment: Deployment, *, pause: float = PAUSE_S) -> None:
        self._topology = topology
        self._name = member_name("controller", index)
        self._deployment = deployment
        self._pause = pause
        self._members: dict[tuple[Role, int], Member] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._settings = Watched(topology)
        self._taken: dict[tuple[Role, int], int] = {}
        """The version of the settings that each has said to have."""
        self._keepers = [Keeper(deployment, self._settings, kept) for kept in WANTED]
        self._announcement: Announcement | None = None
        self._log = structlog.get_logger()

    async def start(self) -> Announcement:
        if self._announcement is not None:
            return self._announcement
        # Announced first: `status` shall show the controller while it starts the others.
        announcement = Announcement("controller", self._name, os.getpid())
        announce(self._topology, announcement)
        # All processes are made at once, since a Ray worker takes most of a second of CPU to come up; only the starting is in order. At a
        # start of the broker the driver has asked for them already, and these are the same.
        for member in self._topology.members():
            self._members[member] = self._deployment.create(*member)
        for role in ("site", "shard", "session", "gateway"):
            await asyncio.gather(*[self._begin(*member) for member in self._members if member[0] == role])
        self._announcement = announcement
        keeper = AccessKeeper(self._topology, self._name, self._settings)
        tasks = [self._watch(), self._bring_settings(), self._tend_reader(), keeper.run(), *[kept.run() for kept in self._keepers]]
        self._watching = [asyncio.get_running_loop().create_task(each) for each in tasks]
        for task in self._watching:
            dies_with(task, "looking after the others")
        return announcement

    async def stop(self) -> None:
        """Stop everyone who is there."""
        for task in self._watching:
            task.cancel()
        if self._announcement is None:
            self._find_everyone()
        for roles in STOPPED_TOGETHER:
            await asyncio.gather(*[self._stop(*member) for member in self._members if member[0] in roles])
        await asyncio.gather(*[kept.stop() for kept in self._keepers])

    def _find_everyone(self) -> None:
        """Those that a controller before this one has made."""
        for member in [*self._topology.members(), READER]:
            if member not in self._members and (found := self._deployment.find(*member)) is not None:
                self._members[member] = found
        for kept in self._keepers:
            kept.find()

    async def health(self) -> Health:
        return Health(self._announcement is not None, f"{len(self._members)} actors")

    def reconfigure(self, config: Config) -> None:
        """It uses none of them."""

    async def _begin(self, role: Role, index: int) -> None:
        deadline = asyncio.get_running_loop().time() + BEGIN_ORDERLY_S
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            try:
                await self._members[role, index].begin(left)
                return
            except Gone as error:
                self._log.warning("member.gone", member=member_name(role, index), reason=str(error))
                self._members[role, index] = self._deployment.create(role, index)
            except Unavailable as error:
                self._log.warning("member.unavailable", member=member_name(role, index), reason=str(error))
            await asyncio.sleep(self._pause)
        self._log.error("member.slow_to_start", member=member_name(role, index), waited_s=BEGIN_ORDERLY_S)

    async def _stop(self, role: Role, index: int) -> None:
        try:
            await self._members[role, index].stop(STOP_S[role])
        except (Unavailable, Gone) as error:
            self._log.warning("member.not_stopped", member=member_name(role, index), reason=str(error))

    async def _watch(self) -> None:
        unwell: set[tuple[Role, int]] = set()
        while True:
            await asyncio.sleep(ROUND_S)
            for member in list(self._members):
                role, index = member
                if member not in self._members:
                    continue  # The reader was let go meanwhile.
                try:
                    health = await self._members[member].health(ANSWER_S)
                    if not health.ready:
                        # An actor that was made anew, and so was not restarted by Ray, waits to be told.
                        await self._members[member].begin(ANSWER_S)
                    if member in unwell:
                        unwell.discard(member)
                        self._log.info("member.well", member=member_name(role, index))
                except Unavailable as error:
                    if member not in unwell:
                        self._log.warning("member.unavailable", member=member_name(role, index), reason=str(error))
                    unwell.add(member)
                except Gone as error:
                    self._log.error("member.gone", member=member_name(role, index), reason=str(error))
                    unwell.add(member)
                    if member in self._members:
                        self._members[member] = self._deployment.create(role, index)

    async def _tend_reader(self) -> None:
        # A controller before this one may have made it.
        left = self._deployment.find(*READER)
        if left is not None:
            self._members[READER] = left
        version, when = -1, reader_options(from_json(self._settings.snapshot.config)).when
        while True:
            if version != self._settings.snapshot.version:
                version, when = self._settings.snapshot.version, reader_options(from_json(self._settings.snapshot.config)).when
            wanted = is_wanted(self._topology.run_dir, when)
            if wanted and READER not in self._members:
                self._log.info("reader.wanted", when=when)
                self._taken.pop(READER, None)
                self._members[READER] = self._deployment.create(*READER)
                await self._begin_reader(self._members[READER])
            elif not wanted and (member := self._members.pop(READER, None)) is not None:
                self._log.info("reader.let_go", when=when)
                await self._end_reader(member)
            await asyncio.sleep(READER_EVERY_S)

    async def _begin_reader(self, member: Member) -> None:
        try:
            await member.begin(BEGIN_ORDERLY_S)
        except (Gone, Unavailable) as error:
            # It is among those that are watched: there it is begun again, or made anew.
            self._log.warning("member.unavailable", member=member_name("reader", 0), reason=str(error))

    async def _end_reader(self, member: Member) -> None:
        try:
            await member.stop(STOP_S["reader"])
        except (Gone, Unavailable) as error:
            self._log.warning("member.not_stopped", member=member_name("reader", 0), reason=str(error))
        member.end()

    async def _bring_settings(self) -> None:
        refused: set[tuple[tuple[Role, int], int]] = set()
        while True:
            if self._settings.changed():
                set_level(from_json(self._settings.snapshot.config).log.level)
            version = self._settings.snapshot.version
            behind = [member for member in self._members if self._taken.get(member, 0) < version]
            for member, reason in await asyncio.gather(*[self._bring(member) for member in behind]):
                if reason and (member, version) not in refused:
                    refused.add((member, version))
                    self._log.warning("settings.not_taken", member=member_name(*member), version=version, reason=reason)
            await asyncio.sleep(SETTINGS_EVERY_S)

    async def _bring(self, member: tuple[Role, int]) -> tuple[tuple[Role, int], str]:
        """The member, and why it has not taken them; it is asked again."""
        snapshot = self._settings.snapshot
        if member not in self._members:
            return member, ""
        try:
            self._taken[member] = await self._members[member].reconfigure(snapshot.version, snapshot.config, ANSWER_S)
        except (Unavailable, Gone) as error:
            return member, str(error)
        return member, ""
