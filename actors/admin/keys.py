"""Who asks: API keys out of their file (access.api_keys), which is read again when it is another one, at most a second later.

Hashes are checked in one thread, below everything else in priority; what was right is remembered, by a digest that no other process
can make, as long as its key is in the file. So a key costs its 20 ms once, and whoever guesses waits for others who guess.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from access.api_keys import FILE_BYTES_MAX, FILE_NAME, ApiKey, KeyFileError, Shown, read_keys, shown_as_basic, shown_as_bearer
from actors.admin.errors import Refused, away, too_many
from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.auth.threads import yield_to_others

CHECKS_MAX: Final = 16
"""Under way or waiting at a time."""
LOOK_EVERY_S: Final = 1.0
HEADER_CHARS_MAX: Final = 1_024
REMEMBERED_MAX: Final = 2_000
_ALARM = "api-keys"

log = structlog.get_logger(__name__)


class Keys:
    """For one loop.  Life cycle: made -> stopped."""

    def __init__(self, data_dir: Path, run_dir: Path, process: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = data_dir / FILE_NAME
        self._run_dir, self._process = run_dir, process
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "api-keys", yield_to_others)
        self._checking = 0
        self._salt = secrets.token_bytes(32)
        self._by_id: dict[str, ApiKey] = {}
        self._wrong = ""
        """Why the file is not taken."""
        self._seen: tuple[int, int, int] | None = None
        self._looked_s: float | None = None
        self._remembered: dict[bytes, ApiKey] = {}

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def who(self, authorization: str) -> ApiKey:
        """The key that this header shows.  Raises Refused."""
        shown = _shown(authorization)
        if shown is None:
            raise wrong_key("the Authorization header is neither `Basic` with key:secret nor `Bearer` with key.secret")
        digest = hashlib.blake2b(f"{shown.id}\0{shown.secret}".encode(), key=self._salt).digest()
        found = self._remembered.get(digest)
        if found is None or self._looked_s is None or self._clock() - self._looked_s > LOOK_EVERY_S:
            found = await self._checked(shown, digest)
        if found is None:
            raise wrong_key("the API key is not known, or its secret is another one")
        if found.expired(time.time_ns() // 1_000_000):
            raise wrong_key(f"the API key {found.name} has expired")
        return found

    async def _checked(self, shown: Shown, digest: bytes) -> ApiKey | None:
        if self._checking >= CHECKS_MAX:
            raise too_many(f"{CHECKS_MAX} API keys are being checked")
        self._checking += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._check, shown, digest)
        finally:
            self._checking -= 1
        if self._wrong:
            raise away(f"{FILE_NAME} cannot be used: {self._wrong}")
        return found

    # ------------------------------------------------------------------ in the thread

    def _check(self, shown: Shown, digest: bytes) -> ApiKey | None:
        self._look()
        key = self._by_id.get(shown.id)
        before = self._remembered.get(digest)
        # Ids are as random as nobody guesses: whoever has none of ours learns nothing from being told so at once.
        if key is None or not (before == key or key.matches(shown.secret)):
            return None
        if len(self._remembered) < REMEMBERED_MAX:
            self._remembered[digest] = key
        return key

    def _look(self) -> None:
        """Read the file, if it is another one."""
        self._looked_s = self._clock()
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                seen = (about.st_ino, about.st_mtime_ns, about.st_size)
                if seen == self._seen:
                    return
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            seen, data = (0, 0, 0), b""
            if seen == self._seen:
                return
        except OSError as error:
            self._seen = None
            self._refuse(error.strerror or str(error))
            return
        try:
            keys = read_keys(data)
        except KeyFileError as error:
            self._refuse(str(error))
        else:
            self._by_id = {key.id: key for key in keys}
            self._remembered = {digest: key for digest, key in self._remembered.items() if self._by_id.get(key.id) == key}
            self._wrong = ""
            clear_alarm(self._run_dir, self._process, _ALARM)
            log.info("api_keys.read", keys=len(keys))
        self._seen = seen

    def _refuse(self, why: str) -> None:
        """Nobody gets in by a file that nobody can read: who was taken out of it may be among those who were known."""
        if why != self._wrong:
            log.error("api_keys.not_taken", cause=why)
        self._by_id, self._remembered, self._wrong = {}, {}, why
        raise_alarm(self._run_dir, Alarm(self._process, _ALARM, f"{self._path} cannot be used, so no API key is taken: {why}"))


def wrong_key(message: str) -> Refused:
    # No browser is to ask for a password by itself: the page does.
    return Refused(401, "BAD_API_KEY_OR_SECRET", message, {"WWW-Authenticate": 'Bearer realm="holdfast"'})


def _shown(authorization: str) -> Shown | None:
    kind, _, value = authorization.strip().partition(" ")
    value = value.strip()
    if len(authorization) > HEADER_CHARS_MAX:
        return None
    if kind.lower() == "bearer":
        return shown_as_bearer(value)
    if kind.lower() != "basic":
        return None
    try:
        return shown_as_basic(b64decode(value, validate=True).decode())
    except (NotBase64, UnicodeDecodeError, ValueError):
        return None
