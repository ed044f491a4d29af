"""What an operator says about a clock that jumped over a reboot: "it is right now" (`holdfast storage accept-clock`).

A file in the data directory holds the id of the boot for which that was said.  It is written and read by rename and is
never deleted: for another boot it says nothing.  A shard whose age is suspended (shards.clock) looks for it.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.run import boot_id

_NAME = "accepted-clock"


def accept_clock(data_dir: Path) -> None:
    beside = data_dir / f"{_NAME}.{os.getpid()}.part"
    beside.write_text(boot_id(), encoding="utf-8")
    os.replace(beside, data_dir / _NAME)


def clock_accepted(data_dir: Path) -> bool:
    """For the boot in which we are."""
    try:
        return (data_dir / _NAME).read_text(encoding="utf-8") == boot_id()
    except OSError:
        return False
