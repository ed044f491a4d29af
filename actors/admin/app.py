"""What can be asked of the admin process, put together: one module for each kind of thing, behind one guard."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response

from actors.admin import (
    bridges,
    clients,
    durable_storage,
    errors,
    figures,
    groups,
    health,
    node,
    page,
    session_tools,
    sessions,
    stores,
    topics,
)
from actors.admin.broker import Broker
from actors.admin.errors import bad_request
from actors.admin.guard import Guard, Rules
from actors.admin.health import Health
from actors.admin.keys import Keys
from actors.admin.shapes import API
from actors.metrics.scrape import CONTENT_TYPE
from actors.release import release
from actors.topology import Topology
from config.schema import Config

METRICS_PATH: Final = "/metrics"
DESCRIPTION_PATH: Final = "/api-docs"
_SUMMARY = "What runs, who is connected, what is stored and who is behind. docs/rest.md says it in words."
_READING = ("get", "head", "options")


class App:
    """Life cycle: made -> started -> stopped.  asgi: what is served."""

    def __init__(self, topology: Topology, config: Config, process: str) -> None:
        self._broker = Broker(topology, config)
        self._health = Health(self._broker)
        self._keys = Keys(topology.data_dir, topology.run_dir, process)
        self.asgi = Guard(make_app(self._broker, self._health), self._keys, Rules.of(config.admin))

    def start(self) -> None:
        self._broker.survey.start()
        self._to_ray = asyncio.get_running_loop().create_task(_tell_ray(self._broker))

    def reconfigure(self, config: Config) -> None:
        self._broker.reconfigure(config)
        # Where it listens is as it was.
        was = self.asgi.rules
        self.asgi.rules = Rules(was.host, was.loopback, config.admin.read_without_key)

    async def stop(self) -> None:
        self._to_ray.cancel()
        self._keys.stop()
        await self._health.stop()
        await self._broker.close()


async def _tell_ray(broker: Broker) -> None:
    """What it takes of Ray is loaded only where somebody may look at it."""
    plan = broker.topology.ray
    if plan.joined or plan.dashboard:
        from actors.metrics.to_ray import ToRay

        await ToRay(broker.topology, broker.scrape).run()


def make_app(broker: Broker, of_health: Health) -> FastAPI:
    app = FastAPI(
        title="Holdfast", version=release(), summary=_SUMMARY, openapi_url=DESCRIPTION_PATH, docs_url=None, redoc_url=None,
        redirect_slashes=False, dependencies=[Depends(known_parameters)],
    )  # fmt: skip
    errors.add(app)
    health.add(app, broker, of_health)
    for resource in (durable_storage, clients, sessions, session_tools, groups, bridges, topics, stores, node, figures):
        resource.add(app, broker)
    page.add(app)

    @app.get(METRICS_PATH, include_in_schema=False)
    def metrics() -> Response:
        """All figures of all processes, for Prometheus."""
        try:
            return Response(broker.scrape.text(), media_type=CONTENT_TYPE)
        except OSError as error:
            return PlainTextResponse(f"the figures cannot be read: {error.strerror}\n", status_code=503)

    app.openapi = lambda: described(app)  # type: ignore[method-assign]
    return app


async def known_parameters(request: Request) -> None:
    """A parameter that is misspelt would be left out silently."""
    if not request.url.path.startswith(API):
        return
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        wanted = f"there are {', '.join(known)}" if known else "there are none here"
        raise bad_request(f"there is no parameter {unknown[0][:60]!r}: {wanted}")


def described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, with who may what."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        found.setdefault("components", {})["securitySchemes"] = {
            "basic": {"type": "http", "scheme": "basic", "description": "Id and secret of an API key."},
            "bearer": {"type": "http", "scheme": "bearer", "description": "Id and secret of an API key with a dot between them."},
        }
        keyed: list[dict[str, list[str]]] = [{"basic": []}, {"bearer": []}]
        for path, operations in found["paths"].items():
            for method, operation in operations.items():
                for parameter in operation.get("parameters", ()):
                    parameter["schema"] = _not_null(parameter["schema"])
                if path.startswith(API):
                    # On loopback whoever is on this machine may read (admin.read_without_key).
                    operation["security"] = [{}, *keyed] if method in _READING else keyed
        app.openapi_schema = found
    return app.openapi_schema


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out has no form that says so."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **kinds[0]} if len(kinds) == 1 else schema
