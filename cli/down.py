"""`holdfast down`: asks the launcher to stop, and waits until nothing of the broker runs any more."""

from __future__ import annotations

import signal
import sys
import time
from typing import Annotated

import typer

from actors.belongings import belongings
from actors.processes import ProcessId, end, send
from actors.run import read_run
from cli.paths import data_path

STOP_WITHIN_S = 34.0
END_WITHIN_S = 10.0


def down(data_dir: Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker to stop.")] = "./data") -> None:
    """Stop the broker in good order, and wait for it. Nothing to stop is fine."""
    path = data_path(data_dir)
    run = read_run(path)

    def left() -> list[ProcessId]:
        return [*belongings(path, run), *([run.launcher] if run is not None and run.launched() else [])]

    if not left():
        print(f"nothing runs in {path}")
        return
    if run is not None and run.launched():
        send(run.launcher, signal.SIGTERM)
        deadline = time.monotonic() + STOP_WITHIN_S
        while left() and time.monotonic() < deadline:
            time.sleep(0.05)
    if left():
        # Either the launcher is gone and left them, or it does not come to an end.
        end(left, within=END_WITHIN_S)
    if remaining := left():
        print(f"these processes of {path} do not end: {', '.join(str(process.pid) for process in remaining)}.", file=sys.stderr)
        raise typer.Exit(1)
    print(f"stopped; everything is in {path}")
