"""The broker as a whole: what runs, what is amiss, and the settings in force."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from enum import Enum
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS
from actors.admin.shapes import API, LIMIT, Cursor, Limit, composed, cut, many, model_of, page, page_of
from actors.alarms import Alarm, read_alarms
from actors.census import Row, take_census
from actors.inquiry.facts import when
from actors.inquiry.findings import Finding
from actors.inquiry.findings import look as look_for_findings
from actors.release import release
from actors.snapshot import read_snapshot
from actors.topology import ListenerInfo, Topology
from config.load import from_json
from config.schema import Config
from config.secrets import Secret
from config.settings import settings_in, value_at

HIDDEN: Final = "(not shown)"


Listening = composed("Listening", model_of(ListenerInfo), gateway=str)
"""gateway: the process whose listener it is."""
Status = composed(
    "Status", ready=bool, version=str, site=str, data_dir=str, started_at=datetime,
    listeners=many(Listening), processes=many(model_of(Row)), alarms=many(model_of(Alarm)),
)  # fmt: skip


class Settings(BaseModel):
    """version 0: as at the start of this run."""

    version: int
    settings: dict[str, Any]


TAGS: Final[list[str | Enum]] = ["broker"]


def add(app: FastAPI, broker: Broker) -> None:
    topology = broker.topology

    @app.get(f"{API}/status", response_model=Status, responses=ANSWERS, tags=TAGS)
    async def status() -> JSONResponse:
        """Every process of the broker, its listeners and alarms."""
        return JSONResponse(await broker.look(lambda: status_of(topology)))

    @app.get(f"{API}/alarms", response_model=page_of(model_of(Alarm)), responses=ANSWERS, tags=TAGS)
    async def alarms(cursor: Cursor = "", limit: Limit = LIMIT) -> JSONResponse:
        """What somebody must look at although everything runs."""
        return page(cut(await broker.look(lambda: read_alarms(topology.run_dir)), cursor, limit))

    @app.get(f"{API}/findings", response_model=page_of(model_of(Finding)), responses=ANSWERS, tags=TAGS)
    async def findings(cursor: Cursor = "", limit: Limit = LIMIT) -> JSONResponse:
        """What is wrong with this installation, in sentences, the serious first."""
        found = await broker.look(lambda: look_for_findings(topology.data_dir, topology.store_dir, broker.config, inside=True))
        return page(cut(found, cursor, limit))

    @app.get(f"{API}/config", response_model=Settings, responses=ANSWERS, tags=TAGS)
    async def config() -> JSONResponse:
        """The settings in force. Where secrets lie is not shown."""
        return JSONResponse(await broker.look(lambda: settings_of(topology)))


def status_of(topology: Topology) -> dict[str, Any]:
    """In a thread."""
    census = take_census(topology.data_dir, inside=True)
    return {
        "ready": census.ready, "version": release(), "site": topology.site.upper(), "data_dir": str(topology.data_dir),
        "started_at": when(round((topology.run_dir / "topology.json").stat().st_mtime * 1000)),
        "listeners": [{**dataclasses.asdict(listener), "gateway": listener.owner} for listener in census.listeners],
        "processes": [dataclasses.asdict(row) for row in census.processes],
        "alarms": [dataclasses.asdict(alarm) for alarm in census.alarms],
    }  # fmt: skip


def settings_of(topology: Topology) -> dict[str, Any]:
    """In a thread."""
    snapshot = read_snapshot(topology)
    return {"version": snapshot.version, "settings": without_secrets(from_json(snapshot.config), json.loads(snapshot.config))}


def without_secrets(config: Config, settings: dict[str, Any]) -> dict[str, Any]:
    """settings: the same as JSON."""
    for key in settings_in(config):
        if isinstance(place := value_at(config, key), Secret) and place:
            *above, name = key.split(".")
            at = settings
            for part in above:
                at = at[part]
            at[name] = HIDDEN
    return settings
