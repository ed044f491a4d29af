"""How commands ask a running broker (actors.inquiry), and how they say what they were told.

What not everybody has answered is printed all the same; who is missing is said on standard error, and the command ends with code 3.
The JSON forms are interfaces: fields are added, never renamed; times are in RFC 3339, in UTC.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

import typer

from actors.asking import NotReached, running
from actors.inquiry.asking import Asking, Page
from actors.inquiry.facts import facts as facts
from actors.inquiry.facts import when as when
from cli.paths import data_path
from cli.stores import refuse
from config.values import Duration

DataDir = Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker that is meant.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="No more than so many.")]
IN_PART = 3
Result = TypeVar("Result")
Row = TypeVar("Row")


def ask(data_dir: str, asks: Callable[[Asking], Coroutine[Any, Any, Result]]) -> Result:
    """Ends the command with one sentence when nothing runs there."""

    async def linked() -> Result:
        async with Asking(topology) as asking:
            return await asks(asking)

    try:
        topology = running(data_path(data_dir))
        return asyncio.run(linked())
    except NotReached as error:
        refuse(f"{error}.")


async def pages(
    of: Callable[[str], Awaitable[Page[Row]]], limit: int | None, wanted: Callable[[Row], bool] = lambda _: True
) -> tuple[list[Row], tuple[str, ...]]:
    """All rows, or the first ones, and who is missing in them.  of: the page at a cursor."""
    missing: dict[str, None] = {}
    found: list[Row] = []
    async for page in _each(of):
        missing.update(dict.fromkeys(page.missing))
        found += filter(wanted, page.rows)
        if limit is not None and len(found) >= limit:
            return found[:limit], tuple(missing)
    return found, tuple(missing)


async def _each(of: Callable[[str], Awaitable[Page[Row]]]) -> AsyncIterator[Page[Row]]:
    cursor = ""
    while True:
        page = await of(cursor)
        yield page
        cursor = page.cursor
        if not cursor:
            return


def end(missing: Sequence[str]) -> None:
    """The last words of a command that has printed what it was told."""
    if missing:
        print(f"holdfast: not all is here: {' and '.join(missing)} did not answer.", file=sys.stderr)
        raise typer.Exit(IN_PART)


# ---------------------------------------------------------------------------------------------------- words


def print_json(value: Any) -> None:
    print(json.dumps(facts(value)))


def roughly(ms: int) -> str:
    """A span, to the second."""
    return str(Duration(max(1000, ms - ms % 1000)))


def amount(size: float) -> str:
    """Bytes, as people say them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def number(count: int, what: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be; numbers to the right."""
    widths = [max([len(head), *(len(row[at]) for row in rows)]) for at, head in enumerate(heads)]
    right = [bool(rows) and all(row[at].replace(",", "").lstrip("≥").isdecimal() for row in rows) for at in range(len(heads))]
    for row in (heads, *rows):
        cells = [cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(row, widths, right, strict=True)]
        print("  ".join(cells).rstrip())
