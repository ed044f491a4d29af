"""`holdfast sessions`: sessions that outlive their connections, of a running broker: what they have, how far behind they are, their end."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from actors.inquiry import clients as of_clients
from actors.inquiry import sessions as inquiry
from actors.inquiry import subscriptions as of_subscriptions
from actors.inquiry.asking import Asking, Page
from actors.inquiry.lag import Lag, SubscriptionLag, looking
from actors.inquiry.sessions import Session
from actors.inquiry.stored import Stored
from actors.inquiry.subscriptions import Subscription
from cli.asked import DataDir, Json, Limit, amount, ask, end, facts, number, pages, print_json, roughly, table, when
from cli.stores import refuse
from mqtt.topics import is_shared

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Sessions that outlive their connections, of a running broker.")

ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="A client id.")]
TOP = 20


@app.command()
def ls(limit: Limit = None, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """All of them."""

    async def asks(asking: Asking) -> tuple[list[Session], tuple[str, ...]]:
        async def page(cursor: str) -> Page[Session]:
            return await inquiry.page(asking, cursor)

        return await pages(page, limit)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        table(("CLIENT", "KIND", "STATE", "SUBSCRIPTIONS", "UNFINISHED", "LOSSES", "EXPIRES", "HOME"), [_cells(one) for one in found])
    else:
        print("there are no sessions that outlive their connections")
    end(missing)


@app.command()
def show(client: ClientId, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """One of them, with its subscriptions and how far it is behind."""

    async def asks(asking: Asking) -> tuple[Session, list[Subscription], Lag | None, tuple[str, ...]]:
        session, missing = await _session(asking, client)
        subscriptions, also = await of_subscriptions.of_client(asking, client)
        behind: Lag | None = None
        if session.kind == "durable":
            async with Stored(asking) as stored:
                behind, more = await inquiry.lag(asking, stored, client)
            also = (*also, *more)
        return session, subscriptions, behind, _together(missing, also)

    session, subscriptions, behind, missing = ask(data_dir, asks)
    if as_json:
        _print_show(session, subscriptions, behind)
        end(missing)
        return
    for name, value in facts(session).items():
        if value is not None:
            print(f"{name:<16} {value}")
    if behind is not None:
        print(f"{'lag':<16} {_said(behind)}")
    for one in subscriptions:
        print(f"  {one.filter}  QoS {one.qos}{_options(one)}")
    end(missing)


@app.command()
def lag(
    client: Annotated[str | None, typer.Argument(metavar="CLIENT", help="Of this one only, filter by filter.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="The so many that are furthest behind.")] = TOP,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """How many messages durable sessions are behind by, and how long until they lose some."""
    if client is not None:
        _lag_of(client, data_dir, as_json)
        return

    async def asks(asking: Asking) -> tuple[list[Lag], tuple[str, ...]]:
        async with Stored(asking) as stored:
            with looking(asking, stored) as lags:

                async def page(cursor: str) -> Page[Lag]:
                    return await inquiry.lags_page(asking, lags, cursor)

                return await pages(page, None, lambda one: bool(one.messages))

    found, missing = ask(data_dir, asks)
    found = sorted(found, key=lambda one: (-one.messages, one.client))[:top]
    if as_json:
        print_json(found)
    elif found:
        heads = ("CLIENT", "STATE", "BEHIND", "UNREAD", "UNFINISHED", "BYTES", "OLDEST", "LOSES IN")
        table(heads, [_lag_cells(one) for one in found])
    else:
        print("no durable session is behind")
    end(missing)


@app.command()
def kick(client: ClientId, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Disconnect a client, with 0x98 if it speaks MQTT 5. Its session stays, its will comes."""
    kicked, missing = ask(data_dir, lambda asking: of_clients.kick(asking, client))
    if not kicked:
        end(missing)
        refuse(f"{client} is not connected.")
    if as_json:
        print_json({"client": client, "kicked": True})
    else:
        print(f"{client} is disconnected")


