"""What can be done with a durable session, online or away: look what comes next, skip, rewind, purge (docs/session-tools.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from actors.admin.broker import Broker
from actors.admin.clients import NOT_THERE
from actors.admin.errors import ANSWERS, away, bad_request, missing, not_found
from actors.admin.guard import BY
from actors.admin.keys import wrong_key
from actors.admin.shapes import API, ClientId, Filter, composed, model_of
from actors.inquiry.facts import facts
from actors.inquiry.moving import WORDS, Done, NotMoved, NotThere, Senseless, Target, Verb, move
from actors.inquiry.peeking import COUNT_MAX, Peek, peek

PEEKED: Final = 20
TO_CHARS_MAX: Final = 100
TAGS: Final[list[str | Enum]] = ["sessions"]
PeekAnswer = composed("PeekAnswer", model_of(Peek), missing=list[str])
Limit = Annotated[int, Query(ge=1, le=COUNT_MAX, description="Messages, at most.")]
Payload = Annotated[bool, Query(description="With the first bytes of payloads, in base64; takes an API key.")]
OnlyFilter = Annotated[str | None, Field(min_length=1, max_length=4_096, description="Only the subscription with this filter.")]
_FORMS: Final[dict[str, Any]] = {"anyOf": [{"format": "date-time"}, {"pattern": WORDS}]}


class Where(BaseModel):
    """to: a time of RFC 3339, a span (so long ago), earliest, latest, or SHARD:POSITION."""

    model_config = ConfigDict(extra="forbid")

    to: Annotated[str, Field(min_length=1, max_length=TO_CHARS_MAX, json_schema_extra=_FORMS)]
    filter: OnlyFilter = None


class Which(BaseModel):
    model_config = ConfigDict(extra="forbid")

    filter: OnlyFilter = None


def add(app: FastAPI, broker: Broker) -> None:

    @app.get(f"{API}/sessions/{{clientid}}/messages", response_model=PeekAnswer, responses=ANSWERS | NOT_THERE, tags=TAGS)
    async def messages(
        clientid: ClientId,
        request: Request,
        limit: Limit = PEEKED,
        filter: Annotated[Filter | None, Query()] = None,
        payload: Payload = False,
    ) -> JSONResponse:
        """What the session would be given next; nothing is moved."""
        if payload and BY not in request.scope:
            raise wrong_key("an API key is wanted to see payloads")
        async with broker.stored() as (asking, stored):
            found, gone = await peek(asking, stored, clientid, filter, limit, payload)
        if found is None:
            raise missing(gone) if gone else _no_session(clientid)
        return JSONResponse({**facts(found), "missing": list(gone)})

    async def moved(request: Request, client: str, what: Verb, to: str, filter: str | None) -> JSONResponse:
        try:
            target = Target.parse(to)
            async with broker.stored() as (asking, stored):
                done = await move(asking, stored, client, what, target, filter, request.scope[BY])
        except Senseless as error:
            raise bad_request(str(error)) from None
        except NotThere as error:
            raise not_found(str(error)) from None
        except NotMoved as error:
            raise away(str(error)) from None
        if done is None:
            raise _no_session(client)
        return JSONResponse(facts(done))

    Answer = Callable[..., Awaitable[JSONResponse]]

    def post(verb: Verb, of: Answer) -> None:
        answers: dict[int | str, dict[str, Any]] = ANSWERS | NOT_THERE
        app.post(f"{API}/sessions/{{clientid}}/{verb}", response_model=model_of(Done), responses=answers, tags=TAGS)(of)

    async def skip(clientid: ClientId, request: Request, where: Where) -> JSONResponse:
        """Leave out what is stored up to a place, and was not given to the session yet."""
        return await moved(request, clientid, "skip", where.to, where.filter)

    async def rewind(clientid: ClientId, request: Request, where: Where) -> JSONResponse:
        """Give what is stored from a place on once more, as far as it is still there."""
        return await moved(request, clientid, "rewind", where.to, where.filter)

    async def purge(clientid: ClientId, request: Request, which: Annotated[Which | None, Body()] = None) -> JSONResponse:
        """Leave out all that is stored now, and what the session was given and has not got."""
        return await moved(request, clientid, "purge", "latest", which.filter if which is not None else None)

    post("skip", skip)
    post("rewind", rewind)
    post("purge", purge)


def _no_session(client: str) -> Exception:
    return not_found(f"{client} has no durable session", "CLIENTID_NOT_FOUND")
