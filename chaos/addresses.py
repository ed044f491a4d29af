"""Where a broker is reached, and as whom.

`host:port`, `mqtt://host:port`, or `mqtts://host:port` for TLS; an IPv6 address stands in brackets.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

PORTS = {"mqtt": 1883, "mqtts": 8883}


class AddressUnknown(ValueError):
    """What was given is no address; one sentence."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises AddressUnknown."""
        scheme, separator, rest = text.partition("://")
        if not separator:
            scheme, rest = "mqtt", text
        host, colon, port = rest.rpartition(":")
        if not colon or rest.endswith("]"):
            host, port = rest, str(PORTS.get(scheme, ""))
        host = host.removeprefix("[").removesuffix("]")
        if scheme not in PORTS or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in rest:
            raise AddressUnknown(f"{text!r} is no address; wanted is host:port, mqtt://host:port or mqtts://host:port")
        return cls(host, int(port), scheme == "mqtts")


@dataclass(frozen=True, slots=True)
class Login:
    """addresses: of one broker; clients move from one to the next."""

    addresses: tuple[Address, ...]
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    trusted: str | None = None
    """Path of the certificates (PEM) that mqtts:// has to show; None: those that the system believes."""

    def context(self, address: Address) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.trusted) if address.tls else None
