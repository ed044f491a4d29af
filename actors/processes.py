"""Processes as the kernel knows them: who is alive, who belongs to us, and how to end exactly those.

Nothing is ever found or ended by its name. A process is the pair (pid, start time), since the kernel gives a pid out again;
what belongs to a run is found by descent or by the marks the launcher put into its environment, and only among our own user's.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

RUN_MARK = "HOLDFAST_RUN"
DATA_MARK = "HOLDFAST_DATA"
"""Set by the launcher for all it starts: the run directory, and the data directory. A worker that outlived its raylet still bears them."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, and never the next one that gets the same pid."""

    pid: int
    start_time: int
    """In ticks since boot, as in /proc/PID/stat."""


@dataclass(frozen=True, slots=True)
class Stat:
    name: str
    state: str
    parent: int
    start_time: int


def stat(pid: int) -> Stat | None:
    """What /proc says of a pid, or None when nobody has it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name may hold spaces and parentheses, so the fields are counted from the last parenthesis.
    name = text[text.index(b"(") + 1 : text.rindex(b")")]
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(name.decode(errors="replace"), fields[0].decode(), int(fields[1]), int(fields[19]))


def start_time(pid: int) -> int | None:
    """When the process with this pid started, or None when there is none or only its corpse."""
    found = stat(pid)
    return None if found is None or _is_corpse(pid, found) else found.start_time


def starved_s(pid: int, thread: int) -> float:
    """How long this thread could have run and got no processor, since it began; 0 where the kernel does not count it."""
    try:
        with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
            _, waited_ns, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0
    return int(waited_ns) / 1e9


def _is_corpse(pid: int, found: Stat) -> bool:
    """A killed process is still there, with its locks and ports, while any of its threads is; the first one may be a zombie before."""
    if found.state not in "ZX":
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def identify(pid: int) -> ProcessId | None:
    started = start_time(pid)
    return None if started is None else ProcessId(pid, started)


def alive(process: ProcessId) -> bool:
    return start_time(process.pid) == process.start_time


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark: str, value: str) -> list[ProcessId]:
    """Every living process of our user whose environment was started with `mark=value`."""
    wanted = f"{mark}={value}".encode()
    found = []
    for pid in all_pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and (process := identify(pid)) is not None:
            found.append(process)
    return found


def descendants(pid: int) -> list[ProcessId]:
    """Every living process below this one."""
    children: dict[int, list[int]] = {}
    started: dict[int, int] = {}
    for each in all_pids():
        if (found := stat(each)) is not None:
            children.setdefault(found.parent, []).append(each)
            if not _is_corpse(each, found):
                started[each] = found.start_time
    below: list[ProcessId] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        each = waiting.pop()
        waiting.extend(children.get(each, ()))
        if each in started:
            below.append(ProcessId(each, started[each]))
    return below


def ancestors() -> Iterator[int]:
    """This process and everyone above it."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        found = stat(pid)
        pid = 0 if found is None else found.parent


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The descriptor holds on to whoever has the pid now; only then is it certain who that is.
        if not alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def end(find: Callable[[], Iterable[ProcessId]], *, within: float) -> list[ProcessId]:
    """Kill all that `find` finds, and what it finds then, until it finds nothing; returns what is left when the time is up.

    Asked again each round, because a process that is being killed may just have started another.
    """
    deadline = time.monotonic() + within
    dying: set[ProcessId] = set()
    while True:
        dying.update(find())
        # One that is dying may no longer be found, having lost its environment or its place below us, and still hold its locks.
        left = [process for process in dying if alive(process)]
        if not left or time.monotonic() > deadline:
            return left
        for process in left:
            send(process, signal.SIGKILL)
        time.sleep(0.01)
