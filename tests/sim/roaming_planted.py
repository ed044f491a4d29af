"""Faults of two session actors that serve one home, planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from gateway.core import GatewayCore
from sessions.core import SessionCore
from tests.sim.planted import OldTokenCommits, ReplacedOwnerGoesOn
from tests.sim.planting import Planted


class SupersededGoesOn(Planted):
    name = "a session actor goes on after it was superseded"

    def session(self, core: SessionCore) -> None:
        """What it hears of the newer owner means nothing to it; what it has attached stays so, and it commits under its old token."""

        def make(_: Any) -> Any:
            return lambda home: None

        self.replace(core._attaching, "replaced", make)


class MovedUnseen(Planted):
    name = "connections stay open when their session actor is another one"

    def gateway(self, core: GatewayCore) -> None:
        connecting: Any = core._connecting

        def kept(session: int) -> None:
            connecting._state.sessions_linked.pop(session, None)

        self.replace(connecting, "session_lost", lambda _: kept)


ALL: tuple[type[Planted], ...] = (SupersededGoesOn, MovedUnseen, ReplacedOwnerGoesOn, OldTokenCommits)
