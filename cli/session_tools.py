"""`holdfast sessions peek`, `skip`, `rewind`, `purge`: what can be done with a durable session, online or away (docs/session-tools.md)."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from actors.inquiry.asking import Asking
from actors.inquiry.moving import Done, NotMoved, Senseless, Target, Verb, move
from actors.inquiry.peeking import COUNT_MAX, Peek, Peeked
from actors.inquiry.peeking import peek as peeked
from actors.inquiry.stored import Stored
from cli.asked import DataDir, Json, amount, ask, end, number, print_json, table, when
from cli.stores import refuse
from cli.typed import checked_filter

ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="A client id.")]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="PLACE", help="A time (2026-11-20T08:00:00Z), a span (2h: so long ago), earliest, latest, or SHARD:POSITION."
    ),
]
Filter = Annotated[str | None, typer.Option("--filter", metavar="FILTER", help="Only the subscription with this filter.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
PEEKED = 20


def peek(
    client: ClientId,
    limit: Annotated[int, typer.Option("--limit", min=1, max=COUNT_MAX, metavar="N", help="No more than so many.")] = PEEKED,
    only: Filter = None,
    payload: Annotated[bool, typer.Option("--payload", help="With payloads, in JSON as base64.")] = False,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """What a durable session would be given next; nothing is moved."""
    wanted = None if only is None else checked_filter(only)

    async def asks(asking: Asking) -> tuple[Peek | None, tuple[str, ...]]:
        async with Stored(asking) as stored:
            return await peeked(asking, stored, client, wanted, limit, payload)

    found, missing = ask(data_dir, asks)
    if found is None:
        end(missing)
        refuse(f"{client} has no durable session.")
    if as_json:
        print_json(found)
    elif found.messages:
        heads = ("STATE", "PLACE", "TOPIC", "QOS", "PUBLISHED", "PUBLISHER", "BYTES", *(("PAYLOAD",) if payload else ()))
        table(heads, [_cells(one) for one in found.messages])
        if not found.whole:
            print("there is more")
    else:
        print(f"nothing waits for {client}")
    end(missing)


def skip(client: ClientId, to: To, only: Filter = None, yes: Yes = False, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Leave out what is stored up to a place, and was not given to the session yet. Never goes back."""
    _move("skip", client, to, only, yes, data_dir, as_json, f"what is stored up to there for {client} will not be delivered to it")


def rewind(client: ClientId, to: To, only: Filter = None, yes: Yes = False, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Give what is stored from a place on once more, as far as it is still there. Never goes forward."""
    _move("rewind", client, to, only, yes, data_dir, as_json, f"what is stored from there on for {client} will be delivered again")


def purge(client: ClientId, only: Filter = None, yes: Yes = False, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Leave out all that is stored now, and what the session was given and has not got. Its subscriptions stay."""
    _move("purge", client, "latest", only, yes, data_dir, as_json, f"nothing of what is stored now for {client} will be delivered to it")


def _move(what: Verb, client: str, to: str, only: str | None, yes: bool, data_dir: str, as_json: bool, means: str) -> None:
    wanted = None if only is None else checked_filter(only)
    try:
        target = Target.parse(to)
    except Senseless as error:
        refuse(f"{error}.", 2)
    if not yes:
        if as_json:
            refuse("say --yes with --json: nobody can be asked.", 2)
        print(means + (f" by its subscription {only}" if only is not None else ""))
        if not typer.confirm("Do it?"):
            refuse(f"the session of {client} is as it was.")

    async def moves(asking: Asking) -> Done | None:
        async with Stored(asking) as stored:
            return await move(asking, stored, client, what, target, wanted, f"cli:{getpass.getuser()}")

    try:
        done = ask(data_dir, moves)
    except NotMoved as error:
        refuse(f"{error}.")
    except Senseless as error:
        refuse(f"{error}.", 2)
    if done is None:
        refuse(f"{client} has no durable session.")
    if as_json:
        print_json(done)
        return
    closed = (
        f"; {number(done.closed, 'message')} that it had been given {'is' if done.closed == 1 else 'are'} given up" if done.closed else ""
    )
    print(f"{number(done.places, 'place')} of {client} moved{closed}")


def _cells(one: Peeked) -> tuple[str, ...]:
    at = "-" if one.shard is None else f"{one.shard}:{one.position}"
    cells = (
        "given" if one.given else "unread", at, one.topic, str(one.qos), when(one.published_at_ms), one.publisher or "-", amount(one.bytes),
    )  # fmt: skip
    return cells if one.payload is None else (*cells, one.payload[:60])
