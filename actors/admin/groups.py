"""Shared groups of durable sessions, and those that are there without members (docs/groups.md)."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final, Optional

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS, Error, away, bad_request, conflict, missing, not_found
from actors.admin.guard import BY
from actors.admin.sessions import LagAnswer
from actors.admin.shapes import API, GROUP, LIMIT, TEXT, TEXT_CHARS_MAX, Cursor, Limit, composed, gathered, model_of, page, page_of, whole
from actors.inquiry import groups as inquiry
from actors.inquiry import sessions
from actors.inquiry.asking import Page
from actors.inquiry.facts import facts
from actors.inquiry.groups import BEGINS, Gone, Group, NotThere, NotYet, Refused, Start, Strategy, checked_group
from actors.inquiry.moving import Senseless

TAGS: Final[list[str | Enum]] = ["groups"]
GroupAnswer = model_of(Group)
OneGroup = composed("OneGroup", GroupAnswer, lag=Optional[LagAnswer], missing=list[str])  # noqa: UP045 - it is known when it runs
_FORMS: Final[dict[str, Any]] = {"anyOf": [{"format": "date-time"}, {"pattern": BEGINS}]}
_BEGINS_CHARS_MAX: Final = 100
GroupName = Annotated[
    str, Path(min_length=1, max_length=TEXT_CHARS_MAX, pattern=TEXT, description="$share/NAME/FILTER; a / as %2F."), BeforeValidator(whole)
]
_NOT_THERE: Final[dict[int | str, dict[str, Any]]] = {404: {"model": Error, "description": "There is no such group."}}
_CONFLICT: Final[dict[int | str, dict[str, Any]]] = {409: {"model": Error, "description": "It is not as it would have to be."}}


class Declaration(BaseModel):
    """begins: a time of RFC 3339, a span (so long ago), earliest, or latest, which is now."""

    model_config = ConfigDict(extra="forbid")

    group: Annotated[str, Field(pattern=GROUP, max_length=TEXT_CHARS_MAX, description="$share/NAME/FILTER.")]
    begins: Annotated[str, Field(min_length=1, max_length=_BEGINS_CHARS_MAX, json_schema_extra=_FORMS)] = "latest"
    strategy: Annotated[Strategy | None, Field(description="Null: as it is configured.")] = None


def add(app: FastAPI, broker: Broker) -> None:

    @app.get(f"{API}/groups", response_model=page_of(GroupAnswer), responses=ANSWERS, tags=TAGS)
    async def groups(cursor: Cursor = "", limit: Limit = LIMIT) -> JSONResponse:
        """All of them, declared or not."""
        asking = await broker.asking()

        async def ask(cursor: str, count: int) -> Page[Group]:
            return await inquiry.page(asking, cursor, count)

        return page(await gathered(ask, cursor, limit))

    @app.get(f"{API}/groups/{{group}}", response_model=OneGroup, responses=ANSWERS | _NOT_THERE, tags=TAGS)
    async def group_(group: GroupName) -> JSONResponse:
        """One of them, with how far it is behind."""
        async with broker.stored() as (asking, stored):
            found, gone = await inquiry.find(asking, group)
            if found is None:
                raise missing(gone) if gone else not_found(f"there is no group {group}")
            behind, also = await sessions.lag(asking, stored, group)
            return JSONResponse({**facts(found), "lag": facts(behind), "missing": list(dict.fromkeys((*gone, *also)))})

    @app.post(f"{API}/groups", response_model=GroupAnswer, responses=ANSWERS | _CONFLICT, tags=TAGS)
    async def declare(declaration: Declaration, request: Request) -> JSONResponse:
        """Let a group be there without members: what is published is kept for it from now on, or from earlier on."""
        try:
            name, start = checked_group(declaration.group), Start.parse(declaration.begins)
            found = await inquiry.declare(await broker.asking(), name, start, declaration.strategy, request.scope[BY])
        except Senseless as error:
            raise bad_request(str(error)) from None
        except Refused as error:
            raise conflict(str(error)) from None
        except NotYet as error:
            raise away(str(error)) from None
        return JSONResponse(facts(found))

    @app.delete(f"{API}/groups/{{group}}", response_model=model_of(Gone), responses=ANSWERS | _NOT_THERE | _CONFLICT, tags=TAGS)
    async def drop(
        group: GroupName, request: Request,
        force: Annotated[bool, Query(description="Also with members: it is left to them, and ends with the last of them.")] = False,
    ) -> JSONResponse:  # fmt: skip
        """Declare a group no more: without members it ends, with all that waits for it."""
        try:
            return JSONResponse(facts(await inquiry.drop(await broker.asking(), group, force, request.scope[BY])))
        except NotThere as error:
            raise not_found(str(error)) from None
        except Refused as error:
            raise conflict(str(error)) from None
        except NotYet as error:
            raise away(str(error)) from None
