"""`holdfast`: puts the commands together, and sees to it that an error is a sentence and never a traceback.

Exit codes: 0 done, 1 could not be done, 2 was asked in a way that makes no sense, 3 done in part (`reload`, and questions that not all
processes have answered), 4 a promise of the broker was broken (`chaos`).
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib import import_module
from typing import Any

import structlog
import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "up": "cli.up:up",
    "down": "cli.down:down",
    "status": "cli.status:status",
    "reload": "cli.reload:reload",
    "passwd": "cli.passwd:passwd",
    "api-keys": "cli.api_keys:app",
    "clients": "cli.clients:clients",
    "sessions": "cli.sessions:app",
    "groups": "cli.groups:app",
    "bridge": "cli.bridge:app",
    "subs": "cli.subs:subs",
    "topics": "cli.topics:app",
    "retained": "cli.retained:retained",
    "shards": "cli.shards:app",
    "ds": "cli.ds:app",
    "node": "cli.node:app",
    "doctor": "cli.doctor:doctor",
    "sizing": "cli.sizing:sizing",
    "backup": "cli.backup:backup",
    "restore": "cli.restore:restore",
    "config": "cli.config:app",
    "access": "cli.access:app",
    "storage": "cli.storage:app",
    "pipeline": "cli.pipeline:app",
    "chaos": "cli.chaos:app",
}
"""Name -> where the function is that does it, or the Typer of those below it."""

NICE_OF_BACKUP = 10


class OnDemand(TyperGroup):
    """Loads the module of a command when it is asked for: all of them take half a second, and `status` is asked often."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        return _command(cmd_name) if cmd_name in COMMANDS else None


@cache
def _command(name: str) -> TyperCommand | TyperGroup:
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(import_module(module), attribute)
    if name == "storage":
        _complete(found)
    if name == "sessions":
        _add_tools(found)
    if isinstance(found, typer.Typer):
        command = typer.main.get_command(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand | TyperGroup)
    command.name = name
    return command


def _complete(storage: typer.Typer) -> None:
    """Those below `holdfast storage` that are not about looking into stores."""
    from cli import accept_loss, clock, leases, losses

    storage.command("accept-clock")(clock.accept)
    storage.command("losses")(losses.losses)
    storage.command("accept-loss")(accept_loss.accept)
    storage.add_typer(leases.app, name="lease")


def _add_tools(sessions: typer.Typer) -> None:
    """Those below `holdfast sessions` that look into, or move, what a durable session is given next."""
    from cli import session_tools

    for tool in (session_tools.peek, session_tools.skip, session_tools.rewind, session_tools.purge):
        sessions.command()(tool)


app = typer.Typer(
    name="holdfast",
    cls=OnDemand,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def holdfast() -> None:
    """Holdfast, a durable MQTT broker."""


def main() -> None:
    # What a command leaves in a data directory is its user's alone; what the pipeline archives is for others to read.
    if sys.argv[1:2] != ["pipeline"]:
        os.umask(0o077)
    if sys.argv[1:2] == ["backup"]:
        # The broker beside it goes first.
        os.nice(NICE_OF_BACKUP)
    # What a command shares with the broker's processes says in logs what it does; here that is for people, and only when it is amiss.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    try:
        app()
    except (OSError, ImportError) as error:
        # What the commands foresee they say themselves; this is a disk, a permission, a damaged installation.
        print(f"holdfast: {error}.", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
