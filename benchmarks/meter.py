"""What a run costs the machine: CPU and memory of processes from /proc, the disk's own fdatasync time, and where it all ran.

CPU of a group of processes is theirs and their descendants', with what ended children had used, so a process that starts or ends within
the run is counted once. Memory is the proportional set size: Ray's workers share most of their pages, and counting those for each of
them would show three times what the machine gave.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPU_CLOCK_OF_PROCESS = 2

Groups = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Used:
    """What one group has used since its processes began."""

    cpu_s: float
    pss_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a run was made."""

    cores: int
    model: str
    kernel: str
    memory_mib: int
    python: str


@dataclass(frozen=True, slots=True)
class _Process:
    """own_ticks: of itself, cut off to whole ones.  ended_ticks: of its children that have ended."""

    parent: int
    own_ticks: int
    ended_ticks: int


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The name, in brackets, may contain blanks and brackets; what follows the last one does not.
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended while we looked
            found[int(entry)] = _Process(int(fields[1]), sum(map(int, fields[11:13])), sum(map(int, fields[13:15])))
    return found


def _cpu_s(pid: int, process: _Process) -> float:
    """Its own by its clock, which counts in nanoseconds (`clock_getcpuclockid(3)`): a tick of 10 ms is a microsecond a message in a run of
    ten thousand. One that has just ended has no clock any more."""
    try:
        own_s = time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
    except OSError:
        own_s = process.own_ticks / _TICKS_PER_S
    return own_s + process.ended_ticks / _TICKS_PER_S


def descendants(roots: Sequence[int], parents: Mapping[int, int]) -> set[int]:
    """The roots that exist and everything below them, each once."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root for root in roots if root in parents]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def measure(groups: Groups) -> dict[str, Used]:
    """What each group has used so far."""
    processes = _processes()
    parents = {pid: process.parent for pid, process in processes.items()}
    out = {}
    for name, roots in groups.items():
        members = descendants(roots, parents)
        out[name] = Used(
            cpu_s=sum(_cpu_s(pid, processes[pid]) for pid in members),
            pss_bytes=sum(_number(f"/proc/{pid}/smaps_rollup", "Pss:") * 1024 for pid in members),
            written_bytes=sum(_number(f"/proc/{pid}/io", "write_bytes:") for pid in members),
        )
    return out


def _number(path: str, label: str) -> int:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(label):
                return int(line.split()[1])
    except OSError:
        pass  # ended while we looked, or not ours to read
    return 0


def fdatasync_p50_ms(directory: Path, rounds: int = 60, budget_s: float = 1.0) -> float:
    """The median time of append 4 KiB + fdatasync in a file of its own, the cheapest commit a log on this disk can make."""
    block, times_ns = b"\xa5" * 4096, []
    with tempfile.TemporaryFile(dir=directory) as file:
        began_ns = time.monotonic_ns()
        for _ in range(rounds):
            before_ns = time.monotonic_ns()
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            times_ns.append(time.monotonic_ns() - before_ns)
            if time.monotonic_ns() - began_ns > budget_s * 1e9:
                break
    return sorted(times_ns)[len(times_ns) // 2] / 1e6


def stored_bytes(directory: Path | None) -> int:
    """What a directory occupies on disk."""
    total = 0
    for path in directory.rglob("*") if directory else ():
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            pass  # a file of a live store may go while we look
    return total


def machine() -> Machine:
    """This machine."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return Machine(len(os.sched_getaffinity(0)), model, platform.release(), memory_kib // 1024, platform.python_version())


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def commit() -> str:
    """The commit of this checkout, with `+` when tracked files differ from it, or `unknown` outside of one."""
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
