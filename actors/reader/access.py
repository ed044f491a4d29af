"""Who may do what: tokens, and the filters that each covers.

The broker's own token lies in the data directory and has all rights; those of the configuration have their filters. A filter that is
asked for has to be covered by one of them, as it would be at SUBSCRIBE; a topic that is written has to match one, and the token has to
allow writing.

Always holds: a token is nowhere in RAM but in its digest, and in no log.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from actors.datadir import sync_directory
from config.pipeline import Token
from holdfast_spark.protocol import Code, Refused
from mqtt.cover import covers
from mqtt.topics import matches, parse_filter

OWN = "pipeline.token"
_TOKEN_BYTES_MAX = 4096
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """What one token may do. all: everything, as the broker's own may."""

    name: str
    filters: tuple[bytes, ...]
    write: bool
    all: bool = False
    digest: bytes = field(default=b"", repr=False)
    """Of the token."""

    def check_filters(self, filters: Iterable[bytes]) -> None:
        for each in filters:
            if not self.all and not any(covers(own, each) for own in self.filters):
                shown = each.decode(errors="replace")
                raise Refused(Code.FORBIDDEN, f"the token {self.name} does not cover the filter {shown}", {"what": shown})

    def check_topics(self, topics: Iterable[bytes]) -> None:
        if not self.write:
            raise Refused(Code.FORBIDDEN, f"the token {self.name} may not write", {"what": "APPEND"})
        for topic in {} if self.all else dict.fromkeys(topics):
            if not any(matches(own, topic) for own in self.filters):
                shown = topic.decode(errors="replace")
                raise Refused(Code.FORBIDDEN, f"the token {self.name} may not write to {shown}", {"what": shown})

    def check_lease(self, name: str, filters: Sequence[bytes], block: bool) -> None:
        """Who else could end a lease that holds somebody's messages?  So each token has the names that begin like its own."""
        if not self.has_lease(name):
            found = f"the token {self.name} has leases with the name {self.name} or names that begin with {self.name}. and not {name}"
            raise Refused(Code.FORBIDDEN, found, {"what": name})
        if block and not self.write:
            # It stops publishers when the quota is used up, which is more than reading.
            raise Refused(Code.FORBIDDEN, f"the token {self.name} may not write, and so may have no lease that blocks", {"what": "block"})
        self.check_filters(filters)

    def has_lease(self, name: str) -> bool:
        return self.all or name == self.name or name.startswith(f"{self.name}.")


class Keys:
    """The tokens in force."""

    def __init__(self, own: str, tokens: Sequence[Token] = ()) -> None:
        self._own = _digest(own.encode())
        self._known: dict[bytes, Access] = {}
        self.change(tokens)

    def change(self, tokens: Sequence[Token]) -> None:
        """From the next request of each connection on. A file that cannot be read opens nothing."""
        known = {self._own: Access("of the broker", (), write=True, all=True, digest=self._own)}
        for each in tokens:
            digest = bytes.fromhex(each.sha256) if each.sha256 else _digest_of_file(each)
            if digest is not None:
                filters = tuple([parse_filter(one).filter for one in each.filters])
                known.setdefault(digest, Access(each.name, filters, each.write, digest=digest))
        self._known = known

    def of(self, token: str) -> Access | None:
        shown = _digest(token.encode(errors="surrogatepass"))
        found = None
        for digest, access in self._known.items():
            # All of them, so that time says nothing.
            if hmac.compare_digest(digest, shown):
                found = access
        return found

    def now(self, access: Access) -> Access | None:
        """What the token that was shown may do by now; None: it is known no more."""
        return self._known.get(access.digest)


def own_token(data_dir: Path) -> str:
    """The broker's own, made when it is not there yet; kept for ever. Raises OSError."""
    path = data_dir / OWN
    while True:
        try:
            token = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            token = ""
        if token:
            return token
        _make(path)


def _make(path: Path) -> None:
    """Whoever reads it finds it whole: it is linked to its name when it is on disk, and never put in the place of another."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not path.read_text(encoding="ascii").strip():
            # A power cut of an older system, or somebody's editor: an empty one opens nothing.
            os.replace(beside, path)
        else:
            os.link(beside, path)
    except FileExistsError:
        pass  # Somebody else was faster; theirs counts.
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def _digest_of_file(token: Token) -> bytes | None:
    try:
        with open(token.token_file, "rb") as file:
            first = file.read(_TOKEN_BYTES_MAX).split(b"\n", 1)[0].strip()
    except OSError as error:
        log.error("reader.token_unreadable", token=token.name, path=token.token_file, cause=str(error.strerror))
        return None
    if not first:
        log.error("reader.token_unreadable", token=token.name, path=token.token_file, cause="its first line is empty")
        return None
    return _digest(first)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
