"""What is broken on purpose at this moment: one file for each fault in the run directory, gone with the run.

    written (by the command, before the fault has its effect) -> honoured by whom it is about -> its time is up: nobody honours it any more
    -> taken away by the command; when that was killed, by the launcher

Times are of the monotonic clock, which all processes of a machine share and nobody sets.

Always holds: a fault is honoured for LONGEST_S at most; what no process of ours wrote is no fault.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from actors.processes import ProcessId
from actors.topology import write_whole

Kind = Literal["kill", "pause", "partition", "slow-disk", "disk-full"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LONGEST_S = 24 * 3600
ALL = "all"
SITE = "site"
_SITE_ID = re.compile(r"[0-9A-Fa-f]{16}")
_ENDING = ".fault"


@dataclass(frozen=True, slots=True)
class Member:
    """A process, as far as its name tells. index: None where it does not; site: empty where there is one."""

    role: str
    index: int | None = None
    site: str = ""

    @classmethod
    def of(cls, name: str, role: str = "") -> Member:
        """name: as status lists it, or as links have it, `shard-0@SITE:incarnation`; a replica's is `SITE/COPY`.  role: of its link."""
        site, slash, _ = name.rpartition("/")
        if slash:
            # Links between replicas are those between shard processes of several sites.
            return cls("shard" if role == "replica" else role, None, site)
        member, _, site = name.partition(":")[0].partition("@")
        found, dash, index = member.rpartition("-")
        return cls(found, int(index), site) if dash and index.isdecimal() else cls(member, None, site)


@dataclass(frozen=True, slots=True)
class Target:
    """All processes of a role, or one of them, or all of a site; `all` is everything of the broker but its launcher."""

    role: str
    index: int | None = None
    site: str = ""

    def __str__(self) -> str:
        if self.site:
            return f"{SITE}-{self.site}"
        return self.role if self.index is None else f"{self.role}-{self.index}"

    def fits(self, member: Member) -> bool:
        if self.site:
            return member.site == self.site
        return self.role == ALL or (member.role == self.role and self.index in (None, member.index))

    @classmethod
    def parse(cls, text: str) -> Target:
        """`ROLE`, `ROLE-INDEX` or `site-ID`."""
        role, dash, behind = text.rpartition("-")
        if role == SITE and _SITE_ID.fullmatch(behind):
            return cls(SITE, None, behind.lower())
        return cls(role, int(behind)) if dash and behind.isdecimal() else cls(text)


@dataclass(frozen=True, slots=True)
class Fault:
    id: str
    kind: Kind
    targets: tuple[str, ...]
    """As Target.parse reads them; of a partition the two sides."""
    until_s: float
    by: str
    """Who, for the log and for status."""
    one_way: bool = False
    """Of a partition: only what the first side sends is kept from the second."""
    delay_ms: int = 0
    """Of a slow disk: what each sync takes more."""
    processes: tuple[ProcessId, ...] = ()
    """That are stopped by it, to be continued."""

    def active(self, now_s: float) -> bool:
        return now_s < self.until_s <= now_s + LONGEST_S

    def hits(self, member: Member) -> bool:
        """Whether it is about this process."""
        return any(Target.parse(each).fits(member) for each in self.targets)

    def sentence(self, now_s: float) -> str:
        what = {
            "kill": f"{_called(self.targets[0])} is killed again and again",
            "pause": f"{_called(self.targets[0])} is stopped (SIGSTOP)",
            "partition": f"{self.targets[0]} and {self.targets[-1]} are cut off from each other",
            "slow-disk": f"each sync of the disk of {self.targets[0]} takes {self.delay_ms} ms more",
            "disk-full": f"the disk of {self.targets[0]} takes nothing",
        }[self.kind]
        if self.one_way:
            what = f"nothing that {self.targets[0]} sends reaches {self.targets[-1]}"
        return f"on purpose (`holdfast chaos`, by {self.by}): {what}, for {max(0.0, self.until_s - now_s):.0f} s more"


def _called(target: str) -> str:
    return "everything but the launcher" if target == ALL else target


def new_id() -> str:
    return secrets.token_hex(4)


def write_fault(run_dir: Path, fault: Fault) -> None:
    write_whole(_path(run_dir, fault.id), json.dumps(asdict(fault)))


def forget_fault(run_dir: Path, fault: Fault) -> None:
    _path(run_dir, fault.id).unlink(missing_ok=True)


def written_faults(run_dir: Path) -> list[Fault]:
    """Also those whose time is up."""
    return [fault for path in sorted(run_dir.glob(f"*{_ENDING}")) if (fault := _read(path)) is not None]


def active_faults(run_dir: Path) -> list[Fault]:
    now_s = time.monotonic()
    return [fault for fault in written_faults(run_dir) if fault.active(now_s)]


def _read(path: Path) -> Fault | None:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["targets"] = tuple(fields["targets"])
        fields["processes"] = tuple(ProcessId(**each) for each in fields["processes"])
        fault = Fault(**fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # Taken away while we read.
    return fault if fault.kind in KINDS and fault.targets else None


def _path(run_dir: Path, id: str) -> Path:
    return run_dir / f"chaos-{id}{_ENDING}"
