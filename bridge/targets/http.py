"""An HTTP server as target: a webhook for each message, or for a batch.

Each request has an Idempotency-Key that is the same whenever it comes again, made of what the messages are: with it the server can tell, so
here it is at least once.  Messages of one key follow each other; with `connections` those of different
keys go at the same time.

What an answer means: 2xx accepted.  408, 409, 425, 429 and 5xx: not now, and after Retry-After if it is there.  3xx, 401, 403, 404, 405 and
407 are about the address or who we are, not about a message: somebody has to do something.  Other 4xx: refused for good; of a batch each
half is tried, until it is known which message it is.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final
from urllib.parse import quote

import aiohttp

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Unavailable
from bridge.targets.documents import document_of, published_at
from bridge.targets.flight import Flight
from bridge.targets.tls import client_context
from config.bridge_kinds import Http

LATER: Final = frozenset({408, 409, 425, 429})
OURS: Final = frozenset({401, 403, 404, 405, 407})
RETRY_AFTER_S_MAX: Final = 3600.0
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Of an answer's body, which is read only so that its connection can be used again."""
REASON_CHARACTERS_MAX: Final = 80
HEADER_CHARACTERS_MAX: Final = 4096
"""Of a header that says something of a message; what is longer is left out."""
CLOSE_S: Final = 4.0
_IDENTITY_SAFE: Final = "/:@-._~"


class _Refused(Exception):
    """By the server, for good: the sentence that says how."""


