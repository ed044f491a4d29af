"""A release that there is not: this program's own tree, copied, and changed as a later release may change it.

    its number      is higher: in its metadata, beside its packages
    links           it speaks one version more; on links of that version copies say all they say to each other in another form
    formats         it knows one more; when that is in use, and not before, who begins to lead a shard says so in the log in another form

So what is asked of a real one is asked of it: an older end closes a link on which it hears the newer form, a newer one a link of the newer
version on which it does not, and what was written into a log too early is found there (`begun_in_newer_form`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from actors import ROOT
from actors.link_version import OWN
from actors.release import release
from actors.sites.formats import KNOWN
from shards.replication.entry import Kind
from shards.replication.log_opening import open_log

NUMBER: Final = "999.0"
LINKS: Final = OWN.newest + 1
FORMAT: Final = KNOWN.newest + 1
BEGUN: Final = b"in the newer form"
NOT_OF_IT: Final = ("tests", "benchmarks")
AT_ONCE = 1_000
BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Edit:
    """In a file of the tree: what is there once, and what is there instead."""

    file: str
    was: str
    now: str


EDITS: Final = (
    Edit("actors/link_version.py", f"Spoken({OWN.oldest}, {OWN.newest})\n", f"Spoken({OWN.oldest}, {LINKS})\n"),
    Edit("actors/sites/formats.py", f"= Known({KNOWN.oldest}, {KNOWN.newest})\n", f"= Known({KNOWN.oldest}, {FORMAT})\n"),
    # Copies to each other: a byte before each message, which begins no msgpack.
    Edit("actors/replica/peers.py", "data = pack(message)\n", f'data = (b"\\xc1" if link.version >= {LINKS} else b"") + pack(message)\n'),
    Edit(
        "actors/replica/peers.py",
        "        parts.clear()\n",
        f"""        parts.clear()
        if link.version >= {LINKS}:
            if whole[:1] != b"\\xc1":
                link.close("what it says is of an older version than its link")
                return
            whole = whole[1:]
""",
    ),
    # The log.
    Edit("shards/replication/entry.py", "_FAMILY = Struct(", 'BEGUN = [b""]\n_FAMILY = Struct('),
    Edit("shards/replication/leader.py", "import BEFORE_FIRST,", "import BEGUN, BEFORE_FIRST,"),
    Edit("shards/replication/leader.py", "Kind.NOOP)", "Kind.NOOP, BEGUN[0])"),
    Edit(
        "actors/replica/server.py",
        "from shards.replication.events import",
        "from shards.replication.entry import BEGUN\nfrom shards.replication.events import",
    ),
    Edit(
        "actors/replica/server.py",
        "        replica = self._shell.replica\n        self._status.tell(replica)\n",
        f"""        BEGUN[0] = {BEGUN!r} if self._where.known.format >= {FORMAT} else b""
        replica = self._shell.replica
        self._status.tell(replica)
""",
    ),
)  # fmt: skip


def newer_release(directory: Path) -> Path:
    """Makes it there.  Its command."""
    tree = directory / "newer"
    for package in _packages(ROOT):
        # With what is compiled: each process of a broker would do it again.
        shutil.copytree(package, tree / package.name)
    metadata = tree / f"holdfast-{NUMBER}.dist-info"
    metadata.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        text = distribution("holdfast").read_text(name)
        assert text is not None, f"the package holdfast has no {name}"
        (metadata / name).write_text(text.replace(f"\nVersion: {release()}\n", f"\nVersion: {NUMBER}\n"))
    for edit in EDITS:
        path = tree / edit.file
        text = path.read_text()
        assert text.count(edit.was) == 1, (
            f"{edit.file} has {edit.was!r} {text.count(edit.was)} times, and the newer release changes it once"
        )
        path.write_text(text.replace(edit.was, edit.now))
    command = directory / "holdfast-newer"
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{tree}' exec '{sys.prefix}/bin/holdfast' \"$@\"\n")
    command.chmod(0o755)
    return command


def _packages(root: Path) -> Iterable[Path]:
    return sorted(path.parent for path in root.glob("*/__init__.py") if path.parent.name not in NOT_OF_IT)


def begun_in_newer_form(data_dir: Path, shard: int) -> tuple[int, int]:
    """Of a site that does not run: as far as its log goes back, how often somebody began to lead in the newer form, and in the older."""
    log = open_log(str(data_dir / "shards" / str(shard) / "log"), shard, 1)
    try:
        at, newer, older = log.first, 0, 0
        while at <= log.last:
            for entry in log.read(at, AT_ONCE, BYTES):
                newer += entry.kind is Kind.NOOP and entry.payload == BEGUN
                older += entry.kind is Kind.NOOP and entry.payload != BEGUN
                at = entry.index + 1
        return newer, older
    finally:
        log.close()
