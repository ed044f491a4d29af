"""Asks an application of ASGI as a server would, without a socket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

HOST = "127.0.0.1:18083"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> tuple[int, str]:
        """Of an answer that is no."""
        return self.status, self.json["code"]


async def ask(
    app: ASGIApp, target: str, method: str = "GET", headers: dict[str, str] | None = None, parts: Sequence[bytes] = (b"",)
) -> Answer:
    """target: as it stands in the request.  headers: an empty one is left out.  parts: of the body, as they come."""
    path, _, query = target.partition("?")
    given = {"host": HOST, **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "root_path": "",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value], "client": None, "server": None,
    }  # fmt: skip
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
    coming.append({"type": "http.request", "body": parts[-1], "more_body": False})
    sent: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], head, b"".join(message.get("body", b"") for message in sent[1:]))
