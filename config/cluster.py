"""Where a site is reached by the other sites of its cluster, and what they prove to each other (docs/security.md, docs/sites.md).

Only declares, as `config.schema` does, of which this is the section `cluster`.
"""

from __future__ import annotations

import ipaddress
from typing import Literal, Self

from pydantic import model_validator

from config.fields import Flag, Section, conflict, setting
from config.secrets import CLUSTER_SECRET_BYTES_MIN, SECRET_ALLOWED, ClusterSecret
from config.values import Bind

LISTEN_ALLOWED = 'a host and a port at which the other sites reach this one, such as "10.0.0.1:7400", or nothing'
_PATH_ALLOWED = "an absolute path or nothing"


class ClusterTls(Section):
    ca: str = setting(
        "",
        "Absolute path of the certificate (PEM) of the authority that signs those of all sites, and nothing else: what it has signed is "
        "a site of this cluster, at whatever address.",
        allowed=_PATH_ALLOWED,
    )
    cert: str = setting("", "Absolute path of the certificate (PEM) of this site, shown at both ends of its links.", allowed=_PATH_ALLOWED)
    key: str = setting("", "Absolute path of the key of that certificate (PEM, without a password).", allowed=_PATH_ALLOWED)

    @model_validator(mode="after")
    def _together(self) -> Self:
        for key in ("ca", "cert", "key"):
            path = getattr(self, key)
            if path and not (path.startswith("/") and "\0" not in path):
                raise conflict(key, _PATH_ALLOWED)
            if not path and (self.ca or self.cert or self.key):
                raise conflict(key, "an absolute path where one of the others of tls.ca, tls.cert and tls.key is one")
        return self

    @property
    def given(self) -> bool:
        return bool(self.ca)


class Cluster(Section):
    listen: Bind | Literal[""] = setting(
        "",
        "Where the other sites reach this one, and it listens for them: a host that they can reach, and the first of a run of ports, one "
        "for each process: 1 + 2 x n_shards + gateway.count. Wanted with several sites.",
        allowed=LISTEN_ALLOWED,
    )
    secret: ClusterSecret = setting(
        ClusterSecret(""),
        f"Where the secret lies that all sites of the cluster share, at least {CLUSTER_SECRET_BYTES_MIN} bytes. Wanted with several sites.",
        allowed=SECRET_ALLOWED,
    )
    spread_leaders: Flag = setting(
        True,
        "Let each shard be led where the plan has it, so that all sites lead equally many: what a failure has moved goes back when that "
        "site has been well for half a minute, one shard at a time, in a part of a second each.",
        effect="at once",
    )
    tls: ClusterTls = setting(
        ClusterTls(), "TLS between sites, with a certificate at both ends. Wanted with several sites unless `listen` is a loopback address."
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if isinstance(self.listen, Bind) and (self.listen.port == 0 or _is_any(self.listen.host)):
            raise conflict("listen", "an address and a port that the other sites can dial, so neither port 0 nor all addresses")
        return self

    def wanting(self) -> tuple[str, str] | None:
        """The setting that several sites need and that has nothing, and what it takes then; None: they are all there."""
        if not isinstance(self.listen, Bind):
            return "listen", 'a host and a port at which the other sites reach this one, such as "10.0.0.1:7400",'
        if not self.secret:
            return "secret", '"file:///absolute/path" or "env:NAME", where the secret lies that all sites share,'
        if not self.tls.given and not is_loopback(self.listen.host):
            return "tls.ca", f"an absolute path, as tls.cert and tls.key do, since {self.listen} is no loopback address,"
        return None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def ports_of(n_shards: int, n_gateways: int) -> int:
    """How many ports a site takes, from that of `cluster.listen` on (actors.sites.whereabouts)."""
    return 1 + 2 * n_shards + n_gateways
