"""What processes and directories cost: memory as PSS, CPU time, disk space."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

MB = 1_000_000
_TICKS = os.sysconf("SC_CLK_TCK")


def pss_bytes(pids: Iterable[int]) -> int:
    """Memory of all of these together, shared pages divided among those that share them."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def own_bytes(pid: int) -> int:
    """Memory of one process without the files that it has mapped, the programs and libraries: PSS divides those among all on the machine
    that have them mapped, so that it changes when somebody else comes or goes.  0 when there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def cpu_s(pid: int) -> float:
    """CPU time of one process so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def cpu_share(pids: list[int], seconds: float) -> float:
    """Part of one core that these use together over so long; one that ends meanwhile counts until then."""
    before = {pid: cpu_s(pid) for pid in pids if psutil.pid_exists(pid)}
    await asyncio.sleep(seconds)
    used = 0.0
    for pid, then in before.items():
        try:
            used += cpu_s(pid) - then
        except OSError:
            continue
    return used / seconds


def disk_bytes(directory: Path) -> int:
    """What the directory takes on the disk."""
    return sum(os.lstat(Path(parent) / name).st_blocks * 512 for parent, _, names in os.walk(directory) for name in names)
