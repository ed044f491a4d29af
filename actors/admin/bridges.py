"""Bridges: what carries stored messages elsewhere, or brings messages in (docs/bridge.md)."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final, Optional

from fastapi import FastAPI, Path, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS, Error, away, bad_request, conflict, not_found
from actors.admin.guard import BY
from actors.admin.session_tools import TO_CHARS_MAX
from actors.admin.sessions import LagAnswer
from actors.admin.shapes import API, composed, listed, model_of
from actors.bridge import managing
from actors.bridge.managing import BridgeInfo, Refused
from actors.bridge.session import client_id
from actors.inquiry import sessions
from actors.inquiry.facts import facts
from actors.inquiry.moving import WORDS, Done, NotMoved, Senseless, Target, Verb, move

TAGS: Final[list[str | Enum]] = ["bridges"]
BridgeAnswer = model_of(BridgeInfo)
OneBridge = composed("OneBridge", BridgeAnswer, lag=Optional[LagAnswer], missing=list[str])  # noqa: UP045 - it is known when it runs
_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
Name = Annotated[str, Path(pattern=_NAME, description="Of the bridge.")]
_FORMS: Final[dict[str, Any]] = {"anyOf": [{"format": "date-time"}, {"pattern": WORDS}]}
_SETTINGS_MAX: Final = 200
_NOT_THERE: Final[dict[int | str, dict[str, Any]]] = {404: {"model": Error, "description": "There is no such bridge."}}
_CONFLICT: Final[dict[int | str, dict[str, Any]]] = {409: {"model": Error, "description": "It is not as it would have to be."}}
Value = bool | int | str | list[str]


class NewBridge(BaseModel):
    """settings: by their keys below the bridge, such as {"filter": "plant/#", "type": "jsonl", "jsonl.path": "out.jsonl"}."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=_NAME)]
    settings: Annotated[dict[str, Value], Field(max_length=_SETTINGS_MAX)]


class Where(BaseModel):
    """to: a time of RFC 3339, a span (so long ago), earliest, latest, or SHARD:POSITION."""

    model_config = ConfigDict(extra="forbid")

    to: Annotated[str, Field(min_length=1, max_length=TO_CHARS_MAX, json_schema_extra=_FORMS)]


class BridgesAnswer(BaseModel):
    data: list[BridgeAnswer]  # type: ignore[valid-type]  # it is made when this is loaded
    meta: dict[str, Any]


class Ended(BaseModel):
    """session_ended: there was something that was kept for it, or could have been.  left_there: of a bridge inwards, why its session at the
    other broker may still be there; empty: it is not."""

    session_ended: bool
    left_there: str


class Paused(BaseModel):
    paused: bool


def add(app: FastAPI, broker: Broker) -> None:

    @app.get(f"{API}/bridges", response_model=BridgesAnswer, responses=ANSWERS, tags=TAGS)
    async def bridges() -> JSONResponse:
        """All of them, and how they are."""
        return listed([facts(each) for each in await broker.look(lambda: managing.bridges(broker.topology))])

    @app.get(f"{API}/bridges/{{name}}", response_model=OneBridge, responses=ANSWERS | _NOT_THERE, tags=TAGS)
    async def bridge_(name: Name) -> JSONResponse:
        """One of them, with how far it is behind; of one inwards nobody here knows that, and `lag` is null."""
        found = await broker.look(lambda: managing.bridge(broker.topology, name))
        if found is None:
            raise _no_bridge(name)
        if found.direction == "in":
            return JSONResponse({**facts(found), "lag": None, "missing": []})
        async with broker.stored() as (asking, stored):
            behind, gone = await sessions.lag(asking, stored, client_id(name))
        return JSONResponse({**facts(found), "lag": facts(behind), "missing": list(gone)})

    @app.post(f"{API}/bridges", response_model=BridgeAnswer, responses=ANSWERS | _CONFLICT, tags=TAGS)
    async def make(bridge: NewBridge) -> JSONResponse:
        """Make one; the answer comes when everything is kept for it, or after a while."""
        unknown = [key for key in bridge.settings if not managing.known_key(key)]
        if unknown:
            raise conflict(f"{unknown[0][:60]!r} is no setting of a bridge")
        try:
            await managing.add(broker.topology, bridge.name, bridge.settings, from_afar=True)
        except Refused as error:
            raise conflict(_sentence(error)) from None
        await managing.online(broker.topology, bridge.name)
        return JSONResponse(facts(await broker.look(lambda: managing.bridge(broker.topology, bridge.name))))

    async def pause_or_resume(name: str, paused: bool) -> JSONResponse:
        try:
            await managing.set_paused(broker.topology, name, paused)
        except Refused as error:
            raise _no_bridge(name) if managing.bridge(broker.topology, name) is None else conflict(_sentence(error)) from None
        return JSONResponse({"paused": paused})

    @app.post(f"{API}/bridges/{{name}}/pause", response_model=Paused, responses=ANSWERS | _NOT_THERE | _CONFLICT, tags=TAGS)
    async def pause(name: Name) -> JSONResponse:
        """Carry nothing, and keep everything."""
        return await pause_or_resume(name, True)

    @app.post(f"{API}/bridges/{{name}}/resume", response_model=Paused, responses=ANSWERS | _NOT_THERE | _CONFLICT, tags=TAGS)
    async def resume(name: Name) -> JSONResponse:
        """Go on where it was."""
        return await pause_or_resume(name, False)

    async def moved(request: Request, name: str, what: Verb, to: str) -> JSONResponse:
        waits = await broker.look(lambda: managing.elsewhere(broker.topology, name))
        if waits:
            raise conflict(f"what {name} brings in waits {waits}: there is no place of it here to move")
        try:
            target = Target.parse(to)
            async with broker.stored() as (asking, stored):
                done = await move(asking, stored, client_id(name), what, target, None, request.scope[BY])
        except Senseless as error:
            raise bad_request(str(error)) from None
        except NotMoved as error:
            raise away(str(error)) from None
        if done is None:
            raise _no_bridge(name)
        return JSONResponse(facts(done))

    @app.post(f"{API}/bridges/{{name}}/rewind", response_model=model_of(Done), responses=ANSWERS | _NOT_THERE | _CONFLICT, tags=TAGS)
    async def rewind(name: Name, request: Request, where: Where) -> JSONResponse:
        """Carry what is stored from a place on once more."""
        return await moved(request, name, "rewind", where.to)

    @app.post(f"{API}/bridges/{{name}}/skip", response_model=model_of(Done), responses=ANSWERS | _NOT_THERE | _CONFLICT, tags=TAGS)
    async def skip(name: Name, request: Request, where: Where) -> JSONResponse:
        """Leave out what is stored up to a place and not carried yet."""
        return await moved(request, name, "skip", where.to)

    @app.delete(f"{API}/bridges/{{name}}", response_model=Ended, responses=ANSWERS | _NOT_THERE | _CONFLICT, tags=TAGS)
    async def remove(name: Name) -> JSONResponse:
        """End it, with its settings and everything that is kept for it."""
        if await broker.look(lambda: managing.bridge(broker.topology, name)) is None:
            raise _no_bridge(name)
        try:
            return JSONResponse(facts(await managing.remove(await broker.asking(), name)))
        except Refused as error:
            raise conflict(_sentence(error)) from None


def _no_bridge(name: str) -> Exception:
    return not_found(f"there is no bridge {name}")


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".")
