"""What answers look like: models for the description, made from the dataclasses of actors.inquiry, and pages of them.

Answers themselves are made by actors.inquiry.facts from the same dataclasses, and not checked again on their way out: that they are as
the description says is what the tests with schemathesis find out.
"""

from __future__ import annotations

import dataclasses
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, create_model

from actors.inquiry.asking import Page
from actors.inquiry.facts import facts
from actors.inquiry.homes import Cursor as Place
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, is_shared
from shards.rows import client_key

API: Final = "/api/v5"
LIMIT_MAX: Final = 500
LIMIT: Final = 100
QUESTIONS_MAX: Final = 20
"""Pages of the homes that one of ours may take, when few of many rows are wanted."""
LOOK_S: Final = 0.1
"""And so long: what was found by then is told."""
SLASH: Final = "\0"
"""Stands for a / that belongs to a part of a path: MQTT allows it in no text (actors.admin.guard puts it there)."""
_CURSOR = r"^([0-9]{1,3}-([0-9a-f]{2})*)?$"
TEXT = r"^[^\x00]+$"
_LEVEL = r"[^+#/\x00]"
_FILTER = rf"^(#|(\+|{_LEVEL}*)(/(\+|{_LEVEL}*)){{0,126}}(/#)?)$"
GROUP: Final = (
    rf"^\$share/{_LEVEL}+/(#|/#|(\+|{_LEVEL}+)(/(\+|{_LEVEL}*)){{0,126}}(/#)?|(/(\+|{_LEVEL}*)){{1,126}}(/#)?)$"
)  # fmt: skip
_TOPIC = rf"^{_LEVEL}*(/{_LEVEL}*){{0,127}}$"
ID_CHARS_MAX: Final = 16_384
TEXT_CHARS_MAX: Final = 4_096
"""So that what is asked fits into the head of a request (actors.admin.server), however it is written."""
Row = TypeVar("Row")


class Meta(BaseModel):
    """cursor: for the next page; empty: these were the last.  missing: processes that did not answer."""

    cursor: str
    hasnext: bool
    missing: list[str]


# ---------------------------------------------------------------------------------------------------- what is asked with


def whole(text: str) -> str:
    return text.replace(SLASH, "/")


def _filter(text: str) -> str:
    try:
        found = check_topic_filter(text)
    except ProtocolError as error:
        raise ValueError(f"no topic filter: {error}") from None
    if is_shared(found):
        raise ValueError("it begins with $share; name the topics themselves")
    return text


Cursor = Annotated[str, Query(pattern=_CURSOR, max_length=140_000, description="`meta.cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Rows of a page, at most.")]
ClientId = Annotated[
    str, Path(min_length=1, max_length=ID_CHARS_MAX, pattern=TEXT, description="A client id; a / as %2F."), BeforeValidator(whole)
]
Filter = Annotated[
    str, Query(min_length=1, max_length=TEXT_CHARS_MAX, pattern=_FILTER, description="A topic filter."), AfterValidator(_filter)
]
TopicName = Annotated[str, Query(min_length=1, max_length=TEXT_CHARS_MAX, pattern=_TOPIC, description="A topic name, without wildcards.")]
Part = Annotated[str, Query(min_length=1, max_length=TEXT_CHARS_MAX, pattern=TEXT, description="What the client id has somewhere.")]


# ---------------------------------------------------------------------------------------------------- what is answered


def page(found: Page[Row], shown: Callable[[Row], Any] = facts, **meta: Any) -> JSONResponse:
    return listed([shown(row) for row in found.rows], found.missing, found.cursor, **meta)


def listed(rows: Sequence[Any], missing: Sequence[str] = (), cursor: str = "", **meta: Any) -> JSONResponse:
    """rows: as JSON has them."""
    return JSONResponse({"data": list(rows), "meta": {"cursor": cursor, "hasnext": bool(cursor), "missing": list(missing), **meta}})


def cut(rows: Sequence[Row], cursor: str, limit: int) -> Page[Row]:
    """A page of a list that is there as a whole; its cursor counts."""
    start = int.from_bytes(Place.parse(cursor).key, "big")
    end = start + limit
    return Page(tuple(rows[start:end]), str(Place(0, end.to_bytes(4, "big"))) if end < len(rows) else "")


def behind(rows: Sequence[Row], key: Callable[[Row], str], cursor: str, limit: int) -> Page[Row]:
    """The same for a list in the order of this key, which may be another one when the next page is asked for."""
    after = Place.parse(cursor).key.decode(errors="replace")
    start = bisect_right(rows, after, key=key) if cursor else 0
    found = rows[start : start + limit]
    return Page(tuple(found), str(Place(0, key(found[-1]).encode())) if start + limit < len(rows) else "")


async def gathered(
    ask: Callable[[str, int], Awaitable[Page[Row]]],
    cursor: str,
    limit: int,
    wanted: Callable[[Row], bool] = lambda _: True,
    behind: Callable[[Row], str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Page[Row]:
    """One of our pages out of several.  ask: for the one at a cursor, with so many rows at most.  behind: the cursor behind a row, where
    few of many are wanted and many are asked for therefore.  Short, and with a cursor, when many had to be looked at for few."""
    rows: list[Row] = []
    away: dict[str, None] = {}
    until_s = clock() + LOOK_S
    for _ in range(QUESTIONS_MAX):
        found = await ask(cursor, LIMIT_MAX if behind is not None else limit - len(rows))
        away.update(dict.fromkeys(found.missing))
        rows += filter(wanted, found.rows)
        cursor = found.cursor
        if behind is not None and len(rows) > limit:
            rows = rows[:limit]
            cursor = behind(rows[-1])
        if not cursor or len(rows) >= limit or clock() >= until_s:
            break
    return Page(tuple(rows), cursor, tuple(away))


def behind_client(home: int, client: str) -> str:
    """The cursor of lists of clients and of sessions."""
    return str(Place(home, client_key(b"", client.encode())))


def page_of(row: Any, meta: type[BaseModel] = Meta) -> Any:
    return composed(f"PageOf{row.__name__}", data=many(row), meta=meta)


def composed(name: str, base: Any = None, **fields: Any) -> Any:
    """A class of pydantic of what is known when it runs."""
    declared: dict[str, Any] = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(name, __base__=base, **declared)


def many(row: Any) -> Any:
    return list[row]


@cache
def model_of(kind: Any) -> Any:
    """Of a dataclass, with the names that facts() gives: a class of pydantic."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name.endswith("_at_ms"):
            optional = NoneType in get_args(hints[field.name])
            fields[field.name.removesuffix("_ms")] = (datetime | None if optional else datetime, ...)
        else:
            fields[field.name] = (_modelled(hints[field.name]), ...)
    return create_model(kind.__name__, __doc__=kind.__doc__, **fields)


def _modelled(hint: Any) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return model_of(hint)
    if get_origin(hint) is tuple:
        return list[_modelled(get_args(hint)[0])]  # type: ignore[misc]
    if get_origin(hint) in (UnionType, Union):
        return Union[tuple(_modelled(each) for each in get_args(hint))]  # noqa: UP007 - the parts are known when it runs
    return hint
