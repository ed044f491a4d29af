"""What a door needs to know, and what of it may change while it is open."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Literal

from gateway.transport.limits import Limits
from gateway.transport.proxy import Versions

Kind = Literal["tcp", "tls", "ws", "wss", "unix"]
ENCRYPTED: frozenset[Kind] = frozenset(("tls", "wss"))
WEB: frozenset[Kind] = frozenset(("ws", "wss"))


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths are absolute; empty: none."""

    cert: str
    key: str
    key_password: str = ""
    """Where the secret lies, as configuration has it."""
    client_certificate: Literal["none", "optional", "required"] = "none"
    ca: str = ""
    crl: str = ""
    version_min: Literal["1.2", "1.3"] = "1.2"

    @property
    def files(self) -> tuple[str, ...]:
        return tuple([path for path in (self.cert, self.key, self.ca, self.crl) if path])


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    versions: Versions
    networks: tuple[IPv4Network | IPv6Network, ...]
    """Whose header is believed."""


@dataclass(frozen=True, slots=True)
class DoorOptions:
    """One listener.  Where it listens (kind, host, port, path, mode, backlog) stays for the life of its door."""

    name: str
    kind: Kind
    limits: Limits
    host: str = ""
    port: int = 0
    path: str = ""
    """unix: of the first gateway."""
    mode: int = 0o660
    backlog: int = 1024
    connect_ms: int = 5_000
    """From accepting a connection to its whole CONNECT."""
    packet_bytes_max: int = 1 << 20
    user_properties_max: int = 0
    """Of one packet; 0: as settings say for all listeners."""
    identity: str = "none"
    """Which name of a client's certificate is the user's: a word of access.certificates.IDENTITIES, or none."""
    proxy: ProxyOptions | None = None
    tls: TlsOptions | None = None
    handshake_ms: int = 5_000
    ws_path: str = "/mqtt"
    ws_origins: tuple[str, ...] = ()

    @property
    def takes_certificate(self) -> bool:
        """Whether the user's name is taken out of the client's certificate."""
        return self.identity != "none"

    @property
    def asks_for_certificate(self) -> bool:
        return self.tls is not None and self.tls.client_certificate != "none"

    @property
    def plain(self) -> bool:
        """Whether MQTT begins with the first byte."""
        return self.kind in ("tcp", "unix") and self.proxy is None
