"""Gives the lead of shards away while this site is drained (`holdfast node drain`), so that stopping it interrupts nobody for long.

A wish, in a file of the run directory, which the site process writes and the shard processes of this site look at.  It is about what is led
when it is asked for: who comes to lead later goes on, so sites that are all drained do not hand a shard to one another for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from actors.topology import write_whole
from shards.replication.configuration import Rid, site_of
from shards.replication.replica import Replica

DRAIN_FILE: Final = "drain"
DRAIN_S: Final = 60.0
HEIR_FILE: Final = "heir"
HEIR_S: Final = 5.0
_FAR: Final = 1 << 62


def ask_to_drain(run_dir: Path) -> None:
    """Asked again, it begins anew."""
    write_whole(run_dir / DRAIN_FILE, str(time.monotonic()))


def is_drained(run_dir: Path, leads_since_s: float) -> bool:
    """Since it was asked for, and not so long ago that it is another day's.  leads_since_s: on the steady clock of this machine."""
    try:
        asked_s = float((run_dir / DRAIN_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return leads_since_s <= asked_s and time.monotonic() - asked_s < DRAIN_S


def ask_to_hand_over(run_dir: Path, shard: int, to: Rid) -> None:
    """By plan (actors.sites.spreading): who leads this shard here gives it to this replica."""
    write_whole(run_dir / f"{HEIR_FILE}-{shard}", f"{time.monotonic()} {to}")


def asked_heir(run_dir: Path, shard: int, leads_since_s: float, up: Collection[str]) -> Rid | None:
    """Whom to give it to now, as `is_drained` says since when; said once for each time that it was asked for: while a leader gives its
    shard away it takes nothing.  None: nobody has asked, or too long ago, or the heir's site is not up."""
    file = run_dir / f"{HEIR_FILE}-{shard}"
    try:
        asked, to = file.read_text(encoding="utf-8").split()
        asked_s = float(asked)
        file.unlink()
    except (OSError, ValueError):
        return None
    now = leads_since_s <= asked_s and time.monotonic() - asked_s < HEIR_S and site_of(Rid(to)) in up
    return Rid(to) if now else None


def heir(replica: Replica, up: Collection[str]) -> Rid | None:
    """Who leads best instead: in sync, on a site that is up, the least behind.  None: this replica does not serve, or there is nobody."""
    cfg = replica.cfg
    if not replica.serving or cfg is None:
        return None
    behind = replica.behind
    others = [rid for rid in sorted(cfg.isr - {replica.rid}) if site_of(rid) in up]
    return min(others, key=lambda rid: behind.get(rid, _FAR), default=None)
