"""`holdfast reload`: has a running broker read its configuration again, and says what became of every difference.

Reading, deciding and putting into force is actors.reload; bringing it to the processes is the controller. This says it to people.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from actors.reload import Reloaded, wait_until_taken
from actors.reload import reload as put_in_force
from actors.run import read_run
from cli.paths import data_path
from cli.stores import refuse
from config.changes import Change
from config.load import ConfigError

IN_PART = 3
"""Exit code: what could change has changed; the rest needs a restart, or a process that is away has not taken it yet."""


def reload(data_dir: Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker that is meant.")] = "./data") -> None:
    """Read the configuration again from where the running broker has it, and use it as far as that goes without a restart."""
    path = data_path(data_dir)
    run = read_run(path)
    if run is None or not run.launched():
        refuse(f"nothing runs in {path}; a broker reads its configuration when it is started.")
    try:
        reloaded = put_in_force(run.run_dir)
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        refuse("nothing was changed.")
    except FileNotFoundError:
        refuse(f"the broker in {path} is starting or stopping; nothing was changed.")
    for notice in reloaded.notices:
        print(notice, file=sys.stderr)
    away = wait_until_taken(reloaded) if reloaded.changes.applied or reloaded.files or reloaded.bundle else []
    print("\n".join(_lines(reloaded, away)))
    if reloaded.changes.at_next_start or away:
        raise typer.Exit(IN_PART)


def _lines(reloaded: Reloaded, away: list[str]) -> list[str]:
    found = reloaded.changes.found
    lines = ["rules, passwords and secrets are as their files say now"] if reloaded.files else []
    if not found and not lines:
        return ["nothing differs from what is in force"]
    for effect, title in (
        ("at once", "in force now:"),
        ("with the next generation", "from the next generation on:"),
        ("at the next start", "not before the broker is restarted (holdfast down, holdfast up):"),
    ):
        of_kind: list[Change] = [change for change in found if change.effect == effect]
        lines += [title, *(f"  {change}" for change in of_kind)] if of_kind else []
    if away:
        lines.append(f"away at the moment, and will have it when they are back: {', '.join(away)}")
    return lines
