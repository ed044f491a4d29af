"""One request to one endpoint of etcd, by the JSON gateway that etcd has on its client port; and what an error means for the request.

etcd has no maintained client for Python, and three kinds of request need none: a range, a transaction, a login.  What went wrong is told
apart by what it says of the request, since that decides who may ask again:

    NotExecuted     etcd has not done it and will not: the next endpoint may be asked
    Unsure          it may have been done, or be done yet
    NotLoggedIn     not done; the token is not known any more

and whether a person has to mend it (`mistake`).  Sentences name the endpoint and what to do, never a password or a token.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

RESPONSE_BYTES_MAX = 96 << 20
"""More than any answer to a list has: LISTED_MAX values of VALUE_BYTES_MAX in base64."""
CONNECT_SHARE = 0.5
"""So much of the time of a request may pass before there is a connection.  Without one nothing was sent."""
CONNECTIONS_MAX = 16
OLDEST = (3, 4)
_NO_TLS = "what answers does not speak TLS: is its address one with http://?"
_FAULTY = ((3, 5, 0), (3, 5, 2))
"""From and to: these can lose their members' consistency in a crash, and their own makers say not to use them."""


class Failed(Exception):
    """mistake: it does not get better by itself."""

    def __init__(self, what: str, *, mistake: bool = False) -> None:
        super().__init__(what)
        self.mistake = mistake


class NotExecuted(Failed):
    pass


class Unsure(Failed):
    pass


