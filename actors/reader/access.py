"""Who may do what: tokens, and the filters that each covers.

The broker's own token lies in the data directory and has all rights; those of the configuration have their filters. A filter that is
asked for has to be covered by one of them, as it would be at SUBSCRIBE; a topic that is written has to match one, and the token has to
allow writing.

Always holds: a token is nowhere in RAM but in its digest, and in no log.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from config.pipeline import Token
from holdfast_spark.protocol import Code, Refused
from mqtt.cover import covers
from mqtt.topics import matches, parse_filter

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
