"""What links prove themselves with: the secret that all processes share, and between sites certificates.

A unix socket is of this machine and for this user alone, so it never has TLS.  Over TCP both ends show a certificate when there are any
(`cluster.tls`): it has to be signed by `cluster.tls.ca`, and is not compared with the address that was dialled.  Sites move, have several
addresses and are reached through others, and what proves membership is the CA: it is the cluster's own, and signs nothing else.  Behind
TLS the secret is proved as everywhere (actors.link).

Certificates are read again when their files have changed, before the next handshake (`look`), so that one can be renewed while everything
runs.  Always holds: files that are not right leave what was read before in force.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import Self

import structlog

from actors.directory import HERE, Directory
from actors.link_version import OWN, Spoken
from actors.topology import SitesPlan, Topology

log = structlog.get_logger(__name__)

BEAT_SECONDS = 1.0
"""How often each end of a TCP link says that it is there."""
SILENT_BEATS_MAX = 5
"""So many beats without a byte, and the other end is taken for gone."""
_PLAIN = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)


Seen = tuple[tuple[int, int, int, int], ...]
"""Inode, time, size and time of change of each file; of one that is not there nothing but zeros."""


class WireError(OSError):
    """One sentence: which file of `cluster.tls`, and what is wrong with it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Wire:
    """server, client: for the ends of TCP links that accept and that dial; None: no TLS.
    directory: who listens in this process, where parts share one; None: all links are sockets."""

    secret: bytes = field(repr=False)
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    beat_seconds: float = BEAT_SECONDS
    speaks: Spoken = OWN
    sites: SitesPlan | None = field(default=None, compare=False)
    """Whose files the contexts were made of."""
    seen: list[Seen] = field(default_factory=list, compare=False)
    """How these were at the last look."""
    directory: Directory | None = field(default=None, compare=False)

    @classmethod
    def of(cls, topology: Topology) -> Self:
        """Raises WireError."""
        if topology.compact:
            return cls(topology.secret, directory=HERE)
        return cls.between(topology.secret, topology.sites)

    @classmethod
    def between(cls, secret: bytes, sites: SitesPlan | None) -> Self:
        """Raises WireError."""
        seen = [_stats(sites)]
        return cls(secret, *_contexts(sites), sites=sites, seen=seen)

    def look(self) -> None:
        """Take what the files have now, for handshakes from now on.  Three stats; some milliseconds when they have changed.

        A certificate of a CA that was read before stays believed, since what openssl believes can only grow.
        """
        sites = self.sites
        if sites is None or self.server is None or self.client is None or self.seen == [now := _stats(sites)]:
            return
        self.seen[:] = [now]
        try:
            # In contexts of their own first: half of a change is no change.
            check_certificates(sites)
            for context in (self.server, self.client):
                _load(context, sites.tls_ca, sites.tls_cert, sites.tls_key)
        except WireError as error:
            log.error("link.certificates_refused", cause=f"{error}; those that were read before stay in force")
        else:
            log.info("link.certificates_read", ca=sites.tls_ca, cert=sites.tls_cert)


def check_certificates(sites: SitesPlan | None) -> None:
    """Whether this site would believe itself: what the others will say of it, said before it starts.  Raises WireError."""
    server, client = _contexts(sites)
    if sites is None or server is None or client is None:
        return
    # Both ends here, and what one says is what the other hears.
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else _reason(error)
                raise WireError(f"cluster.tls.cert: {sites.tls_cert} is not believed with cluster.tls.ca {sites.tls_ca}: {why}") from None


def _contexts(sites: SitesPlan | None) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """For who accepts and who dials."""
    if sites is None or not sites.tls_ca:
        return None, None
    files = sites.tls_ca, sites.tls_cert, sites.tls_key
    return _context(ssl.PROTOCOL_TLS_SERVER, *files), _context(ssl.PROTOCOL_TLS_CLIENT, *files)


def _context(side: int, ca: str, cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load(context, ca, cert, key)
    return context


def _load(context: ssl.SSLContext, ca: str, cert: str, key: str) -> None:
    for name, path in (("ca", ca), ("cert", cert), ("key", key)):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise WireError(f"cluster.tls.{name}: {path} cannot be read: {error.strerror}") from None
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, ValueError) as error:
        raise WireError(f"cluster.tls.ca: {ca} cannot be used: {_reason(error)}") from None
    try:
        # Without a password to give, OpenSSL would ask at the terminal.
        context.load_cert_chain(cert, key, password=lambda: b"-")
    except (ssl.SSLError, ValueError) as error:
        raise WireError(f"cluster.tls.cert and cluster.tls.key: {cert} and {key} cannot be used: {_reason(error)}") from None


def _stats(sites: SitesPlan | None) -> Seen:
    return tuple([_stat(path) for path in (sites.tls_ca, sites.tls_cert, sites.tls_key) if path]) if sites is not None else ()


def _stat(path: str) -> tuple[int, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0, 0
    # The last one tells of rights that were given.
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_ctime_ns


def said_of(error: BaseException) -> str:
    """What an error of TLS says of the other end; empty: it is no error of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = error.reason or ""
    if reason in _PLAIN:
        return "it does not speak TLS, and this end has cluster.tls"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate"
    if "ALERT" in reason:
        return f"it does not believe the certificate of this end: {_reason(error)}"
    return f"TLS with it fails: {_reason(error)}"


def _reason(error: Exception) -> str:
    reason = (error.reason if isinstance(error, ssl.SSLError) else "") or str(error)
    return reason.replace("_", " ").lower()
