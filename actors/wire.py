"""What links prove themselves with: the secret that all processes share, and between sites certificates.

A unix socket is of this machine and for this user alone, so it never has TLS.  Over TCP both ends show a certificate when there are any
(`cluster.tls`): it has to be signed by `cluster.tls.ca`, and is not compared with the address that was dialled.  Sites move, have several
addresses and are reached through others, and what proves membership is the CA: it is the cluster's own, and signs nothing else.  Behind
TLS the secret is proved as everywhere (actors.link).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Self

from actors.topology import SitesPlan, Topology

BEAT_SECONDS = 1.0
"""How often each end of a TCP link says that it is there."""
SILENT_BEATS_MAX = 5
"""So many beats without a byte, and the other end is taken for gone."""
_PLAIN = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)


class WireError(OSError):
    """One sentence: which file of `cluster.tls`, and what is wrong with it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Wire:
    """server, client: for the ends of TCP links that accept and that dial; None: no TLS."""

    secret: bytes = field(repr=False)
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    beat_seconds: float = BEAT_SECONDS

    @classmethod
    def of(cls, topology: Topology) -> Self:
        """Raises WireError."""
        return cls(topology.secret, *_contexts(topology.sites))


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
    return context


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
