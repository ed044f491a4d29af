"""`holdfast bridge`: what carries stored messages elsewhere, or brings messages in, of a running broker (docs/bridge.md)."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from actors.bridge import managing
from actors.bridge.managing import BridgeInfo, Refused, Removed
from actors.bridge.session import client_id
from actors.inquiry import sessions
from actors.inquiry.asking import Asking
from actors.inquiry.lag import Lag
from actors.inquiry.moving import Done, NotMoved, Senseless, Target, Verb, move
from actors.inquiry.stored import Stored
from actors.snapshot import settings_in_force
from cli.asked import DataDir, Json, amount, ask, end, facts, number, print_json, roughly, table
from cli.session_tools import To, Yes
from cli.stores import refuse
from config.load import typed
from config.settings import BRIDGES, plain, settings_in, value_at

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="What carries stored messages elsewhere, or brings messages in, of a running broker."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the bridge.")]


@app.command()
def ls(data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """All of them, and how they are."""

    async def asks(asking: Asking) -> list[BridgeInfo]:
        return managing.bridges(asking.topology)

    found = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        table(("BRIDGE", "STATE", "DIRECTION", "TYPE", "FILTER", "DELIVERED", "IN FLIGHT", "ERROR"), [_cells(each) for each in found])
    else:
        print("there are no bridges")


@app.command()
def show(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """One of them: how it is, how far it is behind, and its settings."""

    async def asks(asking: Asking) -> tuple[BridgeInfo | None, Lag | None, dict[str, object], tuple[str, ...], str]:
        found = managing.bridge(asking.topology, name)
        config = settings_in_force(asking.topology)
        prefix = f"{BRIDGES.prefix}{name}."
        settings = {key.removeprefix(prefix): plain(value_at(config, key)) for key in settings_in(config) if key.startswith(prefix)}
        waits = managing.elsewhere(asking.topology, name)
        behind, missing = (None, ()) if waits else await _lag(asking, name)
        return found, behind, dict(settings), missing, waits

    found, behind, settings, missing, waits = ask(data_dir, asks)
    if found is None:
        end(missing)
        refuse(f"there is no bridge {name}.")
    if as_json:
        print_json({**facts(found), "lag": facts(behind), "settings": settings})
    else:
        for key, value in facts(found).items():
            if value not in (None, ""):
                print(f"{key:<16} {value}")
        if behind is not None:
            print(f"{'lag':<16} {_said(behind)}")
        elif waits:
            print(f"{'lag':<16} not known here: what is not brought in yet waits {waits}")
        for key, value in settings.items():
            print(f"  {key} = {value!r}")
    end(missing)


@app.command()
def lag(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """How far it is behind, and how long until something is lost that it has not carried."""

    async def asks(asking: Asking) -> tuple[Lag | None, tuple[str, ...], str]:
        waits = managing.elsewhere(asking.topology, name)
        return (None, (), waits) if waits else (*await _lag(asking, name), "")

    behind, missing, waits = ask(data_dir, asks)
    if waits:
        refuse(f"what {name} brings in waits {waits}.")
    if behind is None:
        end(missing)
        refuse(f"nothing is kept for a bridge {name}.")
    if as_json:
        print_json(behind)
    else:
        print(f"{name} {_said(behind)}")
    end(missing)


@app.command()
def add(
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Such as filter='a/#' type=jsonl jsonl.path=out.jsonl.")],
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Make a bridge, and wait until everything is kept for it. Its settings are written to bridges.toml in the data directory."""
    given: dict[str, object] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not managing.known_key(key):
            refuse(f"{text!r} is no setting of a bridge: KEY=VALUE is wanted, such as filter='plant/#' (docs/configuration.md).", 2)
        given[key] = typed(f"{BRIDGES.prefix}{name}.{key}", value)

    async def adds(asking: Asking) -> tuple[bool, bool]:
        await managing.add(asking.topology, name, given)
        return await managing.online(asking.topology, name), bool(managing.elsewhere(asking.topology, name))

    try:
        kept, inwards = ask(data_dir, adds)
    except Refused as error:
        refuse(str(error))
    if as_json:
        print_json({"bridge": name, "online": kept})
    elif kept:
        kept_there = "by the other broker" if inwards else ""
        print(f"{name} is there: from now on what matches is kept for it {kept_there}".strip())
    else:
        print(f"{name} is set, and has not begun yet: `holdfast bridge ls` says why")


