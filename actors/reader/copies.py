"""Of several sites: whether this one has a copy of a shard, and who else has.

By what the replica of this site says of itself (actors.replica.status), which is what the register says, a moment late. Nothing safe rests
on it: what is read are the files, and how far is asked of whoever leads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from shards.replication.configuration import Rid, site_of


class Copies(Protocol):
    def missing(self, shard: int) -> str:
        """Why this site has no copy of it, in one sentence that names the sites that have; empty: it has one, or nobody knows."""


class CopiesHere:
    """replica-N.json in the run directory."""

    def __init__(self, run_dir: Path, site: str) -> None:
        self._run_dir = run_dir
        self._site = site

    def missing(self, shard: int) -> str:
        try:
            row = json.loads((self._run_dir / f"replica-{shard}.json").read_text(encoding="utf-8"))
            own, replicas = str(row["rid"]), [Rid(str(each)) for each in row["replicas"]]
        except (OSError, ValueError, TypeError, KeyError):
            return ""
        if not replicas or own in replicas:
            return ""
        others = sorted({site_of(rid).upper() for rid in replicas} - {self._site.upper()})
        return f"site {self._site.upper()} has no copy of shard {shard} that is counted on: {_have(others)}"


def _have(sites: list[str]) -> str:
    if not sites:
        return "no other site has one"
    if len(sites) == 1:
        return f"site {sites[0]} has one, and its reader reads it"
    return f"sites {', '.join(sites)} have one, and their readers read it"
