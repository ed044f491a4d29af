"""`holdfast config check|show|schema`: what the configuration would be, before anything is started with it.

Only talks: loading and its sentences are `config.load`. Mounted by `cli.main`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from actors.access.publishing import wrong_files
from config.dump import dump_json, dump_toml, json_schema
from config.load import ConfigError, Loaded, load_with_sources, secrets

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check, show and describe the configuration.")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file; without it only environment and --set count.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key, such as mqtt.max_inflight=64.")]


def _load(file: Path | None, sets: list[str] | None) -> Loaded:
    try:
        loaded = load_with_sources(file, sets=sets or ())
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        raise typer.Exit(1) from None
    for notice in loaded.notices:
        typer.echo(notice, err=True)
    return loaded


@app.command()
def check(config: ConfigFile = None, set_: Sets = None) -> None:
    """Exit 0 when the configuration can be used, with the secrets, rules and passwords that it names; otherwise one sentence for each
    mistake, and exit 1."""
    loaded = _load(config, set_)
    try:
        secrets(loaded.config)
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        raise typer.Exit(1) from None
    if wrong := wrong_files(loaded.config):
        for problem in wrong:
            typer.echo(f"{problem}.", err=True)
        raise typer.Exit(1)
    typer.echo(f"The configuration is good; {len(loaded.sources)} settings differ from their defaults.")


@app.command()
def show(
    config: ConfigFile = None,
    set_: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of TOML.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
) -> None:
    """Print the configuration that would be used, and where each value that is no default comes from."""
    loaded = _load(config, set_)
    if as_json:
        typer.echo(dump_json(loaded.config, indent=2))
    else:
        typer.echo(dump_toml(loaded.config, loaded.sources, changed_only=changed), nl=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))
