"""`holdfast`: puts the commands together, and sees to it that an error is a sentence and never a traceback.

Exit codes: 0 done, 1 could not be done, 2 was asked in a way that makes no sense, 3 done in part (`reload` alone).
"""

from __future__ import annotations

import logging
import os
import sys

import structlog
import typer

from cli import accept_loss, access, clock, config, down, leases, losses, passwd, pipeline, reload, status, storage, up

app = typer.Typer(
    name="holdfast",
    help="Holdfast, a durable MQTT broker.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("status")(status.status)
app.command("reload")(reload.reload)
app.command("passwd")(passwd.passwd)
app.add_typer(config.app, name="config")
app.add_typer(access.app, name="access")
storage.app.command("accept-clock")(clock.accept)
storage.app.command("losses")(losses.losses)
storage.app.command("accept-loss")(accept_loss.accept)
storage.app.add_typer(leases.app, name="lease")
app.add_typer(storage.app, name="storage")
app.add_typer(pipeline.app, name="pipeline")


def main() -> None:
    # What a command leaves in a data directory is its user's alone; what the pipeline archives is for others to read.
    if sys.argv[1:2] != ["pipeline"]:
        os.umask(0o077)
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
