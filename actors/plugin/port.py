"""What somebody writes who brings a plugin: a class with these coroutines, named `module:Class` in the settings.

    from access.asked import Asked
    from access.login import Login
    from actors.plugin.port import Verdict

Always holds: a plugin that raises, or is late, has said no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from access.asked import Asked
from access.identity import Grant
from access.login import Login
from mqtt.reason import ReasonCode


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who it is, or that nobody is let in.  user "": the name in CONNECT.  code: of a no, as MQTT 5 has it in CONNACK."""

    allow: bool
    user: str = ""
    groups: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    grants: tuple[Grant, ...] = ()
    code: int = ReasonCode.BAD_USER_NAME_OR_PASSWORD


class Plugin(Protocol):
    async def start(self, settings: Mapping[str, object]) -> None:
        """settings: its table in access.plugin.config_file."""

    async def login(self, login: Login) -> Verdict | None:
        """None: not one of its users; the next plugin is asked, and after the last it is a no."""

    async def may(self, asked: Asked) -> bool | None:
        """None: as above."""