@app.command()
def pause(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Carry nothing until `resume`; everything is kept, within the bounds of hold_unread."""
    _pause(name, True, data_dir, as_json)


@app.command()
def resume(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Go on after `pause`, where it was."""
    _pause(name, False, data_dir, as_json)


@app.command()
def rewind(name: Name, to: To, yes: Yes = False, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Carry what is stored from a place on once more. Never goes forward."""
    _move("rewind", name, to, yes, data_dir, as_json, f"what is stored from there on will be carried once more by {name}")


@app.command()
def skip(name: Name, to: To, yes: Yes = False, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Leave out what is stored up to a place and not carried yet. Never goes back."""
    _move("skip", name, to, yes, data_dir, as_json, f"what is stored up to there, and not in its memory, will not be carried by {name}")


@app.command()
def rm(name: Name, yes: Yes = False, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """End a bridge, with its settings and everything that is kept for it."""

    async def looks(asking: Asking) -> tuple[Lag | None, str]:
        waits = managing.elsewhere(asking.topology, name)
        return None if waits else (await _lag(asking, name))[0], waits

    behind, waits = ask(data_dir, looks)
    if not yes:
        if as_json:
            refuse("say --yes with --json: nobody can be asked.", 2)
        nothing = f"has its messages waiting {waits}" if waits else "has nothing that waits"
        print(f"bridge {name} {_said(behind) if behind is not None else nothing}, which it will not carry")
        if not typer.confirm("End it?"):
            refuse(f"bridge {name} is as it was.")

    async def ends(asking: Asking) -> Removed:
        return await managing.remove(asking, name)

    try:
        ended = ask(data_dir, ends)
    except Refused as error:
        refuse(str(error))
    if as_json:
        print_json({"bridge": name, **facts(ended), "messages": behind.messages if behind is not None else 0})
    else:
        print(f"bridge {name} has ended" + (f"; {ended.left_there}" if ended.left_there else ""))


# ---------------------------------------------------------------------------------------------------- within


def _pause(name: str, paused: bool, data_dir: str, as_json: bool) -> None:
    async def asks(asking: Asking) -> bool:
        await managing.set_paused(asking.topology, name, paused)
        return bool(managing.elsewhere(asking.topology, name))

    try:
        inwards = ask(data_dir, asks)
    except Refused as error:
        refuse(str(error))
    if as_json:
        print_json({"bridge": name, "paused": paused})
    else:
        kept_there = " by the other broker, for as long as that keeps its session" if inwards else ""
        print(f"{name} is paused: what comes is kept for it{kept_there}" if paused else f"{name} goes on where it was")


def _move(what: Verb, name: str, to: str, yes: bool, data_dir: str, as_json: bool, means: str) -> None:
    try:
        target = Target.parse(to)
    except Senseless as error:
        refuse(f"{error}.", 2)
    if not yes:
        if as_json:
            refuse("say --yes with --json: nobody can be asked.", 2)
        print(means)
        if not typer.confirm("Do it?"):
            refuse(f"bridge {name} is as it was.")

    async def moves(asking: Asking) -> Done | None:
        if waits := managing.elsewhere(asking.topology, name):
            raise NotMoved(f"what {name} brings in waits {waits}: there is no place of it here to move")
        async with Stored(asking) as stored:
            return await move(asking, stored, client_id(name), what, target, None, f"cli:{getpass.getuser()}")

    try:
        done = ask(data_dir, moves)
    except NotMoved as error:
        refuse(f"{error}.")
    except Senseless as error:
        refuse(f"{error}.", 2)
    if done is None:
        refuse(f"nothing is kept for a bridge {name}.")
    if as_json:
        print_json(done)
    else:
        print(f"{number(done.places, 'place')} of {name} moved")


async def _lag(asking: Asking, name: str) -> tuple[Lag | None, tuple[str, ...]]:
    async with Stored(asking) as stored:
        return await sessions.lag(asking, stored, client_id(name))


def _said(one: Lag) -> str:
    if not one.messages:
        return "is not behind"
    at_least = "" if one.counted else "at least "
    oldest = f", the oldest is {roughly(one.behind_ms)} old" if one.behind_ms is not None else ""
    loses = f"; loses something in {roughly(one.loss_in_ms)}" if one.loss_in_ms is not None else "; held until it has carried it" * one.held
    unread = f"{number(one.unread, 'message')} unread ({amount(one.unread_bytes)})"
    return f"is {at_least}{number(one.messages, 'message')} behind: {unread}, {one.unfinished:,} in flight{oldest}{loses}"


def _cells(one: BridgeInfo) -> tuple[str, ...]:
    delivered = "-" if one.delivered is None else str(one.delivered)
    return (
        one.name, one.state, one.direction or "-", one.type or "-", one.filter or "-", delivered, str(one.inflight), one.error[:80] or "-",
    )  # fmt: skip
