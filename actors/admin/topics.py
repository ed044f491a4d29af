"""The learned topic structure as a list and as a tree, and what reading a filter costs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS, not_found
from actors.admin.flight import Shared
from actors.admin.sessions import MetaAsOf
from actors.admin.shapes import API, LIMIT, Cursor, Filter, Limit, Part, behind, composed, many, model_of, page, page_of
from actors.inquiry import topics as inquiry
from actors.inquiry.facts import facts, when
from actors.inquiry.topics import GenerationRead, Pattern

FRESH_S: Final = 10.0
KEPT_S: Final = 60.0
FILTERS_MAX: Final = 8
"""Filters whose answers are kept."""
DEPTH: Final = 3
DEPTH_MAX: Final = 16
NODES: Final = 1_000
NODES_MAX: Final = 5_000

PatternAnswer = model_of(Pattern)


class Node(BaseModel):
    """below: how many children it has, of which these are the largest.  Sums are those of everything under it."""

    level: str
    path: str
    messages: int
    bytes: int
    estimated: bool
    streams: int
    below: int
    children: list[Node]


class MetaOfTree(BaseModel):
    as_of: str
    missing: list[str]


class Tree(BaseModel):
    root: Node
    meta: MetaOfTree


Explained = composed(
    "Explained", filter=str, matching=int, counted=bool, streams=int, read=int, missing=list[str],
    generations=many(model_of(GenerationRead)),
)  # fmt: skip


@dataclass(slots=True)
class Level:
    level: str
    path: str
    messages: int = 0
    bytes: int = 0
    estimated: bool = False
    streams: int = 0
    below: dict[str, Level] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Learned:
    as_of: str
    patterns: list[Pattern]
    missing: tuple[str, ...]
    root: Level | None
    """The same as a tree, of all topics: made once, as it takes as long as many answers."""


def tree(patterns: Iterable[Pattern]) -> Level:
    root = Level("", "")
    for one in patterns:
        at, path = root, ""
        _add(at, one)
        for depth, level in enumerate(one.pattern.split("/")):
            path = f"{path}/{level}" if depth else level
            at = at.below.setdefault(level, Level(level, path))
            _add(at, one)
    return root


def _add(at: Level, one: Pattern) -> None:
    at.messages += one.messages
    at.bytes += one.bytes
    at.estimated |= one.estimated
    at.streams += one.streams


def under(root: Level, path: str) -> Level | None:
    at: Level | None = root
    for level in path.split("/"):
        at = at.below.get(level) if at is not None else None
    return at


def drawn(root: Level, depth: int, nodes: int) -> dict[str, Any]:
    """So many levels below, and nodes in all: level by level, the largest first, so that what is left out is the smallest and deepest."""
    answer = _node(root)
    waiting: list[tuple[Level, dict[str, Any]]] = [(root, answer)]
    left = nodes
    for _ in range(depth):
        following: list[tuple[Level, dict[str, Any]]] = []
        largest = sorted(((one, at) for level, at in waiting for one in level.below.values()), key=lambda pair: -pair[0].messages)
        for one, at in sorted(largest[:left], key=lambda pair: pair[0].path):
            node = _node(one)
            at["children"].append(node)
            following.append((one, node))
        left -= len(following)
        waiting = following
    return answer


def _node(at: Level) -> dict[str, Any]:
    return {
        "level": at.level, "path": at.path, "messages": at.messages, "bytes": at.bytes, "estimated": at.estimated, "streams": at.streams,
        "below": len(at.below), "children": [],
    }  # fmt: skip


TAGS: Final[list[str | Enum]] = ["topics"]


def add(app: FastAPI, broker: Broker) -> None:
    kept: OrderedDict[str, Shared[Learned]] = OrderedDict()

    async def learned(topic_filter: str) -> Learned:
        async def look() -> Learned:
            as_of = when(time.time_ns() // 1_000_000)
            async with broker.stored() as (asking, stored):
                found, missing = await inquiry.patterns(asking, stored, topic_filter.encode())
            root = await broker.look(lambda: tree(found)) if topic_filter == "#" else None
            return Learned(as_of, found, missing, root)

        shared = kept.setdefault(topic_filter, Shared(look, FRESH_S, KEPT_S))
        kept.move_to_end(topic_filter)
        if len(kept) > FILTERS_MAX:
            kept.popitem(last=False)
        return await shared.get()

    @app.get(f"{API}/topics", response_model=page_of(PatternAnswer, MetaAsOf), responses=ANSWERS, tags=TAGS)
    async def topics(cursor: Cursor = "", limit: Limit = LIMIT, filter: Filter = "#") -> JSONResponse:
        """What the topics of stored messages have in common, by pattern; + stands for a level that varies."""
        found = await learned(filter)
        rows = behind(found.patterns, lambda one: one.pattern, cursor, limit)
        return page(type(rows)(rows.rows, rows.cursor, found.missing), as_of=found.as_of)

    @app.get(f"{API}/topics/tree", response_model=Tree, responses=ANSWERS, tags=TAGS)
    async def topics_tree(
        under_: Annotated[Part | None, Query(alias="under", description="Only what is below these levels.")] = None,
        depth: Annotated[int, Query(ge=1, le=DEPTH_MAX, description="Levels.")] = DEPTH,
        limit: Annotated[int, Query(ge=1, le=NODES_MAX, description="Nodes, at most.")] = NODES,
    ) -> JSONResponse:
        """The same as a tree."""
        found = await learned("#")
        assert found.root is not None
        top = found.root if under_ is None else under(found.root, under_)
        if top is None:
            raise not_found(f"nothing is stored below {under_}")
        return JSONResponse({"root": drawn(top, depth, limit), "meta": {"as_of": found.as_of, "missing": list(found.missing)}})

    @app.get(f"{API}/topics/explain", response_model=Explained, responses=ANSWERS, tags=TAGS)
    async def explain(filter: Filter) -> JSONResponse:
        """What a session that has subscribed to a filter reads when it is behind: how many streams, and how."""
        async with broker.stored() as (asking, stored):
            found, missing = await inquiry.explain(asking, stored, filter.encode())
        return JSONResponse(
            {
                "filter": filter, "matching": sum(one.matching for one in found), "counted": all(one.counted for one in found),
                "streams": sum(one.streams for one in found), "read": sum(one.read for one in found), "missing": list(missing),
                "generations": facts(found),
            }
        )  # fmt: skip
