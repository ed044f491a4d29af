"""Reads the configuration of a running broker again, and puts in force what can change while it runs.

`holdfast reload` calls it, and SIGHUP has the launcher run it as a process of its own, since the launcher reads no configuration itself.
It tells nobody: it puts a snapshot into the run directory (actors.snapshot), and the controller brings that to the processes.

Always holds: a configuration that cannot be used, or that asks for something that is fixed, changes nothing at all.

    python -P -m actors.reload RUN_DIR [bridges]
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from actors.access.publishing import Publisher, read_bundle, taken_bundle, wants_access
from actors.access.secrets import packed, read_secrets, write_secrets
from actors.logs import open_log
from actors.origin import read_origin
from actors.snapshot import Snapshot, alone, read_snapshot, taken, write_snapshot
from actors.topology import Role, Topology, member_name
from config.changes import Changes, changes
from config.dump import dump_json
from config.load import BRIDGES_FILE, ConfigError, from_json, load_with_sources, secrets
from config.schema import Config

TAKEN_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What was found, and the version of the snapshot that has it."""

    changes: Changes
    version: int
    topology: Topology
    bundle: int = 0
    """The version of what is in force of rules and passwords (actors.access); 0: none."""
    files: bool = False
    """Whether a file of rules, a password file or a secret was another one than before."""
    notices: tuple[str, ...] = ()
    """Keys that are called otherwise, or do nothing here (config.elsewhere)."""


def reload(run_dir: Path, *, bridges_alone: bool = False) -> Reloaded:
    """Raises ConfigError: one sentence for each problem, and nothing is changed.  bridges_alone: what is new of bridges is put in force,
    and nothing else."""
    topology = Topology.from_json((run_dir / "topology.json").read_text(encoding="utf-8"))
    origin = read_origin(run_dir)
    open_log(topology.log_dir / "reload.log", "info", as_json=topology.log_json, who="reload")
    log = structlog.get_logger()
    with alone(run_dir):
        before = read_snapshot(topology)
        try:
            given = load_with_sources(
                Path(origin.file) if origin.file else None,
                sets=origin.sets, data_dir=origin.data_dir, port=origin.port, environ=origin.environment,
                bridges=topology.data_dir / BRIDGES_FILE,
            )  # fmt: skip
            running = from_json(before.config)
            wanted = running.model_copy(update={"bridges": given.config.bridges}) if bridges_alone else given.config
            found = changes(running, wanted, topology.n_shards)
            known = read_secrets(run_dir)
            opened = secrets(found.config, known=known)
            access = _Access(run_dir, found.config)
        except ConfigError as error:
            log.error("reload.refused", problems=list(error.problems))
            raise
        version = before.version
        if opened != known:
            write_secrets(run_dir, packed(opened))
        if found.applied or opened != known:
            version += 1
            write_snapshot(run_dir, Snapshot(version, dump_json(found.config)))
        files = access.put_in_force() or opened != known
    log.info(
        "reload.done", version=version, files=files, notices=list(given.notices),
        applied=[str(change) for change in found.applied], at_next_start=[str(change) for change in found.at_next_start],
    )  # fmt: skip
    return Reloaded(found, version, topology, access.version, files, given.notices)


class _Access:
    """The files of access that a configuration names, read; of a wrong one it is a ConfigError, before anything is changed."""

    def __init__(self, run_dir: Path, config: Config) -> None:
        self._before = read_bundle(run_dir)
        self._publisher = Publisher(run_dir)
        self._wanted = self._before is not None or wants_access(config)
        self._draft = self._publisher.draft(config)
        self.version = self._draft.bundle.version if self._wanted else 0
        if self._draft.problems:
            raise ConfigError([f"{problem}." for problem in self._draft.problems])

    def put_in_force(self) -> bool:
        """Whether that changed anything."""
        return self._wanted and self._publisher.put_in_force(self._draft) != self._before


def wait_until_taken(reloaded: Reloaded, within: float = TAKEN_WITHIN_S) -> list[str]:
    """The processes that have not taken it in this time: they are away, and have it when they are back."""
    run_dir = reloaded.topology.run_dir
    left = reloaded.topology.members()
    deadline = time.monotonic() + within
    while left := [member for member in left if not _has_taken(run_dir, member, reloaded)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_EVERY_S)
    return [member_name(*member) for member in left]


def _has_taken(run_dir: Path, member: tuple[Role, int], reloaded: Reloaded) -> bool:
    name = member_name(*member)
    return taken(run_dir, name) >= reloaded.version and (member[0] != "gateway" or taken_bundle(run_dir, name) >= reloaded.bundle)


def main() -> int:
    try:
        reload(Path(sys.argv[1]), bridges_alone=sys.argv[2:] == ["bridges"])
    except (ConfigError, OSError) as error:
        # Of the launcher nobody reads it; it is in the log, and a run that has ended meanwhile has none.
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
