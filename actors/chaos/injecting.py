"""Breaks a part of a running broker, for a time: what `holdfast chaos` does beside its oracle.

Every injection is in logs/chaos.log of the data directory before it has its effect, with who did it.  Errors meant for people are
CannotInject, one sentence each.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from actors.belongings import belongings
from actors.chaos.faults import ALL, LONGEST_S, SITE, Fault, Member, Target, new_id, write_fault
from actors.chaos.sweeping import end_fault
from actors.processes import ProcessId, alive, send
from actors.run import read_run
from actors.topology import Topology, read_announcements

PROCESSES = ("shard", "session", "gateway", "controller", "reader", "plugin", "admin", "bridge", SITE, ALL)
"""Roles that can be killed and stopped: those that Ray brings back, and all with Ray itself, which the launcher brings back."""
LINKED = ("shard", "session", "gateway")
"""Roles between which links can be cut."""
WITH_DISK = ("shard",)
NOT_ENABLED = "chaos is not enabled in this broker: it is refused unless it was started with `chaos.enabled = true`"
BACK_S = 60.0
"""How long a role that is to be killed may be without a process."""


class CannotInject(Exception):
    """One sentence."""


def may_be_broken(topology: Topology) -> None:
    """Raises CannotInject."""
    if not topology.chaos:
        raise CannotInject(NOT_ENABLED)


def processes_of(topology: Topology, texts: Sequence[str]) -> tuple[Target, ...]:
    """To be killed or stopped. Raises CannotInject."""
    return tuple([_process_of(topology, Target.parse(text)) for text in texts])


def disks_of(topology: Topology, texts: Sequence[str]) -> tuple[Target, ...]:
    """Raises CannotInject."""
    return tuple([_known(topology, Target.parse(text), WITH_DISK) for text in texts])


def sides_of(topology: Topology, texts: Sequence[str]) -> tuple[Target, ...]:
    """Of a partition: roles, or sites, of which one is this one. Raises CannotInject."""
    sides = tuple([Target.parse(text) for text in texts])
    for side in sides:
        if side.role == SITE:
            _wants_sites(topology)
        if not side.site:
            _known(topology, side, LINKED)
    if all(side.site for side in sides) and topology.site not in [side.site for side in sides]:
        raise CannotInject(f"this is site {topology.site}, and the links of others are cut there, with their --data-dir")
    return sides


def _process_of(topology: Topology, target: Target) -> Target:
    if target.role == SITE:
        _wants_sites(topology)
    if target.site and target.site != topology.site:
        raise CannotInject(f"{target} is another site: say it there, with its --data-dir")
    return Target(ALL) if target.site else _known(topology, target, PROCESSES)


def _wants_sites(topology: Topology) -> None:
    if topology.sites is None:
        raise CannotInject("this broker has one site, and a site is broken by what breaks its processes: name a role")


def _known(topology: Topology, target: Target, roles: Sequence[str]) -> Target:
    if target.role not in roles:
        raise CannotInject(f"'{target}' cannot be broken like that: wanted is {', '.join(roles)}, or one of them such as {roles[0]}-0")
    counts = {"shard": topology.n_shards, "session": topology.n_sessions, "gateway": topology.n_gateways}
    count = counts.get(target.role, 1)
    if target.index is not None and target.index >= count:
        raise CannotInject(f"there is no {target}: there are {target.role}-0 to {target.role}-{count - 1}")
    return target


def running(topology: Topology, target: Target) -> dict[str, ProcessId]:
    """By name, the processes that are there at this moment."""
    found = {each.announcement.name: each.process for each in read_announcements(topology.run_dir)}
    if target.role == ALL:
        everything = belongings(topology.data_dir, read_run(topology.data_dir))
        named = {name: process for name, process in found.items() if process in everything}
        return named | {f"pid {process.pid}": process for process in everything if process not in found.values()}
    return {name: process for name, process in sorted(found.items()) if target.fits(Member.of(name)) and alive(process)}


@dataclass(frozen=True, slots=True)
class Injector:
    topology: Topology

    def may_last(self, for_s: float) -> None:
        """Raises CannotInject."""
        if not 0 < for_s <= LONGEST_S:
            raise CannotInject(f"a fault lasts longer than nothing and up to {LONGEST_S // 3600} hours")

    @asynccontextmanager
    async def standing(self, fault: Fault, for_s: float) -> AsyncIterator[None]:
        """A fault that is there as long as the context, and for_s at most. Raises CannotInject."""
        may_be_broken(self.topology)
        self.may_last(for_s)
        log = structlog.get_logger()
        log.warning("chaos.injected", kind=fault.kind, targets=list(fault.targets), for_s=for_s, by=fault.by)
        write_fault(self.topology.run_dir, fault)
        try:
            yield
        finally:
            end_fault(self.topology.run_dir, fault)
            log.warning("chaos.taken_back", kind=fault.kind, targets=list(fault.targets), by=fault.by)

    async def kill(self, target: Target, for_s: float, every_s: float) -> list[str]:
        """One process after the other, each time the next of those there are, or all at once; returns the names of those killed."""
        killed: list[str] = []
        fault = Fault(new_id(), "kill", _texts([target]), self._until(for_s), who())
        async with self.standing(fault, for_s):
            while time.monotonic() < fault.until_s:
                chosen = await self._next(target, killed[-1] if killed else "", fault.until_s + BACK_S)
                for name, process in chosen.items():
                    structlog.get_logger().warning("chaos.killed", name=name, killed_pid=process.pid, by=fault.by)
                    if send(process, signal.SIGKILL):
                        killed.append(name)
                await asyncio.sleep(min(every_s, max(0.0, fault.until_s - time.monotonic())))
        return killed

    async def _next(self, target: Target, last: str, deadline: float) -> dict[str, ProcessId]:
        """The one behind the last one, in turn, or all; waits until there is one."""
        while True:
            found = running(self.topology, target)
            if found:
                names = sorted(found)
                name = next((each for each in names if each > last), names[0])
                return found if target.role == ALL else {name: found[name]}
            if time.monotonic() > deadline:
                raise CannotInject(f"no {target} runs, {BACK_S:.0f} s after its time")
            await asyncio.sleep(0.05)

    async def pause(self, target: Target, for_s: float) -> list[str]:
        """Stops all of them, and continues them; returns their names."""
        found = running(self.topology, target)
        if not found:
            raise CannotInject(f"no {target} runs at this moment")
        # Written with them first: whatever becomes of us, the launcher continues them.
        fault = Fault(new_id(), "pause", _texts([target]), self._until(for_s), who(), processes=tuple(found.values()))
        async with self.standing(fault, for_s):
            for process in found.values():
                send(process, signal.SIGSTOP)
            await asyncio.sleep(max(0.0, fault.until_s - time.monotonic()))
        return list(found)

    async def cut(self, sides: Sequence[Target], for_s: float, *, one_way: bool) -> None:
        """sides: two. one_way: only what the first sends is kept from the second."""
        await self._until_over(Fault(new_id(), "partition", _texts(sides), self._until(for_s), who(), one_way=one_way), for_s)

    async def slow(self, targets: Sequence[Target], for_s: float, delay_ms: int) -> None:
        """delay_ms: what each sync takes more."""
        await self._until_over(Fault(new_id(), "slow-disk", _texts(targets), self._until(for_s), who(), delay_ms=delay_ms), for_s)

    async def fill(self, targets: Sequence[Target], for_s: float) -> None:
        """No more room."""
        await self._until_over(Fault(new_id(), "disk-full", _texts(targets), self._until(for_s), who()), for_s)

    async def _until_over(self, fault: Fault, for_s: float) -> None:
        async with self.standing(fault, for_s):
            await asyncio.sleep(max(0.0, fault.until_s - time.monotonic()))

    @staticmethod
    def _until(for_s: float) -> float:
        return time.monotonic() + for_s


def _texts(targets: Sequence[Target]) -> tuple[str, ...]:
    return tuple([str(each) for each in targets])


def who() -> str:
    """As logs and status have it."""
    return f"{getpass.getuser()}, pid {os.getpid()}"
