"""`holdfast clients`: who is connected to a running broker, and who is away and has a session."""

from __future__ import annotations

from typing import Annotated

import typer

from actors.inquiry import clients as inquiry
from actors.inquiry.asking import Asking, Page
from actors.inquiry.clients import Client
from cli.asked import DataDir, Json, Limit, ask, end, facts, pages, print_json, table, when
from cli.stores import refuse


def clients(
    client: Annotated[str | None, typer.Argument(metavar="CLIENT", help="All about this one.")] = None,
    online: Annotated[bool, typer.Option("--online", help="Only those that are connected.")] = False,
    away: Annotated[bool, typer.Option("--away", help="Only those that are not, and have a session.")] = False,
    limit: Limit = None, data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Who is connected, and who is away and has a session."""
    if online and away:
        refuse("nobody is both --online and --away.", 2)
    if client is not None:
        _one(client, data_dir, as_json)
        return
    connected = True if online else False if away else None

    async def asks(asking: Asking) -> tuple[list[Client], tuple[str, ...]]:
        async def page(cursor: str) -> Page[Client]:
            return await inquiry.page(asking, cursor, connected=connected)

        return await pages(page, limit)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        table(("CLIENT", "STATE", "SESSION", "USER", "FROM", "GATEWAY", "SINCE"), [_cells(one) for one in found])
    else:
        print("there are no clients" if connected is None else "nobody is connected" if connected else "nobody with a session is away")
    end(missing)


def _one(client: str, data_dir: str, as_json: bool) -> None:
    found, missing = ask(data_dir, lambda asking: inquiry.find(asking, client))
    if found is None:
        end(missing)
        refuse(f"{client} is not connected and has no session.")
    if as_json:
        print_json(found)
    else:
        for name, value in facts(found).items():
            if value is not None:
                print(f"{name:<16} {value}")
    end(missing)


def _cells(one: Client) -> tuple[str, ...]:
    since = one.connected_at_ms if one.connected else one.disconnected_at_ms
    return (
        one.client, "online" if one.connected else "away", one.session, one.user or "-", one.peer or "-", one.gateway or "-",
        when(since) if since is not None else "-",
    )  # fmt: skip
