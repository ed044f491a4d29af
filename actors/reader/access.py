"""Who may do what: tokens, what each brings along, and the rules in force.

The broker's own token lies in the data directory and has all rights. Those of the configuration are identities like those of clients
(`pipeline/NAME`), whose filters stand behind the rules of the file: what these deny no token may do. A filter that is asked for has to be
covered as a whole; a topic that is written has to be allowed, and the token has to allow writing.

Always holds: a token is nowhere in RAM but in its digest, and in no log.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from access.identity import Grant, Identity
from access.profile import Profile
from access.rights import Extent, Right
from access.rules import OPEN, Access
from access.rules_file import PUBLISHING, READING
from config.pipeline import Token
from holdfast_spark.protocol import Code, Refused
from mqtt.topics import parse_filter

LISTENER = "pipeline"
"""The name of the reader's own listener, for rules."""
_TOKEN_BYTES_MAX = 4096
_deciding = threading.Lock()
"""Each connection has a thread, and what profiles find they keep in sets."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """What one token may do. profile None: everything, as the broker's own may."""

    name: str
    write: bool
    identity: bytes | None = None
    """As shards know who is responsible for what it writes; None: nobody is asked."""
    profile: Profile | None = None
    digest: bytes = field(default=b"", repr=False)
    """Of the token."""

    @property
    def all(self) -> bool:
        return self.profile is None

    def check_filters(self, filters: Iterable[bytes]) -> None:
        if self.profile is None:
            return
        for each in filters:
            with _deciding:
                extent = self.profile.grant(Right.REPLAY, each)
            if extent is not Extent.ALL:
                shown = each.decode(errors="replace")
                raise Refused(Code.FORBIDDEN, f"the token {self.name} does not cover the filter {shown}", {"what": shown})

    def check_topics(self, topics: Sequence[bytes], flags: Sequence[int]) -> None:
        """Topics of messages with these flags."""
        if not self.write:
            raise Refused(Code.FORBIDDEN, f"the token {self.name} may not write", {"what": "APPEND"})
        if self.profile is None:
            return
        for topic, retain in dict.fromkeys(zip(topics, [flag & 1 for flag in flags], strict=True)):
            with _deciding:
                may = self.profile.may(Right.PUBLISH | Right.RETAIN if retain else Right.PUBLISH, topic)
            if not may:
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
    """The tokens and the rules in force."""

    def __init__(self, own: str, tokens: Sequence[Token] = (), access: Access = OPEN) -> None:
        self._own = _digest(own.encode())
        self._tokens: dict[bytes, Token] = {}
        self._access = access
        self._known: dict[bytes, Holder] = {}
        self.change(tokens)

    def change(self, tokens: Sequence[Token]) -> None:
        """From the next request of each connection on. A file that cannot be read opens nothing."""
        known: dict[bytes, Token] = {}
        for each in tokens:
            digest = bytes.fromhex(each.sha256) if each.sha256 else _digest_of_file(each)
            if digest is not None:
                known.setdefault(digest, each)
        self._tokens = known
        self.judge(self._access)

    def judge(self, access: Access) -> None:
        """Other rules, from the next request, and the next block that is sent, on."""
        self._access = access
        known = {digest: self._holder(digest, token) for digest, token in self._tokens.items()}
        known[self._own] = Holder("of the broker", write=True, digest=self._own)
        self._known = known

    def _holder(self, digest: bytes, token: Token) -> Holder:
        filters = tuple([parse_filter(one).filter for one in token.filters])
        who = Identity(f"pipeline/{token.name}", "pipeline", grants=(Grant(READING | PUBLISHING if token.write else READING, filters),))
        profile = self._access.profile(who, b"", LISTENER, "")
        assert profile is not None, "without rules a token has what it brings along, and no more"
        return Holder(token.name, token.write, _packed(who), profile, digest)

    def of(self, token: str) -> Holder | None:
        shown = _digest(token.encode(errors="surrogatepass"))
        found = None
        for digest, holder in self._known.items():
            # All of them, so that time says nothing.
            if hmac.compare_digest(digest, shown):
                found = holder
        return found

    def now(self, holder: Holder) -> Holder | None:
        """What the token that was shown may do by now; None: it is known no more."""
        return self._known.get(holder.digest)


def _packed(who: Identity) -> bytes:
    """With more filters than an identity may be long, what it retains is judged by the rules alone."""
    try:
        return who.pack()
    except ValueError:
        return Identity(who.user, who.how).pack()


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
