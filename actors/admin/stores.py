"""Retained messages, shards, generations and what they take on the disk."""

from __future__ import annotations

from enum import Enum
from typing import Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS
from actors.admin.shapes import API, LIMIT, ClientId, Cursor, Filter, Limit, composed, cut, model_of, page, page_of
from actors.inquiry import retained as of_retained
from actors.inquiry import stores as inquiry
from actors.inquiry.asking import Page
from actors.inquiry.facts import facts
from actors.inquiry.retained import RetainedMessage
from actors.inquiry.stores import Generation, Shard, Storage
from shards.slots import slot_of

StorageAnswer = composed("StorageOfBroker", model_of(Storage), missing=list[str])


class Home(BaseModel):
    client: str
    slot: int
    shard: int
    shards: int


TAGS: Final[list[str | Enum]] = ["stores"]


def add(app: FastAPI, broker: Broker) -> None:

    @app.get(f"{API}/retained", response_model=page_of(model_of(RetainedMessage)), responses=ANSWERS, tags=TAGS)
    async def retained(cursor: Cursor = "", limit: Limit = LIMIT, filter: Filter = "#") -> JSONResponse:
        """Retained messages, without their payloads; # stands for all, also those that begin with $."""
        return page(await of_retained.page(await broker.asking(), filter.encode(), cursor, limit))

    @app.get(f"{API}/shards", response_model=page_of(model_of(Shard)), responses=ANSWERS, tags=TAGS)
    async def shards(cursor: Cursor = "", limit: Limit = LIMIT) -> JSONResponse:
        """Shards, and how much is at home in each."""
        found, missing = await inquiry.shards(await broker.asking())
        rows = cut(found, cursor, limit)
        return page(Page(rows.rows, rows.cursor, missing))

    @app.get(f"{API}/shards/of/{{clientid}}", response_model=Home, responses=ANSWERS, tags=TAGS)
    async def shard_of(clientid: ClientId) -> JSONResponse:
        """The home of a client: where its session is, and everything that it publishes."""
        asking = await broker.asking()
        id = clientid.encode()
        answer = {"client": clientid, "slot": slot_of(id), "shard": asking.home_of(id), "shards": asking.topology.n_shards}
        return JSONResponse(answer)

    @app.get(f"{API}/generations", response_model=page_of(model_of(Generation)), responses=ANSWERS, tags=TAGS)
    async def generations(cursor: Cursor = "", limit: Limit = LIMIT) -> JSONResponse:
        """Generations of stored messages, by shard and number, and how long each is kept."""
        async with broker.stored() as (asking, stored):
            return page(await inquiry.generations(asking, stored, cursor, limit))

    @app.get(f"{API}/storage", response_model=StorageAnswer, responses=ANSWERS, tags=TAGS)
    async def storage() -> JSONResponse:
        """What it takes on the disk, what it may take, and what is free."""
        async with broker.stored() as (asking, stored):
            found, missing = await inquiry.storage(asking, stored)
        return JSONResponse({**facts(found), "missing": list(missing)})
