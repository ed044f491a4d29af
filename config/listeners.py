"""Where clients connect, and what one listener lets a peer cost (docs/listeners.md).

`listeners.tcp` is always there; every other table of `[listeners]` is a listener of the name that its author gave it. Only declares, and
checks what belongs to one listener or to all of them; the limits of the gateway are looked at in `config.schema`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from config.fields import Flag, Section, Whole, conflict, setting
from config.secrets import SECRET_ALLOWED, Secret
from config.values import INFINITY, Bind, Count, Duration, Size

Texts = tuple[str, ...]

LISTENERS_MAX = 32
TCP = "tcp"
"""The name of the listener that is always there."""
PATH_BYTES_MAX = 100
_NETWORKS_ALLOWED = 'a list of networks, such as ["10.0.0.0/8", "fd00::/8"]'
_ORIGINS_ALLOWED = 'a list of origins, such as ["https://example.org"], or ["*"] for anywhere'
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@\\]+")
_ENCRYPTED = ("tls", "wss")
_FILES_WHY = "Read again when it changes."


class Tls(Section):
    cert: str = setting(
        "",
        f"Absolute path of the certificate chain (PEM) that is shown. {_FILES_WHY}",
        allowed="an absolute path or nothing",
        effect="at once",
    )
    key: str = setting(
        "", f"Absolute path of the key of that certificate (PEM). {_FILES_WHY}", allowed="an absolute path or nothing", effect="at once"
    )
    key_password: Secret = setting(
        Secret(""), "Where the password of that key lies, if it has one.", allowed=SECRET_ALLOWED, effect="at once"
    )
    client_certificate: Literal["none", "optional", "required"] = setting(
        "none", "Whether clients are asked for a certificate, and whether they need one.", effect="at once"
    )
    ca: str = setting(
        "",
        f"Absolute path of the certificates (PEM) that have to have signed those of clients. {_FILES_WHY}",
        allowed="an absolute path or nothing",
        effect="at once",
    )
    crl: str = setting(
        "",
        "Absolute path of the lists (PEM) of certificates that are revoked. A new one also ends connections that are there.",
        allowed="an absolute path or nothing",
        effect="at once",
    )
    version_min: Literal["1.2", "1.3"] = setting("1.2", "The oldest version of TLS that is spoken.", effect="at once")
    handshake_timeout: Duration = setting(
        Duration.parse("5s"), "How long the handshake may take, within `gateway.connect_timeout`.", ge=100, le=60_000, effect="at once"
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        for key in ("cert", "key", "ca", "crl"):
            path = getattr(self, key)
            if path and not (path.startswith("/") and "\0" not in path):
                raise conflict(key, "an absolute path or nothing")
        if bool(self.cert) != bool(self.key):
            raise conflict("key" if self.cert else "cert", "a path where the other of tls.cert and tls.key is one, and nothing else")
        if self.client_certificate != "none" and not self.ca:
            raise conflict("ca", f'an absolute path while tls.client_certificate is "{self.client_certificate}"')
        if self.crl and self.client_certificate == "none":
            raise conflict("crl", 'nothing while tls.client_certificate is "none", as nobody shows a certificate')
        return self


class WebSocket(Section):
    path: str = setting(
        "/mqtt", "The path that clients ask for.", pattern=r"^/[!-~]{0,200}$", allowed='a path such as "/mqtt"', effect="at once"
    )
    origins: Texts = setting(
        (),
        "Pages of which sites browsers may connect from, besides those of the very host they connect to. Programs that are no browser name "
        "none and are not asked.",
        unit="origins",
        allowed=_ORIGINS_ALLOWED,
        effect="at once",
    )

    @model_validator(mode="after")
    def _texts(self) -> Self:
        if any(origin != "*" and not _ORIGIN.fullmatch(origin) for origin in self.origins):
            raise conflict("origins", _ORIGINS_ALLOWED)
        return self


class Listener(Section):
    type: Literal["tcp", "tls", "ws", "wss", "unix"] = setting(
        "tcp", "What clients speak: plain TCP, TLS, WebSocket without and with TLS, or TCP's place taken by a unix socket."
    )
    enable: Flag = setting(True, "Listen at all.")
    bind: Bind | None = setting(
        None,
        "Where all gateways listen together; needed unless `type` is unix. Port 0 takes a free port; `holdfast status` says which.",
        allowed='an address such as "127.0.0.1:8883" or "[::1]:8883"',
    )
    path: str = setting(
        "",
        "Of unix: where the socket is. The first gateway listens at this path, the second one at the same with `.1` behind it, and so on.",
        allowed=f"an absolute path of at most {PATH_BYTES_MAX} bytes",
    )
    mode: str = setting(
        "0660",
        "Of unix: permissions of the socket; whoever may write to it may connect.",
        pattern=r"^0[0-7]{3}$",
        allowed='four octal digits such as "0660"',
    )
    backlog: Whole = setting(
        1024,
        "Connections that the kernel holds until a gateway takes them. A thousand clients that reconnect at once fit.",
        unit="connections",
        ge=1,
        le=65535,
    )
    connections_max: Whole = setting(
        100_000,
        "Connections of one gateway; further ones are closed at once. The limit of open files may be lower and is raised as far "
        "as the system allows.",
        unit="connections per gateway",
        ge=1,
        le=10_000_000,
        effect="at once",
    )
    connections_per_address_max: Count = setting(
        Count(INFINITY),
        "Connections of one gateway from one address; further ones are closed at once. Many clients may be behind one address, so there "
        "is no limit by default.",
        unit="connections per gateway",
        ge=1,
        effect="at once",
    )
    connect_rate: Count = setting(
        Count(INFINITY),
        "New connections a second of one gateway; the rest waits in the backlog.",
        unit="connections a second",
        ge=1,
        effect="at once",
    )
    connect_rate_per_address: Count = setting(
        Count(INFINITY),
        "New connections a second of one gateway from one address; further ones are closed at once.",
        unit="connections a second",
        ge=1,
        effect="at once",
    )
    message_rate: Count = setting(
        Count(INFINITY),
        "Messages a second that one client may publish; a second's worth may come at once. Who sends more is read more slowly, and nothing "
        "is dropped.",
        unit="messages a second",
        ge=1,
        effect="at once",
    )
    byte_rate: Size = setting(
        Size(INFINITY), "Bytes a second that one client may publish, topics included, as `message_rate`.", ge=1024, effect="at once"
    )
    packet_bytes_max: Size = setting(
        Size(INFINITY),
        "Largest MQTT packet that comes in here, where it shall be less than `gateway.packet_bytes_max`. infinity: the same.",
        ge=1024,
        effect="at once",
    )
    anonymous: Literal["loopback", "yes", "no"] = setting(
        "loopback",
        "Who may come in without saying who he is. loopback: who connects from this machine to an address of this machine, and not by way "
        "of a proxy. Anybody else has to have a password, a token or a certificate.",
        effect="at once",
    )
    identity: Literal["none", "cn", "san_dns", "san_uri", "san_email"] = setting(
        "none", "Which name in a client's certificate is the name of the user.", effect="at once"
    )
    zone: str = setting(
        "",
        "The zone that connections by this listener are in, as if `listeners` of that zone named it. Empty: none by this listener alone.",
        pattern=r"^[A-Za-z0-9_-]{0,64}$",
        allowed="the name of a zone that there is, or nothing",
        effect="at once",
    )
    proxy: Literal["off", "v1", "v2", "any"] = setting(
        "off", "Whether a proxy stands in front and says for whom it speaks, and in which version of its protocol.", effect="at once"
    )
    proxy_from: Texts = setting(
        (),
        "Networks whose proxies are believed; everybody else is refused where `proxy` is on.",
        unit="networks",
        allowed=_NETWORKS_ALLOWED,
        effect="at once",
    )
    tls: Tls = setting(Tls(), "For tls and wss.")
    ws: WebSocket = setting(WebSocket(), "For ws and wss.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if any(not _is_network(text) for text in self.proxy_from):
            raise conflict("proxy_from", _NETWORKS_ALLOWED)
        if self.type == "unix":
            self._check_unix()
        elif self.bind is None:
            raise conflict("bind", 'an address such as "127.0.0.1:8883", unless type is "unix"')
        if self.type in _ENCRYPTED and not self.tls.cert:
            raise conflict("tls.cert", f'an absolute path while type is "{self.type}"')
        if self.type not in _ENCRYPTED and (self.tls.cert or self.tls.client_certificate != "none"):
            # Whoever gave one believes that the listener is encrypted.
            raise conflict("type", '"tls" or "wss" where tls.cert or tls.client_certificate are given')
        if self.identity != "none" and self.tls.client_certificate == "none":
            raise conflict("identity", '"none" while tls.client_certificate is "none", as no client shows a certificate')
        if self.proxy != "off" and not self.proxy_from:
            raise conflict("proxy_from", f'{_NETWORKS_ALLOWED}, and not an empty one while proxy is "{self.proxy}"')
        return self

    def _check_unix(self) -> None:
        if not self.path.startswith("/") or "\0" in self.path or len(self.path.encode(errors="replace")) > PATH_BYTES_MAX:
            raise conflict("path", f'an absolute path of at most {PATH_BYTES_MAX} bytes while type is "unix"')
        if self.proxy != "off":
            raise conflict("proxy", '"off" while type is "unix", as its peers have no address that could be believed')


class TcpListener(Listener):
    bind: Bind = setting(
        Bind("127.0.0.1:1883"),
        "Where all gateways listen together. Only this machine by default: opening the broker to a network is a decision to take, not a "
        "default to overlook. Port 0 takes a free port; `holdfast status` says which.",
    )


class Listeners(Section):
    # Tables that are no field are listeners of that name; pydantic reads them as the type below says, and writes them as they came.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Listener] = Field(init=False)

    tcp: TcpListener = setting(TcpListener(), "The listener that is always there.")

    @property
    def named(self) -> dict[str, Listener]:
        """All but `tcp`, in the order of the file."""
        return self.__pydantic_extra__

    def all(self) -> Iterator[tuple[str, Listener]]:
        """Each with its name."""
        yield TCP, self.tcp
        yield from self.named.items()

    @model_validator(mode="after")
    def _apart(self) -> Self:
        taken: dict[str, str] = {}
        for name, listener in self.all():
            key, place = ("path", listener.path) if listener.type == "unix" else ("bind", str(listener.bind))
            if not listener.enable or place.endswith(":0"):
                continue
            if place in taken:
                raise conflict(f"{name}.{key}", f"something else than listeners.{taken[place]}, as one of them could not listen")
            taken[place] = name
        return self


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "%" not in text
