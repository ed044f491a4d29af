"""Which processes a data directory has at this moment, and what each is.

Read from the kernel and from the announcements in the run directory, never from Ray, so it is true right after a kill and takes no
longer when Ray is gone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.alarms import Alarm, read_alarms
from actors.belongings import belongings, is_driver
from actors.probe import all_answer
from actors.processes import ProcessId, stat
from actors.run import read_run
from actors.topology import Announcement, ListenerInfo, Topology, member_name, notices_of, read_announcements, read_dashboard

PROBE_S = 0.5
# What Ray calls its own in the process table, and in its documentation.
_RAY_NAMES = {"ray::DashboardA": "dashboard_agent", "ray::RuntimeEnv": "runtime_env_agent", "ray::IDLE": "idle_worker"}


@dataclass(frozen=True, slots=True)
class Row:
    pid: int
    role: str
    """site, shard, session, gateway, reader, plugin, admin, controller, driver, launcher; ray for everything of Ray's own."""
    name: str


@dataclass(frozen=True, slots=True)
class Census:
    ready: bool
    """Everyone who should be there is, and every gateway answered a CONNECT just now."""
    listening: bool
    """Every gateway that is there answered a CONNECT just now."""
    data_dir: Path
    listeners: Sequence[ListenerInfo]
    processes: Sequence[Row]
    alarms: Sequence[Alarm]
    dashboard: str = ""
    """The address of Ray's dashboard; empty: there is none."""
    notices: Sequence[str] = ()
    """What should be known of it, though nothing is wrong."""


def take_census(data_dir: Path, *, inside: bool = False) -> Census:
    """inside: who asks is a process of this broker, and counts as well."""
    run = read_run(data_dir)
    launched = run is not None and run.launched()
    rows = [Row(run.launcher.pid, "launcher", "launcher")] if run is not None and launched else []
    announced: dict[ProcessId, list[Announcement]] = {}
    for each in read_announcements(run.run_dir) if run is not None else ():
        # Several that share a process have one pid.
        announced.setdefault(each.process, []).append(each.announcement)
    listeners: list[ListenerInfo] = []
    for process in sorted(belongings(data_dir, run, inside=inside), key=lambda process: process.pid):
        for announcement in announced.get(process, ()):
            rows.append(Row(process.pid, announcement.role, announcement.name))
            listeners.extend(announcement.listeners)
        if process not in announced:
            rows.append(_unannounced(process.pid))
    topology = _topology(run.run_dir) if run is not None and launched else None
    expected = _expected(topology) if topology is not None else set()
    listening = all_answer(listeners, PROBE_S)
    ready = listening and bool(expected) and expected <= {row.name for row in rows}
    alarms = read_alarms(run.run_dir) if run is not None and launched else []
    dashboard = read_dashboard(run.run_dir) if run is not None and launched else ""
    url = f"http://{dashboard}" if dashboard else ""
    notices = notices_of(topology) if topology is not None else []
    return Census(ready, listening, data_dir, tuple(listeners), tuple(rows), tuple(alarms), url, tuple(notices))


def _topology(run_dir: Path) -> Topology | None:
    try:
        return Topology.from_json((run_dir / "topology.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _expected(topology: Topology) -> set[str]:
    return {member_name(*member) for member in [*topology.members(), ("controller", 0)]}


def _unannounced(pid: int) -> Row:
    about = stat(pid)
    if about is None:
        return Row(pid, "ray", "gone")
    if is_driver(pid):
        return Row(pid, "driver", "driver")
    if about.name in _RAY_NAMES:
        return Row(pid, "ray", _RAY_NAMES[about.name])
    if about.name.startswith("ray::"):
        return Row(pid, "ray", "worker")
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().split(b"\0")
    except OSError:
        command = []
    script = next((Path(os.fsdecode(part)).stem for part in command[1:] if part.endswith(b".py")), None)
    return Row(pid, "ray", script or about.name)
