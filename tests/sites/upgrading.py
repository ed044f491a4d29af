"""Three sites are brought to a newer release, one after the other, under clients that live through it; and one tries to go back.

The newer release is made of this tree (tests.sites.newer).  Required besides what every campaign is asked:

1. while both releases run, one of the older leads with the newer ones in sync behind it, and the other way round;
2. until the last site is of the newer release nothing of the newer format lies in a log;
3. then all sites are linked by the newer version, the newer format is in use, and it is what the next leader writes;
4. a site of the older release is refused then, with one sentence, and its data directory goes on in the newer one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from actors.inquiry.sites import Sites
from tests.broker.running import MARK, CommandFailed, RunningBroker
from tests.gates.gate import GateFailed
from tests.sites.campaign import Campaign
from tests.sites.judging import converged, seen_by
from tests.sites.newer import FORMAT, LINKS, NUMBER, begun_in_newer_form, newer_release

BACK_S = 40.0
IN_SYNC_S = 90.0
SETTLED_S = 60.0
REFUSED_S = 60.0
SHARD = 0
REFUSAL = f"the sites of this cluster write format {FORMAT}, and this Holdfast"


@dataclass(slots=True)
class Upgrade:
    """newer: sites of that release, by index.  led: (the leader is newer, a copy in sync behind it is), as it was seen."""

    running: Campaign
    command: Path
    names: list[str]
    newer: set[int] = field(default_factory=set)
    led: set[tuple[bool, bool]] = field(default_factory=set)

    def broker(self, site: int) -> RunningBroker:
        return self.running.sites.sites[site]

    async def in_sync(self) -> Sites:
        """When all copies are; who leads them then is noted."""
        await self.running.flows(BACK_S)
        seen = await converged(self.running.sites, self.running.up[0], self.names, IN_SYNC_S)
        leader = self.names.index(seen.shards[SHARD].leader.lower())
        for other in self.running.up:
            if other != leader:
                self.led.add((leader in self.newer, other in self.newer))
        return seen

    async def drained(self, site: int) -> None:
        await asyncio.to_thread(self.broker(site).command, "node", "drain")
        await self.in_sync()

    async def stopped(self, site: int) -> tuple[int, int]:
        """What its log says of who has begun to lead."""
        self.running.up.remove(site)
        await asyncio.to_thread(self.broker(site).down)
        begun = await asyncio.to_thread(begun_in_newer_form, self.broker(site).data_dir, SHARD)
        await self.running.flows(BACK_S)
        return begun

    async def one(self, site: int) -> None:
        await self.drained(site)
        newer, _ = await self.stopped(site)
        if newer:
            raise GateFailed(f"the log of site {site} has {newer} entries of format {FORMAT}, and sites of the older release run")
        self.broker(site).executable = self.command
        await self.running.bring_back(site)
        self.newer.add(site)
        await self.in_sync()

    async def next_site(self) -> int:
        """First one that does not lead and ought not to, so that what is older leads on; then who leads."""
        seen = await self.in_sync()
        older = [site for site in self.running.up if site not in self.newer]
        shard = seen.shards[SHARD]
        if not self.newer:
            return next(site for site in older if self.names[site] not in (shard.leader.lower(), shard.planned.lower()))
        return next((site for site in older if self.names[site] == shard.leader.lower()), older[0])


async def rolling_upgrade(running: Campaign) -> None:
    """Raises GateFailed."""
    names = [(await asyncio.to_thread(running.sites.name_of, site)).lower() for site in range(len(running.sites.sites))]
    command = await asyncio.to_thread(newer_release, running.sites.directory)
    upgrade = Upgrade(running, command, names)
    older = upgrade.broker(0).executable
    for _ in names:
        await upgrade.one(await upgrade.next_site())
    if not {(True, False), (False, True)} <= upgrade.led:
        raise GateFailed(f"one release did not lead with the other in sync behind it: {sorted(upgrade.led)}")
    await _settled(upgrade)
    # One that leads hands over: what the next one writes is of the newer format.
    seen = await upgrade.in_sync()
    leader = names.index(seen.shards[SHARD].leader.lower())
    await upgrade.drained(leader)
    newer, before = await upgrade.stopped(leader)
    if not newer:
        raise GateFailed(f"nobody has begun to lead in format {FORMAT}, which is in use; {before} times in the one before")
    print(f"rolling upgrade: in its log {before} leaders began in the older form, {newer} in the newer", flush=True)
    await asyncio.to_thread(require_refused, upgrade.broker(leader), older)
    await running.bring_back(leader)
    await upgrade.in_sync()


async def _settled(upgrade: Upgrade) -> None:
    """Every site says that all are of the newer release, linked by the newer version, and that the newer format is in use."""
    deadline = time.monotonic() + SETTLED_S
    why = [""]
    while any(why) and time.monotonic() < deadline:
        why = [_not_yet(await seen_by(upgrade.broker(site))) for site in upgrade.running.up]
        await asyncio.sleep(0.5)
    if any(why):
        raise GateFailed(f"{SETTLED_S:.0f} s after the last site was of the newer release: {why}")


def _not_yet(seen: Sites | None) -> str:
    if seen is None:
        return "it does not answer"
    for site in seen.sites:
        if site.release != NUMBER or (site.site != seen.this and site.speaks != LINKS):
            return f"site {site.site} is of release {site.release}, by a link of version {site.speaks}"
    return "" if seen.format == FORMAT else f"format {seen.format} is in use"


def require_refused(broker: RunningBroker, executable: Path) -> None:
    """Started with this release it says why it is refused, and does not take clients; then it is stopped.  Raises GateFailed."""
    said = broker.directory / "refused"
    words = ["up", "--data-dir", str(broker.data_dir), "--port", str(broker.port)]
    words += [word for key, value in broker.options.settings.items() for word in ("--set", f"{key}={value}")]
    environment = {**os.environ, **broker.options.environment, MARK: broker.mark}
    with said.open("wb") as out:
        process = subprocess.Popen(
            [str(executable), *words], env=environment, cwd=broker.directory, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )  # fmt: skip
    newer, broker.executable = broker.executable, executable
    try:
        deadline = time.monotonic() + REFUSED_S
        while REFUSAL not in (text := said.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise GateFailed(f"a site of the older release was not refused within {REFUSED_S:.0f} s; it said: {text[-600:]}")
            time.sleep(0.2)
        if broker.status().ready:
            raise GateFailed("a site of the older release was refused, and takes clients")
    finally:
        broker.executable = newer
        _ended(broker, process)


def _ended(broker: RunningBroker, process: subprocess.Popen[bytes]) -> None:
    try:
        broker.down()
    except CommandFailed:
        process.terminate()
    process.wait(60)
