"""What a CONNECT shows of who it is, together with where it comes from: all that whoever answers for identities is told.

Of an authentication that is repeated on a connection that is there, the user name and the password are not known any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Login:
    """version: 3 (MQIsdp), 4 or 5.  user, password: as in CONNECT.  method, data: of authentication; without a method the data is empty.

    loopback: from this machine, to an address of it, without a proxy in between.  names: those of the client's certificate, of the kind
    that the listener takes.  serial: of that certificate, in hexadecimal.  takes_certificate: the listener takes names from certificates.
    """

    client: str
    version: int
    user: str | None
    password: bytes | None = field(repr=False)
    method: str | None
    data: bytes = field(repr=False)
    listener: str
    address: str
    loopback: bool
    names: tuple[str, ...]
    serial: str
    takes_certificate: bool
