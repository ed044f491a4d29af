"""`holdfast storage accept-clock`: the operator's word that the wall clock is right, after it jumped over a reboot.

Whether the broker runs or is stopped does not matter: the word lies in the data directory and counts for this boot
(actors.accepted).  A shard that runs takes it within a second.
"""

from __future__ import annotations

from typing import Annotated

import typer

from actors.accepted import accept_clock
from cli.paths import data_path
from cli.stores import site_of


def accept(
    data_dir: Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker whose clock is right.")] = "./data",
) -> None:
    """Let sessions expire and generations be dropped again, after the wall clock has jumped over a reboot."""
    path = data_path(data_dir)
    site_of(path)  # What is no data directory ends the command here.
    accept_clock(path)
    print(f"the clock of this machine is accepted for {path} until its next boot; time that it was off before is not counted")
