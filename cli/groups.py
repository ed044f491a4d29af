"""`holdfast groups`: shared groups of durable sessions, of a running broker; and those that are there without members (docs/groups.md)."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from actors.inquiry import groups as inquiry
from actors.inquiry import sessions
from actors.inquiry.asking import Asking, Page
from actors.inquiry.groups import Gone, Group, NotYet, Refused, Start, checked_group
from actors.inquiry.lag import Lag
from actors.inquiry.moving import Senseless
from actors.inquiry.stored import Stored
from cli.asked import DataDir, Json, Limit, ask, end, facts, number, pages, print_json, table, when
from cli.stores import refuse

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Shared groups of durable sessions, of a running broker.")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="$share/NAME/FILTER, in quotes.")]
_STRATEGIES = "by_stream, round_robin, hash_client_id or hash_topic"


@app.command()
def ls(limit: Limit = None, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """All of them, declared or not."""

    async def asks(asking: Asking) -> tuple[list[Group], tuple[str, ...]]:
        async def page(cursor: str) -> Page[Group]:
            return await inquiry.page(asking, cursor)

        return await pages(page, limit)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        table(("GROUP", "MEMBERS", "DECLARED", "BEGINS", "STRATEGY", "HOME"), [_cells(one) for one in found])
    else:
        print("there are no shared groups of durable sessions")
    end(missing)


@app.command()
def show(group: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """One of them, and how far it is behind."""

    async def asks(asking: Asking) -> tuple[Group | None, Lag | None, tuple[str, ...]]:
        found, missing = await inquiry.find(asking, _checked(group))
        if found is None:
            return None, None, missing
        async with Stored(asking) as stored:
            behind, also = await sessions.lag(asking, stored, group)
        return found, behind, tuple(dict.fromkeys((*missing, *also)))

    found, behind, missing = ask(data_dir, asks)
    if found is None:
        end(missing)
        refuse(f"there is no group {group}.")
    if as_json:
        print_json({**facts(found), "lag": facts(behind)})
    else:
        for name, value in facts(found).items():
            if value is not None:
                print(f"{name:<16} {value}")
        if behind is not None:
            print(f"{'lag':<16} {_behind(behind)}")
    end(missing)


@app.command()
def declare(
    group: Name,
    begins: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Where it begins: latest, earliest, a time (2026-11-20T08:00:00Z), a span (-2h).")
    ] = "latest",
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="NAME", help=f"{_STRATEGIES}; else as it is configured.")
    ] = None,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Let a group be there without members: what is published is kept for it from now on, or from earlier on."""
    checked = _checked(group)
    try:
        start = Start.parse(begins)
    except Senseless as error:
        refuse(f"{error}.", 2)
    known = next((each for each in inquiry.STRATEGIES if each == strategy), None)
    if strategy is not None and known is None:
        refuse(f"{strategy!r} is no strategy: {_STRATEGIES} is wanted.", 2)

    async def declares(asking: Asking) -> Group:
        return await inquiry.declare(asking, checked, start, known, f"cli:{getpass.getuser()}")

    try:
        found = ask(data_dir, declares)
    except Senseless as error:
        refuse(f"{error}.", 2)
    except (Refused, NotYet) as error:
        refuse(f"{error}.")
    if as_json:
        print_json(found)
        return
    print(f"{group} is declared: it keeps what is published from {found.begins} on, with members or without")
    if found.kept_since_at_ms is not None:
        print(f"something of what was published before {when(found.kept_since_at_ms)} is gone; nothing that came later")


@app.command()
def drop(
    group: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Also with members: it is left to them, as it is, and ends with the last of them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Declare a group no more: without members it ends, with all that waits for it."""
    checked = _checked(group)
    if not yes:
        if as_json:
            refuse("say --yes with --json: nobody can be asked.", 2)
        print(f"what waits for {group} will be delivered to nobody, unless it has members and is left to them")
        if not typer.confirm("Drop it?"):
            refuse(f"{group} is as it was.")

    async def drops(asking: Asking) -> Gone:
        return await inquiry.drop(asking, checked, force, f"cli:{getpass.getuser()}")

    try:
        gone = ask(data_dir, drops)
    except (Refused, NotYet) as error:
        refuse(f"{error}.")
    if as_json:
        print_json(gone)
    elif gone.ended:
        print(f"{group} has ended")
    else:
        print(f"{group} is left to its {number(gone.members, 'member')}, and ends with the last of them")


# ---------------------------------------------------------------------------------------------------- words


def _checked(group: str) -> str:
    try:
        return checked_group(group)
    except Senseless as error:
        refuse(f"{error}.", 2)


def _cells(one: Group) -> tuple[str, ...]:
    declared = "no" if one.declared_at_ms is None else when(one.declared_at_ms) if one.ready else "not in every shard yet"
    return one.group, str(one.members), declared, one.begins or "first member", one.strategy or "as configured", str(one.home)


def _behind(lag: Lag) -> str:
    at_least = "" if lag.counted else "at least "
    return f"{at_least}{number(lag.messages, 'message')}: {lag.unread:,} unread, {lag.unfinished:,} unfinished"