@app.command()
def rm(
    client: ClientId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """End a session with everything it has; its client, if it is connected, is disconnected first. Says what is lost."""

    if is_shared(client.encode()):
        refuse(
            f"{client} is a shared group: it ends when its last member unsubscribes, or when the session of that one ends; a declared one "
            "ends with `holdfast groups drop`."
        )

    async def looks(asking: Asking) -> tuple[Session, Lag | None, tuple[str, ...]]:
        session, missing = await _session(asking, client)
        async with Stored(asking) as stored:
            behind, also = await inquiry.lag(asking, stored, client)
        return session, behind, _together(missing, also)

    session, behind, missing = ask(data_dir, looks)
    lost = _lost(session, behind, missing)
    if not yes:
        if as_json:
            refuse("say --yes with --json: nobody can be asked.", 2)
        print(lost)
        if not typer.confirm("End it?"):
            refuse(f"the session of {client} is as it was.")

    async def ends(asking: Asking) -> tuple[bool, bool]:
        kicked, _ = await of_clients.kick(asking, client)
        return kicked, await asking.destroy(client.encode(), session.session_id)

    kicked, ended = ask(data_dir, ends)
    if not ended:
        refuse(f"the session of {client} had ended, or had begun anew, before it was its turn.")
    if as_json:
        print_json(
            {
                "client": client, "kicked": kicked, "subscriptions": session.subscriptions, "messages": behind.messages if behind else None,
                "counted": behind.counted if behind else False,
            }
        )  # fmt: skip
        return
    if yes:
        print(lost)
    print(f"the session of {client} has ended{'; it was disconnected' if kicked else ''}")


# ---------------------------------------------------------------------------------------------------- asking


async def _session(asking: Asking, client: str) -> tuple[Session, tuple[str, ...]]:
    session, missing = await inquiry.find(asking, client)
    if session is None:
        end(missing)
        refuse(f"{client} has no session that outlives its connection.")
    return session, missing


def _lag_of(client: str, data_dir: str, as_json: bool) -> None:
    async def asks(asking: Asking) -> tuple[Lag | None, tuple[str, ...]]:
        async with Stored(asking) as stored:
            return await inquiry.lag(asking, stored, client)

    found, missing = ask(data_dir, asks)
    if found is None:
        end(missing)
        refuse(f"{client} has no durable session.")
    if as_json:
        print_json(found)
    else:
        print(f"{client} {_said(found)}")
        for one in found.subscriptions:
            unread = _at_least(one.unread, one.counted)
            size = f" ({amount(one.unread_bytes)})" if one.unread else ""
            print(f"  {one.filter}, shard {one.shard}: {unread} unread{size}{_oldest(one.oldest_at_ms)}{_loses_in(one)}{_gone(one.gone)}")
    end(missing)


def _together(*missing: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in missing for name in names))


# ---------------------------------------------------------------------------------------------------- words


def _print_show(session: Session, subscriptions: list[Subscription], behind: Lag | None) -> None:
    row: dict[str, Any] = facts(session)
    row["subscribed"] = facts(subscriptions)
    row["lag"] = facts(behind) if behind is not None else None
    print_json(row)


def _cells(one: Session) -> tuple[str, ...]:
    expires = "online" if one.connected else when(one.expires_at_ms) if one.expires_at_ms is not None else "never"
    return (
        one.client, one.kind, "online" if one.connected else "away", str(one.subscriptions), str(one.unfinished), str(one.losses),
        "-" if one.connected else expires, str(one.home),
    )  # fmt: skip


def _lag_cells(one: Lag) -> tuple[str, ...]:
    oldest = when(one.oldest_at_ms) if one.oldest_at_ms is not None else "-"
    mark = "" if one.counted else "≥"
    return (
        one.client, "online" if one.connected else "away", f"{mark}{one.messages}", f"{mark}{one.unread}", str(one.unfinished),
        mark + amount(one.unread_bytes), oldest, _loses(one),
    )  # fmt: skip


def _loses(one: Lag) -> str:
    if one.loss_in_ms is not None:
        return roughly(one.loss_in_ms)
    return "held" if one.held else "-"


def _said(one: Lag) -> str:
    if not one.messages:
        lost = sum(each.gone for each in one.subscriptions)
        return f"is not behind{_gone(lost)}"
    words = (
        f"is behind by {_at_least(one.messages, one.counted)}: {one.unread} unread ({amount(one.unread_bytes)}), "
        f"{one.unfinished} unfinished{_oldest(one.oldest_at_ms)}"
    )
    if one.loss_in_ms is not None:
        return f"{words}; loses some in {roughly(one.loss_in_ms)} at the earliest"
    return f"{words}; what it has not read is held"


def _loses_in(one: SubscriptionLag) -> str:
    return f", lost in {roughly(one.loss_in_ms)} at the earliest" if one.loss_in_ms is not None else ""


def _at_least(count: int, counted: bool) -> str:
    return number(count, "message") if counted else f"at least {number(count, 'message')}"


def _oldest(at_ms: int | None) -> str:
    return f", the oldest of {when(at_ms)}" if at_ms is not None else ""


def _gone(generations: int) -> str:
    return f"; {number(generations, 'generation')} behind its place went, which may have had some for it" if generations else ""


def _options(one: Subscription) -> str:
    words = [", no local"] if one.no_local else []
    words += [", retain as published"] if one.retain_as_published else []
    words += [f", identifier {one.identifier}"] if one.identifier else []
    return "".join(words)


def _lost(session: Session, behind: Lag | None, missing: tuple[str, ...]) -> str:
    what = [number(session.subscriptions, "subscription")]
    if behind is not None:
        what.append(f"{_at_least(behind.messages, behind.counted)} that it has not finished")
    elif session.kind == "memory":
        what.append(f"{number(session.unfinished, 'message')} that it has not finished")
    if session.incoming:
        what.append(f"{number(session.incoming, 'QoS 2 identifier')} of messages that it has sent")
    words = f"with the session of {session.client} go {', '.join(what)}"
    if session.will:
        words += f"; its will comes on {session.will}"
    return words + (f"; {' and '.join(missing)} did not answer, so there may be more" if missing else "")
