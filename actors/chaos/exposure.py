"""What chaos does within one process: its disk and its links.  Only there when `chaos.enabled`.

Looks at the faults of the run directory every LOOK_EVERY_S.  What they do is decided when it is done, by their deadlines: a process
whose loop stands still gets its disk back all the same.

Links: a partition cuts those that are up between the two sides, and closes each new one as soon as both ends know each other.  One way, the
second side reads nothing more from the first until it is over, as in a network that loses packets and is then asked for them again; and it
takes no new links.  Disk: see actors.chaos.disk.

Always holds: a link that is held up is read again when its fault is over or taken away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog

from actors.chaos.faults import Fault, Member, Target, active_faults

LOOK_EVERY_S = 0.1
CUT = "cut on purpose: holdfast chaos partition"
log = structlog.get_logger(__name__)


class Cuttable(Protocol):
    """A link, as far as chaos goes."""

    @property
    def lost(self) -> bool: ...

    @property
    def role(self) -> str: ...

    @property
    def name(self) -> str:
        """Of this end."""

    @property
    def peer_name(self) -> str: ...

    @property
    def peer_role(self) -> str: ...

    def close(self, why: str) -> None: ...

    def hold(self) -> None:
        """Read nothing more from it."""

    def release(self) -> None: ...


class Exposure:
    """names: of this process, or of each part of it, as status lists them; site: that it is of, among several."""

    def __init__(self, run_dir: Path, names: Sequence[str], site: str = "") -> None:
        self._run_dir = run_dir
        self._members = [replace(Member.of(name), site=site) for name in names]
        self._faults: tuple[Fault, ...] = ()
        self._links: set[Cuttable] = set()
        self._held: set[Cuttable] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """On the running loop. The faults of this moment count at once."""
        self.look()
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        found = tuple(fault for fault in active_faults(self._run_dir) if any(map(fault.hits, self._members)))
        before, self._faults = self._faults, found
        for fault in found:
            if fault not in before:
                cause = fault.sentence(time.monotonic())
                log.warning("chaos.began", kind=fault.kind, targets=list(fault.targets), by=fault.by, cause=cause)
        for fault in before:
            if fault not in found:
                log.warning("chaos.ended", kind=fault.kind, targets=list(fault.targets), by=fault.by)
        if self._links:
            self._cut()

    # ------------------------------------------------------------------ disk; from any thread

    def delay_s(self) -> float:
        """What a sync takes more."""
        return max([fault.delay_ms / 1000 for fault in self._active("slow-disk")], default=0.0)

    def full(self) -> bool:
        return bool(self._active("disk-full"))

    # ------------------------------------------------------------------ links

    def admits(self, link: Cuttable) -> bool:
        """Asked of each link when both ends know each other; what is admitted is watched."""
        if self._cut_off(link) is not None:
            return False
        self._links.add(link)
        return True

    def _cut(self) -> None:
        self._links = {link for link in self._links if not link.lost}
        self._held &= self._links
        for link in self._links:
            fault = self._cut_off(link)
            if fault is not None and not fault.one_way:
                link.close(CUT)
            elif fault is not None and link not in self._held:
                self._held.add(link)
                link.hold()
            elif fault is None and link in self._held:
                self._held.discard(link)
                link.release()

    def _cut_off(self, link: Cuttable) -> Fault | None:
        """The fault that keeps what this link sends from us; one that cuts both ways first."""
        faults = self._active("partition")
        if not faults:
            return None
        peer, own = Member.of(link.peer_name, link.peer_role), self._of(link)
        found = [fault for fault in faults if _between(fault, peer, own)]
        return min(found, key=lambda fault: fault.one_way, default=None)

    def _of(self, link: Cuttable) -> Member:
        """Whose link it is."""
        if len(self._members) == 1:
            return self._members[0]
        named = Member.of(link.name, link.role)
        return next((each for each in self._members if (each.role, each.index) == (named.role, named.index)), self._members[0])

    def _active(self, kind: str) -> list[Fault]:
        # Most of the time there is none, and this is asked for each write.
        return [fault for fault in self._faults if fault.kind == kind and fault.active(time.monotonic())] if self._faults else []


def _between(fault: Fault, peer: Member, own: Member) -> bool:
    first, second = Target.parse(fault.targets[0]), Target.parse(fault.targets[-1])
    if first.fits(peer) and second.fits(own):
        return True
    return not fault.one_way and first.fits(own) and second.fits(peer)
