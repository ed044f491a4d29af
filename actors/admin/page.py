"""The admin page (docs/admin-page.md): the files of `web`, read once and held in memory.

The index names the others by a path with a digest of all of them in it, so a browser keeps those for ever and asks for the index alone.

It is made of what REST answers and of nothing else, so this module knows no broker.  Nothing on it comes from another place, and its
policy forbids the browser to ask there; what clients have named is text to it, and the policy forbids reading that as HTML too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

WEB: Final = Path(__file__).parent / "web"
INDEX: Final = "index.html"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Beside those that every answer has (actors.admin.guard)."""
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ALWAYS_ASK: Final = "no-cache"
"""Told 304 while it is the same: no browser shows a page of another version of the broker."""
KEEP: Final = "public, max-age=31536000, immutable"
PARTS: Final = "/page/"
_PRELOADS: Final = b"<!-- preloads -->"
_CLASSIC: Final = "theme.js"
"""Runs before anything is painted, so it is no module."""


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    type: str
    etag: str


@dataclass(frozen=True, slots=True)
class Files:
    """version: stands in the paths of all but the index."""

    by_name: dict[str, File]
    version: str


def read_files(directory: Path = WEB) -> Files:
    """The index names all modules, so that a browser asks for them at once and not one after the other has named the next."""
    bodies = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in _TYPES}
    version = _digest(*[part for name, body in bodies.items() for part in (name.encode(), body)])
    modules = [name for name in bodies if name.endswith(".js") and name != _CLASSIC]
    links = "\n".join([f'<link rel="modulepreload" href="{PARTS}{name}">' for name in modules])
    index = bodies[INDEX].replace(_PRELOADS, links.encode())
    bodies[INDEX] = index.replace(f'"{PARTS}'.encode(), f'"{PARTS}{version}/'.encode())
    return Files({name: File(body, _TYPES[Path(name).suffix], f'"{_digest(body)}"') for name, body in bodies.items()}, version)


def add(app: FastAPI) -> None:
    """`/`, and what it is made of."""
    files = read_files()

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return _told(request, files.by_name[INDEX], ALWAYS_ASK)

    @app.api_route(PARTS + "{version}/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def part(request: Request, version: str, name: str) -> Response:
        if name not in files.by_name or name == INDEX:
            raise HTTPException(404)
        # Of another version it is there too, for who has loaded the index just before a change.
        return _told(request, files.by_name[name], KEEP if version == files.version else ALWAYS_ASK)


def _told(request: Request, file: File, caching: str) -> Response:
    headers = {**HEADERS, "Cache-Control": caching, "ETag": file.etag}
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or file.etag in [one.strip().removeprefix("W/") for one in known.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.type, headers=headers)


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=12).hexdigest()
