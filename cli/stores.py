"""Which stores a command is about, and how it opens them: to read beside a running broker, or alone.

Errors meant for people end the command with one sentence on standard error and exit code 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from actors.datadir import DirectoryError, Site, read_site
from cli.paths import data_path
from config.load import ConfigError, load
from config.schema import Config
from shards.engine import StoreFailed
from shards.survey import Survey

if TYPE_CHECKING:
    from shards.engine_secondary import SecondaryEngine

DataDir = Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="Of the broker whose stores are meant.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The file it is started with, if there is one.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for `holdfast up`.")]


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the stores lie, and how long messages are kept by the configuration that was named."""

    paths: list[Path]
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Open:
    """One store, open for reading."""

    shard: int
    path: Path
    engine: SecondaryEngine
    survey: Survey


def refuse(sentence: str, code: int = 1) -> NoReturn:
    """End the command."""
    print(f"holdfast: {sentence}", file=sys.stderr)
    raise typer.Exit(code)


def site_of(directory: Path) -> Site:
    """What the data directory of a broker says of itself; ends the command when there is none."""
    try:
        site = read_site(directory)
    except DirectoryError as error:
        refuse(f"{error}.")
    if site is None:
        refuse(f"{directory} is not the data directory of a broker: it has no site.json. Name it with --data-dir.")
    return site


def load_or_refuse(data_dir: str | None, config: Path | None, sets: list[str] | None) -> Config:
    """The configuration that is meant; ends the command when it cannot be used."""
    try:
        return load(config, sets=sets or (), data_dir=data_dir)
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        raise typer.Exit(1) from None


def store_paths(loaded: Config, site: Site) -> list[Path]:
    """Where the stores of this site lie, by shard."""
    messages = loaded.durable_storage.messages
    above = data_path(messages.data_dir) if messages.data_dir else data_path(loaded.data_dir) / "shards"
    return [above / str(shard) for shard in range(site.n_shards)]


def engine_paths(loaded: Config, site: Site) -> list[Path]:
    """Of the engines in them; of several sites each is a copy, with its log beside it."""
    return [path if site.n_sites == 1 else path / "data" for path in store_paths(loaded, site)]


def find_stores(data_dir: str | None, config: Path | None, sets: list[str] | None) -> Stores:
    loaded = load_or_refuse(data_dir, config, sets)
    site = site_of(data_path(loaded.data_dir))
    return Stores(engine_paths(loaded, site), loaded.durable_sessions.message_retention_period.ms)


@contextmanager
def open_stores(stores: Stores) -> Iterator[list[Open]]:
    """All of them, for as long as the context lasts."""
    from shards.engine_secondary import SecondaryEngine  # only who looks into a store pays for loading RocksDB

    with ExitStack() as stack:
        found: list[Open] = []
        for shard, path in enumerate(stores.paths):
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-look-"))
            try:
                engine = SecondaryEngine(str(path), scratch)
                stack.callback(engine.close)
                found.append(Open(shard, path, engine, Survey(shard, engine)))
            except StoreFailed as error:
                refuse(f"the store of shard {shard} cannot be read: {error}.")
        yield found
