"""Three shard processes as in three_sites, each on a disk that forgets, behind lines that can be held and torn; a fault may be planted.

Always holds: when power is cut the process is dead before anything is forgotten, and nothing is started before all of it is forgotten.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from itertools import permutations
from pathlib import Path

from actors.sites.whereabouts import SiteAt
from tests.actors.replica.line import Line
from tests.actors.replica.planted import RUN
from tests.actors.replica.three_sites import HOSTS, NAMES, Site, ThreeSites
from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import forget_unsynced
from tests.hunting import MISFITS, Misfit

WRONG = (
    *(b"process.broken", b"replica.failed", b"copy.damaged", b"copy.dismissed", b"copy.not_renewed", b"shard.not_opened", b"loop.fault"),
    b", a gap",
)
"""What no fault of the world may lead to.  The last one is a shard that is handed frame n of a gateway and has not n - 1, which it has
answered."""


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class FaultySite(Site):
    def __init__(self, name: str, directory: Path, register: str, fault: str, happened: Counter[str]) -> None:
        self._asks = directory / f"ask-{name[0]}.sock"
        super().__init__(name, directory, str(self._asks))
        self.asks = Line(Path(register))
        """To the register."""
        self.disk = FaultDisk(self.directory, directory / f"disk-{name[0]}")
        self.environment = self.disk.environment()
        self.more = [fault] if fault else []
        self.away_s = 0.2
        self._power = True
        self._happened = happened

    async def opened(self) -> None:
        await self.asks.start(self._asks)

    async def ended(self) -> None:
        self.disk.delay_syncs(0)
        if not self._power:
            self._power = True
            lost = await asyncio.to_thread(forget_unsynced, self.disk.root, self.disk.log)
            self._happened["bytes forgotten"] += sum(each.lost_bytes for each in lost)
        away_s, self.away_s = self.away_s, 0.2
        # One that ends at once does so for a reason that is in its log.
        await asyncio.sleep(away_s)

    def fell(self, away_s: float, power: bool = True) -> None:
        """Its process ends at once, and is started again after so long.  power: is there all the time."""
        self.away_s, self._power = away_s, power
        self._happened["killed" if power else "power cut"] += 1
        self.kill()

    def send(self, number: int) -> None:
        """Nothing to one that has ended meanwhile, as who is deposed does."""
        with suppress(ProcessLookupError):
            super().send(number)

    def wrong(self) -> str:
        """What it has met that no fault of the world leads to; empty: nothing.  Raises Misfit for a planted fault that does not fit."""
        said = self.log.read_bytes() if self.log.exists() else b""
        if b"Misfit" in said:
            raise Misfit(said[said.index(b"Misfit") :].decode(errors="replace").partition("\n")[0])
        found = next((line for line in said.splitlines() if any(word in line for word in WRONG)), b"").decode(errors="replace")
        if any(f"{kind.__name__}(" in found for kind in MISFITS):
            raise Misfit(found)
        plain = " ".join(_COLOURS.sub("", found).partition(" trace=")[0].split())
        return f"site {self.name[0]}: {plain}" if found else ""

    @property
    def planted(self) -> bool:
        """Something of the fault was run there."""
        return (self.topology.run_dir / RUN).exists()


class FaultySites(ThreeSites):
    def __init__(self, directory: Path, fault: str = "") -> None:
        self.happened: Counter[str] = Counter()
        self.faulty: dict[str, FaultySite] = {}

        def made(name: str, directory: Path, register: str) -> Site:
            self.faulty[name] = FaultySite(name, directory, register, fault, self.happened)
            return self.faulty[name]

        super().__init__(directory, made)
        self.lines = {(here, there): Line((HOSTS[there], self.faulty[there].port + 1)) for here, there in permutations(NAMES, 2)}
        """By who says something on it, and who hears it."""

    async def _begin(self) -> None:
        for site in self.faulty.values():
            await site.opened()
        for line in self.lines.values():
            await line.start()
        await super()._begin()

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        for line in (*self.lines.values(), *(site.asks for site in self.faulty.values())):
            await line.stop()

    def seen(self, here: str, there: str) -> SiteAt:
        at = super().seen(here, there)
        return at if here == there else SiteAt(at.site, "127.0.0.1", self.lines[here, there].port - 1, 0, up=True)

    def leading(self) -> FaultySite | None:
        leader = self.leader()
        return None if leader is None else self.faulty[leader.name]

    def wrong(self) -> str:
        return next((said for site in self.faulty.values() if (said := site.wrong())), "")
