"""`holdfast doctor`: what is wrong with an installation, in sentences, and what to do about it."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from cli.asked import Json, print_json
from cli.paths import data_path
from cli.stores import ConfigFile, DataDir, Sets
from config.load import ConfigError, load_with_sources


def doctor(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False) -> None:
    """Say what is wrong, whether the broker runs or not; exit 1 when something is that hurts clients."""
    try:
        given = load_with_sources(config, sets=set_ or (), data_dir=data_dir)
    except ConfigError as error:
        _unusable(error, as_json)
    from actors.inquiry.findings import Finding, look  # loads what shards are made of

    loaded = given.config
    path = data_path(loaded.data_dir)
    stores = loaded.durable_storage.messages.data_dir
    found = look(path, data_path(stores) if stores else path / "shards", loaded)
    found += [Finding("configuration", False, notice.removesuffix(".")) for notice in given.notices]
    if as_json:
        print_json(found)
    for one in found if not as_json else ():
        print(f"{'WRONG' if one.serious else 'note '} {one.about}: {one.sentence}")
    if not found and not as_json:
        print(f"nothing is wrong with {path}")
    if any(one.serious for one in found):
        raise typer.Exit(1)


def _unusable(error: ConfigError, as_json: bool) -> NoReturn:
    if as_json:
        print_json([{"about": "configuration", "serious": True, "sentence": str(problem)} for problem in error.problems])
    else:
        for problem in error.problems:
            print(f"WRONG configuration: {problem}", file=sys.stdout)
    raise typer.Exit(1)
