"""What somebody writes who brings a plugin: a class with these coroutines, named `module:Class` in the settings.

    from actors.plugin.port import Asked, Verdict
    from access.login import Login

Always holds: a plugin that raises, or is late, has said no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from access.identity import Grant, Identity
from access.login import Login
from mqtt.reason import ReasonCode

Action = Literal["publish", "subscribe", "receive"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who it is, or that nobody is let in.  user "": the name in CONNECT.  code: of a no, as MQTT 5 has it in CONNACK."""

    allow: bool
    user: str = ""
    groups: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    grants: tuple[Grant, ...] = ()
    code: int = ReasonCode.BAD_USER_NAME_OR_PASSWORD


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody wants to publish to a topic, to subscribe to a filter, or to be sent a message of a topic."""

    who: Identity
    client: str
    action: Action
    topic: str


class Plugin(Protocol):
    async def start(self, settings: Mapping[str, object]) -> None:
        """settings: its table in access.plugin.config_file."""

    async def login(self, login: Login) -> Verdict | None:
        """None: not one of its users; the next plugin is asked, and after the last it is a no."""

    async def may(self, asked: Asked) -> bool | None:
        """None: as above."""
