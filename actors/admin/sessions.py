"""Sessions that outlive their connections, and how far they are behind."""

from __future__ import annotations

import time
from enum import Enum
from typing import Annotated, Any, Final, Optional

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from actors.admin.broker import Broker
from actors.admin.clients import NOT_THERE
from actors.admin.errors import ANSWERS, missing, not_found
from actors.admin.flight import Shared
from actors.admin.shapes import (
    API,
    LIMIT,
    ClientId,
    Cursor,
    Limit,
    Meta,
    Part,
    behind_client,
    composed,
    gathered,
    listed,
    model_of,
    page,
    page_of,
)
from actors.inquiry import sessions as inquiry
from actors.inquiry.asking import Page
from actors.inquiry.clients import COUNT_MAX
from actors.inquiry.facts import facts, when
from actors.inquiry.lag import Lag, looking
from actors.inquiry.sessions import Session

TOP_MAX: Final = 100
TOP: Final = 20
FURTHEST_FRESH_S: Final = 30.0
COUNTED_AT_ONCE_MAX: Final = 5_000
"""Sessions that are gone over when somebody asks, in a second or so; where there are more he is told what the last survey has found."""
WITH_LAG_MAX: Final = COUNT_MAX
"""Sessions of one page of which it is told: each is read in the store."""

LagAnswer = model_of(Lag)
SessionAnswer = composed("SessionAnswer", model_of(Session), lag=Optional[LagAnswer])  # noqa: UP045 - it is known when it runs
OneSession = composed("OneSession", SessionAnswer, missing=list[str])


class MetaAsOf(Meta):
    as_of: str


def shown(row: tuple[Session, Lag | None]) -> dict[str, Any]:
    session, lag = row
    return {**facts(session), "lag": facts(lag)}


TAGS: Final[list[str | Enum]] = ["sessions"]


def add(app: FastAPI, broker: Broker) -> None:

    @app.get(f"{API}/sessions", response_model=page_of(SessionAnswer), responses=ANSWERS, tags=TAGS)
    async def sessions(
        cursor: Cursor = "", limit: Limit = LIMIT, like_clientid: Annotated[Part | None, Query()] = None,
        lag: Annotated[bool, Query(description="With how far each is behind; at most 100 rows.")] = False,
    ) -> JSONResponse:  # fmt: skip
        """All that outlive their connections."""

        def wanted(client: str) -> bool:
            return like_clientid is None or like_clientid in client

        if not lag:
            asking = await broker.asking()

            async def ask(cursor: str, count: int) -> Page[tuple[Session, Lag | None]]:
                found = await inquiry.page(asking, cursor, count)
                return Page(tuple((one, None) for one in found.rows), found.cursor, found.missing)

            behind = None if like_clientid is None else lambda row: behind_client(row[0].home, row[0].client)
            return page(await gathered(ask, cursor, limit, lambda row: wanted(row[0].client), behind), shown)
        async with broker.stored() as (asking, stored):
            with looking(asking, stored) as lags:

                async def with_lag(cursor: str, count: int) -> Page[tuple[Session, Lag | None]]:
                    return await inquiry.page_with_lag(asking, lags, cursor, count, wanted)

                found = await gathered(with_lag, cursor, min(limit, WITH_LAG_MAX))
            return page(found, shown)

    @app.get(f"{API}/sessions/{{clientid}}", response_model=OneSession, responses=ANSWERS | NOT_THERE, tags=TAGS)
    async def session(clientid: ClientId) -> JSONResponse:
        """One of them, with how far it is behind."""
        async with broker.stored() as (asking, stored):
            one, away = await inquiry.find(asking, clientid)
            if one is None:
                if away:
                    raise missing(away)
                raise not_found(f"{clientid} has no session that outlives its connection", "CLIENTID_NOT_FOUND")
            behind, also = await inquiry.lag(asking, stored, clientid)
            return JSONResponse({**shown((one, behind)), "missing": list(dict.fromkeys((*away, *also)))})

    async def furthest() -> tuple[str, list[Lag], tuple[str, ...]]:
        last = broker.survey.last
        if last is not None and last.sessions > COUNTED_AT_ONCE_MAX:
            return when(last.began_at_ms), list(last.furthest), last.missing
        as_of = when(time.time_ns() // 1_000_000)
        away: dict[str, None] = {}
        found: list[Lag] = []
        async with broker.stored() as (asking, stored):
            with looking(asking, stored) as lags:
                cursor, more = "", True
                while more:
                    rows = await inquiry.lags_page(asking, lags, cursor)
                    away.update(dict.fromkeys(rows.missing))
                    found += [one for one in rows.rows if one.messages]
                    found = sorted(found, key=lambda one: (-one.messages, one.client))[:TOP_MAX]
                    cursor, more = rows.cursor, bool(rows.cursor)
        return as_of, found, tuple(away)

    shared = Shared(furthest, FURTHEST_FRESH_S)

    @app.get(f"{API}/lag", response_model=page_of(LagAnswer, MetaAsOf), responses=ANSWERS, tags=TAGS)
    async def lag_of_all(top: Annotated[int, Query(ge=1, le=TOP_MAX, description="So many at most.")] = TOP) -> JSONResponse:
        """Those of all durable sessions that are furthest behind, the furthest first."""
        as_of, found, away = await shared.get()
        return listed(facts(found[:top]), away, as_of=as_of)
