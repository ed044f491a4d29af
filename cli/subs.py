"""`holdfast subs`: who has subscribed to what on a running broker, online or away."""

from __future__ import annotations

from typing import Annotated

import typer

from actors.inquiry import subscriptions as inquiry
from actors.inquiry.asking import Asking, Page
from actors.inquiry.subscriptions import Subscription
from cli.asked import DataDir, Json, Limit, ask, end, pages, print_json, table
from cli.stores import refuse
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name, is_shared, matched_filter, matches


def subs(
    client: Annotated[str | None, typer.Option("--client", metavar="CLIENT", help="Of this client only.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only those that match this topic.")] = None,
    limit: Limit = None, data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Who has subscribed to what."""
    name = _checked(topic) if topic is not None else None

    def wanted(one: Subscription) -> bool:
        filter = one.filter.encode()
        return name is None or matches(matched_filter(filter) if is_shared(filter) else filter, name)

    async def asks(asking: Asking) -> tuple[list[Subscription], tuple[str, ...]]:
        if client is not None:
            found, missing = await inquiry.of_client(asking, client)
            return [one for one in found if wanted(one)][:limit], missing

        async def page(cursor: str) -> Page[Subscription]:
            return await inquiry.page(asking, cursor)

        return await pages(page, limit, wanted)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        table(("CLIENT", "FILTER", "QOS", "SESSION", "STORED"), [_cells(one) for one in found])
    else:
        print("there are no such subscriptions" if client or topic else "there are no subscriptions")
    end(missing)


def _cells(one: Subscription) -> tuple[str, ...]:
    return one.client, one.filter, str(one.qos), one.session, "yes" if one.stored else "no"


def _checked(topic: str) -> bytes:
    try:
        return check_topic_name(topic)
    except ProtocolError as error:
        refuse(f"{topic!r} is no topic: {error}.", 2)
