"""`holdfast ds`, and `emqx_ctl ds`: sites, shards and their replicas, under the names and in the layout of EMQX 5.7.

With one site nothing can be moved, so commands that would move replicas say that there is nothing to do, or why it cannot be.  With several
the site process of the broker in the data directory is asked, and does it (actors.sites.desk).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from actors.asking import NotReached, running
from actors.datadir import DirectoryError, read_site
from actors.inquiry.sites import (
    STORAGE,
    ForcedInfo,
    Refused,
    ShardInfo,
    SiteInfo,
    Sites,
    declare_lost,
    force_leader,
    forget,
    join,
    leave,
    look,
    set_replicas,
)
from actors.topology import Topology
from cli.asked import DataDir, Json, print_json, table
from cli.paths import data_path
from cli.stores import refuse

USAGE = """ds info                                    # Sites, shards and replicas
ds set-replicas <storage>|all <site> ...   # Change the set of replicas of a durable storage
ds join <storage>|all <site>               # Add a replica of the storage on the site
ds leave <storage>|all <site>              # Remove the replica of the storage from the site
ds lost <site>                             # Say that a site that is down does not come back
ds forget <site>                           # Remove a site that is lost for ever
ds force-leader <shard>|all <site>         # Go on from one replica when the others are gone for good"""
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


Answer = TypeVar("Answer")


@app.command()
def info(
    data_dir: DataDir = "./data",
    as_json: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also who leads, what is in sync, how far others are behind, releases.")
    ] = False,
) -> None:
    """Which sites there are, and where the replicas of each shard lie."""
    sites = _sites(data_dir)
    if as_json:
        print_json(sites)
        return
    print(laid_out(sites))
    if verbose and sites.register:
        print(f"\nREPLICATION ({sites.register}):")
        table(("Shard", "Leader", "Epoch", "In sync", "Entries behind"), [_replication(one) for one in sites.shards])
        print(f"\nRELEASES (format {sites.format} of the cluster is in use):")
        table(("Site", "Release", "Knows formats", "Link"), [_release(one, sites.this) for one in sites.sites])
        if any(one.forced for one in sites.shards):
            print("\nFORCED LEADERSHIP:")
            table(
                ("Shard", "Incarnation", "At", "Leader", "Gone", "Lost"),
                [_forced(one, each) for one in sites.shards for each in one.forced],
            )


