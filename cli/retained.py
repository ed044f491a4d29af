"""`holdfast retained`: the retained messages of a running broker, without their payloads."""

from __future__ import annotations

from typing import Annotated

import typer

from actors.inquiry import retained as inquiry
from actors.inquiry.asking import Asking, Page
from actors.inquiry.retained import RetainedMessage
from cli.asked import DataDir, Json, Limit, ask, end, pages, print_json, table, when
from cli.typed import checked_filter


def retained(
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="# stands for all, also those that begin with $.")] = "#",
    limit: Limit = None, data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Retained messages: topics, sizes, who has published them."""
    wanted = checked_filter(topic_filter).encode()

    async def asks(asking: Asking) -> tuple[list[RetainedMessage], tuple[str, ...]]:
        async def page(cursor: str) -> Page[RetainedMessage]:
            return await inquiry.page(asking, wanted, cursor)

        return await pages(page, limit)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        table(("TOPIC", "BYTES", "QOS", "PUBLISHER", "PUBLISHED", "EXPIRES"), [_cells(one) for one in found])
    else:
        print("there are no retained messages" if topic_filter == "#" else f"no retained message matches {topic_filter}")
    end(missing)


def _cells(one: RetainedMessage) -> tuple[str, ...]:
    expires = when(one.expires_at_ms) if one.expires_at_ms is not None else "-"
    return one.topic, str(one.bytes), str(one.qos), one.publisher or "-", when(one.published_at_ms), expires
