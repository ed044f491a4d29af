"""The newer release of the rolling upgrade is one: its number, what it speaks, what it knows, and how it begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from actors.link_version import OWN
from actors.sites.formats import KNOWN
from shards.replication.configuration import Rid
from shards.replication.entry import Entry, Kind
from shards.replication.log_opening import open_log
from tests.sites.newer import BEGUN, FORMAT, LINKS, NUMBER, begun_in_newer_form, newer_release

ASKED = """
import actors.replica.server, shards.replication.leader
from actors.link_version import OWN
from actors.release import release
from actors.sites.formats import KNOWN
from shards.replication.entry import BEGUN
print(release(), *OWN, *KNOWN, BEGUN)
"""


def test_it_is_imported_from_its_own_tree_and_is_newer_in_all_it_says(tmp_path: Path) -> None:
    """It knows what this one knows, and one more of each; all that is edited is still where it was."""
    command = newer_release(tmp_path)
    environment = {"PYTHONPATH": str(tmp_path / "newer"), "PATH": ""}
    said = subprocess.run([sys.executable, "-P", "-c", ASKED], env=environment, capture_output=True, text=True, check=True).stdout
    assert said.split(maxsplit=5) == [*map(str, (NUMBER, OWN.oldest, LINKS, KNOWN.oldest, FORMAT)), "[b'']\n"]
    assert str(tmp_path / "newer") in command.read_text() and command.stat().st_mode & 0o111


def test_what_begun_in_a_log_is_counted_by_its_form(tmp_path: Path) -> None:
    """Both forms, whatever else is between."""
    (tmp_path / "shards" / "0").mkdir(parents=True)
    log = open_log(str(tmp_path / "shards" / "0" / "log"), 0, 1, new=Rid("a/c"))
    log.append([Entry(1, 1, Kind.NOOP), Entry(2, 1, Kind.MAKE, b"\0\0\0\7"), Entry(3, 2, Kind.NOOP, BEGUN), Entry(4, 3, Kind.NOOP)])
    log.sync()
    log.close()
    assert begun_in_newer_form(tmp_path, 0) == (1, 2)