class NotLoggedIn(NotExecuted):
    pass


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files; empty: none.  ca: whom to believe instead of the system's.  cert and key: who we are."""

    ca: str = ""
    cert: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    body: dict[str, Any]
    cluster: str


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Raises Failed."""
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise Failed(f"register.tls.ca = {tls.ca}: {_reason(error)}", mistake=True) from None
    if tls.cert:
        try:
            context.load_cert_chain(tls.cert, tls.key or None)
        except (OSError, ssl.SSLError) as error:
            raise Failed(f"register.tls.cert = {tls.cert} with register.tls.key = {tls.key}: {_reason(error)}", mistake=True) from None
    return context


class EtcdHttp:
    """Connections to all endpoints, made when they are needed, on the loop that asks first."""

    def __init__(self, tls: Tls | None, timeout_s: float) -> None:
        """timeout_s: for each request, from the call to the last byte of its answer."""
        self._context = tls_context(tls) if tls is not None else None
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, endpoint: str, path: str, body: dict[str, object] | None, token: str = "") -> Answer:
        """body: None for a GET.  Raises NotExecuted, Unsure or NotLoggedIn."""
        session = self._session = self._session or self._new_session()
        headers = {"Authorization": token} if token else {}
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        try:
            async with session.request(method, endpoint + path, data=data, headers=headers, allow_redirects=False) as response:
                status, text = response.status, await _bounded(response, endpoint)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _of_transport(endpoint, error, self._timeout_s) from None
        return _answer(endpoint, path, status, text)

    async def cluster(self, endpoint: str) -> str:
        """Which cluster it is a member of.  Raises what `ask` raises; NotExecuted with a mistake for a version that must not be used."""
        try:
            answer = await self.ask(endpoint, "/version", None)
        except Failed as error:
            # etcd hangs up on who does not speak as it does, and so it does when it goes down.
            if not error.mistake and endpoint.startswith("http://") and await self._speaks(endpoint, tls=True):
                raise NotExecuted(f"{endpoint}: etcd speaks TLS there: its address begins with https://", mistake=True) from None
            if not error.mistake and endpoint.startswith("https://") and await self._speaks(endpoint, tls=False):
                raise NotExecuted(f"{endpoint}: {_NO_TLS}", mistake=True) from None
            raise
        said = str(answer.body.get("etcdserver", ""))
        numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", said)
        if numbers is None:
            raise NotExecuted(f"{endpoint}: what answers is no etcd", mistake=True)
        version = tuple(map(int, numbers.groups()))
        if version < OLDEST:
            raise NotExecuted(f"{endpoint}: etcd {said} is too old, wanted 3.4 or later", mistake=True)
        if _FAULTY[0] <= version <= _FAULTY[1]:
            raise NotExecuted(f"{endpoint}: etcd {said} can corrupt its data in a crash, wanted 3.5.3 or later", mistake=True)
        return (await self.ask(endpoint, "/v3/maintenance/status", {})).cluster

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _speaks(self, endpoint: str, *, tls: bool) -> bool:
        """Whether HTTP, or TLS, is answered there.  Nothing of ours is sent."""
        context = ssl.create_default_context() if tls else None
        if context is not None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = urlsplit(endpoint)
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=context)
                try:
                    if not tls:
                        writer.write(b"GET /version HTTP/1.0\r\n\r\n")
                        return (await reader.read(5)).startswith(b"HTTP/")
                finally:
                    writer.close()
        except OSError:
            return False
        return True

    def _new_session(self) -> aiohttp.ClientSession:
        times = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=self._timeout_s * CONNECT_SHARE)
        connector = aiohttp.TCPConnector(ssl=self._context or True, limit_per_host=CONNECTIONS_MAX)
        return aiohttp.ClientSession(connector=connector, timeout=times, trust_env=False, cookie_jar=aiohttp.DummyCookieJar())


async def _bounded(response: aiohttp.ClientResponse, endpoint: str) -> bytes:
    pieces: list[bytes] = []
    left = RESPONSE_BYTES_MAX
    async for piece in response.content.iter_chunked(1 << 16):
        left -= len(piece)
        if left < 0:
            raise Unsure(f"{endpoint}: an answer of more than {RESPONSE_BYTES_MAX} bytes", mistake=True)
        pieces.append(piece)
    return b"".join(pieces)


# ---- what an error means


def _of_transport(endpoint: str, error: Exception, timeout_s: float) -> Failed:
    said = str(error)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = _reason(error.certificate_error)
        return NotExecuted(f"{endpoint}: its certificate is not believed: {why} (register.tls.ca says whose are)", mistake=True)
    if "CERTIFICATE_REQUIRED" in said or "ALERT_BAD_CERTIFICATE" in said or "ALERT_UNKNOWN_CA" in said:
        # Refused in the handshake, which with TLS 1.3 is heard when an answer is waited for.
        return NotExecuted(f"{endpoint}: etcd refuses our certificate (register.tls.cert, register.tls.key)", mistake=True)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER" in said:
            return NotExecuted(f"{endpoint}: {_NO_TLS}", mistake=True)
        return NotExecuted(f"{endpoint}: no TLS connection: {_reason(error)}", mistake=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotExecuted(f"{endpoint}: {_reason(error.os_error)}")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotExecuted(f"{endpoint}: no connection within {timeout_s * CONNECT_SHARE:g} s")
    if isinstance(error, TimeoutError):
        return Unsure(f"{endpoint}: no answer within {timeout_s:g} s")
    if isinstance(error, aiohttp.InvalidURL):
        return NotExecuted(f"{endpoint} is no address", mistake=True)
    return Unsure(f"{endpoint}: the connection was lost: {said or type(error).__name__}")


_MEANINGS: tuple[tuple[str, type[Failed], bool, str], ...] = (
    ("invalid auth token", NotLoggedIn, False, "the token is not known any more"),
    ("revision of auth store is old", NotLoggedIn, False, "rights have changed since the login"),
    ("authentication failed", NotExecuted, True, "etcd refuses the user or the password (register.username, register.password)"),
    ("user name is empty", NotExecuted, True, "etcd wants a user: set register.username and register.password"),
    ("authentication is not enabled", NotExecuted, True, "etcd has no users: run `etcdctl auth enable`, or unset register.username"),
    ("permission denied", NotExecuted, True, "etcd does not let this user read and write the keys of the register (register.prefix)"),
    ("not supported for learner", NotExecuted, False, "this member is a learner and answers nobody"),
    ("too many requests", NotExecuted, False, "etcd has too many requests waiting"),
    ("database space exceeded", NotExecuted, True, "etcd is full: compact and defragment it, then `etcdctl alarm disarm`"),
    ("request is too large", NotExecuted, True, "a record is larger than etcd takes (--max-request-bytes)"),
)  # fmt: skip


def _answer(endpoint: str, path: str, status: int, text: bytes) -> Answer:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if status == 200 and isinstance(body, dict):
        header = body.get("header")
        return Answer(body, str(header.get("cluster_id", "")) if isinstance(header, dict) else "")
    said = str(body.get("message") or body.get("error")) if isinstance(body, dict) else text[:200].decode(errors="replace").strip()
    for words, kind, mistake, meaning in _MEANINGS:
        if words in said:
            raise kind(f"{endpoint}: {meaning}", mistake=mistake)
    if status == 404:
        raise NotExecuted(
            f"{endpoint}: no etcd 3.4 or later answers there, or its JSON gateway is off (--enable-grpc-gateway)", mistake=True
        )
    raise Unsure(f"{endpoint}: {said or f'status {status}'}")


def _reason(error: BaseException) -> str:
    """Without the numbers that openssl and the system put around it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
