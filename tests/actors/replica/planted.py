"""Faults that are planted in the running shard process of a site, to see whether a campaign over three of them finds each.

Four of them are those of the core, as the simulation has them (tests.replication.planted); what a checkpoint does to the directory is the
shell's.  The host plants one before its process opens anything; nothing of it is in what ships.

Always holds: what does not fit the code any more ends the process with a Misfit, and one that was never run has left no file `planted`
(Noted): both are errors, and no catch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.replica import transfer
from actors.replica.copy import CAME, DATA
from shards.replication.log_segment import sync_directory
from tests.contracts.planting import Planting, faults
from tests.hunting import Misfit
from tests.replication.planted import (
    acknowledged_before_the_fsync,
    cut_off_whatever_comes,
    no_epoch_check,
    served_above_the_commit,
)

RUN = "planted"
"""A file in the run directory of a site, when something of the fault was run there."""


class Noted(Planting):
    """It leaves a word when what it planted is first run: the process may be killed at any moment."""

    def __init__(self, patch: pytest.MonkeyPatch, run_dir: Path) -> None:
        super().__init__(patch)
        self._file = run_dir / RUN

    def replace(self, owner: object, name: str, planted: Callable[..., Any]) -> None:
        def noted(*args: Any, **more: Any) -> Any:
            if self.times == 1:
                self._file.touch()
            return planted(*args, **more)

        super().replace(owner, name, noted)


def a_checkpoint_takes_its_place_in_pieces(planting: Planting) -> None:
    """File by file into the directory of what was there, each on the disk before the next, and no word that it is under way."""

    def planted(path: Path) -> None:
        data, came = path / DATA, path / CAME
        for old in sorted(os.listdir(data)):
            os.unlink(data / old)
        sync_directory(str(data))
        for new in sorted(os.listdir(came)):
            os.rename(came / new, data / new)
            sync_directory(str(data))
        came.rmdir()

    planting.replace(transfer, "swap_in", planted)


FIVE = faults(
    acknowledged_before_the_fsync,
    no_epoch_check,
    served_above_the_commit,
    cut_off_whatever_comes,
    a_checkpoint_takes_its_place_in_pieces,
)


def plant(name: str, run_dir: Path) -> None:
    """For the life of this process.  Raises Misfit, also for a name that is none."""
    fault = next((each for each in FIVE if each.name == name), None)
    if fault is None:
        raise Misfit(f"no fault is called {name!r}")
    fault.plant(Noted(pytest.MonkeyPatch(), run_dir))