class HttpTarget:
    """made -> opened -> (delivers) -> closed.  Connections are made when they are needed, and kept."""

    exactly_once: ClassVar[bool] = False

    def __init__(self, settings: Http, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> Accepted | None:
        settings = self._settings
        secure = settings.url.startswith("https:")
        tls = await client_context(self._context.data_dir, settings.ca, settings.cert, settings.key) if secure else None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=settings.connections, ssl=tls if tls is not None else True),
            timeout=aiohttp.ClientTimeout(total=settings.timeout.seconds),
            headers=self._headers(),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return None

    async def deliver(self, batch: Batch) -> Outcome:
        flight = Flight(len(batch.messages))
        try:
            if self._settings.body == "batch":
                await self._send_together(flight, batch.messages, 0)
            else:
                await self._send_each(flight, batch.messages)
        except (Unavailable, Misconfigured):
            # What is settled need not come again; what failed says so again when it is the first.
            if not flight.settled:
                raise
        return flight.outcome()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await session.close()
            except TimeoutError:
                pass

    # ---------------------------------------------------------------- which requests
    async def _send_together(self, flight: Flight, messages: Sequence[Message], first: int) -> None:
        """One request; where its server refuses what is in it, one for each half, in order."""
        documents = [document_of(self._context.store, message) for message in messages]
        body = json.dumps(documents, ensure_ascii=False, separators=(",", ":")).encode()
        ends = self._identity(messages[0]), self._identity(messages[-1])
        key = f"{ends[0]}..{ends[1]}" if len(messages) > 1 else ends[0]
        try:
            await self._send(body, {"Content-Type": "application/json", "Idempotency-Key": key})
        except _Refused as error:
            if len(messages) == 1:
                flight.settle(first, str(error))
                return
            half = len(messages) // 2
            await self._send_together(flight, messages[:half], first)
            await self._send_together(flight, messages[half:], first + half)
        else:
            for index in range(first, first + len(messages)):
                flight.settle(index)

    async def _send_each(self, flight: Flight, messages: Sequence[Message]) -> None:
        chains: dict[str, list[int]] = defaultdict(list)
        for index, message in enumerate(messages):
            # With one connection all follow each other.
            chains[message.key if self._settings.connections > 1 else ""].append(index)
        waiting = list(reversed(chains.values()))
        failures: list[Exception] = []

        async def work() -> None:
            while waiting and not failures:
                for index in waiting.pop():
                    if failures:
                        return
                    try:
                        await self._send_one(flight, index, messages[index])
                    except (Unavailable, Misconfigured) as error:
                        failures.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._settings.connections, len(chains))):
                group.create_task(work())
        if failures:
            raise failures[0]

    async def _send_one(self, flight: Flight, index: int, message: Message) -> None:
        headers = {"Idempotency-Key": self._identity(message)}
        if self._settings.body == "message":
            body = json.dumps(document_of(self._context.store, message), ensure_ascii=False, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        else:
            body = message.payload
            headers |= _said_in_headers(message)
        try:
            await self._send(body, headers)
        except _Refused as error:
            flight.settle(index, str(error))
        else:
            flight.settle(index)

    # ---------------------------------------------------------------- one request
    async def _send(self, body: bytes, headers: Mapping[str, str]) -> None:
        settings, session = self._settings, self._session
        if session is None:
            raise Unavailable("the connection is closed")
        try:
            async with session.request(settings.method, settings.url, data=body, headers=headers, allow_redirects=False) as answer:
                await answer.content.read(ANSWER_BYTES_MAX)
                self._judge(answer)
        except aiohttp.ClientConnectorCertificateError as error:
            raise Misconfigured(f"the certificate of {settings.url} is not trusted: {error.certificate_error}") from None
        except TimeoutError:
            raise Unavailable(f"{settings.url} did not answer within {settings.timeout}") from None
        except aiohttp.InvalidURL as error:
            raise Misconfigured(f"{settings.url} is no address: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{settings.url} cannot be reached: {str(error) or type(error).__name__}") from None

    def _judge(self, answer: aiohttp.ClientResponse) -> None:
        status = answer.status
        if 200 <= status < 300:
            return
        reason = "".join(letter for letter in answer.reason or "" if letter.isprintable())[:REASON_CHARACTERS_MAX]
        said = f"{self._settings.url} answered {status} {reason}".rstrip()
        if status in LATER or status >= 500:
            raise Unavailable(said, retry_after_s(answer.headers.get("Retry-After", ""), time.time()))
        if status in OURS or status < 400:
            raise Misconfigured(said)
        raise _Refused(said)

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        headers = {"User-Agent": "holdfast", **settings.fixed_headers}
        if settings.authorization:
            try:
                headers["Authorization"] = self._context.secret(settings.authorization).decode()
            except (KeyError, ValueError):
                raise Misconfigured(f"the header Authorization is not at {settings.authorization}, or is not text") from None
        return headers

    def _identity(self, message: Message) -> str:
        return quote(f"{self._context.store}/{message.shard}/{message.position}", safe=_IDENTITY_SAFE)


def _said_in_headers(message: Message) -> dict[str, str]:
    """What a message has beside its payload; texts that need it with percent signs, as in addresses."""
    found = {
        "Holdfast-Topic": quote(message.topic),
        "Holdfast-Publisher": quote(message.publisher),
        "Holdfast-Published-At": published_at(message).isoformat(timespec="milliseconds"),
        "Holdfast-QoS": str(message.qos),
        "Holdfast-Retain": "1" if message.retain else "0",
    }
    found = {name: value for name, value in found.items() if len(value) <= HEADER_CHARACTERS_MAX}
    found["Content-Type"] = _content_type(message)
    return found


def _content_type(message: Message) -> str:
    given = message.content_type
    if given and given.isascii() and given.isprintable() and len(given) <= HEADER_CHARACTERS_MAX:
        return given
    return "text/plain; charset=utf-8" if message.payload_is_text else "application/octet-stream"


def retry_after_s(value: str, now_s: float) -> float | None:
    """Seconds, or a date; within bounds.  None: it says nothing that can be read."""
    text = value.strip()
    if text.isdecimal() and text.isascii():
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return min(max(at.timestamp() - now_s, 0.0), RETRY_AFTER_S_MAX)
