"""Reads the configuration of a running broker again, and puts in force what can change while it runs.

`holdfast reload` calls it, and SIGHUP has the launcher run it as a process of its own, since the launcher reads no configuration itself.
It tells nobody: it puts a snapshot into the run directory (actors.snapshot), and the controller brings that to the processes.

Always holds: a configuration that cannot be used, or that asks for something that is fixed, changes nothing at all.

    python -P -m actors.reload RUN_DIR
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from actors.logs import open_log
from actors.origin import read_origin
from actors.snapshot import Snapshot, read_snapshot, taken, write_snapshot
from actors.topology import Topology, member_name
from config.changes import Changes, changes
from config.dump import dump_json
from config.load import ConfigError, from_json, load

TAKEN_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What was found, and the version of the snapshot that has it."""

    changes: Changes
    version: int
    topology: Topology


def reload(run_dir: Path) -> Reloaded:
    """Raises ConfigError: one sentence for each problem, and nothing is changed."""
    topology = Topology.from_json((run_dir / "topology.json").read_text(encoding="utf-8"))
    origin = read_origin(run_dir)
    open_log(topology.log_dir / "reload.log", "info", as_json=topology.log_json, who="reload")
    log = structlog.get_logger()
    with _alone(run_dir):
        before = read_snapshot(topology)
        try:
            wanted = load(
                Path(origin.file) if origin.file else None,
                sets=origin.sets, data_dir=origin.data_dir, port=origin.port, environ=origin.environment,
            )  # fmt: skip
            found = changes(from_json(before.config), wanted, topology.n_shards)
        except ConfigError as error:
            log.error("reload.refused", problems=list(error.problems))
            raise
        version = before.version
        if found.applied:
            version += 1
            write_snapshot(run_dir, Snapshot(version, dump_json(found.config)))
    log.info(
        "reload.done", version=version,
        applied=[str(change) for change in found.applied], at_next_start=[str(change) for change in found.at_next_start],
    )  # fmt: skip
    return Reloaded(found, version, topology)


def wait_until_taken(reloaded: Reloaded, within: float = TAKEN_WITHIN_S) -> list[str]:
    """The processes that have not taken it in this time: they are away, and have it when they are back."""
    run_dir = reloaded.topology.run_dir
    left = [member_name(*member) for member in reloaded.topology.members()]
    deadline = time.monotonic() + within
    while left := [name for name in left if taken(run_dir, name) < reloaded.version]:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_EVERY_S)
    return left


@contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Two at a time would make one version of two configurations."""
    descriptor = os.open(run_dir / "reload.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    try:
        reload(Path(sys.argv[1]))
    except (ConfigError, OSError):
        return 1  # It is in the log; a run that has ended meanwhile has none.
    return 0


if __name__ == "__main__":
    sys.exit(main())
