"""What every gate of a broker uses: its scale, its topics, its brokers, and how it says that it failed.

A gate is a module ``gate_ISSUE_NUMBER_WORDS.py`` with ``LIMIT_S`` and ``async def run(scale) -> str``. It returns the
figure that is printed after PASS, or raises; ``GateFailed`` for what the broker did wrong. show.py finds and runs them.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.broker.history import History, faults, summary
from tests.broker.running import Options, RunningBroker, Status
from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import Forgotten, forget_unsynced

SHARD_COUNTS = (1, 3)
LEVELS = (20, 25)
"""500 topics of three levels: the prefix, one of 20, one of 25."""
ROLES = ("shard", "session", "gateway", "controller")


class GateFailed(Exception):
    """The broker did not keep its word; the text is printed after FAIL."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Full, or about a tenth for development."""

    quick: bool

    def of(self, full: int, quick: int | None = None) -> int:
        return full if not self.quick else max(1, full // 10) if quick is None else quick


def topics(prefix: str) -> list[str]:
    return [f"{prefix}/{a}/{b}" for b in range(LEVELS[1]) for a in range(LEVELS[0])]


def literal(prefix: str) -> str:
    return f"{prefix}/3/7"


def filters(prefix: str) -> tuple[str, str, str]:
    """One literal, one with ``+``, one with ``#``."""
    return literal(prefix), f"{prefix}/+/7", f"{prefix}/#"


def settings(n_shards: int, **more: str) -> dict[str, str]:
    """Ray's dashboard and the admin process are measured by one gate and only cost time in the others."""
    return {"durable_storage.messages.n_shards": str(n_shards), "ray.dashboard": "false", "admin.enable": "false", **more}


@dataclass(frozen=True, slots=True)
class Watched:
    """A broker and, when it was asked for, the disk below it."""

    broker: RunningBroker
    disk: FaultDisk | None

    async def up(self) -> Status:
        """In a thread, so that clients live on meanwhile."""
        return await asyncio.to_thread(self.broker.up)

    async def status(self) -> Status:
        return await asyncio.to_thread(self.broker.status)

    async def kill_all(self) -> list[int]:
        return await asyncio.to_thread(self.broker.kill_all)

    async def cut_power(self) -> list[Forgotten]:
        """After ``kill_all``: what was not synced is gone too."""
        assert self.disk is not None
        return await asyncio.to_thread(forget_unsynced, self.disk.root, self.disk.log)


@asynccontextmanager
async def running(
    chosen: Mapping[str, str],
    *,
    on_fault_disk: bool = False,
    keep_logs: bool = False,
    log_sockets: bool = False,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Watched]:
    """A broker that is up, and that leaves nothing behind.  config: a file of settings beside those chosen.  environment: of one that is
    not on a fault disk."""
    directory = Path(tempfile.mkdtemp(prefix="hf-"))
    try:
        data_dir = directory / "data"
        disk = FaultDisk(data_dir, directory / "disk") if on_fault_disk else None
        broker = RunningBroker(Options(settings=chosen, config=config, environment=environment or {}), data_dir=data_dir)
        if disk is not None:
            watching = disk.environment(sockets=str(broker.port) if log_sockets else "", keep_logs=keep_logs)
            broker.options = Options(settings=chosen, config=config, environment=watching)
        try:
            await asyncio.to_thread(broker.__enter__)
            roles_apart(broker.status())
            yield Watched(broker, disk)
        except BaseException as error:
            await asyncio.to_thread(broker.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(broker.__exit__, None, None, None)
    except BaseException as error:
        error.add_note(f"data and disk log kept in {directory}")
        raise
    shutil.rmtree(directory, ignore_errors=True)


def roles_apart(status: Status) -> None:
    """Shard, session, gateway and controller are different processes."""
    pids = {role: set(status.pids(role)) for role in ROLES}
    absent = [role for role, found in pids.items() if not found]
    if absent:
        raise GateFailed(f"status lists no {', '.join(absent)}; roles found: {sorted({each.role for each in status.processes})}")
    if len(set().union(*pids.values())) != sum(map(len, pids.values())):
        raise GateFailed(f"two roles share a process: {pids}")


def require_no_faults(history: History, where: str) -> None:
    found = faults(history)
    if found:
        raise GateFailed(f"{where}: {summary(found)}")
