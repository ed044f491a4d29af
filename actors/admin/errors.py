"""Answers that are no: a status, a code for programs, and one sentence for people."""

from __future__ import annotations

from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from actors.asking import NotReached
from actors.inquiry.homes import BadCursor
from actors.reader.shard_side import ShardAway
from shards.engine import StoreFailed

AGAIN_S: Final = 2
"""After so long somebody may ask again whom nobody had time for."""
_FOUND_CHARS_MAX: Final = 60

log = structlog.get_logger(__name__)


class Error(BaseModel):
    code: str
    message: str


ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": Error, "description": "The request cannot be, or may not be: `message` says why."},
    503: {"model": Error, "description": "Who would have to answer is away: `message` says who."},
}
"""What any request below /api may get instead of its answer."""


class Refused(Exception):
    """Becomes the answer.  message: a sentence without its full stop."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})

    def answer(self) -> JSONResponse:
        return JSONResponse({"code": self.code, "message": self.message}, self.status, self.headers)


def bad_request(message: str) -> Refused:
    return Refused(400, "BAD_REQUEST", message)


def not_found(message: str, code: str = "NOT_FOUND") -> Refused:
    return Refused(404, code, message)


def conflict(message: str) -> Refused:
    return Refused(409, "CONFLICT", message)


def no_client(client: str) -> Refused:
    return not_found(f"{client} is not connected and has no session", "CLIENTID_NOT_FOUND")


def too_many(message: str) -> Refused:
    return Refused(429, "TOO_MANY_REQUESTS", message, {"Retry-After": str(AGAIN_S)})


def away(message: str) -> Refused:
    return Refused(503, "SERVICE_UNAVAILABLE", message, {"Retry-After": str(AGAIN_S)})


def missing(names: tuple[str, ...]) -> Refused:
    """For what only they could have answered."""
    return away(f"{' and '.join(names)} did not answer")


def add(app: FastAPI) -> None:
    """Whatever is raised while a request is answered becomes an answer of this form."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _of_routing)
    app.add_exception_handler(BadCursor, _bad_cursor)
    for kind in (NotReached, ShardAway, StoreFailed):
        app.add_exception_handler(kind, _away)
    app.add_exception_handler(Exception, _fault)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return error.answer()


async def _bad_cursor(_: Request, error: Exception) -> JSONResponse:
    return bad_request(str(error)).answer()


async def _away(_: Request, error: Exception) -> JSONResponse:
    return away(str(error)).answer()


async def _not_valid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return bad_request(sentence(error.errors()[0])).answer()


def sentence(wrong: Any) -> str:
    """wrong: the first of what pydantic found."""
    where, *which = wrong["loc"]
    name = ".".join(str(part) for part in which) or str(where)
    said = "not of the form that /api-docs has" if wrong["type"] == "string_pattern_mismatch" else str(wrong["msg"])
    found = repr(wrong.get("input"))
    found = found if len(found) <= _FOUND_CHARS_MAX else f"{found[:_FOUND_CHARS_MAX]}..."
    return f"{name}: {said[:1].lower()}{said[1:]}" + ("" if wrong["type"] in ("missing", "json_invalid") else f", found {found}")


async def _of_routing(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return not_found(f"there is no {request.url.path[:200]} here; /api-docs says what there is").answer()
    if error.status_code == 405:
        allowed = sorted({method for route in request.app.routes if _at(route, request) for method in route.methods or ()})
        return Refused(
            405, "METHOD_NOT_ALLOWED", f"{request.method} is not for this path, only {', '.join(allowed)}", {"Allow": ", ".join(allowed)}
        ).answer()
    code = "BAD_REQUEST" if error.status_code < 500 else "INTERNAL_ERROR"
    return Refused(error.status_code, code, str(error.detail), dict(error.headers or {})).answer()


def _at(route: Any, request: Request) -> bool:
    return hasattr(route, "methods") and route.matches(request.scope)[0] is not Match.NONE


async def _fault(request: Request, error: Exception) -> JSONResponse:
    """A mistake of ours; nobody else's request suffers from it."""
    log.error("admin.fault", method=request.method, path=request.url.path[:200], exc_info=error)
    return Refused(500, "INTERNAL_ERROR", "this should not have happened; the log of the admin process says more").answer()
