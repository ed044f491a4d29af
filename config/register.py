"""Where it is recorded who leads each shard: the register (docs/replication.md).

Only declares, as `config.schema` does, of which this is the section `register`.
"""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import model_validator

from config.fields import Section, conflict, setting
from config.secrets import SECRET_ALLOWED, Secret
from config.values import Bind, Duration

ENDPOINTS_MAX = 16
ENDPOINTS_ALLOWED = f'a list of at most {ENDPOINTS_MAX} different addresses with a port, all with http:// or all with https://, such as ["https://etcd-1:2379"]'
ADDRESS_ALLOWED = 'a host and a port such as "10.0.0.1:7400" while single_point is "accepted" and there are no endpoints, else nothing'
_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_PATH_ALLOWED = "an absolute path or nothing"


class RegisterTls(Section):
    ca: str = setting(
        "",
        "Absolute path of the certificates (PEM) that have to have signed those of etcd. Empty: those that the system believes.",
        allowed=_PATH_ALLOWED,
    )
    cert: str = setting("", "Absolute path of the certificate (PEM) that etcd is shown, where it wants one.", allowed=_PATH_ALLOWED)
    key: str = setting("", "Absolute path of the key of that certificate (PEM).", allowed=_PATH_ALLOWED)

    @model_validator(mode="after")
    def _together(self) -> Self:
        for key in ("ca", "cert", "key"):
            path = getattr(self, key)
            if path and not (path.startswith("/") and "\0" not in path):
                raise conflict(key, _PATH_ALLOWED)
        if bool(self.cert) != bool(self.key):
            raise conflict("key" if self.cert else "cert", "a path where the other of tls.cert and tls.key is one, and nothing else")
        return self


class Register(Section):
    endpoints: tuple[str, ...] = setting(
        (),
        "Client addresses of the members of an etcd cluster, three of them for a cluster of sites. Empty: one copy in a file, on one site.",
        unit="addresses",
        allowed=ENDPOINTS_ALLOWED,
    )
    single_point: Literal["refused", "accepted"] = setting(
        "refused",
        "Whether several sites may have their register on one of them, when `endpoints` is empty. While that site is away, shards that "
        "have a leader go on, and none gets another one.",
    )
    address: Bind | Literal[""] = setting(
        "",
        "Where the site is reached that has the register, when several sites have it on one of them: what `cluster.listen` is there. The "
        "same on all sites, that one included.",
        allowed=ADDRESS_ALLOWED,
    )
    prefix: str = setting(
        "/holdfast/",
        "What the keys in etcd begin with, so that several clusters can share one etcd. A user of etcd needs to read and write these keys.",
        pattern=r"^/[A-Za-z0-9._/-]{0,254}/$|^/$",
        allowed="1 to 256 letters, digits and _ . - / that begin and end with /",
    )
    username: str = setting("", "The user of etcd, where it wants one.", pattern=r"^[^\x00]{0,256}$", allowed="at most 256 characters")
    password: Secret = setting(Secret(""), "Where the password of that user lies.", allowed=SECRET_ALLOWED)
    request_timeout: Duration = setting(
        Duration.parse("2s"),
        "How long one request to one endpoint may take. A read goes on to the next endpoint then; a change whose answer has not come is "
        "looked up before anything else is tried.",
        ge=100,
        le=60_000,
    )
    tls: RegisterTls = setting(RegisterTls(), "For endpoints with https://.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        schemes = {endpoint.partition(":")[0] for endpoint in self.endpoints}
        good = all(_ENDPOINT.fullmatch(endpoint) and int(endpoint.rpartition(":")[2]) <= 65535 for endpoint in self.endpoints)
        if not good or len(schemes) > 1 or len(set(self.endpoints)) != len(self.endpoints) or len(self.endpoints) > ENDPOINTS_MAX:
            raise conflict("endpoints", ENDPOINTS_ALLOWED)
        if (self.tls.ca or self.tls.cert) and schemes != {"https"}:
            raise conflict("endpoints", "addresses with https:// while register.tls has certificates")
        if self.address and (self.endpoints or self.single_point != "accepted"):
            raise conflict("address", ADDRESS_ALLOWED)
        if bool(self.username) != bool(self.password):
            raise conflict("password" if self.username else "username", "a value where the other of username and password has one")
        return self

    def stands_for(self, sites: int) -> bool:
        """Whether so many sites may have it."""
        return sites == 1 or bool(self.endpoints) or self.single_point == "accepted"


def standing(register: Register, sites: int) -> str:
    """Where the register is, and what hangs on it, for `holdfast status`."""
    if register.endpoints:
        losing = (len(register.endpoints) - 1) // 2
        if losing == 0:
            return f"register: etcd, {len(register.endpoints)} endpoints: while one is away, no shard gets another leader"
        return f"register: etcd, {len(register.endpoints)} endpoints"
    if sites == 1:
        return "register: in a file of this site"
    return f"register: in a file of one site of {sites}, a single point: while it is away, no shard gets another leader"
