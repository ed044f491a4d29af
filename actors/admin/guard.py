"""What stands before everything that is answered: from where a request comes, who asks, what he may do, and how much at a time.

What is below /api is for keys, or, as far as it is only read, for whoever is on this machine (docs/rest.md); a browser is such a one, and
the pages it shows are not: those of others are told apart by the headers that browsers put on their requests and pages cannot change.

Always holds: nothing that changes anything is passed on without a key of scope write, and a word in the log of whose it is; a body that is
passed on has been read as a whole, so nobody who sends slowly keeps anything but a place here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from access.api_keys import ApiKey
from actors.admin.errors import Refused, bad_request, too_many
from actors.admin.keys import Keys, wrong_key
from actors.admin.shapes import SLASH
from config.admin import Admin

REQUESTS_MAX: Final = 16
"""Below /api, at a time."""
BODY_BYTES_MAX: Final = 64 << 10
BODY_WITHIN_S: Final = 10.0
BY: Final = "holdfast.by"
"""In the scope of a request: who asks, when he has shown a key."""
_BELOW: Final = "/api/"
_PATH_SHOWN: Final = 200
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""A proxy says that somebody else asks."""
_THIS_MACHINE: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"), (b"referrer-policy", b"no-referrer"))
_OF_API: Final = ((b"cache-control", b"no-store"), (b"cross-origin-resource-policy", b"same-origin"))


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """As the settings have it.  loopback: only this machine reaches us.  host: where we listen."""

    host: str
    loopback: bool
    read_without_key: bool

    @classmethod
    def of(cls, admin: Admin) -> Rules:
        return cls(admin.listen.host.lower(), is_loopback(admin.listen.host), admin.read_without_key)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Guard:
    def __init__(self, app: ASGIApp, keys: Keys, rules: Rules) -> None:
        self._app = app
        self._keys = keys
        self.rules = rules
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        in_api = scope["path"].startswith(_BELOW)

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ALWAYS, *(_OF_API if in_api else ())]
            await send(message)

        try:
            self._from_where(headers)
            if not in_api:
                await self._app(scope, receive, answering)
                return
            self._which_page(headers)
            scope = {**scope, "path": _path(scope)}
            key = await self._may(scope["method"], headers)
            if key is not None:
                scope[BY] = f"key:{key.name}"
                if scope["method"] not in _READING:
                    log.info("admin.changes", by=scope[BY], method=scope["method"], path=scope["path"].replace(SLASH, "%2F")[:_PATH_SHOWN])
            if self._requests >= REQUESTS_MAX:
                raise too_many(f"{REQUESTS_MAX} requests are being answered")
        except Refused as refused:
            await refused.answer()(scope, receive, answering)
            return
        self._requests += 1
        try:
            body = await _body(headers, receive)
            await self._app(scope, _told_again(body, receive), answering)
        except Refused as refused:
            await refused.answer()(scope, receive, answering)
        finally:
            self._requests -= 1

    def _from_where(self, headers: dict[str, str]) -> None:
        """Raises Refused for a name that somebody else has turned to this machine."""
        # No browser leaves the name out.
        if not self.rules.loopback or "authorization" in headers or "host" not in headers:
            return
        host = _name(headers["host"])
        if host not in _THIS_MACHINE and host != self.rules.host:
            raise Refused(
                421, "MISDIRECTED", f"this is localhost, and {host[:100]!r} was asked; with an API key, any name is right (docs/rest.md)"
            )

    def _which_page(self, headers: dict[str, str]) -> None:
        """Raises Refused for what a page of somebody else lets a browser send."""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") or (origin is not None and urlsplit(origin).netloc != headers.get("host")):
            raise Refused(403, "FORBIDDEN", "a page of another site has no business here")

    async def _may(self, method: str, headers: dict[str, str]) -> ApiKey | None:
        """The key that was shown.  Raises Refused."""
        shown = headers.get("authorization")
        if shown is not None:
            key = await self._keys.who(shown)
            if method not in _READING and key.scope != "write":
                raise Refused(403, "UNAUTHORIZED_ROLE", f"the API key {key.name} may read, and not change anything")
            return key
        if method not in _READING:
            raise wrong_key("an API key of scope write is wanted to change anything")
        if not self.rules.loopback:
            raise wrong_key("an API key is wanted, since admin.listen is not on loopback")
        if not self.rules.read_without_key:
            raise wrong_key("an API key is wanted (admin.read_without_key)")
        if any(name in headers for name in _FORWARDED):
            raise wrong_key("an API key is wanted of whoever comes by a proxy")
        return None


def _name(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _path(scope: Scope) -> str:
    """Part by part, so that a / that belongs to a client id divides nothing.  Raises Refused."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        parts = [unquote_to_bytes(part).decode() for part in raw.split(b"/")]
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None
    if any(SLASH in part for part in parts):
        raise bad_request("the path has a %00")
    return "/".join(part.replace("/", SLASH) for part in parts)


async def _body(headers: dict[str, str], receive: Receive) -> bytes:
    """Raises Refused."""
    said = headers.get("content-length", "0")
    if said.isdecimal() and int(said[:20]) > BODY_BYTES_MAX:
        raise _too_large()
    body = b""
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return b""
                part: bytes = message.get("body", b"")
                body += part
                if len(body) > BODY_BYTES_MAX:
                    raise _too_large()
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        raise Refused(408, "REQUEST_TIMEOUT", f"the body has not come within {BODY_WITHIN_S:.0f} s") from None


def _too_large() -> Refused:
    return Refused(413, "PAYLOAD_TOO_LARGE", f"the body has more than {BODY_BYTES_MAX} bytes", {"Connection": "close"})


def _told_again(body: bytes, receive: Receive) -> Receive:
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
