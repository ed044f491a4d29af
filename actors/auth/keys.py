"""The keys that tokens are checked with: what was read with the settings, or a set that is fetched again and again.

    nothing yet ──fetched──> in force ──refresh_s──> fetched again
                                └──cannot be fetched──> the last one, with an alarm ──stale_max_s──> none

One fetch at a time, in a thread.  After a failed one, and for a key that nobody knows, the next is RETRY_S after the last at the earliest.
"""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPException, HTTPMessage
from typing import IO, Final
from urllib.parse import urlsplit

import structlog

from access.jwks import SET_BYTES_MAX, Keys, KeysError, read_keys
from actors.auth.asked import Clock, Timer, Workers
from actors.auth.settings import TokenSettings

RETRY_S: Final = 10.0
FETCH_WITHIN_S: Final = 5.0
WAITING_MAX: Final = 1_000
"""Tokens that wait for one fetch."""
ALARM: Final = "jwks"

log = structlog.get_logger(__name__)


class KeySource:
    """alarm: with a kind and a cause; no cause: it is over."""

    def __init__(self, clock: Clock, workers: Workers, alarm: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._workers = workers
        self._alarm = alarm
        self._settings: TokenSettings | None = None
        self._keys: Keys | None = None
        self._fetched_s = 0.0
        self._tried_s: float | None = None
        self._fetching = False
        self._waiting: list[Callable[[], None]] = []
        self._timer: Timer | None = None
        self._alarmed = False

    def change(self, settings: TokenSettings | None) -> None:
        before, self._settings = self._settings, settings
        if settings is not None and before is not None and (settings.url, settings.data) == (before.url, before.data):
            return
        self._keys, self._tried_s = None, None
        self._plan(None)
        self._end_alarm()
        if settings is None:
            self._tell_waiting()
        elif settings.url:
            self._fetch()
        else:
            self._take(settings, settings.data)

    def stop(self) -> None:
        self._plan(None)

    def keys(self) -> Keys | None:
        """Those in force; None: no token counts."""
        settings = self._settings
        if settings is None or self._keys is None:
            return None
        if settings.url and self._clock.now_s() - self._fetched_s > settings.refresh_s + settings.stale_max_s:
            return None
        return self._keys

    def when_newer(self, call: Callable[[], None]) -> bool:
        """Called when a fetch that is under way, or begun for this, has ended.  False: there is none, or too many wait for it."""
        settings = self._settings
        if settings is None or not settings.url or len(self._waiting) >= WAITING_MAX:
            return False
        if not self._fetching:
            if self._tried_s is not None and self._clock.now_s() - self._tried_s < RETRY_S:
                return False
            self._fetch()
        self._waiting.append(call)
        return True

    def _fetch(self) -> None:
        settings = self._settings
        if settings is None or self._fetching:
            return
        self._fetching = True
        self._tried_s = self._clock.now_s()
        self._workers.run(partial(fetch, settings.url), partial(self._came, settings.url))

    def _came(self, url: str, data: bytes | Exception) -> None:
        self._fetching = False
        settings = self._settings
        if settings is None or settings.url != url:
            # Another is wanted by now.
            if settings is not None and settings.url:
                self._fetch()
            else:
                self._tell_waiting()
            return
        if isinstance(data, Exception):
            self._failed(_sentence(data))
        else:
            self._take(settings, data)
        self._plan(RETRY_S if self._alarmed else settings.refresh_s)
        self._tell_waiting()

    def _take(self, settings: TokenSettings, data: bytes) -> None:
        try:
            keys = read_keys(data)
        except KeysError as error:
            self._failed(str(error))
            return
        self._keys, self._fetched_s = keys, self._clock.now_s()
        self._end_alarm()
        log.info("jwks.taken", keys=len(keys.keys), left_out=list(keys.problems[:10]))

    def _failed(self, cause: str) -> None:
        if not self._alarmed:
            log.error("jwks.not_fetched", cause=cause)
        self._alarmed = True
        self._alarm(ALARM, f"the keys of access.jwt.keys cannot be had: {cause}")

    def _end_alarm(self) -> None:
        if self._alarmed:
            self._alarmed = False
            self._alarm(ALARM, "")

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def _plan(self, after_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if after_s is None else self._clock.later(after_s, self._fetch)


def fetch(url: str) -> bytes:
    """What is there; SET_BYTES_MAX and a byte at the most.  Raises OSError, HTTPException or ValueError."""
    until_s = time.monotonic() + FETCH_WITHIN_S
    opener = urllib.request.build_opener(
        # What the environment says of proxies is no setting of ours.
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        _SameHost(),
    )
    data = b""
    try:
        answer = opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=FETCH_WITHIN_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    with answer:
        while chunk := answer.read1(64 << 10):
            data += chunk
            if len(data) > SET_BYTES_MAX:
                break
            if time.monotonic() > until_s:
                raise TimeoutError(f"not whole after {FETCH_WITHIN_S:.0f} s")
    return data


class _SameHost(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            raise urllib.error.URLError(f"a redirect to another host, {after.netloc[:80]!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _sentence(error: Exception) -> str:
    """Of an address its credentials would be part, so it is not repeated."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the answer is {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) if isinstance(error, OSError | HTTPException) and str(error) else type(error).__name__
