"""The TLS of listeners: certificates, keys, who signs those of clients, and which are revoked; as files have them now.

Made in a thread, kept while the files are the same, looked at every LOOK_SECONDS and when settings change.  A connection goes on with
what was in force when it came.

Always holds: a listener has a context from `open` on; a file that is not right leaves the former one in force, with an alarm.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from cryptography import x509

from access.certificates import serial_text
from actors.access.secrets import read_secrets
from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.listening.options import TlsOptions

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_CRL_BEGINS = b"-----BEGIN X509 CRL-----"
Seen = tuple[tuple[int, int, int], ...]
"""Inode, time and size of each file; of one that is not there nothing but zeros."""


class ContextError(OSError):
    """One sentence: which listener, which file, and what is wrong with it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Made:
    options: TlsOptions
    seen: Seen
    password: bytes = field(repr=False)
    context: ssl.SSLContext | None
    """None: these files were not right."""
    revoked: frozenset[str] = frozenset()
    """Serial numbers."""
    cause: str = ""


class Contexts:
    """revoked: told of serial numbers that were not revoked before."""

    def __init__(self, run_dir: Path, name: str, revoked: Callable[[frozenset[str]], None]) -> None:
        """run_dir: where secrets are, and alarms go; name: of this process."""
        self._run_dir = run_dir
        self._name = name
        self._revoked = revoked
        self._wanted: dict[str, TlsOptions] = {}
        self._last: dict[str, Made] = {}
        """What the files gave at the last look, right or not."""
        self._current: dict[str, Made] = {}
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def open(self, wanted: Mapping[str, TlsOptions]) -> None:
        """Raises ContextError when one is not right: a broker does not start without its certificates."""
        self._wanted = dict(wanted)
        found = await asyncio.get_running_loop().run_in_executor(None, self._found, dict(wanted), {})
        wrong = [made.cause for made in found.values() if made.context is None]
        if wrong:
            raise ContextError("; ".join(wrong))
        self._last, self._current = dict(found), dict(found)
        self._later()

    def current(self, listener: str) -> ssl.SSLContext:
        context = self._current[listener].context
        assert context is not None
        return context

    def change(self, wanted: Mapping[str, TlsOptions]) -> None:
        """Settings may name other files now."""
        self._wanted = {name: options for name, options in wanted.items() if name in self._current}
        self._start()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _later(self) -> None:
        if self._wanted and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._start)

    def _start(self) -> None:
        if self._looking is not None:
            self._again = True
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._again = False
                for name, made in (await loop.run_in_executor(None, self._found, dict(self._wanted), dict(self._last))).items():
                    self._take(name, made)
                if not self._again:
                    break
        except Exception:
            # Whatever it is, a descriptor that nobody had left for one: certificates that come later have to be seen.
            log.error("tls.not_looked_at", exc_info=True)
        finally:
            self._looking = None
        self._later()

    def _found(self, wanted: Mapping[str, TlsOptions], last: Mapping[str, Made]) -> dict[str, Made]:
        """In a thread: files are read, and keys are worked on."""
        return look(wanted, last, read_secrets(self._run_dir) if any(options.key_password for options in wanted.values()) else {})

    def _take(self, name: str, made: Made) -> None:
        self._last[name] = made
        kind = f"tls-{name}"
        if made.context is None:
            log.error("tls.refused", listener=name, cause=made.cause)
            raise_alarm(self._run_dir, Alarm(self._name, kind, f"{made.cause}; the certificates before go on"))
            return
        clear_alarm(self._run_dir, self._name, kind)
        former = self._current[name]
        self._current[name] = made
        log.info("tls.changed", listener=name, revoked=len(made.revoked))
        if newly := made.revoked - former.revoked:
            self._revoked(newly)


def look(wanted: Mapping[str, TlsOptions], last: Mapping[str, Made], secrets: Mapping[str, bytes]) -> dict[str, Made]:
    """What is other than at the last look.  What was wrong then is tried again: rights that are given, descriptors that are back and
    other passing things do not show in a file.  secrets: by their places."""
    found = {}
    for name, options in wanted.items():
        seen = tuple([_stat(path) for path in options.files])
        password = secrets.get(options.key_password, b"")
        before = last.get(name)
        same = before is not None and (before.options, before.seen, before.password) == (options, seen, password)
        if before is not None and same and before.context is not None:
            continue
        try:
            made = Made(options, seen, password, make_context(name, options, password), _revoked(name, options.crl))
        except ContextError as error:
            made = Made(options, seen, password, None, cause=str(error))
        if not (same and made == before):
            found[name] = made
    return found


def _stat(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def make_context(listener: str, options: TlsOptions, password: bytes) -> ssl.SSLContext:
    """Raises ContextError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.version_min]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENTS[options.client_certificate]
    for key in ("cert", "key", "ca", "crl"):
        _check_readable(listener, key, getattr(options, key))
    try:
        # Without a password to give, OpenSSL would ask at the terminal.
        context.load_cert_chain(options.cert, options.key, password=lambda: password or b"-")
    except (ssl.SSLError, ValueError) as error:
        raise _wrong(listener, "cert and tls.key", f"{options.cert} and {options.key}", error) from None
    for key, path in (("ca", options.ca), ("crl", options.crl)):
        if not path:
            continue
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, ValueError) as error:
            raise _wrong(listener, key, path, error) from None
    if options.crl:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _check_readable(listener: str, key: str, path: str) -> None:
    if not path:
        return
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ContextError(f"listeners.{listener}.tls.{key}: {path} cannot be read: {error.strerror}") from None


def _wrong(listener: str, key: str, path: str, error: Exception) -> ContextError:
    reason = (error.reason if isinstance(error, ssl.SSLError) else "") or str(error)
    return ContextError(f"listeners.{listener}.tls.{key}: {path} cannot be used: {reason.replace('_', ' ').lower()}")


def _revoked(listener: str, path: str) -> frozenset[str]:
    """Of all lists in the file; OpenSSL has read them before, so they are right."""
    if not path:
        return frozenset()
    try:
        data = Path(path).read_bytes()
        lists = [x509.load_pem_x509_crl(_CRL_BEGINS + each) for each in data.split(_CRL_BEGINS)[1:]]
    except (OSError, ValueError) as error:
        raise _wrong(listener, "crl", path, error) from None
    return frozenset([serial_text(each.serial_number) for one in lists for each in one])
