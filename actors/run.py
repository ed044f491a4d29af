"""run.json: the present run of a data directory. Lets `status` and `down` find it, and the next `up` clear up after it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.processes import ProcessId, alive
from actors.topology import write_whole


@dataclass(frozen=True, slots=True)
class Run:
    """Valid for one boot, and alive as long as its launcher is."""

    run_dir: Path
    launcher: ProcessId
    boot_id: str
    joined: bool
    """In a Ray that was there before."""

    def launched(self) -> bool:
        return self.boot_id == boot_id() and alive(self.launcher)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def record_run(data_dir: Path, run: Run) -> None:
    fields = asdict(run) | {"run_dir": str(run.run_dir)}
    write_whole(data_dir / "run.json", json.dumps(fields))


def read_run(data_dir: Path) -> Run | None:
    """The run recorded in a data directory, alive or not. Needs no lock."""
    try:
        fields = json.loads((data_dir / "run.json").read_text(encoding="utf-8"))
        return Run(Path(fields["run_dir"]), ProcessId(**fields["launcher"]), str(fields["boot_id"]), bool(fields["joined"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
