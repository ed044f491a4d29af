"""What somebody must look at although everything runs: one sentence each in the run directory, which `holdfast status` shows.

Raised and cleared by the process it is about, under a kind of its own; gone with the run. The log says the same once, as an error.

Always holds: whoever raises an alarm goes on. What cannot be written, for want of room mostly, is written when it can (write_again).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from actors.chaos.faults import active_faults
from actors.topology import write_whole

_ENDING = ".alarm"

log = structlog.get_logger(__name__)

_unwritten: dict[Path, str] = {}
"""Of this process: one for each kind at most."""


@dataclass(frozen=True, slots=True)
class Alarm:
    name: str
    """Of the process, as `status` lists it."""
    kind: str
    cause: str


def raise_alarm(run_dir: Path, alarm: Alarm) -> bool:
    """Raised again, it has the newer cause.  Whether it could be written."""
    path, text = _path(run_dir, alarm.name, alarm.kind), json.dumps([alarm.name, alarm.kind, alarm.cause])
    try:
        write_whole(path, text)
    except OSError as error:
        if path not in _unwritten:
            log.warning("alarm.not_written", process=alarm.name, kind=alarm.kind, cause=str(error))
        _unwritten[path] = text
        return False
    _unwritten.pop(path, None)
    return True


def clear_alarm(run_dir: Path, name: str, kind: str) -> None:
    path = _path(run_dir, name, kind)
    _unwritten.pop(path, None)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("alarm.not_cleared", process=name, kind=kind, cause=str(error))


def write_again() -> None:
    """Every now and then, in each process."""
    for path, text in list(_unwritten.items()):
        try:
            write_whole(path, text)
        except FileNotFoundError:
            pass  # The run is over.
        except OSError:
            continue
        _unwritten.pop(path, None)


def read_alarms(run_dir: Path) -> list[Alarm]:
    """By process and kind; what is broken on purpose last, for as long as it is."""
    found = []
    for path in sorted(run_dir.glob(f"*{_ENDING}")):
        try:
            name, kind, cause = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # Cleared while we read.
        found.append(Alarm(name, kind, cause))
    now_s = time.monotonic()
    on_purpose: dict[str, list[str]] = {}
    for fault in active_faults(run_dir):
        on_purpose.setdefault(fault.targets[0], []).append(fault.sentence(now_s))
    return found + [Alarm(name, "chaos", "; ".join(causes)) for name, causes in on_purpose.items()]


def _path(run_dir: Path, name: str, kind: str) -> Path:
    return run_dir / f"{name}.{kind}{_ENDING}"
