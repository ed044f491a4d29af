"""Who keeps the process of a plugin, or the admin's: it is made, told, replaced when it stands still, ended when nobody wants it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from actors.keeping import ADMIN, COMING_UP_MAX, PLUGIN, SILENT_MAX, WANTED, Keeper
from actors.ports import Gone, Unavailable
from actors.snapshot import Snapshot, Watched
from actors.topology import Health, Role
from config.dump import dump_json
from config.load import load
from tests.actors.places import topology_in

WITHIN_S = 60.0


class Process:
    """A Member: what it is asked, and what it answers."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self.asked: list[str] = []
        self.health_says: list[Health | Exception] = []
        self.begins: Exception | None = None

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self._made.changed.set()

    async def begin(self, within: float) -> None:
        self._ask("begin")
        if self.begins is not None:
            raise self.begins

    async def stop(self, within: float) -> None:
        self._ask("stop")

    async def health(self, within: float) -> Health:
        self._ask("health")
        found = self.health_says.pop(0) if self.health_says else Health(True, "")
        if isinstance(found, Exception):
            raise found
        return found

    async def reconfigure(self, version: int, config: str, within: float) -> int:
        self._ask(f"settings {version}")
        return version

    def end(self) -> None:
        self._ask("end")


class Made:
    """A Deployment."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.changed = asyncio.Event()
        self.next: list[Process] = []
        self.left: Process | None = None
        """Made by another controller."""

    def find(self, role: Role, index: int) -> Process | None:
        assert (role, index) == ADMIN
        return self.left

    def create(self, role: Role, index: int) -> Process:
        assert (role, index) == ADMIN
        self.processes.append(self.next.pop(0) if self.next else Process(self))
        return self.processes[-1]


class Kept:
    def __init__(self, tmp_path: Path) -> None:
        self.made = Made()
        self.settings = Watched(topology_in(tmp_path))
        self.config = self.settings.snapshot.config
        self.keeper = Keeper(self.made, self.settings, ADMIN, round_s=0)

    async def until(self, what: str, process: int = 0, times: int = 1) -> None:
        """It runs until this was asked of that process."""
        task = asyncio.create_task(self.keeper.run())
        async with asyncio.timeout(WITHIN_S):
            while len(self.made.processes) <= process or self.made.processes[process].asked.count(what) < times:
                self.made.changed.clear()
                await self.made.changed.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_is_made_begun_and_told(tmp_path: Path) -> None:
    """With the newest settings, once each."""
    kept = Kept(tmp_path)
    first = Process(kept.made)
    first.health_says = [Health(False, "starting")]
    kept.made.next.append(first)
    await kept.until("health", times=3)
    assert first.asked[:3] == ["health", "begin", "settings 0"] and first.asked.count("settings 0") == 1
    kept.settings.snapshot = Snapshot(7, kept.config)
    await kept.until("settings 7")


async def test_one_that_stands_still_is_ended_and_made_anew(tmp_path: Path) -> None:
    """After a few rounds without an answer, in a row."""
    kept = Kept(tmp_path)
    first = Process(kept.made)
    silent = Unavailable("no answer")
    first.health_says = [silent, silent, Health(True, ""), *[silent] * SILENT_MAX]
    kept.made.next.append(first)
    await kept.until("health", process=1)
    assert first.asked.count("health") == 3 + SILENT_MAX and first.asked[-1] == "end"


async def test_one_that_comes_up_slowly_is_waited_for(tmp_path: Path) -> None:
    """Longer than one that has answered before, and not for ever."""
    kept = Kept(tmp_path)
    first, second = Process(kept.made), Process(kept.made)
    silent = Unavailable("no answer")
    first.health_says = [*[silent] * (COMING_UP_MAX - 1), Health(True, ""), *[silent] * SILENT_MAX]
    second.health_says = [*[silent] * COMING_UP_MAX]
    kept.made.next += [first, second]
    await kept.until("health", process=2)
    assert first.asked.count("health") == COMING_UP_MAX + SILENT_MAX and first.asked[-1] == "end"
    assert second.asked == ["health"] * COMING_UP_MAX + ["end"]


async def test_one_that_is_slow_to_load_is_not(tmp_path: Path) -> None:
    """It answers; what it loads is its own business."""
    kept = Kept(tmp_path)
    first = Process(kept.made)
    first.health_says = [Health(False, "starting")] * 20
    first.begins = Unavailable("no answer within 3 s")
    kept.made.next.append(first)
    await kept.until("begin", times=20)
    assert len(kept.made.processes) == 1 and "end" not in first.asked


async def test_one_that_ray_has_given_up_is_made_anew(tmp_path: Path) -> None:
    """At once."""
    kept = Kept(tmp_path)
    first = Process(kept.made)
    first.health_says = [Gone("died")]
    kept.made.next.append(first)
    await kept.until("health", process=1)
    assert first.asked == ["health"]


async def test_it_is_stopped_and_ended(tmp_path: Path) -> None:
    """Or was never made."""
    kept = Kept(tmp_path)
    await kept.keeper.stop()
    await kept.until("health")
    await kept.keeper.stop()
    assert kept.made.processes[0].asked[-2:] == ["stop", "end"]


async def test_one_that_has_not_come_up_is_ended_and_not_asked_to_stop(tmp_path: Path) -> None:
    """It would answer when it has loaded, and whoever stops the broker would wait for that. One that comes after it is asked again."""
    kept = Kept(tmp_path)
    first = Process(kept.made)
    first.health_says = [Unavailable("no answer within 3 s")]
    kept.made.next.append(first)
    await kept.until("health")
    await kept.keeper.stop()
    assert first.asked == ["health", "end"]
    await kept.until("health", process=1)
    await kept.keeper.stop()
    assert kept.made.processes[1].asked[-2:] == ["stop", "end"]


async def test_one_that_is_not_wanted_any_more_is_stopped_and_ended(tmp_path: Path) -> None:
    """`admin.enable` is changed at once; enabled again, it is made anew."""
    kept = Kept(tmp_path)
    await kept.until("health")
    kept.settings.snapshot = Snapshot(1, dump_json(load(sets=("admin.enable=false",), environ={})))
    await kept.until("end")
    assert kept.made.processes[0].asked[-2:] == ["stop", "end"] and len(kept.made.processes) == 1
    kept.settings.snapshot = Snapshot(2, kept.config)
    await kept.until("health", process=1)


def test_a_plugin_is_wanted_when_there_is_one() -> None:
    """And the admin process unless it is switched off."""
    plain = load(environ={})
    assert WANTED[ADMIN](plain) and not WANTED[PLUGIN](plain)
    assert WANTED[PLUGIN](load(sets=("access.plugin.kind=holdfast", 'access.plugin.plugins=["a:B"]'), environ={}))
