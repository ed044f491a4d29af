"""Sites, shards and replicas, with the paths, fields and errors of EMQX (docs/rest.md)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final, Literal

from fastapi import Body, FastAPI, Path, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS, Error, bad_request, not_found
from actors.admin.shapes import API
from actors.inquiry.sites import STORAGE, Refused, ShardInfo, Sites, declare_lost, force_leader, forget, join, leave, look, set_replicas
from actors.sites.asked import ask, ask_info
from actors.sites.forcing import ACCEPTED

DISABLED = "Durable storage is disabled"
SITES_MAX = 100
_NOT_THERE: dict[int | str, dict[str, Any]] = ANSWERS | {404: {"model": Error, "description": f"Not found, or {DISABLED.lower()}."}}
_TAKEN: dict[int | str, dict[str, Any]] = {
    **_NOT_THERE,
    202: {"description": "It is, or will be, so."},
    400: {"model": Error, "description": "The set of replicas cannot be like that."},
}
SiteId = Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[^\x00]+$", description="A site id.")]
StorageName = Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[^\x00]+$", description="messages.")]
NewSites = Annotated[
    list[Annotated[str, Body(max_length=100)]], Body(max_length=SITES_MAX, description="All sites that are to have replicas.")
]
ShardName = Annotated[str, Path(min_length=1, max_length=10, pattern=r"^(\d+|all)$", description="A number, or all.")]
Status = Literal["up", "down", "lost"]
Change = Literal["joining", "leaving"]


class NewLeader(BaseModel):
    """accept_data_loss: what the replica of this site lacks is lost, and that is accepted."""

    model_config = ConfigDict(extra="forbid")

    site: Annotated[str, Field(min_length=1, max_length=100)]
    accept_data_loss: bool = False


class ShardOfSite(BaseModel):
    storage: str
    id: str
    status: Status
    transition: Change | None = None


class SiteAnswer(BaseModel):
    node: str
    up: bool
    shards: list[ShardOfSite]


class ReplicaAnswer(BaseModel):
    site: str
    status: Status


class TransitionAnswer(BaseModel):
    site: str
    transition: Change


class ShardOfStorage(BaseModel):
    id: str
    replicas: list[ReplicaAnswer]
    transitions: list[TransitionAnswer]


class StorageAnswer(BaseModel):
    name: str
    shards: list[ShardOfStorage]


TAGS: Final[list[str | Enum]] = ["durable storage"]


def add(app: FastAPI, broker: Broker) -> None:
    ds = f"{API}/ds"
    enabled: dict[int | str, dict[str, Any]] = _NOT_THERE

    async def sites() -> Sites:
        if not broker.config.durable_sessions.enable:
            raise not_found(DISABLED)
        if broker.topology.sites is not None:
            return await ask_info(broker.topology)
        return await broker.look(lambda: look(broker.topology.data_dir))

    async def change(verb: str, here: Callable[[], object], *words: str) -> None:
        """here: what one site says."""
        try:
            if broker.topology.sites is not None:
                await ask(broker.topology, verb, *words)
            else:
                here()
        except Refused as error:
            raise bad_request(str(error)) from None

    @app.get(f"{ds}/sites", response_model=list[str], responses=enabled, tags=TAGS)
    async def site_ids() -> JSONResponse:
        """The ids of all sites."""
        return JSONResponse([one.site for one in (await sites()).sites])

    @app.get(f"{ds}/sites/{{site}}", response_model=SiteAnswer, responses=enabled, tags=TAGS)
    async def site_of(site: SiteId) -> JSONResponse:
        """A site, and the replicas that it has."""
        known = await sites()
        return JSONResponse(of_site(known, _site(known, site)))

    @app.put(f"{ds}/sites/{{site}}/forget", status_code=204, response_class=Response, responses=_TAKEN, tags=TAGS)
    async def forget_site(site: SiteId) -> Response:
        """Forget a site that does not come back."""
        known = await sites()
        id = _site(known, site)
        await change("forget", lambda: forget(known, id), id)
        return Response(status_code=204)

    @app.put(f"{ds}/sites/{{site}}/lost", status_code=204, response_class=Response, responses=_TAKEN, tags=TAGS)
    async def lose_site(site: SiteId) -> Response:
        """Say that a site that is down does not come back."""
        known = await sites()
        id = _site(known, site)
        await change("lost", lambda: declare_lost(known, id), id)
        return Response(status_code=204)

    @app.get(f"{ds}/storages", response_model=list[str], responses=enabled, tags=TAGS)
    async def storages() -> JSONResponse:
        """The names of all storages."""
        await sites()
        return JSONResponse([STORAGE])

    @app.get(f"{ds}/storages/{{ds}}", response_model=StorageAnswer, responses=enabled, tags=TAGS)
    async def storage(ds: StorageName) -> JSONResponse:
        """A storage with its shards and their replicas."""
        known = await sites()
        _storage(ds)
        return JSONResponse({"name": STORAGE, "shards": [of_shard(one, known.lost) for one in known.shards]})

    @app.get(f"{ds}/storages/{{ds}}/replicas", response_model=list[str], responses=enabled, tags=TAGS)
    async def replicas(ds: StorageName) -> JSONResponse:
        """The sites that have replicas of it."""
        known = await sites()
        _storage(ds)
        return JSONResponse(list(dict.fromkeys(replica.site for one in known.shards for replica in one.replicas)))

    @app.put(f"{ds}/storages/{{ds}}/replicas", status_code=202, response_model=Literal["OK"], responses=_TAKEN, tags=TAGS)
    async def set_all(ds: StorageName, wanted: NewSites) -> JSONResponse:
        """Say which sites have replicas."""
        known = await sites()
        _storage(ds)
        await change("set-replicas", lambda: set_replicas(known, wanted), *wanted)
        return JSONResponse("OK", 202)

    @app.put(f"{ds}/storages/{{ds}}/replicas/{{site}}", status_code=202, response_model=Literal["OK"], responses=_TAKEN, tags=TAGS)
    async def add_replica(ds: StorageName, site: SiteId) -> JSONResponse:
        """Let a site have replicas."""
        known = await sites()
        _storage(ds)
        await change("join", lambda: join(known, site), site)
        return JSONResponse("OK", 202)

    @app.delete(f"{ds}/storages/{{ds}}/replicas/{{site}}", status_code=202, response_model=Literal["OK"], responses=_TAKEN, tags=TAGS)
    async def remove_replica(ds: StorageName, site: SiteId) -> JSONResponse:
        """Let a site have no replicas any more."""
        known = await sites()
        _storage(ds)
        if site.upper() not in {replica.site for one in known.shards for replica in one.replicas}:
            raise not_found("Site is not part of replica set")
        await change("leave", lambda: leave(known, site), site)
        return JSONResponse("OK", 202)

    @app.put(f"{ds}/storages/{{ds}}/shards/{{shard}}/leader", status_code=202, response_model=Literal["OK"], responses=_TAKEN, tags=TAGS)
    async def force(ds: StorageName, shard: ShardName, wanted: NewLeader) -> JSONResponse:
        """Go on from the replica of one site: the others that were in sync are gone for good."""
        known = await sites()
        _storage(ds)
        words = (shard, wanted.site, ACCEPTED if wanted.accept_data_loss else "")
        await change("force-leader", lambda: force_leader(known, shard, wanted.site), *words)
        return JSONResponse("OK", 202)


def of_site(known: Sites, site: str) -> dict[str, Any]:
    (one,) = [each for each in known.sites if each.site == site]
    shards: list[dict[str, Any]] = []
    for shard in known.shards:
        moving = _moving(shard)
        for replica in shard.replicas:
            if replica.site == site:
                about = {"storage": shard.storage, "id": str(shard.shard), "status": _status(replica.up, site in known.lost)}
                shards.append(about | ({"transition": moving[site]} if site in moving else {}))
    return {"node": one.node, "up": one.up, "shards": shards}


def of_shard(shard: ShardInfo, lost: frozenset[str] = frozenset()) -> dict[str, Any]:
    return {
        "id": str(shard.shard),
        "replicas": [{"site": replica.site, "status": _status(replica.up, replica.site in lost)} for replica in shard.replicas],
        "transitions": [{"site": site, "transition": change} for site, change in _moving(shard).items()],
    }


def _moving(shard: ShardInfo) -> dict[str, Change]:
    """By site: `+site` and `-site` are what `ds info` shows."""
    return {text[1:]: "joining" if text.startswith("+") else "leaving" for text in shard.transitions}


def _status(up: bool, lost: bool) -> Status:
    return "lost" if lost else "up" if up else "down"


def _site(known: Sites, site: str) -> str:
    if site.upper() not in [one.site for one in known.sites]:
        raise not_found(f"Site not found: {site}")
    return site.upper()


def _storage(name: str) -> None:
    if name != STORAGE:
        raise not_found(f"Durable storage not found: {name}")
