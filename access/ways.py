"""Which way somebody comes in: what CONNECT carries decides who is asked, once (docs/access.md, "Who may come in").

Leaves to others what is answered.  What always holds: there is one way for one CONNECT, and nobody else is asked after a no.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum

from access.login import Login
from access.scram import SCRAM_METHOD
from access.tokens import is_token
from mqtt.reason import ReasonCode


class Way(Enum):
    """How an identity is found; the values are those of `Identity.how`."""

    SCRAM = "scram"
    CERTIFICATE = "certificate"
    TOKEN = "jwt"
    PASSWORD = "password"
    PLUGIN = "plugin"
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Refused:
    """A no that nobody has to be asked for.  code: of MQTT 5.  cause: for people."""

    code: ReasonCode
    cause: str


@dataclass(frozen=True, slots=True)
class Ways:
    """Who can be asked.  users: the names in the password file; None: there is no such file.  anonymous: by listener, as settings say."""

    users: Container[str] | None = None
    tokens: bool = False
    plugin: bool = False
    anonymous: Mapping[str, str] = field(default_factory=dict)


def way_of(login: Login, ways: Ways) -> Way | Refused:
    if login.method is not None:
        if login.method == SCRAM_METHOD and ways.users is not None:
            return Way.SCRAM
        return Refused(ReasonCode.BAD_AUTHENTICATION_METHOD, "an authentication method that nobody here speaks")
    if login.takes_certificate and (login.names or login.serial):
        return Way.CERTIFICATE
    if ways.tokens and login.password is not None and is_token(login.password):
        return Way.TOKEN
    # With nobody else to ask, a user who is not there is looked up like one who is: he costs the same.
    if login.user is not None and ways.users is not None and (not ways.plugin or login.user in ways.users):
        return Way.PASSWORD
    if ways.plugin:
        return Way.PLUGIN
    if login.user is not None or login.password is not None:
        return Refused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "a user name or a password, and nobody who could tell whether it is right")
    return _nobody(login, ways)


def _nobody(login: Login, ways: Ways) -> Way | Refused:
    allowed = ways.anonymous.get(login.listener, "loopback")
    if allowed == "yes" or (allowed == "loopback" and login.loopback):
        return Way.ANONYMOUS
    return Refused(ReasonCode.NOT_AUTHORIZED, "anonymous, which its listener does not take from there")
