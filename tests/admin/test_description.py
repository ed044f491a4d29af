"""What /api-docs says, and the page for people."""

from __future__ import annotations

import re
from pathlib import Path

from actors.admin.app import App, make_app
from actors.admin.broker import Broker
from actors.admin.health import Health
from config.load import load
from tests.actors.places import topology_in
from tests.admin.asked import ask
from tests.admin.described import description, operations
from tests.house.tree import ROOT


def test_every_path_is_on_the_page_and_every_path_of_the_page_is_there() -> None:
    """With its method."""
    text = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    named = {f"{method} {path}" for method, path in re.findall(r"`(GET|PUT|POST|DELETE) (/(?:api|health)/[^`?]*)", text)}
    assert named == set(operations())


def test_what_changes_anything_takes_a_key_and_what_reads_may_go_without() -> None:
    """By the description, as by the guard."""
    found = description()
    assert found["openapi"].startswith("3.1.") and set(found["components"]["securitySchemes"]) == {"basic", "bearer"}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/"):
                assert ({} in operation["security"]) is (method == "get"), (method, path)
            else:
                assert "security" not in operation
            assert operation["description"].endswith("."), (method, path)


async def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """A path, a method, a parameter that is none, one that is misspelt, a cursor, a body."""
    broker = Broker(topology_in(tmp_path), load(environ={}))
    health = Health(broker)
    app = make_app(broker, health)
    try:
        for target, method, wanted, said in (
            ("/api/v5/client", "GET", (404, "NOT_FOUND"), "there is no /api/v5/client here"),
            ("/api/v5/clients", "PATCH", (405, "METHOD_NOT_ALLOWED"), "PATCH is not for this path, only GET"),
            ("/api/v5/clients?limit=0", "GET", (400, "BAD_REQUEST"), "limit: input should be greater than or equal to 1, found '0'"),
            ("/api/v5/clients?limits=1", "GET", (400, "BAD_REQUEST"), "there is no parameter 'limits': there are cursor, limit"),
            ("/api/v5/clients?cursor=x", "GET", (400, "BAD_REQUEST"), "cursor: not of the form"),
            ("/api/v5/retained?filter=a/%23/b", "GET", (400, "BAD_REQUEST"), "filter: not of the form"),
            ("/api/v5/topics/explain", "GET", (400, "BAD_REQUEST"), "filter: field required"),
            ("/api/v5/topics/explain?filter=$share/g/a", "GET", (400, "BAD_REQUEST"), "it begins with $share"),
            ("/api/v5/ds/storages/messages/replicas", "PUT", (400, "BAD_REQUEST"), "body: field required"),
        ):
            answer = await ask(app, target, method)
            assert answer.code == wanted and said in answer.json["message"], (target, answer.json)
            assert answer.status != 405 or answer.headers["allow"] == "GET"
    finally:
        await health.stop()
        await broker.close()


async def test_while_durable_sessions_are_off_there_is_no_durable_storage(tmp_path: Path) -> None:
    """In the words of the design, at once when the setting changes."""
    broker = Broker(topology_in(tmp_path), load(environ={}))
    health = Health(broker)
    app = make_app(broker, health)
    try:
        assert (await ask(app, "/api/v5/ds/storages")).json == ["messages"]
        broker.reconfigure(load(sets=("durable_sessions.enable=false",), environ={}))
        for target in ("/api/v5/ds/storages", "/api/v5/ds/sites", "/api/v5/ds/storages/messages"):
            assert (await ask(app, target)).json == {"code": "NOT_FOUND", "message": "Durable storage is disabled"}
    finally:
        await health.stop()
        await broker.close()


async def test_whether_reading_takes_a_key_changes_at_once(tmp_path: Path) -> None:
    """With `holdfast reload`; the process is the same."""
    app = App(topology_in(tmp_path), load(environ={}), "admin-0")
    app.start()
    try:
        assert (await ask(app.asgi, "/api/v5/ds/storages")).json == ["messages"]
        app.reconfigure(load(sets=("admin.read_without_key=false",), environ={}))
        assert (await ask(app.asgi, "/api/v5/ds/storages")).status == 401
    finally:
        await app.stop()
