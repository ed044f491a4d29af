"""The plugin's process: a link for each gateway, and the plugins behind it.

Nobody but those who need its answer notices that it stands still, leaks or ends: gateways have deadlines and a breaker
(actors.auth.questions), and whoever keeps it (actors.keeping) replaces one that stands still.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Final

import structlog

from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.endpoints import Endpoint
from actors.links import Link, LinkServer
from actors.plugin.answering import Answering
from actors.plugin.frames import Answer, Ask, Invalidate, Told, decode, encode
from actors.plugin.loading import PluginRefused, load
from actors.plugin.port import Plugin
from actors.snapshot import settings_in_force
from actors.topology import Announcement, Health, Topology, announce, incarnation_name, member_name
from actors.wire import Wire
from config.access import PluginAccess
from config.schema import Config

ALARM: Final = "plugin"
log = structlog.get_logger(__name__)


class PluginServer:
    """Life cycle: made -> started -> stopped; a start that failed, as plugins that cannot be loaded make it, may be tried again."""

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._name = member_name("plugin", index)
        self._started: Announcement | None = None
        self._settings = PluginAccess()
        self._answering = Answering()
        self._links: dict[int, Link] = {}
        self._told: dict[int, list[tuple[int, Answer]]] = {}
        self._loading: asyncio.Task[None] | None = None

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology = self._topology
        self._settings = settings_in_force(topology).access.plugin
        try:
            self._answering.plugins = await _load(self._settings)
        except PluginRefused as error:
            raise_alarm(topology.run_dir, Alarm(self._name, ALARM, f"{error}; whom nobody else knows is not let in"))
            raise
        clear_alarm(topology.run_dir, self._name, ALARM)
        name = incarnation_name("plugin", 0)
        self._server = LinkServer([Endpoint(topology.plugin_endpoint())], self, Wire(topology.secret), "plugin", name)
        await self._server.start()
        started = Announcement("plugin", self._name, os.getpid())
        try:
            announce(topology, started)
        except OSError:
            await self._server.stop()
            raise
        self._started = started
        log.info("plugin.started", name=name, kind=self._settings.kind, plugins=list(self._settings.plugins))
        return started

    async def stop(self) -> None:
        if self._started is None:
            return
        self._started = None
        if self._loading is not None:
            self._loading.cancel()
        await self._server.stop()

    async def health(self) -> Health:
        return Health(self._started is not None, "")

    def reconfigure(self, config: Config) -> None:
        plugin = config.access.plugin
        if (plugin.plugins, plugin.config_file) == (self._settings.plugins, self._settings.config_file):
            return
        self._settings = plugin
        if self._loading is not None:
            self._loading.cancel()
        self._loading = asyncio.get_running_loop().create_task(self._reload(plugin))

    async def _reload(self, settings: PluginAccess) -> None:
        try:
            self._answering.plugins = await _load(settings)
        except PluginRefused as error:
            log.error("plugin.refused", cause=str(error))
            raise_alarm(self._topology.run_dir, Alarm(self._name, ALARM, f"{error}; the former plugins go on"))
            return
        clear_alarm(self._topology.run_dir, self._name, ALARM)
        log.info("plugin.loaded", plugins=list(settings.plugins))
        for link in self._links.values():
            link.send(encode(Invalidate(None)))

    # ------------------------------------------------------------------ LinkOwner: gateways

    def link_up(self, link: Link) -> None:
        self._links[link.number] = link

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            frame = decode(data)
        except ValueError as error:
            link.close(str(error))
            return
        if not isinstance(frame, Ask):
            link.close(f"{type(frame).__name__} found where questions are wanted")
            return
        for number, question in frame.questions:
            self._answering.answer(question, partial(self._tell, link.number, number))

    def link_down(self, link: Link) -> None:
        del self._links[link.number]
        self._told.pop(link.number, None)

    def _tell(self, link: int, number: int, answer: Answer) -> None:
        """With whatever else is answered in this turn."""
        if link not in self._links:
            return
        if link not in self._told:
            self._told[link] = []
            asyncio.get_running_loop().call_soon(self._send, link)
        self._told[link].append((number, answer))

    def _send(self, link: int) -> None:
        answers = self._told.pop(link, None)
        if answers is not None:
            self._links[link].send(encode(Told(tuple(answers))))


async def _load(settings: PluginAccess) -> list[Plugin]:
    assert settings.kind != "none"
    return await load(settings.kind, settings.plugins, settings.config_file)
