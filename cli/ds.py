"""`holdfast ds`, and `emqx_ctl ds`: sites, shards and their replicas, under the names and in the layout of EMQX 5.7.

With one site nothing can be moved, so commands that would move replicas say that there is nothing to do, or why it cannot be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from actors.datadir import DirectoryError
from actors.inquiry.sites import STORAGE, Refused, ShardInfo, Sites, forget, join, leave, look, set_replicas
from cli.asked import DataDir, Json, print_json
from cli.paths import data_path
from cli.stores import refuse

USAGE = """ds info                                    # Sites, shards and replicas
ds set-replicas <storage>|all <site> ...   # Change the set of replicas of a durable storage
ds join <storage>|all <site>               # Add a replica of the storage on the site
ds leave <storage>|all <site>              # Remove the replica of the storage from the site
ds forget <site>                           # Remove a site that is lost for ever"""
UNCLAIMED = """(!) UNCLAIMED
(!) This data directory has no site yet.
(!) It gets one, and its shards, when its broker is first started."""
_SHARD_COLUMN = 34
_GAP = "    "

app = typer.Typer(add_completion=False, help="Sites, shards and replicas.")
Storage = Annotated[str, typer.Argument(metavar="STORAGE", help=f"{STORAGE}, or all.", autocompletion=lambda: [STORAGE, "all"])]
Site = Annotated[str, typer.Argument(metavar="SITE", help="A site id, as `ds info` shows it.")]


@app.callback(invoke_without_command=True)
def ds(context: typer.Context) -> None:
    """Sites, shards and replicas."""
    if context.invoked_subcommand is None:
        print(USAGE)


@app.command()
def info(data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Which sites there are, and where the replicas of each shard lie."""
    sites = _sites(data_dir)
    if as_json:
        print_json(sites)
    else:
        print(laid_out(sites))


@app.command("set-replicas")
def set_(
    storage: Storage,
    sites: Annotated[list[str], typer.Argument(metavar="SITE...", help="All sites that are to have replicas.")],
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Say which sites have replicas."""
    known = _known(storage, data_dir)
    try:
        set_replicas(known, sites)
    except Refused as error:
        _fail(f"Unable to update replicas: {error}")
    _say("ok", as_json)


app.command("set_replicas", hidden=True)(set_)


@app.command("join")
def join_(storage: Storage, site: Site, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Let a site have replicas."""
    _change(join, storage, site, data_dir, as_json)


@app.command("leave")
def leave_(storage: Storage, site: Site, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Let a site have no replicas any more."""
    _change(leave, storage, site, data_dir, as_json)


@app.command("forget")
def forget_(site: Site, data_dir: DataDir = "./data") -> None:
    """Forget a site that does not come back."""
    try:
        forget(_sites(data_dir), site)
    except Refused as error:
        _fail(f"Unable to forget site: {error}")


# ---------------------------------------------------------------------------------------------------- words


def laid_out(sites: Sites) -> str:
    """As EMQX 5.7 shows it."""
    if not sites.this:
        return f"THIS SITE:\n{UNCLAIMED}"
    lines = ["THIS SITE:", sites.this, "", "SITES:"]
    lines += [f"{one.site}{_GAP}'{one.node}'{_GAP}{'    up' if one.up else '(x) down'}" for one in sites.sites]
    lines += ["", "SHARDS:", f"{'Shard':<{_SHARD_COLUMN}}Replicas"]
    # As texts: messages/10 comes before messages/2.
    shards = sorted(sites.shards, key=lambda one: f"{one.storage}/{one.shard}")
    lines += [_shard(one) for one in shards]
    moving = [one for one in shards if one.transitions]
    if moving:
        lines += ["", "REPLICA TRANSITIONS:", f"{'Shard':<{_SHARD_COLUMN}}Transitions"]
        lines += [f"{_name(one):<{_SHARD_COLUMN}}{'  '.join(one.transitions)}" for one in moving]
    return "\n".join(lines)


def _shard(one: ShardInfo) -> str:
    """The mark of a replica stands before its site."""
    replicas = "  ".join(f"{'   ' if replica.up else '(x)'} {replica.site}" for replica in one.replicas)
    return f"{_name(one):<{_SHARD_COLUMN - 4}}{replicas}"


def _name(one: ShardInfo) -> str:
    return f"{one.storage}/{one.shard}"


def _say(word: str, as_json: bool) -> None:
    print(json.dumps({"result": word}) if as_json else word)


def _fail(words: str) -> NoReturn:
    print(words, file=sys.stderr)
    raise typer.Exit(1)


# ---------------------------------------------------------------------------------------------------- parts


def _change(changes: Callable[[Sites, str], bool], storage: str, site: str, data_dir: str, as_json: bool) -> None:
    known = _known(storage, data_dir)
    try:
        changed = changes(known, site)
    except Refused as error:
        _fail(f"Unable to update replicas: {error}")
    _say("ok" if changed else "unchanged", as_json)


def _known(storage: str, data_dir: str) -> Sites:
    if storage not in (STORAGE, "all"):
        _fail("Unknown durable storage")
    return _sites(data_dir)


def _sites(data_dir: str) -> Sites:
    path = data_path(data_dir)
    if not path.is_dir():
        refuse(f"{path} is not the data directory of a broker: name it with --data-dir.")
    try:
        return look(path)
    except DirectoryError as error:
        refuse(f"{error}.")


# ---------------------------------------------------------------------------------------------------- emqx_ctl


def emqx_ctl() -> None:
    """`emqx_ctl ds ...`: what is after `ds` is a command of `holdfast ds`."""
    words = sys.argv[1:]
    if words[:1] != ["ds"]:
        print("emqx_ctl: here it knows `ds` alone; the other commands are those of `holdfast`.", file=sys.stderr)
        sys.exit(2)
    sys.argv[1:] = words[1:]
    app(prog_name="emqx_ctl ds")