@app.command("set-replicas")
def set_(
    storage: Storage,
    sites: Annotated[list[str], typer.Argument(metavar="SITE...", help="All sites that are to have replicas.")],
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Say which sites have replicas."""
    _moved("set-replicas", lambda known: set_replicas(known, sites), storage, sites, data_dir)
    _say("ok", as_json)


app.command("set_replicas", hidden=True)(set_)


@app.command("join")
def join_(storage: Storage, site: Site, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Let a site have replicas."""
    changed = _moved("join", lambda known: join(known, site), storage, [site], data_dir)
    _say("ok" if changed else "unchanged", as_json)


@app.command("leave")
def leave_(storage: Storage, site: Site, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Let a site have no replicas any more."""
    changed = _moved("leave", lambda known: leave(known, site), storage, [site], data_dir)
    _say("ok" if changed else "unchanged", as_json)


@app.command("lost")
def lost_(site: Site, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Say that a site that is down does not come back."""
    try:
        changed = _asked("lost", lambda known: declare_lost(known, site), [site], data_dir)
    except Refused as error:
        _fail(f"Unable to declare the site lost: {error}")
    _say("ok" if changed else "unchanged", as_json)


@app.command("forget")
def forget_(site: Site, data_dir: DataDir = "./data") -> None:
    """Forget a site that does not come back."""
    try:
        _asked("forget", lambda known: forget(known, site), [site], data_dir)
    except Refused as error:
        _fail(f"Unable to forget site: {error}")
    _say("ok", as_json=False)


@app.command("force-leader")
def force_(
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="A number, or all: those that do not go on.")],
    site: Site,
    accepted: Annotated[bool, typer.Option("--accept-data-loss", help="What this replica lacks is lost.")] = False,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Go on from the replica of one site: the others that were in sync are gone for good."""
    try:
        words = [shard, site, "accept-data-loss" if accepted else ""]
        changed = _asked("force-leader", lambda known: force_leader(known, shard, site), words, data_dir)
    except Refused as error:
        _fail(f"Unable to force leadership: {error}")
    _say("ok" if changed else "unchanged", as_json)


# ---------------------------------------------------------------------------------------------------- words


def laid_out(sites: Sites) -> str:
    """As EMQX 5.7 shows it."""
    if not sites.this:
        return f"THIS SITE:\n{UNCLAIMED}"
    lines = ["THIS SITE:", sites.this, "", "SITES:"]
    lines += [f"{one.site}{_GAP}'{one.node}'{_GAP}{_status(one)}" for one in sites.sites]
    lines += ["", "SHARDS:", f"{'Shard':<{_SHARD_COLUMN}}Replicas"]
    # As texts: messages/10 comes before messages/2.
    shards = sorted(sites.shards, key=lambda one: f"{one.storage}/{one.shard}")
    lines += [_shard(one, sites.lost) for one in shards]
    moving = [one for one in shards if one.transitions]
    if moving:
        lines += ["", "REPLICA TRANSITIONS:", f"{'Shard':<{_SHARD_COLUMN}}Transitions"]
        lines += [f"{_name(one):<{_SHARD_COLUMN}}{'  '.join(one.transitions)}" for one in moving]
    return "\n".join(lines)


def _shard(one: ShardInfo, lost: frozenset[str]) -> str:
    """The mark of a replica stands before its site."""
    marks = ["(!)" if replica.site in lost else "   " if replica.up else "(x)" for replica in one.replicas]
    replicas = "  ".join(f"{mark} {replica.site}" for mark, replica in zip(marks, one.replicas, strict=True))
    return f"{_name(one):<{_SHARD_COLUMN - 4}}{replicas}".rstrip()


def _status(one: SiteInfo) -> str:
    down = f"(x) down ({one.refused})" if one.refused else "(x) down"
    return "(!) LOST" if one.lost else "    up" if one.up else down


def _replication(one: ShardInfo) -> list[str]:
    in_sync = ", ".join(one.in_sync) if one.writable else f"{', '.join(one.in_sync)}: too few, nothing is stored"
    behind = ", ".join(f"{site} {entries:,}" for site, entries in one.behind.items() if entries)
    leader = one.leader or "nobody yet"
    if one.planned and one.planned != one.leader:
        leader += f" (by plan {one.planned})"
    return [_name(one), leader, str(one.epoch), in_sync, behind or "none known"]


def _release(one: SiteInfo, this: str) -> list[str]:
    oldest, newest = one.knows
    link = "this site" if one.site == this else f"version {one.speaks}" if one.speaks else "none"
    return [one.site, one.release or "not said", str(newest) if oldest == newest else f"{oldest} to {newest}", link]


def _forced(one: ShardInfo, each: ForcedInfo) -> list[str]:
    lost = "nothing that was acknowledged" if each.complete else "what only the others had"
    return [_name(one), str(each.incarnation), each.at, each.leader, ", ".join(each.gone), lost]


def _name(one: ShardInfo) -> str:
    return f"{one.storage}/{one.shard}"


def _say(word: str, as_json: bool) -> None:
    print(json.dumps({"result": word}) if as_json else word)


def _fail(words: str) -> NoReturn:
    print(words, file=sys.stderr)
    raise typer.Exit(1)


# ---------------------------------------------------------------------------------------------------- parts


def _moved(verb: str, here: Callable[[Sites], bool], storage: str, words: list[str], data_dir: str) -> bool:
    if storage not in (STORAGE, "all"):
        _fail("Unknown durable storage")
    try:
        return _asked(verb, here, words, data_dir)
    except Refused as error:
        _fail(f"Unable to update replicas: {error}")


def _asked(verb: str, here: Callable[[Sites], bool | None], words: list[str], data_dir: str) -> bool:
    """Whether anything was to change.  here: what one site says.  Raises Refused."""
    several = _several(data_dir)
    if several is None:
        return bool(here(_sites(data_dir)))
    from actors.sites.asked import ask

    return bool(_answered(ask(several, verb, *words)))


def _several(data_dir: str) -> Topology | None:
    """Of a broker that is one of several sites; None: it stands alone."""
    path = data_path(data_dir)
    try:
        topology = running(path)
    except NotReached:
        if _is_of_several(path):
            refuse(f"The broker in {path} does not run, and it is one of several sites: ask at another one.")
        return None
    return None if topology.sites is None else topology


def _is_of_several(path: Path) -> bool:
    try:
        site = read_site(path)
    except DirectoryError:
        return False  # Said by who reads it next.
    return site is not None and site.n_sites > 1


def _answered(question: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        return asyncio.run(question)
    except NotReached as error:
        refuse(f"{error}.")


def _sites(data_dir: str) -> Sites:
    path = data_path(data_dir)
    if not path.is_dir():
        refuse(f"{path} is not the data directory of a broker: name it with --data-dir.")
    several = _several(data_dir)
    if several is not None:
        from actors.sites.asked import ask_info

        return _answered(ask_info(several))
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
